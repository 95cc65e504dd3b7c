"""The file of ``moorage snapshot``: what the scheduler reads of a cluster, as one JSON object.

Objects are those of the API, with the fields that decisions read (fields.py). A file is read whole or not at all.
Its size is checked before it is decoded, and its version before its objects. Each refusal names a field, its value and
what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpu.translation import shown
from scheduler.core.preemption import nomination_record
from scheduler.core.queues.use_over_time import read_counts
from wire import rfc3339
from wire.api_groups import PodDisruptionBudget
from wire.core import Job, Namespace, Node, ObjectMeta, Pod, PriorityClass
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.crds.topology import Topology
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from wire.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from wire.units import SECOND_NS

KIND: Final = "moorage.dev/Snapshot"
#: Grows when a file means something else than before.
VERSION: Final = 2
#: A file is not larger: some 500,000 pods.
MOST_BYTES: Final = 1 << 30
#: Objects of one kind. More of them are in no cluster.
MOST_OBJECTS: Final = 1_000_000
_LONGEST_SHOWN: Final = 60


class Saved(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A cluster at one time. ``taken_at``: by the clock of the one who took it, in RFC 3339.

    ``missing``: kinds, by their plural, that could not be read. ``unread``: these and objects that did not decode, in
    words. ``nominations``: the record of evictions, None where the scheduler keeps none. ``queue_use``: what queues
    used over time, "" where that does not count. ``is_anonymized``: names are replaced (anonymous.py).
    """

    kind: str
    version: int
    taken_at: str
    moorage: str = ""
    is_anonymized: bool = False
    missing: list[str] = []
    unread: list[str] = []
    nominations: str | None = None
    queue_use: str = ""
    follows_taint_rules: bool | None = None
    nodes: list[Node] = []
    pods: list[Pod] = []
    queues: list[Queue] = []
    podgroups: list[PodGroup] = []
    bindrequests: list[BindRequest] = []
    namespaces: list[Namespace] = []
    topologies: list[Topology] = []
    jobs: list[Job] = []
    storageclasses: list[StorageClass] = []
    csinodes: list[CSINode] = []
    csidrivers: list[CSIDriver] = []
    csistoragecapacities: list[CSIStorageCapacity] = []
    volumeattachments: list[VolumeAttachment] = []
    persistentvolumes: list[PersistentVolume] = []
    persistentvolumeclaims: list[PersistentVolumeClaim] = []
    poddisruptionbudgets: list[PodDisruptionBudget] = []
    deviceclasses: list[DeviceClass] = []
    devicetaintrules: list[DeviceTaintRule] = []
    resourceslices: list[ResourceSlice] = []
    resourceclaims: list[ResourceClaim] = []
    priorityclasses: list[PriorityClass] = []

    @property
    def wall_s(self) -> int:
        """``taken_at`` in seconds since the epoch."""
        return (rfc3339.parse_ns(self.taken_at) or 0) // SECOND_NS


#: Lists of objects, by their plural.
PLURALS: Final = (
    *("nodes", "pods", "queues", "podgroups", "bindrequests", "namespaces", "topologies", "jobs", "storageclasses"),
    *("csinodes", "csidrivers", "csistoragecapacities", "volumeattachments", "persistentvolumes"),
    *("persistentvolumeclaims", "poddisruptionbudgets", "deviceclasses", "devicetaintrules", "resourceslices"),
    *("resourceclaims", "priorityclasses"),
)
#: Kinds that the scheduler can do without for a while.
OPTIONAL: Final = frozenset({*PLURALS, "configmaps"} - {"nodes", "pods"})


class Refused(ValueError):
    """Raised for a file that is no snapshot. ``field`` and ``value`` as in the file."""

    def __init__(self, field: str, value: str, allowed: str) -> None:
        super().__init__(f"{field}: {value}; allowed: {allowed}" if value else f"{field}: allowed: {allowed}")
        self.field = field


