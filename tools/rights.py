"""``python -m tools.rights FOLDER``: each component's role is exactly what the component uses.

Granted is what the ``rbac.yaml`` files say; used is what the control planes of a whole test run saw. A right that
nothing used fails, as does one that is granted in all namespaces and used in those of Moorage only, and a request that
was refused because no role allows it. So a right is either exercised by a test, or taken away.

Where the environment names a folder (``MOORAGE_RIGHTS``; ``make test-all`` does), every control plane of a test run
audits the requests of the components' service accounts, and leaves a file there: one line for each right that was used.
By which binding a request was allowed is what the API server says. Only requests of our own programs count: tests that
act by hand under a component's identity have another User-Agent.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from typing_extensions import override

from wire import names

#: Names the folder into which control planes write what was used on them.
FOLDER: Final = "MOORAGE_RIGHTS"

ACCOUNT: Final = "system:serviceaccount:"
COMPONENTS: Final = ("scheduler", "binder", "podgrouper", "admission", "simulator", "crds", "page")
ACCOUNTS: Final = (
    *(f"{ACCOUNT}{names.SYSTEM_NAMESPACE}:moorage-{component}" for component in COMPONENTS),
    f"{ACCOUNT}{names.RESERVATION_NAMESPACE}:{names.RESERVATION_SERVICE_ACCOUNT}",
    f"{ACCOUNT}{names.NODE_NAMESPACE}:{names.NODE_AGENT_SERVICE_ACCOUNT}",
)

#: A watch is logged when it begins: it may never end.
POLICY: Final = json.dumps(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": list(ACCOUNTS)}, {"level": "None"}],
    }
)

_PROGRAMS: Final = "moorage"
#: Objects that roles name one by one; other names are many, and in no role.
_NAMED: Final = frozenset(
    {
        "configmaps",
        "leases",
        "serviceaccounts",
        "secrets",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }
)
_REASON: Final = re.compile(r'allowed by (ClusterRoleBinding|RoleBinding) "([^"]+)"')


class Use(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """A right that was used. ``binding`` is as the API server names it, and "" if the request was refused."""

    account: str
    binding: str
    verb: str
    group: str
    #: With its sub-resource: ``pods/status``.
    resource: str
    #: "" for a request across namespaces, and for what is in none.
    namespace: str
    name: str


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    subresource: str = ""
    api_group: str = ""
    namespace: str = ""
    name: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    verb: str
    user: _User = _User()
    user_agent: str = ""
    object_ref: _Object | None = None
    annotations: dict[str, str] = {}


_decode: Final = msgspec.json.Decoder(_Request).decode
_encode: Final = msgspec.json.Encoder().encode
_decode_use: Final = msgspec.json.Decoder(Use).decode


def keep(logs: Iterable[Path], folder: Path, *, name: str) -> None:
    """Write what these audit logs say was used into the folder, in a file of that name."""
    used = sorted({use for log in logs for use in uses(log)})
    if used:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_bytes(b"".join(_encode(use) + b"\n" for use in used))


def kept(folder: Path) -> set[Use]:
    """Read what all control planes have left in a folder."""
    return {_decode_use(line) for file in folder.glob("*.jsonl") for line in file.read_bytes().splitlines()}


def uses(log: Path) -> Iterator[Use]:
    """Read one audit log. A last line that is not whole (the server was killed) is left out."""
    with log.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n") and (use := _use(_decode(line))) is not None:
                yield use


def _use(request: _Request) -> Use | None:
    target = request.object_ref
    if target is None or request.user.username not in ACCOUNTS or not request.user_agent.startswith(_PROGRAMS):
        return None
    binding = _REASON.search(request.annotations.get("authorization.k8s.io/reason", ""))
    return Use(
        account=request.user.username.removeprefix(ACCOUNT),
        binding=" ".join(binding.groups()) if binding else "",
        verb=request.verb,
        group=target.api_group,
        resource="/".join(part for part in (target.resource, target.subresource) if part),
        namespace=target.namespace,
        name=target.name if target.resource in _NAMED else "",
    )


_ROOT: Final = Path(__file__).parent.parent
_OURS: Final = frozenset(
    {names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE, names.SCALE_ADJUST_NAMESPACE, names.NODE_NAMESPACE}
)
_EVERYWHERE: Final = "ClusterRoleBinding"

#: What the API server asks inside another request, and so writes down with that one only: a status that allocates or
#: reserves a ResourceClaim takes a right on "binding" (KEP-4817).
_INSIDE: Final = {"resourceclaims/binding": "resourceclaims/status"}

Document = dict[str, Any]


class Right(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """One verb on one resource for one service account. ``name`` is "" if the rule names no object."""

    account: str
    #: As the API server names it when it allows a request.
    binding: str
    verb: str
    group: str
    resource: str
    name: str

    @override
    def __str__(self) -> str:
        """Return a line for people."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.account}: {self.verb} {resource}{' ' + self.name if self.name else ''} ({self.binding})"

    def allows(self, use: Use) -> bool:
        """Whether a use is one of this right, through any binding."""
        asked = (use.account, use.verb, use.group, use.resource)
        written = _INSIDE.get(self.resource, self.resource)
        return (self.account, self.verb, self.group, written) == asked and self.name in {"", use.name}


