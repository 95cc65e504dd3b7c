"""CustomResourceDefinitions of a cluster, brought to those of this version: never back, and nothing is taken from them.

Helm makes CRDs at an installation and never changes them again (docs/design/installing.md, CRDs).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from cli.checks.finding import some_of
from cli.checks.reader import Reader
from cli.definitions.knowing import known
from cli.progress import Progress
from kube.client.api import Api
from kube.client.errors import ApiError, Conflict
from kube.client.resources import Resource
from wire.core import ObjectMeta
from wire.crds.definition import Definition

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
    """What became of one. The value is what people are told."""

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
