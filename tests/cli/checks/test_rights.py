from __future__ import annotations

from typing import Any

import pytest

from cli.checks.reader import Finding, Level, Reader
from cli.checks.rights import check_rights, shipped
from tests.cli.checks.told import Told
from tests.kai.rights import objects

pytestmark = pytest.mark.thorough

Object = dict[str, Any]

ROOT = "/apis/rbac.authorization.k8s.io/v1"
BIND: Object = {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}


def _role(name: str, *rules: Object) -> Object:
    return {"metadata": {"name": name}, "rules": list(rules)}


def _binding(subject: Object, role: str, *, namespace: str = "", name: str = "some") -> Object:
    reference = {"kind": "ClusterRole", "name": role}
    return {"metadata": {"name": name, "namespace": namespace}, "roleRef": reference, "subjects": [subject]}


async def _found(role: Object, binding: Object) -> list[Finding]:
    is_everywhere = not binding["metadata"]["namespace"]
    answers: dict[str, list[Object]] = {
        "clusterroles": [role],
        "roles": [],
        "clusterrolebindings": [binding] if is_everywhere else [],
        "rolebindings": [] if is_everywhere else [binding],
    }
    told = Told({f"{ROOT}/{plural}": {"items": items} for plural, items in answers.items()})
    return [finding for finding in await check_rights(Reader(told)) if finding.level is not Level.OK]


@pytest.mark.parametrize(
    ("subject", "level"),
    [
        ({"kind": "ServiceAccount", "namespace": "team", "name": "t"}, Level.WARNING),
        ({"kind": "User", "name": "system:serviceaccount:team:t"}, Level.WARNING),
        ({"kind": "Group", "name": "system:serviceaccounts:team"}, Level.WARNING),
        ({"kind": "User", "name": "eve"}, Level.WARNING),
        ({"kind": "Group", "name": "system:serviceaccounts"}, Level.FAILED),
        ({"kind": "Group", "name": "system:authenticated"}, Level.FAILED),
        ({"kind": "User", "name": "system:serviceaccount:kube-system:x"}, None),
        ({"kind": "Group", "name": "system:serviceaccounts:kube-system"}, None),
        ({"kind": "User", "name": "system:kube-scheduler"}, None),
        ({"kind": "ServiceAccount", "namespace": "kai-scheduler", "name": "moorage-check"}, None),
        ({"kind": "ServiceAccount", "namespace": "team", "name": "moorage-check"}, Level.WARNING),
    ],
    ids=lambda value: value.get("name") if isinstance(value, dict) else None,
)
@pytest.mark.parametrize("namespace", ["", "team"])
async def test_who_is_trusted_however_they_are_said(subject: Object, level: Level | None, namespace: str) -> None:
    found = await _found(_role("r", BIND), _binding(subject, "r", namespace=namespace))
    assert [finding.level for finding in found] == ([level] if level else [])
    assert all(finding.said.startswith("may bind pods: ") for finding in found)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]}, "take our identities by workloads"),
        ({"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["patch"]}, "take our identities by workloads"),
        ({"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": ["create"]}, "take our identities by jobs"),
        ({"apiGroups": [""], "resources": ["pods"], "verbs": ["update"]}, "take our identities"),
        ({"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}, "take our identities"),
        (
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": ["create"]},
            "give rights in our namespace",
        ),
    ],
)
async def test_every_way_to_our_identities_is_told(rule: Object, said: str) -> None:
    eve = {"kind": "User", "name": "eve"}
    (finding,) = await _found(_role("r", rule), _binding(eve, "r", namespace="kai-scheduler"))
    assert (finding.level, finding.said) == (Level.WARNING, f"may {said}: User eve (in kai-scheduler)")
    assert await _found(_role("r", rule), _binding(eve, "r", namespace="team")) == []


@pytest.mark.parametrize(
    "subject",
    [
        {"kind": "ServiceAccount", "namespace": "kai-scheduler", "name": "moorage-binder"},
        {"kind": "User", "name": "system:serviceaccount:kai-scheduler:moorage-binder"},
    ],
    ids=["account", "user"],
)
async def test_a_binding_that_is_called_like_ours_is_known_by_what_it_gives(subject: Object) -> None:
    (finding,) = await _found(_role("admin"), _binding(subject, "admin", name="moorage-binder"))
    assert (finding.level, finding.said) == (
        Level.WARNING,
        "our components have rights that they don't use: "
        "ServiceAccount kai-scheduler/moorage-binder by ClusterRoleBinding moorage-binder",
    )
    assert await _found(_role("moorage-binder"), _binding(subject, "moorage-binder", name="other-name")) == []


async def test_a_role_of_ours_that_was_widened_is_told() -> None:
    rules = shipped().roles["ClusterRole", "", "moorage-binder"]
    subject = {"kind": "ServiceAccount", "namespace": "kai-scheduler", "name": "moorage-binder"}
    binding = _binding(subject, "moorage-binder")
    assert await _found(_role("moorage-binder", *rules[1:]), binding) == []
    wider = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    (finding,) = await _found(_role("moorage-binder", *rules, wider), binding)
    assert finding.said == (
        "our components have rights that they don't use: ClusterRole moorage-binder has further rules"
    )


async def test_rights_that_a_stopped_kai_leaves_are_one_warning_and_those_of_others_stay() -> None:
    left = objects()
    roles = [each for each in left if each["kind"] == "ClusterRole"]
    bindings = [each for each in left if each["kind"] == "ClusterRoleBinding"]
    eve = _binding({"kind": "User", "name": "eve"}, "kai-binder", name="eves")

    async def warnings(*more: Object) -> list[str]:
        answers = {"clusterroles": roles, "roles": [], "clusterrolebindings": [*bindings, *more], "rolebindings": []}
        told = Told({f"{ROOT}/{plural}": {"items": items} for plural, items in answers.items()})
        return [each.said for each in await check_rights(Reader(told)) if each.level is Level.WARNING]

    (said,) = await warnings()
    assert said.startswith("KAI's accounts have rights that nobody needs while it is stopped: ServiceAccount kai-sched")
    assert all(what in said for what in ("bind pods", "write BindRequests", "read our Secrets", "change admission"))
    with_eve = await warnings(eve)
    assert "may bind pods: User eve" in with_eve
    assert said in with_eve
