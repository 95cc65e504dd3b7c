"""What has to be written so that a PodGroup says what the rules say (docs/grouping.md). Pure: objects in, patches out.

A PodGroup is created whole. Afterwards only its shape (the minimums, the sub-groups, the annotation with the least
number) and its topology constraint follow the workload. Queue, priority, preemptibility, times, labels and everything
else stay as they were created, or as somebody set them: pods of one group may say different things, and what runs does
not change queue or priority because a pod comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from wire import names
from wire.crds.podgroup import PodGroup, PodGroupSpec, SubGroup

_encode: Final = msgspec.json.Encoder(order="sorted").encode
#: A sign that none was written, where a digest would stand.
_NONE: Final = "-"
#: More than any that is written here has.
_MOST_OWNERS: Final = 8
_LONGEST_UID: Final = 128
_LONGEST_KIND: Final = 128
_LONGEST_WRITTEN: Final = 64
_LONGEST_SAID: Final = 2048
#: Annotations of a workload that its PodGroup is made with, and follows.
_SHAPING: Final = (
    names.BATCH_MIN_MEMBER,
    names.TOPOLOGY,
    names.TOPOLOGY_REQUIRED,
    names.TOPOLOGY_PREFERRED,
    names.SEGMENT_SIZE,
    names.SEGMENT_TOPOLOGY_REQUIRED,
    names.SEGMENT_TOPOLOGY_PREFERRED,
)


class Live(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a PodGroup that is there: ``shape`` and ``topology`` as digests, and those written last.

    ``owners``: the UIDs of the first ones. ``gang``: what its first pod said of a gang in another scheduler's words.
    All are bounded: others may write PodGroups of 1.5 MiB.
    """

    namespace: str
    name: str
    uid: str
    rv: str
    owners: tuple[str, ...]
    shape: str
    topology: str
    written: str = ""
    gang: str = ""
    #: apiVersion and kind of the owner of one that is made of a workload, else "".
    owner_kind: tuple[str, str] = ("", "")
    #: What its annotations say of minimum and topology (``said_of``).
    said: int = 0


class Create(msgspec.Struct, frozen=True):
    """The PodGroup is not there: create this."""

    body: Mapping[str, Any]


class Change(msgspec.Struct, frozen=True):
    """The PodGroup is ours and says something else: a merge patch for the version that was seen."""

    patch: Mapping[str, Any]


class Keep(msgspec.Struct, frozen=True):
    """Nothing has to be written: it says the same, a person has set it, or it is not ours."""


def live(group: PodGroup) -> Live:
    """Read a PodGroup as it is."""
    meta = group.metadata
    owners = (meta.owner_references or ())[:_MOST_OWNERS]
    owner_kind = "", ""
    if owners and names.GROUPED in (meta.annotations or {}):
        owner_kind = owners[0].api_version[:_LONGEST_KIND], owners[0].kind[:_LONGEST_KIND]
    return Live(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        rv=meta.resource_version,
        owners=tuple(owner.uid[:_LONGEST_UID] for owner in owners),
        shape=_shape(group),
        topology=_topology(group.spec),
        written=(meta.annotations or {}).get(names.GROUPED, "")[:_LONGEST_WRITTEN],
        gang=gang_of(group),
        owner_kind=owner_kind,
        said=said_of(meta.annotations),
    )


def said_of(annotations: Mapping[str, str] | None) -> int:
    """Return a number for what annotations of a workload, or of its PodGroup, say of minimum and topology."""
    return hash(tuple((annotations or {}).get(name) for name in _SHAPING))


def gang_of(group: PodGroup) -> str:
    """Return what the first pod of a foreign gang said of it; "" of any other PodGroup."""
    return (group.metadata.annotations or {}).get(names.FOREIGN_GANG, "")[:_LONGEST_SAID]


def decide(wanted: PodGroup, there: Live | None) -> Create | Change | Keep:
    """Return what to write so that ``wanted`` is there. ``there``: the PodGroup of its name, None without one."""
    if there is None:
        return Create(_created(wanted))
    if not _is_ours(wanted, there):
        return Keep()
    shape, topology = _shape(wanted), _topology(wanted.spec)
    was_shape, was_topology = _written(there)
    spec: dict[str, Any] = {}
    annotations: dict[str, str | None] = {}
    if there.shape not in {shape, was_shape} and was_shape:
        shape = was_shape
    elif there.shape != shape:
        spec |= _shape_fields(wanted.spec)
        annotations[names.BATCH_MIN_MEMBER] = (wanted.metadata.annotations or {}).get(names.BATCH_MIN_MEMBER)
    if topology == _NONE or (there.topology not in {topology, was_topology} and was_topology):
        topology = was_topology or topology
    elif there.topology != topology:
        spec["topologyConstraint"] = _plain(wanted.spec.topology_constraint)
    if not spec:
        return Keep()
    return Change({"metadata": {"annotations": {**annotations, names.GROUPED: f"{shape} {topology}"}}, "spec": spec})