class _Head(msgspec.Struct):
    kind: Any = None
    version: Any = None


_encode: Final = msgspec.json.Encoder().encode
_heads: Final = msgspec.json.Decoder(_Head)
_decoder: Final = msgspec.json.Decoder(Saved)
_AT: Final = re.compile(r"(?P<why>.*?)(?: - at `\$?\.?(?P<path>.*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def write(saved: Saved) -> bytes:
    """Write the file."""
    return _encode(saved) + b"\n"


def read(text: bytes) -> Saved:
    """Read a file. Raises Refused."""
    if len(text) > MOST_BYTES:
        raise Refused("file", f"{len(text)} bytes", f"up to {MOST_BYTES} bytes")
    try:
        saved = _decoded(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refused("file", str(error), "one JSON object, as moorage snapshot writes it") from error
    _check(saved)
    return saved


def _decoded(text: bytes) -> Saved:
    try:
        _check_head(_heads.decode(text))
        return _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise _misfit(text, str(error)) from error


def _check_head(head: _Head) -> None:
    if head.kind != KIND:
        raise Refused("kind", _short(head.kind), KIND)
    if head.version != VERSION:
        raise Refused("version", _short(head.version), f"{VERSION}; take the snapshot with this version of moorage")


def _misfit(text: bytes, message: str) -> Refused:
    """Name the field whose value is of another type, with the value."""
    found = _AT.fullmatch(message)
    why, path = (found["why"], found["path"] or "") if found else (message, "")
    return Refused(path or "file", _short(_at(msgspec.json.decode(text), path)), why)


def _at(tree: Any, path: str) -> Any:
    """The value at a path as msgspec writes it, as far as it can be followed."""
    for index, name in _STEP.findall(path):
        try:
            tree = tree[int(index)] if index else tree[name]
        except (LookupError, TypeError):
            break
    return tree


def _short(value: object) -> str:
    text = value if isinstance(value, str) else _encode(value).decode(errors="replace")
    return shown(text[:_LONGEST_SHOWN])


# --- what is no type -------------------------------------------------------------------------------------------------
def _check(saved: Saved) -> None:
    if rfc3339.parse_ns(saved.taken_at) is None:
        raise Refused("takenAt", _short(saved.taken_at), "a time in RFC 3339, as in 2026-11-27T04:00:00Z")
    for number, plural in enumerate(saved.missing):
        if plural not in OPTIONAL:
            raise Refused(f"missing[{number}]", _short(plural), ", ".join(sorted(OPTIONAL)))
    for plural in PLURALS:
        objects: Sequence[Any] = getattr(saved, plural)
        if len(objects) > MOST_OBJECTS:
            raise Refused(plural, f"{len(objects)} objects", f"up to {MOST_OBJECTS}")
        _check_identities(plural, [each.metadata for each in objects])
    if saved.nominations is not None:
        for problem in nomination_record.read(saved.nominations).unread:
            raise Refused("nominations", _short(problem), "the record of evictions as the scheduler writes it")
    if saved.queue_use and isinstance(why := read_counts(saved.queue_use), str):
        raise Refused("queueUse", _short(why), "what queues used, as the scheduler writes it")


def _check_identities(plural: str, metas: Sequence[ObjectMeta]) -> None:
    """Each object has a name and a UID, and is there once."""
    uids: set[str] = set()
    named: set[tuple[str, str]] = set()
    for number, meta in enumerate(metas):
        field = f"{plural}[{number}].metadata"
        if not meta.name or not meta.uid:
            which = "uid" if meta.name else "name"
            raise Refused(f"{field}.{which}", '""', "a text that is not empty")
        key = (meta.namespace, meta.name)
        if meta.uid in uids:
            raise Refused(f"{field}.uid", _short(meta.uid), "each UID once")
        if key in named:
            raise Refused(f"{field}.name", _short("/".join(filter(None, key))), "each name once in its namespace")
        uids.add(meta.uid)
        named.add(key)
