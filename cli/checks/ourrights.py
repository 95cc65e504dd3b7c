"""Our components' own rights: exactly those of the rbac.yaml files that come with this version.

``make test-all`` holds those files to what the components use (tools/rights.py), so a right beyond them is used by
nobody but a thief.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Final

import msgspec
import yaml

from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Raw

_PACKAGES: Final = ("admission", "binder", "nodeagent", "reservation", "scheduler", "simulator", "workloads")
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
    """What is bound to our accounts beside what comes with this version, under any name."""
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