def change(wanted: PodGroup, found: PodGroup, *, own: str | None, running: int) -> Change | Keep:
    """Return what to write so that a PodGroup says what a pod's rule says.

    ``own``: the only part whose minimum the rule knows; None: it knows all. ``running``: how many members are bound.
    """
    wanted = wanted if own is None else _with_lower_minimums(wanted, found, own)
    write = decide(wanted, live(found))
    if not isinstance(write, Change):
        return Keep()
    kept = _minimums(found.spec)
    if not running or names.KEPT_MINIMUM in (found.metadata.annotations or {}) or not _rise(found.spec, write.patch):
        return write
    meta = write.patch["metadata"]
    annotations = {**meta["annotations"], **_kept(kept)}
    return Change({**write.patch, "metadata": {**meta, "annotations": annotations}})


def made_again(create: Create, *, running: int) -> Create:
    """Return what to create for a PodGroup that is made again while this number of members is bound.

    Pods that run when a minimum rises, or when their PodGroup is made again, have lost nobody. A scheduler that did not
    see that can't tell, so the PodGroup says which minimum they have (annotation ``moorage.dev/kept-minimum``).
    """
    meta = create.body["metadata"]
    annotations = {**meta["annotations"], **_kept(PodGroupSpec(min_member=running))}
    return Create({**create.body, "metadata": {**meta, "annotations": annotations}})


def _with_lower_minimums(group: PodGroup, found: PodGroup, own: str) -> PodGroup:
    """Return a PodGroup whose other parts than this one keep the lower minimums that they have."""
    there = {part.name: part.min_member for part in found.spec.sub_groups or ()}
    parts = [
        part if part.name == own else msgspec.structs.replace(part, min_member=_lower(part, there))
        for part in group.spec.sub_groups or ()
    ]
    return msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, sub_groups=parts or None))


def _lower(part: SubGroup, there: Mapping[str, int | None]) -> int | None:
    known = there.get(part.name)
    return part.min_member if part.min_member is None or known is None else min(part.min_member, known)


def _kept(minimums: PodGroupSpec) -> dict[str, str]:
    text = _encode(minimums).decode()
    return {names.KEPT_MINIMUM: text} if len(text) <= names.LONGEST_KEPT_MINIMUM else {}


def _minimums(spec: PodGroupSpec) -> PodGroupSpec:
    """Return the minimums of a PodGroup alone."""
    parts = [
        SubGroup(name=part.name, parent=part.parent, min_member=part.min_member, min_sub_group=part.min_sub_group)
        for part in spec.sub_groups or ()
    ]
    return PodGroupSpec(min_member=spec.min_member, min_sub_group=spec.min_sub_group, sub_groups=parts or None)


def _rise(before: PodGroupSpec, patch: Mapping[str, Any]) -> bool:
    """Whether a patch raises one of the minimums of a PodGroup, or adds one."""
    spec = patch["spec"]
    if "minMember" not in spec:
        return False
    was = {part.name: (part.min_member or 0, part.min_sub_group or 0) for part in before.sub_groups or ()}
    was[""] = before.min_member or 0, before.min_sub_group or 0
    of_all = {"name": "", "minMember": spec["minMember"], "minSubGroup": spec["minSubGroup"]}
    return any(
        (part.get("minMember") or 0) > least or (part.get("minSubGroup") or 0) > parts
        for part in (of_all, *(spec["subGroups"] or ()))
        for least, parts in (was.get(part["name"], (0, 0)),)
    )


def _is_ours(wanted: PodGroup, there: Live) -> bool:
    """Whether the PodGroup was made of this workload, or of this gang, whose pods may have several workloads.

    The PodGroup of a foreign gang (foreign/) is recognized by its annotation.
    """
    if gang := gang_of(wanted):
        return gang == there.gang
    return bool({owner.uid for owner in wanted.metadata.owner_references or ()} & set(there.owners))


def _created(wanted: PodGroup) -> Mapping[str, Any]:
    written = f"{_shape(wanted)} {_topology(wanted.spec)}"
    annotations = {**(wanted.metadata.annotations or {}), names.GROUPED: written}
    meta = msgspec.structs.replace(wanted.metadata, annotations=annotations)
    body: Mapping[str, Any] = msgspec.to_builtins(msgspec.structs.replace(wanted, metadata=meta))
    return body


def _written(there: Live) -> tuple[str, str]:
    """Return the digests of what was written last, each "" if that is not known.

    They are two, in the annotation ``moorage.dev/grouped``. A shape or a constraint that is not as it was written was
    set by a person, and is kept. Without the annotation the PodGroup is that of KAI's pod-grouper, which overwrites
    both.
    """
    shape, _, topology = there.written.partition(" ")
    return (shape, topology) if shape and topology else ("", "")


def _shape(group: PodGroup) -> str:
    least = (group.metadata.annotations or {}).get(names.BATCH_MIN_MEMBER)
    return _digest({**_shape_fields(group.spec), "least": least})


def _shape_fields(spec: PodGroupSpec) -> dict[str, Any]:
    """Return the fields of a shape, None for one that is absent: a merge patch takes it away."""
    parts = [_plain(part) for part in spec.sub_groups] if spec.sub_groups else None
    return {"minMember": spec.min_member, "minSubGroup": spec.min_sub_group, "subGroups": parts}


def _topology(spec: PodGroupSpec) -> str:
    return _NONE if spec.topology_constraint is None else _digest(_plain(spec.topology_constraint))


def _plain(value: msgspec.Struct | None) -> Any:
    return msgspec.to_builtins(value)


def _digest(value: Any) -> str:
    return hashlib.blake2b(_encode(value), digest_size=8).hexdigest()
