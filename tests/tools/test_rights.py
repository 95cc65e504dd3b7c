"""Rights granted against rights used, and how uses are read from an audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import rights
from tools.rights import Use
from wire import names

BINDER = f"{names.SYSTEM_NAMESPACE}:moorage-binder"
MANIFEST = f"""
kind: ClusterRole
metadata: {{name: moorage-binder}}
rules:
  - {{apiGroups: [""], resources: [pods], verbs: [list]}}
  - {{apiGroups: [""], resources: [configmaps], verbs: [get]}}
---
kind: ClusterRoleBinding
metadata: {{name: moorage-binder}}
roleRef: {{kind: ClusterRole, name: moorage-binder}}
subjects: [{{kind: ServiceAccount, name: moorage-binder, namespace: {names.SYSTEM_NAMESPACE}}}]
---
kind: Role
metadata: {{name: moorage-binder, namespace: {names.SYSTEM_NAMESPACE}}}
rules:
  - {{apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [one, two], verbs: [patch]}}
---
kind: RoleBinding
metadata: {{name: moorage-binder, namespace: {names.SYSTEM_NAMESPACE}}}
roleRef: {{kind: Role, name: moorage-binder}}
subjects: [{{kind: ServiceAccount, name: moorage-binder, namespace: {names.SYSTEM_NAMESPACE}}}]
"""
EVERYWHERE = "ClusterRoleBinding moorage-binder"
THERE = f"RoleBinding moorage-binder/{names.SYSTEM_NAMESPACE}"


@pytest.fixture
def granted(tmp_path: Path) -> set[rights.Right]:
    (tmp_path / "rbac.yaml").write_text(MANIFEST)
    return rights.granted([tmp_path / "rbac.yaml"])


def use(verb: str, resource: str, **fields: str) -> Use:
    group = "coordination.k8s.io" if resource == "leases" else ""
    base = {"account": BINDER, "binding": EVERYWHERE, "group": group, "namespace": "", "name": ""}
    return Use(verb=verb, resource=resource, **{**base, **fields})


ALL = {
    use("list", "pods"),
    use("get", "configmaps", namespace="team"),
    use("patch", "leases", binding=THERE, namespace=names.SYSTEM_NAMESPACE, name="one"),
    use("patch", "leases", binding=THERE, namespace=names.SYSTEM_NAMESPACE, name="two"),
}


def test_nothing_is_wrong_where_each_right_was_used(granted: set[rights.Right]) -> None:
    assert len(granted) == 4
    assert rights.report(granted, ALL) == []


@pytest.mark.parametrize("left_out", sorted(ALL))
def test_a_right_that_nothing_used_is_told(granted: set[rights.Right], left_out: Use) -> None:
    (line,) = rights.report(granted, ALL - {left_out})
    assert line.startswith(f"granted and never used: {BINDER}: {left_out.verb} {left_out.resource}")
    assert left_out.name in line


def test_a_right_that_another_binding_gave_already_is_told(granted: set[rights.Right]) -> None:
    by_another = {use("list", "pods", binding="ClusterRoleBinding broader")}
    assert rights.unused(granted, ALL - {use("list", "pods")} | by_another) == [
        right for right in granted if right.resource == "pods"
    ]


def test_a_right_everywhere_that_is_used_at_home_only_is_told(granted: set[rights.Right]) -> None:
    at_home = use("get", "configmaps", namespace=names.RESERVATION_NAMESPACE)
    (line,) = rights.report(granted, ALL - {use("get", "configmaps", namespace="team")} | {at_home})
    assert line.startswith(f"granted everywhere, used in our own namespaces only: {BINDER}: get configmaps")


def test_what_was_refused_is_told_unless_a_role_gives_it(granted: set[rights.Right]) -> None:
    refused = use("get", "secrets", binding="", namespace="team")
    too_early = use("list", "pods", binding="")
    assert rights.missing(granted, ALL | {refused, too_early}) == [refused]
    assert "asked for and not granted" in rights.report(granted, ALL | {refused})[0]


def _event(**changes: Any) -> dict[str, Any]:
    reason = f'RBAC: allowed by RoleBinding "moorage-binder/{names.SYSTEM_NAMESPACE}" of Role "x" to ServiceAccount "y"'
    event = {
        "verb": "patch",
        "user": {"username": rights.ACCOUNT + BINDER},
        "userAgent": "moorage-binder",
        "objectRef": {"resource": "pods", "subresource": "status", "namespace": "team", "name": "p"},
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": reason},
    }
    return event | changes


def test_an_audit_log_tells_what_was_used(tmp_path: Path) -> None:
    lease = {"resource": "leases", "apiGroup": "coordination.k8s.io", "namespace": "n", "name": "one"}
    events = [
        _event(),
        _event(),
        _event(objectRef=lease),
        _event(annotations={"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}),
        _event(userAgent="kubectl"),
        _event(user={"username": "admin"}),
        _event(objectRef=None),
    ]
    log = tmp_path / "audit.log"
    log.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"verb": "pat')
    rights.keep([log], tmp_path / "kept", name="one")
    rights.keep([log], tmp_path / "kept", name="two")
    assert rights.kept(tmp_path / "kept") == {
        use("patch", "pods/status", binding=THERE, namespace="team"),
        use("patch", "pods/status", binding="", namespace="team"),
        use("patch", "leases", binding=THERE, namespace="n", name="one"),
    }


def test_no_component_reads_secrets_but_the_webhooks_their_own() -> None:
    granted = rights.granted()
    assert {right.account for right in granted} == {account.removeprefix(rights.ACCOUNT) for account in rights.ACCOUNTS}
    for right in granted:
        assert "*" not in {right.verb, right.group, right.resource}, right
        if right.resource.partition("/")[0] == "secrets":
            allowed = ("kai-scheduler:moorage-admission", names.CERTIFICATES_SECRET)
            assert (right.account, right.name) == allowed, right


def test_the_exit_code_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rights.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("granted and never used") == len(rights.granted())


def test_a_right_that_is_asked_for_inside_another_request_is_used_with_that_one(tmp_path: Path) -> None:
    (tmp_path / "rbac.yaml").write_text(MANIFEST.replace("pods", "resourceclaims/binding", 1))
    asked_inside = {right for right in rights.granted([tmp_path / "rbac.yaml"]) if "/binding" in right.resource}
    assert rights.unused(asked_inside, {use("list", "resourceclaims/status")}) == []
    assert rights.unused(asked_inside, {use("list", "resourceclaims")}) == sorted(asked_inside) != []
