"""``moorage check`` on a real control plane: content with a proper deployment, finding each thing that is broken."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from admission.policies import policy_manifests
from cli.checks import command
from cli.checks.reader import Finding, Level, Reader
from cli.commands import program_parser
from kube.client import config
from kube.client.clock import SystemClock
from kube.client.http import HttpTransport
from tests.e2e.cluster import PATIENCE_S, eventually
from tools.cluster.deployment import ADMISSION, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WEBHOOKS = f"{REGISTRATION}/mutatingwebhookconfigurations/moorage-pods"
VALIDATION = f"{REGISTRATION}/validatingwebhookconfigurations/moorage-pods"
RESERVATIONS = f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}"
#: Short, so that a leader that is gone is soon missed; on a busy machine three seconds without a renewal mean nothing.
LEASE = ["--lease-duration-s", "8", "--lease-renew-deadline-s", "6", "--lease-renew-s", "0.5", "--lease-poll-s", "0.5"]
POLICIES = [one["metadata"]["name"] for one in policy_manifests() if one["kind"] == "ValidatingAdmissionPolicy"]
ENFORCED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of their own: much is broken here."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="module")
def deployed(plane: ControlPlane) -> Iterator[Deployment]:
    with Deployment(plane, Options(arguments={"scheduler": LEASE, "binder": LEASE})) as deployment:
        for name in ("default", names.RESERVATION_NAMESPACE):
            patch(plane, f"/api/v1/namespaces/{name}", ENFORCED)
        yield deployment


@pytest.fixture
async def reader(plane: ControlPlane, deployed: Deployment, tmp_path: Path) -> AsyncIterator[Reader]:
    async with HttpTransport(_credentials(plane, tmp_path, plane.token)) as transport:
        yield Reader(transport)


def _credentials(plane: ControlPlane, folder: Path, token: str) -> config.Credentials:
    (folder / "ca.pem").write_text(plane.ca_pem)
    return config.plain(plane.url, ca_file=str(folder / "ca.pem"), token=token)


def patch(plane: ControlPlane, path: str, change: Any) -> None:
    """A merge patch, made of a read and a write."""
    there = plane.rest().call("GET", path)
    plane.rest().call("PUT", path, _merged(there, change))


def _merged(old: Any, change: Any) -> Any:
    if not isinstance(change, dict) or not isinstance(old, dict):
        return change
    merged = {**old, **{key: _merged(old.get(key, {}), value) for key, value in change.items()}}
    return {key: value for key, value in merged.items() if value is not None}


@asynccontextmanager
async def changed(plane: ControlPlane, path: str, change: Any) -> AsyncIterator[None]:
    """An object that is different for a while; ``None``: it is not there."""
    collection, rest = path.rpartition("/")[0], plane.rest()
    before = rest.call("GET", path)
    if change is None:
        rest.call("DELETE", path)
        await eventually(lambda: _is_gone(plane, path), f"{path} to go", within_s=PATIENCE_S)
    else:
        patch(plane, path, change)
    yield
    if change is None:
        fresh = copy.deepcopy(before)
        for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
            fresh["metadata"].pop(field, None)
        rest.call("POST", collection, fresh)
    else:
        now = rest.call("GET", path)
        before["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
        rest.call("PUT", path, before)


async def _is_gone(plane: ControlPlane, path: str) -> bool | None:
    return plane.rest().send("GET", path, None)[0] == 404 or None


async def found(reader: Reader, *wanted: str) -> list[Finding]:
    known = command.checks(runtime_class="nvidia", clock=SystemClock())
    return await command.look(reader, {name: known[name] for name in wanted})


def _said(findings: list[Finding], level: Level) -> list[str]:
    assert all(finding.do for finding in findings if finding.level is not Level.OK)
    return [finding.said for finding in findings if finding.level is level]


async def _run(plane: ControlPlane, folder: Path, *, token: str, form: str) -> int:
    (folder / "ca.pem").write_text(plane.ca_pem)
    (folder / "token").write_text(token)
    where = ["--server", plane.url, "--ca-file", str(folder / "ca.pem"), "--token-file", str(folder / "token")]
    return await command.run(program_parser().parse_args(["check", "-o", form, *where]))


async def test_a_proper_deployment_passes(
    plane: ControlPlane, reader: Reader, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await eventually(lambda: _passes(reader, "leaders"), "somebody to lead", within_s=PATIENCE_S)
    await eventually(lambda: _passes(reader, "trials"), "the API server to follow new policies", within_s=PATIENCE_S)
    assert await _run(plane, tmp_path, token=plane.token, form="json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["failed"] == 0
    assert {finding["check"] for finding in told["findings"]} >= {
        "version",
        "policies",
        "webhooks",
        "trials",
        "leaders",
    }
    in_force = [one["said"] for one in told["findings"] if one["check"] == "policies"]
    assert len(in_force) == len(POLICIES)
    # The simulated nodes' account, which tools/cluster/deployment.py lets end reservation pods, as kubelets do.
    warnings = [one["said"] for one in told["findings"] if one["level"] == "warning"]
    assert [said for said in warnings if "moorage-reservations lets further users through" not in said] == []
    assert await _run(plane, tmp_path, token=plane.token, form="lines") == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == f"{len(told['findings']) - len(warnings)} ok, {len(warnings)} warning, 0 failed"
    assert sum(line.startswith("ok ") for line in lines) == len(told["findings"]) - len(warnings)


async def test_who_may_not_look_is_told_and_fails(
    plane: ControlPlane, deployed: Deployment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = plane.service_account_token("default", "default")
    assert await _run(plane, tmp_path, token=token, form="lines") == 1
    out = capsys.readouterr().out
    assert "failed   policies: could not be looked at: GET /apis/admissionregistration.k8s.io" in out
    assert "failed   trials: could not be looked at: POST /api/v1/namespaces/default/pods: " in out


NARROWED = {"matchResources": {"namespaceSelector": {"matchLabels": {"guarded": "yes"}}}}
LEFT_OUT = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["pods/status"]}
#: What is broken -> where, how, which check has to find it, and what it says.
BROKEN: dict[str, tuple[str, Any, str, str]] = {
    "policy-gone": (
        f"{REGISTRATION}/validatingadmissionpolicies/moorage-protected-keys",
        None,
        "policies",
        "moorage-protected-keys is not there",
    ),
    "policy-ignores": (
        f"{REGISTRATION}/validatingadmissionpolicies/moorage-fixed-asks",
        {"spec": {"failurePolicy": "Ignore"}},
        "policies",
        "moorage-fixed-asks lets through what it can't judge (failurePolicy is Ignore; allowed: Fail)",
    ),
    "policy-altered": (
        f"{REGISTRATION}/validatingadmissionpolicies/moorage-queues",
        {"spec": {"validations": [{"expression": "true"}]}},
        "policies",
        "moorage-queues is not the one of this version: validations",
    ),
    "policy-asked-less": (
        f"{REGISTRATION}/validatingadmissionpolicies/moorage-config-maps",
        {"spec": {"matchConstraints": {"objectSelector": {"matchLabels": {"a": "b"}}}}},
        "policies",
        "moorage-config-maps is not the one of this version: matchConstraints",
    ),
    "policy-leaves-out-a-sub-resource": (
        f"{REGISTRATION}/validatingadmissionpolicies/moorage-protected-keys",
        {"spec": {"matchConstraints": {"excludeResourceRules": [LEFT_OUT]}}},
        "policies",
        "moorage-protected-keys is not the one of this version: matchConstraints",
    ),
    "binding-gone": (
        f"{REGISTRATION}/validatingadmissionpolicybindings/moorage-hand-over",
        None,
        "policies",
        "moorage-hand-over is in force nowhere",
    ),
    "binding-warns": (
        f"{REGISTRATION}/validatingadmissionpolicybindings/moorage-hand-over",
        {"spec": {"validationActions": ["Warn"]}},
        "policies",
        "moorage-hand-over is in force nowhere",
    ),
    "binding-narrowed": (
        f"{REGISTRATION}/validatingadmissionpolicybindings/moorage-reservations",
        {"spec": NARROWED},
        "policies",
        "moorage-reservations is in force nowhere, or in a part of the cluster only",
    ),
    "mutation-gone": (WEBHOOKS, None, "webhooks", "no mutatingwebhookconfigurations has pods.admission.moorage.dev"),
    "validation-gone": (VALIDATION, None, "webhooks", "no validatingwebhookconfigurations has pods.admission"),
    "runtime-class-gone": (
        "/apis/node.k8s.io/v1/runtimeclasses/nvidia",
        None,
        "runtime class",
        "RuntimeClass nvidia is not there",
    ),
    "kind-gone": (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/topologies.kai.scheduler",
        None,
        "kinds",
        "not served: topologies.kai.scheduler",
    ),
    "guard-malformed": (
        "/api/v1/namespaces/default",
        {"metadata": {"labels": {names.VISIBLE_DEVICES_GUARD: "perhaps"}}},
        "namespaces",
        f"{names.VISIBLE_DEVICES_GUARD} can't be understood in default",
    ),
}


@pytest.mark.parametrize(("path", "change", "check", "said"), BROKEN.values(), ids=BROKEN)
async def test_what_is_broken_fails(
    plane: ControlPlane, reader: Reader, path: str, change: Any, check: str, said: str
) -> None:
    async with changed(plane, path, change):

        async def is_found() -> bool | None:
            return any(said in one for one in _said(await found(reader, check), Level.FAILED)) or None

        await eventually(is_found, f"{check} to say {said!r}", within_s=PATIENCE_S)
    await eventually(lambda: _passes(reader, check), f"{check} to pass again", within_s=PATIENCE_S)


async def _passes(reader: Reader, check: str) -> bool | None:
    return _said(await found(reader, check), Level.FAILED) == [] or None


HOOKS: list[tuple[str, Any, str]] = [
    ("failurePolicy", "Ignore", "failurePolicy is Ignore; allowed: Fail"),
    ("objectSelector", {"matchLabels": {"a": "b"}}, "objectSelector leaves pods out by their labels"),
    ("matchConditions", [{"name": "none", "expression": "false"}], "matchConditions are not those of this version"),
    ("rules", [], "not asked about CREATE pods"),
]


@pytest.mark.parametrize(("field", "value", "said"), HOOKS)
@pytest.mark.parametrize("path", [WEBHOOKS, VALIDATION])
async def test_a_webhook_that_lets_something_by_fails(
    plane: ControlPlane, reader: Reader, path: str, field: str, value: Any, said: str
) -> None:
    (hook,) = plane.rest().call("GET", path)["webhooks"]
    async with changed(plane, path, {"webhooks": [{**hook, field: value}]}):
        (failed,) = _said(await found(reader, "webhooks"), Level.FAILED)
        assert said in failed


async def test_a_webhook_that_is_not_asked_somewhere_is_told(plane: ControlPlane, reader: Reader) -> None:
    (hook,) = plane.rest().call("GET", WEBHOOKS)["webhooks"]
    hook["namespaceSelector"]["matchExpressions"].append({"key": "free", "operator": "DoesNotExist"})
    patch(plane, "/api/v1/namespaces/default", {"metadata": {"labels": {"free": "yes"}}})
    async with changed(plane, WEBHOOKS, {"webhooks": [hook]}):
        (warned,) = _said(await found(reader, "webhooks"), Level.WARNING)
        assert "is not asked in default: shares don't run there" in warned
    patch(plane, "/api/v1/namespaces/default", {"metadata": {"labels": {"free": None}}})


async def test_a_ca_that_ends_is_told_before_and_fails_after(
    plane: ControlPlane, reader: Reader, deployed: Deployment
) -> None:
    class Later:
        def __init__(self, days: int) -> None:
            self.days = days

        def now_ns(self) -> int:
            return SystemClock().now_ns() + self.days * 86_400 * 1_000_000_000

    for days, level in ((300, Level.OK), (350, Level.WARNING), (366, Level.FAILED)):
        known = command.checks(runtime_class="nvidia", clock=Later(days))
        findings = await command.look(reader, {"webhooks": known["webhooks"]})
        assert {finding.level for finding in findings} == {level}
        assert all("the CA of " in finding.said for finding in findings if level is not Level.OK)


#: Which policy is bound nowhere -> what gets in.
GATES = {
    "moorage-protected-keys": "a forged group label is let in",
    "moorage-reservations": "a reservation pod that is none of ours is let in",
    "moorage-hand-over": "a BindRequest that is none of ours is let in",
    "moorage-config-maps": "a ConfigMap that names a container's devices is let in",
}


async def test_trials_show_what_gets_in(plane: ControlPlane, reader: Reader) -> None:
    async with AsyncExitStack() as broken:
        for policy in GATES:
            path = f"{REGISTRATION}/validatingadmissionpolicybindings/{policy}"
            await broken.enter_async_context(changed(plane, path, None))
        # The API server takes a moment to see it.
        await eventually(lambda: _fails(reader, set(GATES.values())), "the trials to fail", within_s=PATIENCE_S)
    await eventually(lambda: _fails(reader, set()), "the trials to pass", within_s=PATIENCE_S)


async def _fails(reader: Reader, expected: set[str]) -> bool | None:
    return set(_said(await found(reader, "trials"), Level.FAILED)) == expected or None


async def test_trials_show_that_the_webhooks_do_not_answer(
    plane: ControlPlane, reader: Reader, deployed: Deployment
) -> None:
    deployed.kill(ADMISSION)
    refused, chooser, other = _said(await found(reader, "trials"), Level.FAILED)
    assert f"a pod that sets {names.ENV_VISIBLE_DEVICES}=all is refused by a failed webhook call: " in chooser
    assert "a pod that asks for a share was refused: " in refused
    assert "failed calling webhook" in refused
    assert "a malformed ask for a share is refused for another reason: " in other
    deployed.start(ADMISSION)
    await eventually(lambda: _fails(reader, set()), "the webhooks to answer", within_s=PATIENCE_S)


async def test_trials_show_that_a_share_is_not_handed_over(plane: ControlPlane, reader: Reader) -> None:
    async with changed(plane, WEBHOOKS, None):
        said = "a share is not handed over: the mutating webhook was not asked"
        await eventually(lambda: _fails(reader, {said}), "the trial to fail", within_s=PATIENCE_S)
    await eventually(lambda: _fails(reader, set()), "the trials to pass", within_s=PATIENCE_S)


async def test_trials_are_no_alarm_where_a_namespace_is_narrowed(plane: ControlPlane, reader: Reader) -> None:
    narrowed = {"metadata": {"annotations": {names.QUEUES: "team-a"}, "labels": {names.VISIBLE_DEVICES_GUARD: "off"}}}
    async with changed(plane, "/api/v1/namespaces/default", narrowed):

        async def is_told() -> bool | None:
            findings = await found(reader, "trials")
            assert _said(findings, Level.FAILED) == []
            warned = _said(findings, Level.WARNING)
            return (
                len([one for one in warned if "others refused it first" in one and "moorage-queues" in one]) == 2
                or None
            )

        await eventually(is_told, "the queues to refuse", within_s=PATIENCE_S)
    await eventually(lambda: _fails(reader, set()), "the trials to pass", within_s=PATIENCE_S)


async def test_a_leader_that_is_gone_or_stopped_is_found(
    plane: ControlPlane, reader: Reader, deployed: Deployment
) -> None:
    deployed.pause(SCHEDULER)
    (stopped,) = _said(await found(reader, "leaders"), Level.FAILED)
    assert stopped.startswith("moorage-scheduler: ")
    assert stopped.endswith("has not renewed its lease for 8 s")
    deployed.kill(SCHEDULER)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases/moorage-scheduler"
    plane.rest().call("DELETE", path)
    (gone,) = _said(await found(reader, "leaders"), Level.WARNING)
    assert gone == "moorage-scheduler: nobody has ever held its lease: it runs without election, or not at all"
    deployed.start(SCHEDULER)
    await eventually(lambda: _passes(reader, "leaders"), "somebody to lead", within_s=PATIENCE_S)


TENANT = {"kind": "ServiceAccount", "name": "tenant", "namespace": "team"}
EVERYBODY = {"kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io"}
#: In which namespace ("": everywhere) which rule is given, and what is reported of its holder.
RIGHTS: list[tuple[str, Object, str]] = [
    (names.RESERVATION_NAMESPACE, {"resources": ["pods"], "verbs": ["patch"]}, "write reservation pods"),
    ("", {"resources": ["*"], "verbs": ["*"]}, "write reservation pods"),
    (names.SCALE_ADJUST_NAMESPACE, {"resources": ["pods"], "verbs": ["create"]}, "write scaling pods"),
    (names.RESERVATION_NAMESPACE, {"resources": ["pods/exec"], "verbs": ["create"]}, "enter reservation pods"),
    (names.RESERVATION_NAMESPACE, {"resources": ["*/exec"], "verbs": ["create"]}, "enter reservation pods"),
    ("", {"resources": ["serviceaccounts/token"], "verbs": ["create"]}, "take a reservation's identity"),
    (
        names.NODE_NAMESPACE,
        {"resources": ["serviceaccounts/token"], "verbs": ["create"]},
        "take a node agent's identity",
    ),
    (names.SYSTEM_NAMESPACE, {"resources": ["pods"], "verbs": ["create"]}, "take our identities"),
    ("", {"resources": ["users"], "verbs": ["impersonate"]}, "impersonate others"),
    (names.SYSTEM_NAMESPACE, {"resources": ["secrets"], "verbs": ["get"]}, "read our Secrets"),
    ("default", {"resources": ["pods/binding"], "verbs": ["create"]}, "bind pods"),
    ("default", {"resources": ["pods/status"], "verbs": ["patch"]}, "write the status of pods"),
    (
        "default",
        {"apiGroups": [names.SCHEDULING_GROUP], "resources": ["bindrequests"], "verbs": ["*"]},
        "write BindRequests",
    ),
    ("", {"resources": ["nodes/status"], "verbs": ["patch"]}, "change nodes"),
    ("", {"resources": ["namespaces"], "verbs": ["patch"]}, "change namespaces"),
    (
        "",
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["validatingadmissionpolicybindings"],
            "verbs": ["delete"],
        },
        "change admission",
    ),
]


@asynccontextmanager
async def given(plane: ControlPlane, namespace: str, rule: Object, subject: Object) -> AsyncIterator[None]:
    """A role of its own for somebody, in one namespace or everywhere."""
    base = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
    kind = "Role" if namespace else "ClusterRole"
    plurals = ("roles", "rolebindings") if namespace else ("clusterroles", "clusterrolebindings")
    role = {"metadata": {"name": "danger"}, "rules": [{"apiGroups": [""], **rule}]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "danger"}
    binding = {"metadata": {"name": "danger"}, "roleRef": reference, "subjects": [subject]}
    for plural, body in zip(plurals, (role, binding), strict=True):
        plane.rest().call("POST", f"{base}/{plural}", body)
    yield
    for plural in plurals:
        plane.rest().call("DELETE", f"{base}/{plural}/danger")


@pytest.mark.parametrize(("namespace", "rule", "said"), RIGHTS)
async def test_a_right_that_leads_to_others_gpus_is_told(
    plane: ControlPlane, reader: Reader, namespace: str, rule: Object, said: str
) -> None:
    where = f" (in {namespace})" if namespace else ""
    async with given(plane, namespace, rule, TENANT):
        warned = _said(await found(reader, "rights"), Level.WARNING)
        assert [one for one in warned if one.startswith(f"may {said}")] != [], warned
        assert all(one.endswith(f": ServiceAccount team/tenant{where}") for one in warned)
    async with given(plane, namespace, rule, EVERYBODY):
        failed = _said(await found(reader, "rights"), Level.FAILED)
        assert all(one.endswith(f": Group system:authenticated{where}") for one in failed)
        assert len(failed) == len(warned)


async def test_a_component_with_more_than_its_role_is_told(plane: ControlPlane, reader: Reader) -> None:
    ours = {"kind": "ServiceAccount", "name": "moorage-binder", "namespace": names.SYSTEM_NAMESPACE}
    async with given(plane, "", {"resources": ["secrets"], "verbs": ["get"]}, ours):
        (warned,) = _said(await found(reader, "rights"), Level.WARNING)
        assert warned.endswith("ServiceAccount kai-scheduler/moorage-binder by ClusterRoleBinding danger")


async def test_what_a_tenant_usually_has_is_no_danger(plane: ControlPlane, reader: Reader) -> None:
    subject = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        "metadata": {"name": "edit"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [subject],
    }
    plane.rest().call("POST", f"{RBAC}/namespaces/default/rolebindings", binding)
    findings = await found(reader, "rights")
    plane.rest().call("DELETE", f"{RBAC}/namespaces/default/rolebindings/edit")
    assert {finding.level for finding in findings} == {Level.OK}


async def test_what_namespaces_leave_open_is_told(plane: ControlPlane, reader: Reader) -> None:
    open_ones = {
        "metadata": {"labels": {"pod-security.kubernetes.io/enforce": None, names.VISIBLE_DEVICES_GUARD: "off"}}
    }
    async with changed(plane, "/api/v1/namespaces/default", open_ones), changed(plane, RESERVATIONS, open_ones):
        warned = _said(await found(reader, "namespaces"), Level.WARNING)
        assert warned == [
            f"{names.RESERVATION_NAMESPACE} does not enforce Pod Security",
            "pods may be privileged, or mount the host's files, and so take any GPU, in default",
            f"containers choose their devices by {names.ENV_VISIBLE_DEVICES} in default, {names.RESERVATION_NAMESPACE}",
        ]


async def test_a_budget_that_is_gone_is_told(plane: ControlPlane, reader: Reader) -> None:
    path = f"/apis/policy/v1/namespaces/{names.RESERVATION_NAMESPACE}/poddisruptionbudgets/moorage-reservations"
    async with changed(plane, path, None):
        (warned,) = _said(await found(reader, "budget"), Level.WARNING)
        assert "a drain takes devices from tenants" in warned