def granted(files: Iterable[Path] = ()) -> set[Right]:
    """Return what the components' manifests grant."""
    paths = list(files) or [*sorted(_ROOT.glob("*/rbac.yaml")), *sorted((_ROOT / "ui").glob("*/rbac.yaml"))]
    documents = [document for path in paths for document in yaml.safe_load_all(path.read_text()) if document]
    rules = {_key(document): document["rules"] for document in documents if document["kind"] in {"ClusterRole", "Role"}}
    bindings = [document for document in documents if document["kind"].endswith("RoleBinding")]
    return {right for binding in bindings for right in _of_binding(binding, rules)}


def _key(document: Document) -> tuple[str, str, str]:
    return document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"]


def _of_binding(binding: Document, rules: dict[tuple[str, str, str], list[Document]]) -> Iterator[Right]:
    kind, namespace, name = _key(binding)
    role = binding["roleRef"]
    for subject in binding["subjects"]:
        for rule in rules[role["kind"], namespace if role["kind"] == "Role" else "", role["name"]]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for named in rule.get("resourceNames", [""]):
                            yield Right(
                                account=f"{subject['namespace']}:{subject['name']}",
                                binding=f"{kind} {name}/{namespace}" if namespace else f"{kind} {name}",
                                verb=verb,
                                group=group,
                                resource=resource,
                                name=named,
                            )


def unused(rights: Iterable[Right], uses: Iterable[Use]) -> list[Right]:
    """Return the rights that nothing used."""
    seen = list(uses)
    return sorted(right for right in rights if not any(_by(right, seen)))


def too_wide(rights: Iterable[Right], uses: Iterable[Use]) -> list[Right]:
    """Return the rights that are granted everywhere, and used in Moorage's own namespaces only."""
    seen = list(uses)
    where = {right: {use.namespace for use in _by(right, seen)} for right in rights if _is_everywhere(right)}
    return sorted(right for right, namespaces in where.items() if namespaces and namespaces <= _OURS)


def missing(rights: Iterable[Right], uses: Iterable[Use]) -> list[Use]:
    """Return what was asked for and is granted nowhere: refusals from before the roles were in force are none."""
    known = list(rights)
    return sorted(use for use in uses if not use.binding and not any(right.allows(use) for right in known))


def _by(right: Right, uses: Iterable[Use]) -> Iterator[Use]:
    return (use for use in uses if use.binding == right.binding and right.allows(use))


def _is_everywhere(right: Right) -> bool:
    return right.binding.startswith(_EVERYWHERE)


def report(rights: set[Right], uses: set[Use]) -> list[str]:
    """Say what is wrong, a line each."""
    return [
        *(f"granted and never used: {right}" for right in unused(rights, uses)),
        *(f"granted everywhere, used in our own namespaces only: {right}" for right in too_wide(rights, uses)),
        *(f"asked for and not granted: {use}" for use in missing(rights, uses)),
    ]


def main(argv: Sequence[str]) -> int:
    """Compare; return 0 if every right was used and none was missing, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.rights", description=__doc__)
    parser.add_argument("folder", type=Path, help=f"what {FOLDER} named while the tests ran")
    rights, uses = granted(), kept(parser.parse_args(argv).folder)
    wrong = report(rights, uses)
    print("\n".join(wrong) or f"each of the {len(rights)} rights of components was used; no other was asked for")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
