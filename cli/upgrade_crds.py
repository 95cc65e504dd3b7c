"""``moorage admin upgrade-crds``: bring the CustomResourceDefinitions of a cluster to this version, never back.

Helm creates CRDs at an installation and never changes them again (docs/design/installing.md, CRDs). The API server
prunes fields that a schema does not name, so a definition is replaced only by one that knows all of its versions and
fields. Version numbers do not decide: Moorage and KAI share the names and count for themselves.
"""

from __future__ import annotations

import argparse
import enum
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import anyio
import msgspec

from cli.checks.reader import CantLook, Reader, some_of
from kube.client.api import Api
from kube.client.errors import ApiError, Conflict
from kube.client.resources import Resource
from kube.client.retry import TRIES
from runtime.client import reached
from runtime.options import connection, output
from runtime.options.output import FOR_PROGRAMS
from runtime.output import Progress, write
from runtime.text import BadInput, line
from wire.core import ObjectMeta
from wire.crds.definition import Definition
from wire.crds.render import DEFINITIONS

_DESCRIPTION: Final = (
    "Bring the CustomResourceDefinitions of a cluster to this version; the chart does it before an upgrade. One that "
    "knows a version or field that this version does not know is left as it is, so that no object loses anything. "
    "Exit code 0: each is as this version wants it, or newer; 1: one is missing, could not be written, or knows what "
    "this version does not know and the other way round; 2: bad input."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = _DESCRIPTION
    output.add(parser, (output.TABLE, output.JSON, output.YAML), has_header=False)
    connection.add(parser)
    parser.set_defaults(run=_start)


def _start(arguments: argparse.Namespace) -> int:
    return anyio.run(functools.partial(run, arguments))


Raw = Mapping[str, Any]

#: Below it, every field is kept.
_ANYTHING: Final = "anything"


class Knowledge(msgspec.Struct, frozen=True):
    """``facts``: short texts for people that are compared as they are. ``open``: places below which all is kept.

    ``choices``: the values of places that take no others.
    """

    facts: frozenset[str]
    choices: Mapping[str, frozenset[str]]
    open: frozenset[str]

    def lacks(self, other: Knowledge) -> tuple[str, ...]:
        """What the other knows and this does not, in order."""
        facts = {fact for fact in other.facts - self.facts if not self._is_kept(fact)}
        facts |= {
            f"{place}={value}"
            for place, values in other.choices.items()
            for value in values - self.choices.get(place, values)
        }
        return tuple(sorted(facts))

    def _is_kept(self, fact: str) -> bool:
        return any(fact.startswith((f"{place}.", f"{place}[]")) for place in self.open)


def known(crd: Raw) -> Knowledge:
    """Read a definition, as it is rendered or as the API server returns it."""
    spec, facts, choices = crd["spec"], set[str](), dict[str, frozenset[str]]()
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        facts.add("a webhook that converts")
    if spec.get("preserveUnknownFields"):
        facts.add("fields that no schema names")
    facts |= {f"{name} (of stored objects)" for name in (crd.get("status") or {}).get("storedVersions") or ()}
    for version in spec["versions"]:
        name = version["name"]
        # A version that is ours may be what objects are stored as.
        facts |= {name, f"{name} (of stored objects)"}
        if version.get("served"):
            facts.add(f"{name} (served)")
        facts |= {f"{name} {part}" for part in version.get("subresources") or {}}
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        for place, said in _places(name, schema):
            facts |= {f"{place} ({kind})" for kind in _kinds(said)}
            if said.get("enum"):
                choices[place] = frozenset(map(str, said["enum"]))
    suffix = f" ({_ANYTHING})"
    places = frozenset(fact.removesuffix(suffix) for fact in facts if fact.endswith(suffix))
    return Knowledge(frozenset(facts), choices, places)


def _places(place: str, schema: Raw) -> Iterator[tuple[str, Raw]]:
    """Each place in a schema, as ``v2 spec.levels[].nodeLabel``, with what the schema says of it."""
    yield place, schema
    for name, inner in (schema.get("properties") or {}).items():
        yield from _places(f"{place}.{name}" if " " in place else f"{place} {name}", inner)
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(inner := schema.get(key), Mapping):
            yield from _places(f"{place}{mark}", inner)


def _kinds(said: Raw) -> Iterator[str]:
    """What may stand at a place."""
    if said.get("x-kubernetes-int-or-string"):
        yield "integer or string"
    elif said.get("type"):
        yield said["type"]
    if said.get("x-kubernetes-preserve-unknown-fields") or said.get("additionalProperties") is True:
        yield _ANYTHING


#: Somebody else may write status meanwhile: the API server's own controllers do, after each change.
_TRIES: Final = 5


class Defined(msgspec.Struct, frozen=True):
    """Of a definition that was written, all that is looked at."""

    metadata: ObjectMeta = ObjectMeta()


CRDS: Final = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    type=Defined,
)


