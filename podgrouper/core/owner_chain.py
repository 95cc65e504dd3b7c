"""The owners of a pod, from its direct owner up."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu.translation import shown
from podgrouper.core import fields
from podgrouper.core.answers import Code, Json, Refusal, Refused
from wire.core import OwnerReference
from wire.pathsegment import ALLOWED, is_path_segment

#: A pod of a LeaderWorkerSet has four levels above it; Grove's and Knative's have five.
_MOST_LEVELS: Final = 16
#: What objects have: a group is a DNS subdomain, a version and a kind are DNS labels. UIDs are 36 characters.
_LONGEST_NAME: Final = 253
_LONGEST_KIND: Final = 63
_LONGEST_API_VERSION: Final = 253 + 1 + 63
_LONGEST_UID: Final = 128


class Absent(enum.Enum):
    """Why an object can't be used."""

    #: The API server refused to show it (403): the walk ends below it.
    FORBIDDEN = "forbidden"
    #: It does not exist (404).
    NOT_FOUND = "not-found"


class Read(msgspec.Struct, frozen=True):
    """What was read for a pod. Nothing is fetched here: a missing object is refused with NOT_READ and its reference.

    ``owners``: those of one pod, by reference. ``named``: objects that a rule asks for by API group, kind and name.
    """

    owners: Mapping[str, Json | Absent] = {}
    named: Mapping[tuple[str, str, str], Json | Absent] = {}


def chain(pod: Json, read: Read) -> list[Json]:
    """Return the owners of a pod, its direct owner first. Raises Refused."""
    found: list[Json] = []
    seen = {fields.text(pod, "metadata.uid")}
    below: Json = pod
    while (reference := _only_owner(below)) is not None:
        if reference.uid in seen or len(found) == _MOST_LEVELS:
            raise Refused(Refusal(code=Code.CYCLE, about=fields.about(below), needed=None))
        seen.add(reference.uid)
        owner = read.owners.get(reference.uid)
        if owner is Absent.FORBIDDEN:
            break
        below = _object(owner, reference)
        found.append(below)
    return found


def named(read: Read, group: str, kind: str, name: str, *, version: str = "v1") -> Json | None:
    """Return an object that a rule needs beside the owners; None if it does not exist. Raises Refused if not read."""
    found = read.named.get((group, kind, name))
    if isinstance(found, Absent):
        return None
    if found is None:
        needed = OwnerReference(api_version=f"{group}/{version}", kind=kind, name=name)
        raise Refused(Refusal(code=Code.NOT_READ, about=f"{kind} {shown(name)}", needed=needed))
    return found


def reference_to(obj: Json) -> OwnerReference:
    """Return a reference to an object, as an owner."""
    return OwnerReference(
        api_version=fields.text(obj, "apiVersion"),
        kind=fields.text(obj, "kind"),
        name=fields.text(obj, "metadata.name"),
        uid=fields.text(obj, "metadata.uid"),
    )


def _object(owner: Json | Absent | None, reference: OwnerReference) -> Json:
    if isinstance(owner, Mapping):
        # Lists leave out what kind their items are of.
        return {"apiVersion": reference.api_version, "kind": reference.kind, **owner}
    code = Code.NOT_READ if owner is None else Code.NOT_FOUND
    raise Refused(Refusal(code=code, about=f"{reference.kind} {shown(reference.name)}", needed=reference))


def only_owner(pod: Json) -> OwnerReference | None:
    """Return the owner of a pod; None without one, of several, and of a reference that no object can have."""
    try:
        return _only_owner(pod)
    except Refused:
        return None


def _wrong(reference: OwnerReference) -> tuple[str, str, str] | None:
    """Return the field of a reference that no object has so, its value, and what is allowed."""
    group, _, version = reference.api_version.rpartition("/")
    if not version or not (is_path_segment(group) and is_path_segment(version)):
        return "apiVersion", reference.api_version, "GROUP/VERSION, or VERSION"
    if not is_path_segment(reference.name):
        return "name", reference.name, ALLOWED
    for field, value, most in (
        ("apiVersion", reference.api_version, _LONGEST_API_VERSION),
        ("kind", reference.kind, _LONGEST_KIND),
        ("name", reference.name, _LONGEST_NAME),
        ("uid", reference.uid, _LONGEST_UID),
    ):
        if not 0 < len(value) <= most:
            return field, value, f"1 to {most} characters"
    return None


def _only_owner(obj: Json) -> OwnerReference | None:
    written: Sequence[Any] = fields.mappings(obj, "metadata.ownerReferences")
    if not written:
        return None
    if len(written) > 1:
        owners = ", ".join(fields.about({"kind": each.get("kind"), "metadata": each}) for each in written[:4])
        raise Refused(
            Refusal(
                code=Code.SEVERAL_OWNERS,
                about=fields.about(obj),
                field="metadata.ownerReferences",
                value=owners,
                allowed="one owner",
            )
        )
    try:
        reference = msgspec.convert(written[0], OwnerReference)
    except msgspec.ValidationError as error:
        raise fields.malformed(obj, "metadata.ownerReferences", written[0], str(error)) from error
    if (wrong := _wrong(reference)) is not None:
        field, value, allowed = wrong
        raise fields.malformed(obj, f"metadata.ownerReferences[0].{field}", value, allowed)
    return reference
