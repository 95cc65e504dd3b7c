"""``python -m tools.rights FOLDER``: each component's role is exactly what the component uses.

Granted is what the ``rbac.yaml`` files say; used is what the control planes of a whole test run saw (tools/rightsused).
A right that nothing used fails, as does one that is granted in all namespaces and used in those of Moorage only, and a
request that was refused because no role allows it. So a right is either exercised by a test, or taken away.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from typing_extensions import override

from tools import rightsused
from tools.rightsused import Use
from wire import names

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
    paths = list(files) or [*sorted(_ROOT.glob("*/rbac.yaml")), *sorted((_ROOT / "cli").glob("*/rbac.yaml"))]
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
    parser.add_argument("folder", type=Path, help=f"what {rightsused.FOLDER} named while the tests ran")
    rights, uses = granted(), rightsused.kept(parser.parse_args(argv).folder)
    wrong = report(rights, uses)
    print("\n".join(wrong) or f"each of the {len(rights)} rights of components was used; no other was asked for")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