class Outcome(enum.Enum):
    """The outcome for one definition; the value is its text for users."""

    AS_WANTED = "is as this version wants it"
    UPGRADED = "brought to this version"
    NEWER = "left as it is, since it is newer"
    FOREIGN = "left as it is, since it is another's"
    MISSING = "is not there"
    UNUSED = "is not there, and not needed without its component"
    FAILED = "could not be brought to this version"
    UNTOUCHED = "left as it is, since another one stops the upgrade"

    @property
    def is_good(self) -> bool:
        """Whether this version can work with it, and nobody has to decide anything."""
        return self in {Outcome.AS_WANTED, Outcome.UPGRADED, Outcome.NEWER, Outcome.UNUSED}


class Upgrade(msgspec.Struct, frozen=True):
    """One definition: what became of it, and what there is to say."""

    name: str
    outcome: Outcome
    why: str = ""


async def upgrade(
    reader: Reader, api: Api, definitions: Iterable[Definition], progress: Progress | None = None
) -> list[Upgrade]:
    """Go through all. Where one can't stay as it is, none is changed. Raises CantLook when one can't be read."""
    wanted, progress = list(definitions), progress or Progress()
    judged: list[Upgrade | None] = []
    for number, definition in enumerate(wanted, start=1):
        progress.doing = f"reading CRD {number} of {len(wanted)}: {definition.name}"
        judged.append(await _judged(reader, definition))
    if any(left is not None and not left.outcome.is_good for left in judged):
        return [
            left or Upgrade(definition.name, Outcome.UNTOUCHED) for left, definition in zip(judged, wanted, strict=True)
        ]
    done: list[Upgrade] = []
    for number, definition in enumerate(wanted, start=1):
        progress.doing = f"upgrading CRD {number} of {len(wanted)}: {definition.name}"
        done.append(await _upgrade(reader, api, definition))
    return done


async def _judged(reader: Reader, definition: Definition) -> Upgrade | None:
    """What becomes of one if nobody changes it meanwhile; None if it is to be brought to ours, or is as ours."""
    found = await reader.get(CRDS.path(name=definition.name))
    if found is None:
        return _missing(definition)
    return _left(definition.name, found, definition.manifest())


def _missing(definition: Definition) -> Upgrade:
    if definition.needed_by:
        return Upgrade(definition.name, Outcome.UNUSED, f"{definition.needed_by} needs it; helm/moorage/crds has it")
    return Upgrade(definition.name, Outcome.MISSING, "helm/moorage/crds has it")


async def _upgrade(reader: Reader, api: Api, definition: Definition) -> Upgrade:
    ours = definition.manifest()
    try:
        for _ in range(_TRIES):
            found = await reader.get(CRDS.path(name=definition.name))
            if found is None:
                return _missing(definition)
            if (left := _left(definition.name, found, ours)) is not None:
                return left
            try:
                return await _written(api, definition.name, found, ours)
            except Conflict:
                continue
    except ApiError as error:
        return Upgrade(definition.name, Outcome.FAILED, str(error))
    return Upgrade(definition.name, Outcome.FAILED, f"it was changed by others {_TRIES} times meanwhile")


def _left(name: str, found: dict[str, Any], ours: dict[str, Any]) -> Upgrade | None:
    """Why it has to be left as it is; None if ours knows all that it knows."""
    theirs, own = known(found), known(ours)
    lost = own.lacks(theirs)
    if not lost:
        return None
    missed = theirs.lacks(own)
    said = f"this version does not know: {some_of(list(lost))}"
    if not missed:
        return Upgrade(name, Outcome.NEWER, said)
    return Upgrade(name, Outcome.FOREIGN, f"{said}; it does not know: {some_of(list(missed))}")


async def _written(api: Api, name: str, found: dict[str, Any], ours: dict[str, Any]) -> Upgrade:
    """Write ours over what was found, and over nothing else: versions, with their schemas, are replaced as a whole."""
    before = found["metadata"]["resourceVersion"]
    made = await api.patch(CRDS, name, {"spec": ours["spec"]}, resource_version=before)
    is_same = made.metadata.resource_version == before
    return Upgrade(name, Outcome.AS_WANTED if is_same else Outcome.UPGRADED)


_FOREIGN: Final = (
    "nothing else was done to it. Either take it as it is (the chart: crds.upgrade=false), or bring it to a version "
    "that knows both"
)


async def run(arguments: argparse.Namespace) -> int:
    """Upgrade, print, and return the exit code. Raises BadInput when the cluster can't be read."""
    try:
        async with reached(arguments, "upgrade-crds") as cluster:
            done = await told_meanwhile(Reader(cluster.transport), cluster.api(tries=TRIES), Progress())
    except CantLook as error:
        raise BadInput(str(error)) from error
    if arguments.output in FOR_PROGRAMS:
        write([{"name": each.name, "outcome": each.outcome.value, "why": each.why} for each in done], arguments.output)
    else:
        print("\n".join(line(told(each)) for each in done))
    return 0 if all(each.outcome.is_good for each in done) else 1


async def told_meanwhile(reader: Reader, api: Api, progress: Progress) -> list[Upgrade]:
    """Upgrade, and say on a terminal what is being done where that takes long."""
    with progress.waiting():
        return await upgrade(reader, api, DEFINITIONS, progress)


def told(done: Upgrade) -> str:
    """One line for people."""
    said = f"{done.name}: {done.outcome.value}"
    said += f": {done.why}" if done.why else ""
    return f"{said}; {_FOREIGN}" if done.outcome is Outcome.FOREIGN else said
