"""Rights by RBAC: others' that only we or the cluster's components should have, and ours beyond those shipped."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Final

import msgspec
import yaml

from cli.checks.reader import Finding, Level, Raw, Reader, some_of
from wire import names

_PACKAGES: Final = ("admission", "binder", "nodeagent", "reservation", "scheduler", "simulator", "podgrouper")
#: How RBAC names service accounts that are said as users.
_ACCOUNT: Final = "system:serviceaccount:"

#: Kind, namespace ("": none) and name of a role.
RoleKey = tuple[str, str, str]
Roles = dict[RoleKey, list[Raw]]


class Shipped(msgspec.Struct, frozen=True):
    """What the rbac.yaml files say: our accounts (namespace, name), our roles, and which role is bound where."""

    accounts: frozenset[tuple[str, str]]
    roles: Roles
    bound: frozenset[tuple[tuple[str, str], str, RoleKey]]


def shipped() -> Shipped:
    """Read the files."""
    documents = [one for package in _PACKAGES for one in _documents(package)]
    accounts = {(_meta(one, "namespace"), _meta(one, "name")) for one in documents if one["kind"] == "ServiceAccount"}
    roles: Roles = {
        (one["kind"], _meta(one, "namespace"), _meta(one, "name")): one["rules"]
        for one in documents
        if one["kind"] in {"Role", "ClusterRole"}
    }
    bound = {
        (account, _meta(one, "namespace"), role_of(one))
        for one in documents
        if one["kind"] in {"RoleBinding", "ClusterRoleBinding"}
        for subject in one["subjects"]
        if (account := account_of(subject)) is not None
    }
    return Shipped(frozenset(accounts), roles, frozenset(bound))


def account_of(subject: Raw) -> tuple[str, str] | None:
    """Namespace and name of a service account, however it is said; None of anything else."""
    name: str = subject["name"]
    if subject["kind"] == "ServiceAccount":
        return subject.get("namespace", ""), name
    if subject["kind"] == "User" and name.startswith(_ACCOUNT):
        namespace, _, name = name.removeprefix(_ACCOUNT).partition(":")
        return namespace, name
    return None


def role_of(binding: Raw) -> RoleKey:
    """The role that a binding gives. A RoleBinding may give a ClusterRole."""
    role = binding["roleRef"]
    return role["kind"], _meta(binding, "namespace") if role["kind"] == "Role" else "", role["name"]


def of_ourselves(bindings: list[Raw], roles: Roles) -> Finding:
    """What is bound to our accounts beside what comes with this version, under any name.

    ``make test-all`` holds the rbac.yaml files to what the components use (tools/rights.py), so a right beyond them is
    used by nobody but a thief.
    """
    known = shipped()
    further = sorted({*_further_bindings(bindings, known), *_further_rules(roles, known)})
    if further:
        said = f"our components have rights that they don't use: {some_of(further)}"
        return Finding(Level.WARNING, "rights", said, "take them away, or apply the rbac.yaml files of this version")
    return Finding(Level.OK, "rights", "our components have no rights but those of their own roles")


def _further_bindings(bindings: list[Raw], known: Shipped) -> Iterator[str]:
    for binding in bindings:
        namespace = _meta(binding, "namespace")
        for subject in binding.get("subjects") or ():
            account = account_of(subject)
            if account in known.accounts and (account, namespace, role_of(binding)) not in known.bound:
                kind = "RoleBinding" if namespace else "ClusterRoleBinding"
                yield f"ServiceAccount {'/'.join(account)} by {kind} {_meta(binding, 'name')}"


def _further_rules(roles: Roles, known: Shipped) -> Iterator[str]:
    for key, rules in known.roles.items():
        kind, namespace, name = key
        wanted = [_comparable(rule) for rule in rules]
        if any(_comparable(rule) not in wanted for rule in roles.get(key, ())):
            yield f"{kind} {namespace + '/' if namespace else ''}{name} has further rules"


def _comparable(rule: Raw) -> dict[str, list[str]]:
    return {key: sorted(values) for key, values in rule.items() if values}


def _documents(package: str) -> list[Raw]:
    text = resources.files(package).joinpath("rbac.yaml").read_text()
    return [one for one in yaml.safe_load_all(text) if one]


def _meta(obj: Raw, field: str) -> str:
    return str(obj["metadata"].get(field, ""))


_ROOT: Final = "/apis/rbac.authorization.k8s.io/v1"
_ANYWHERE: Final = "*"
_EVERYBODY: Final = frozenset({"system:authenticated", "system:unauthenticated", "system:serviceaccounts"})
#: How RBAC names all service accounts of a namespace.
_ACCOUNTS: Final = "system:serviceaccounts:"
#: Whose pods a right to these leads to: controllers make pods of their own.
_WORKLOADS: Final = ("deployments", "daemonsets", "statefulsets", "replicasets")
_ADMISSION: Final = "admissionregistration.k8s.io"
_ALL: Final = frozenset(f"Group {name}" for name in _EVERYBODY)
_CHANGE: Final = ("create", "update", "patch", "delete", "deletecollection")


_Accounts = frozenset[tuple[str, str]]
#: Who runs `helm test`, as long as that lasts: it tries what must be refused.
_TESTER: Final = (names.SYSTEM_NAMESPACE, "moorage-check")
#: KAI's, which its release leaves behind while it is kept for the way back. A user who can take one
#: of these identities can take ours, in the same namespace: so all of their rights are one finding.
_OF_KAI: Final[_Accounts] = frozenset(
    (names.SYSTEM_NAMESPACE, name)
    for name in (
        *("admission", "binder", "kai-operator", "node-scale-adjuster", "numa-placement-exporter", "pod-grouper"),
        *("podgroup-controller", "queue-controller", "scheduler"),
    )
)


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
        what="take a node agent's identity",
        verbs=("create",),
        resources=("serviceaccounts/token", "pods"),
        namespace=names.NODE_NAMESPACE,
    ),
    _Danger(
        what="take our identities",
        verbs=("create", "update", "patch"),
        resources=("serviceaccounts/token", "pods", "pods/exec", "pods/attach", "pods/ephemeralcontainers"),
        namespace=names.SYSTEM_NAMESPACE,
    ),
    _Danger(
        what="take our identities by workloads",
        verbs=("create", "update", "patch"),
        group="apps",
        resources=_WORKLOADS,
        namespace=names.SYSTEM_NAMESPACE,
    ),
    _Danger(
        what="take our identities by jobs",
        verbs=("create", "update", "patch"),
        group="batch",
        resources=("jobs", "cronjobs"),
        namespace=names.SYSTEM_NAMESPACE,
    ),
    _Danger(
        what="give rights in our namespace",
        verbs=("create", "update", "patch", "bind", "escalate"),
        group="rbac.authorization.k8s.io",
        resources=("roles", "rolebindings"),
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
    """Nobody but us and the cluster's own components has rights that lead to others' GPUs.

    Policies refuse most of it for every account. So it is a warning: a second lock that is open. Groups of everybody
    fail.
    """
    roles = {
        (kind, _meta(role, "namespace"), _meta(role, "name")): role.get("rules") or []
        for kind, plural in (("ClusterRole", "clusterroles"), ("Role", "roles"))
        for role in await reader.items(f"{_ROOT}/{plural}")
    }
    bindings = [
        *await reader.items(f"{_ROOT}/clusterrolebindings"),
        *await reader.items(f"{_ROOT}/rolebindings"),
    ]
    ours = shipped().accounts | {_TESTER}
    found = [_of(danger, bindings, roles, ours | _OF_KAI) for danger in _DANGERS]
    return [*found, *_of_kai(bindings, roles, ours), of_ourselves(bindings, roles)]


def _of_kai(bindings: list[Raw], roles: Roles, ours: _Accounts) -> Iterator[Finding]:
    """What KAI's accounts may still do, in one finding."""
    dangers: list[str] = []
    who: set[str] = set()
    for danger in _DANGERS:
        all_of_them = {one for binding in bindings for one in _subjects(danger, binding, roles, ours)}
        others = {one for binding in bindings for one in _subjects(danger, binding, roles, ours | _OF_KAI)}
        if all_of_them != others:
            dangers.append(danger.what)
            who |= all_of_them - others
    if who:
        what = f"{some_of(sorted(who))} may {'; '.join(dangers)}"
        said = f"KAI's accounts have rights that nobody needs while it is stopped: {what}"
        do = "keep them for the way back, or delete their ClusterRoleBindings (docs/migrating/kai-step-by-step.md)"
        yield Finding(Level.WARNING, "rights", said, do)


