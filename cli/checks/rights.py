"""Who else may do what only we, or the cluster's own components, should be able to: read from the RBAC objects.

Policies refuse most of it whoever asks. So it is a warning: a second lock that is open. Groups of everybody fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Raw, Reader
from wire import names

_ROOT: Final = "/apis/rbac.authorization.k8s.io/v1"
_ANYWHERE: Final = "*"
_EVERYBODY: Final = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts")
_ADMISSION: Final = "admissionregistration.k8s.io"
#: How the roles of the rbac.yaml files and their bindings are called.
_OUR_ROLES: Final = ("moorage-", names.RESERVATION_SERVICE_ACCOUNT)
_CHANGE: Final = ("create", "update", "patch", "delete", "deletecollection")


class _Danger(msgspec.Struct, frozen=True, kw_only=True):
    """Verbs on resources that others should not have. ``namespace``: in which, or anywhere; "" is cluster-wide only."""

    what: str
    verbs: tuple[str, ...]
    group: str = ""
    resources: tuple[str, ...]
    namespace: str = _ANYWHERE


_DANGERS: Final = (
    _Danger(what="write reservation pods", verbs=_CHANGE, resources=("pods",), namespace=names.RESERVATION_NAMESPACE),
    _Danger(
        what="write scaling pods, and so have nodes added",
        verbs=_CHANGE,
        resources=("pods",),
        namespace=names.SCALE_ADJUST_NAMESPACE,
    ),
    _Danger(
        what="enter reservation pods",
        verbs=("create", "get", "update", "patch"),
        resources=("pods/exec", "pods/attach", "pods/ephemeralcontainers"),
        namespace=names.RESERVATION_NAMESPACE,
    ),
    _Danger(
        what="take a reservation's identity",
        verbs=("create",),
        resources=("serviceaccounts/token",),
        namespace=names.RESERVATION_NAMESPACE,
    ),
    _Danger(
        what="take our identities",
        verbs=("create",),
        resources=("serviceaccounts/token", "pods", "pods/exec"),
        namespace=names.SYSTEM_NAMESPACE,
    ),
    _Danger(
        what="impersonate others",
        verbs=("impersonate",),
        resources=("users", "groups", "serviceaccounts"),
        namespace="",
    ),
    _Danger(
        what="read our Secrets",
        verbs=("get", "list", "watch"),
        resources=("secrets",),
        namespace=names.SYSTEM_NAMESPACE,
    ),
    _Danger(what="bind pods", verbs=("create",), resources=("pods/binding", "bindings")),
    _Danger(what="write the status of pods", verbs=("update", "patch"), resources=("pods/status",)),
    _Danger(
        what="write BindRequests",
        verbs=("create", "update", "patch"),
        group=names.SCHEDULING_GROUP,
        resources=("bindrequests",),
    ),
    _Danger(
        what="change nodes, and so what their GPUs are taken for",
        verbs=("create", "update", "patch"),
        resources=("nodes", "nodes/status"),
        namespace="",
    ),
    _Danger(
        what="change namespaces, and so what binds their tenants",
        verbs=("create", "update", "patch"),
        resources=("namespaces",),
        namespace="",
    ),
    _Danger(
        what="change admission",
        verbs=("create", "update", "patch", "delete", "deletecollection"),
        group=_ADMISSION,
        resources=(
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
        ),
        namespace="",
    ),
)


async def check_rights(reader: Reader) -> list[Finding]:
    """Nobody but us and the cluster's own components has rights that lead to others' GPUs."""
    roles = {
        (kind, _meta(role, "namespace"), _meta(role, "name")): role.get("rules") or []
        for kind, plural in (("ClusterRole", "clusterroles"), ("Role", "roles"))
        for role in await reader.items(f"{_ROOT}/{plural}")
    }
    bindings = [
        *await reader.items(f"{_ROOT}/clusterrolebindings"),
        *await reader.items(f"{_ROOT}/rolebindings"),
    ]
    return [*(_of(danger, bindings, roles) for danger in _DANGERS), _of_ourselves(bindings)]


def _of_ourselves(bindings: list[Raw]) -> Finding:
    """What is bound to our accounts beside the roles of the rbac.yaml files, which are exactly what we use."""
    further = sorted(
        f"{_named(subject)} by {'RoleBinding' if _meta(binding, 'namespace') else 'ClusterRoleBinding'} "
        f"{_meta(binding, 'name')}"
        for binding in bindings
        for subject in binding.get("subjects") or ()
        if _is_ours(subject) and not _meta(binding, "name").startswith(_OUR_ROLES)
    )
    if further:
        said = f"our components have rights that they don't use: {some_of(further)}"
        return Finding(Level.WARNING, "rights", said, "take these bindings away")
    return Finding(Level.OK, "rights", "our components have no rights but those of their own roles")


_Roles = dict[tuple[str, str, str], list[Raw]]


def _of(danger: _Danger, bindings: list[Raw], roles: _Roles) -> Finding:
    who = sorted({one for binding in bindings for one in _subjects(danger, binding, roles)})
    if not who:
        return Finding(Level.OK, "rights", f"nobody else may {danger.what}")
    level = Level.FAILED if any(f"Group {group}" in one for one in who for group in _EVERYBODY) else Level.WARNING
    return Finding(
        level, "rights", f"may {danger.what}: {some_of(who)}", "take it from them, or trust them with any GPU"
    )


def _subjects(danger: _Danger, binding: Raw, roles: _Roles) -> Iterator[str]:
    namespace = _meta(binding, "namespace")
    if namespace and danger.namespace not in {_ANYWHERE, namespace}:
        return
    role = binding["roleRef"]
    rules = roles.get((role["kind"], namespace if role["kind"] == "Role" else "", role["name"]), [])
    if any(_gives(rule, danger) for rule in rules):
        for subject in binding.get("subjects") or ():
            if not _is_trusted(subject):
                yield _named(subject) + (f" (in {namespace})" if namespace else "")


def _gives(rule: Raw, danger: _Danger) -> bool:
    groups, resources, verbs = (set(rule.get(key) or ()) for key in ("apiGroups", "resources", "verbs"))
    wanted = {
        _ANYWHERE,
        *danger.resources,
        *(f"*/{name.partition('/')[2]}" for name in danger.resources if "/" in name),
    }
    return bool(groups & {_ANYWHERE, danger.group} and verbs & {_ANYWHERE, *danger.verbs} and resources & wanted)


def _is_trusted(subject: Raw) -> bool:
    """Ours, and what Kubernetes itself runs as: users and groups of its own, and the accounts of kube-system."""
    name, namespace = subject["name"], subject.get("namespace", "")
    if subject["kind"] == "ServiceAccount":
        return _is_ours(subject) or namespace == "kube-system"
    return bool(name.startswith("system:") and not name.startswith(_EVERYBODY))


def _is_ours(subject: Raw) -> bool:
    name, namespace = subject["name"], subject.get("namespace", "")
    is_component = namespace == names.SYSTEM_NAMESPACE and name.startswith("moorage-")
    is_reservation = (namespace, name) == (names.RESERVATION_NAMESPACE, names.RESERVATION_SERVICE_ACCOUNT)
    return bool(subject["kind"] == "ServiceAccount" and (is_component or is_reservation))


def _named(subject: Raw) -> str:
    space = f"{subject['namespace']}/" if subject.get("namespace") else ""
    return f"{subject['kind']} {space}{subject['name']}"


def _meta(obj: Raw, field: str) -> str:
    return str(obj["metadata"].get(field, ""))