def _of(danger: _Danger, bindings: list[Raw], roles: Roles, ours: _Accounts) -> Finding:
    who = sorted({one for binding in bindings for one in _subjects(danger, binding, roles, ours)})
    if not who:
        return Finding(Level.OK, "rights", f"nobody else may {danger.what}")
    level = Level.FAILED if any(one.split(" (in ")[0] in _ALL for one in who) else Level.WARNING
    return Finding(
        level, "rights", f"may {danger.what}: {some_of(who)}", "take it from them, or trust them with any GPU"
    )


def _subjects(danger: _Danger, binding: Raw, roles: Roles, ours: _Accounts) -> Iterator[str]:
    namespace = _meta(binding, "namespace")
    if namespace and danger.namespace not in {_ANYWHERE, namespace}:
        return
    if any(_gives(rule, danger) for rule in roles.get(role_of(binding), [])):
        for subject in binding.get("subjects") or ():
            if not _is_trusted(subject, ours):
                yield _named(subject) + (f" (in {namespace})" if namespace else "")


def _gives(rule: Raw, danger: _Danger) -> bool:
    groups, resources, verbs = (set(rule.get(key) or ()) for key in ("apiGroups", "resources", "verbs"))
    wanted = {
        _ANYWHERE,
        *danger.resources,
        *(f"*/{name.partition('/')[2]}" for name in danger.resources if "/" in name),
    }
    return bool(groups & {_ANYWHERE, danger.group} and verbs & {_ANYWHERE, *danger.verbs} and resources & wanted)


def _is_trusted(subject: Raw, ours: _Accounts) -> bool:
    """Ours, and what Kubernetes itself runs as: users and groups of its own, and the accounts of kube-system."""
    name = subject["name"]
    if (account := account_of(subject)) is not None:
        return account in ours or account[0] == "kube-system"
    if subject["kind"] == "Group" and name.startswith(_ACCOUNTS):
        return bool(name == f"{_ACCOUNTS}kube-system")
    return bool(name.startswith("system:") and name not in _EVERYBODY)


def _named(subject: Raw) -> str:
    space = f"{subject['namespace']}/" if subject.get("namespace") else ""
    return f"{subject['kind']} {space}{subject['name']}"
