"""Replicas as the NVIDIA and iktos plugins serve them: resources of which several make one device (I1-I9, N3-N5).

A replica is access to a device and a part of it in the books; what it may use is capped under MPS only. As many
replicas as a device has always fit, so they are floored in nano-GPU. Several replicas are of different devices, or
where those are short of fewer, as at the origins, with a note; memory is of one device, other than at iktos, where one
request is shredded over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, product
from math import prod
from types import MappingProxyType
from typing import Final

import msgspec

from gpu.colocation import MOST_ALTERNATIVES, most_ways, seatings
from gpu.device_plugin import (
    MOST_DEVICES,
    Asks,
    Assembled,
    amounts,
    assembled,
    containers,
    count_of,
    reassembled,
    taken_out,
    too_many,
    too_many_together,
)
from gpu.dialects.settings import DialectSettings, ReplicasSettings
from gpu.request import Ask, ContainerRef, FractionAsk, GpuRequest, MemoryAsk, MigAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import (
    GivenDevice,
    Mistake,
    Note,
    NoteCode,
    Refusal,
    ResourceEdit,
    Translation,
    Wishes,
    Written,
    shown,
)
from wire import names
from wire.core import Container, Pod, PodSpec

PREFIX: Final = "nvidia.com/"
#: NVIDIA's name for replicas where they are told apart from devices.
SHARED: Final = "nvidia.com/gpu.shared"
MEMORY: Final = -1
TIME_SLICING: Final = "time-slicing"
MPS: Final = "mps"

_FIELD: Final = "resourceConfig"
_ALLOWED: Final = (
    "<what>:<name>:<replicas>, of gpu or a MIG profile such as mig-3g.20gb, a resource name without nvidia.com/, and "
    f"1 to {NANO_PER_DEVICE} or, for gpu, -1 for memory; for example gpu:sharedgpu:4"
)
_WHAT: Final = re.compile(r"gpu|mig-[0-9]+g\.[0-9]+gb(?:[.+-][a-z0-9.+-]*)?", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
_COUNT: Final = re.compile(r"-1|[1-9][0-9]{0,9}", re.ASCII)
#: Up to this number of replicas, every way to take them from fewer devices is listed (21 for 8).
_EVERY_WAY: Final = 8
#: Processes that one MPS daemon serves; 16 on old devices.
_MOST_MPS_CLIENTS: Final = 48


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one of ``resource`` is: one of the ``replicas`` of a device or of a slice (``profile``), or memory."""

    resource: str
    replicas: int
    profile: str = ""
    mode: str = ""

    @property
    def vendors(self) -> str:
        """The resource under which the vendor's plugin has the same, undivided."""
        return names.MIG_RESOURCE_PREFIX + self.profile if self.profile else names.GPU_RESOURCE


@lru_cache(maxsize=64)
def table(settings: ReplicasSettings) -> Mapping[str, Entry] | Refusal:
    """Read all entries, by the resource that pods ask; a wrong one is refused by name, which stops the start (I9).

    It is asked several times for each pod, and settings are few: the cluster's, and those of some namespaces.

    An entry of iktos' is ``<what>:<name>:<replicas>``. Devices (``gpu``) or MIG slices of a profile (``mig-3g.20gb``)
    are asked under ``nvidia.com/<name>``, each as that number of replicas; -1 means memory, in units of 1000 MiB. What
    no entry names is served under its own name, as the origin's help says and its code doesn't (I8).
    """
    found: dict[str, Entry] = {}
    for text in (part for entry in settings.entries for part in entry.split(",")):
        entry = _entry(text)
        if entry is None:
            return _wrong(_FIELD, text, "is no entry", _ALLOWED)
        if entry.resource in found:
            return _wrong(_FIELD, text, f"names {entry.resource} a second time", "each name once")
        found[entry.resource] = entry
    for entry in _nvidias(settings):
        if entry.resource in found:
            return _wrong(entry.mode, entry.resource, "is shared in two ways", "one way to share a resource")
        if not 1 < entry.replicas <= _most(entry):
            return _wrong(entry.mode, str(entry.replicas), "is no number of replicas", f"1 to {_most(entry)}")
        found[entry.resource] = entry
    return MappingProxyType(
        {name: entry for name, entry in found.items() if entry.replicas != 1 or name != entry.vendors}
    )


def _entry(text: str) -> Entry | None:
    what, *rest = text.split(":")
    if len(rest) != 2 or not (_WHAT.fullmatch(what) and _NAME.fullmatch(rest[0]) and _COUNT.fullmatch(rest[1])):
        return None
    replicas = int(rest[1])
    is_slice = what != "gpu"
    if replicas > NANO_PER_DEVICE or (is_slice and replicas == MEMORY):
        return None
    return Entry(resource=PREFIX + rest[0], replicas=replicas, profile=what.removeprefix("mig-") if is_slice else "")


def _nvidias(settings: ReplicasSettings) -> Iterator[Entry]:
    """Time-slicing and MPS share all devices, under either name. One replica is none."""
    for mode, replicas in ((TIME_SLICING, settings.time_slices), (MPS, settings.mps_replicas)):
        if replicas != 1:
            yield Entry(resource=names.GPU_RESOURCE, replicas=replicas, mode=mode)
            yield Entry(resource=SHARED, replicas=replicas, mode=mode)


def _most(entry: Entry) -> int:
    return _MOST_MPS_CLIENTS if entry.mode == MPS else NANO_PER_DEVICE


def _wrong(field: str, value: str, rule: str, allowed: str) -> Refusal:
    return Refusal(
        code=Mistake.MALFORMED,
        field=field,
        value=shown(value),
        message=f"{field}: {shown(value) or 'an empty text'} {rule}",
        allowed=allowed,
    )


def is_vendors(resource: str) -> bool:
    """Whether the vendor's plugin has a resource of this name itself."""
    return resource == names.GPU_RESOURCE or resource.startswith(names.MIG_RESOURCE_PREFIX)


@lru_cache(maxsize=256)
def splits(count: int, most: int) -> tuple[tuple[int, ...], ...]:
    """Ways to take ``count`` replicas from fewer devices, of which each has ``most``: many devices first, evenly first.

    Of few replicas these are all ways; of more, the most even one for each number of devices.
    """
    if count <= _EVERY_WAY:
        found: Iterable[tuple[int, ...]] = (
            parts for parts in _partitions(count, min(most, count)) if len(parts) < count
        )
    else:
        found = (even(count, devices) for devices in range(count - 1, -(-count // most) - 1, -1))
    return tuple(sorted(found, key=lambda parts: (-len(parts), parts[0])))


def _partitions(count: int, most: int) -> Iterator[tuple[int, ...]]:
    """All sums of parts from large to small, none above ``most``."""
    if count == 0:
        yield ()
    for part in range(min(most, count), 0, -1):
        for rest in _partitions(count - part, part):
            yield (part, *rest)


def even(count: int, devices: int) -> tuple[int, ...]:
    """Divide a count among devices, as evenly as can be."""
    each, more = divmod(count, devices)
    return (each + 1,) * more + (each,) * (devices - more)


NAME: Final = "replicas"
_KEY: Final = f"{PREFIX}<name>"
#: What iktos takes for a gigabyte.
_MIB_PER_UNIT: Final = 1000


class _Wanted(msgspec.Struct, frozen=True, gc=False):
    """A count of one resource in one container, and the ways to serve it in order of preference."""

    ref: ContainerRef
    entry: Entry
    count: int
    ways: tuple[tuple[Ask, ...], ...] = ()

    @property
    def field(self) -> str:
        return f"{self.entry.resource} of container {self.ref.name}"


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether a container names a resource that only an entry makes."""
    found = table(settings.replicas)
    return not isinstance(found, Refusal) and any(not is_vendors(name) for name in _named(pod, found))


def claims(pod: Pod, settings: DialectSettings) -> bool:
    """Whether the vendor's own resources mean replicas here, where nobody else speaks; or nobody can tell (I9)."""
    found = table(settings.replicas)
    if isinstance(found, Refusal):
        return any(name.startswith(PREFIX) for _, container in containers(pod.spec) for name in amounts(container))
    return any(is_vendors(name) for name in _named(pod, found))


def _named(pod: Pod, found: Mapping[str, Entry]) -> Iterator[str]:
    return (name for _, container in containers(pod.spec) for name in amounts(container) if name in found)


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read the replicas of all containers, and whole GPUs where no entry names those."""
    found = table(settings.replicas)
    if isinstance(found, Refusal):
        return found
    wanted = _wanted(pod.spec, found, settings)
    if isinstance(wanted, Refusal):
        return wanted
    most = most_ways(sum(len(one.ways[0]) for one in wanted))
    choices = (_asks(wanted, ways) for ways in _choices([one.ways for one in wanted], most=most))
    # Of several ways the first one asks for the most devices: where it is taken, so are the others.
    first = next(choices)
    made = _assembled(pod.spec, wanted, first)
    if isinstance(made, Refusal):
        return made
    requests: dict[GpuRequest, None] = {}
    for way in chain([made.request], reassembled(made.request, first, choices)):
        requests.update(dict.fromkeys(seatings(way, together=settings.replicas.packed)))
        if len(requests) > most:
            break
    edits = (*made.edits, *_edits(pod.spec, wanted, found))
    return _translation(wanted, list(requests)[: most + 1], edits, settings=settings.replicas)


def _translation(
    wanted: Sequence[_Wanted],
    requests: Sequence[GpuRequest],
    edits: tuple[ResourceEdit, ...],
    *,
    settings: ReplicasSettings,
) -> Translation:
    modes = {one.entry.mode for one in wanted}
    strategy = "binpack" if settings.packed else "spread"
    notes = tuple(
        Note(NoteCode.WEAKENED, one.field, str(one.count), f"{len(one.ways[-1])} to {len(one.ways[0])} devices")
        for one in wanted
        if len(one.ways) > 1
    )
    return Translation(
        dialect=NAME,
        request=requests[0],
        alternatives=tuple(requests[1:]),
        strategy=strategy if any(one.entry.replicas != 1 for one in wanted) else "",
        wishes=Wishes(memory_cap=MPS in modes, compute_cap=MPS in modes, mode=max(modes, default="")),
        notes=notes,
        edits=edits,
    )


# --- what is asked -----------------------------------------------------------------------------------------------


def _wanted(spec: PodSpec, found: Mapping[str, Entry], settings: DialectSettings) -> list[_Wanted] | Refusal:
    wanted: list[_Wanted] = []
    plain = {names.GPU_RESOURCE: Entry(resource=names.GPU_RESOURCE, replicas=1)}
    for ref, container in containers(spec):
        for entry in _entries_of(container, {**plain, **found}):
            one = _one(ref, container, entry, settings)
            if isinstance(one, Refusal):
                return one
            if one.count:
                wanted.append(one)
    refusal = too_many_together(_KEY, sum(_most_devices(one.entry, one.count, settings) for one in wanted))
    if refusal is not None:
        return refusal
    return [msgspec.structs.replace(one, ways=tuple(_ways(one.entry, one.count, settings))) for one in wanted]


def _entries_of(container: Container, known: Mapping[str, Entry]) -> list[Entry]:
    return [known[name] for name in sorted(amounts(container)) if name in known]


def _one(ref: ContainerRef, container: Container, entry: Entry, settings: DialectSettings) -> _Wanted | Refusal:
    count = count_of(ref, container, entry.resource)
    if isinstance(count, Refusal):
        return count
    if count > 1 and _fails_above_one(entry, settings.replicas):
        return _above_one(ref, entry, count)
    if count > MOST_DEVICES and entry.replicas != MEMORY:
        return too_many(f"{entry.resource} of container {ref.name}", str(count))
    return _Wanted(ref, entry, count)


def _fails_above_one(entry: Entry, settings: ReplicasSettings) -> bool:
    return bool(entry.mode) and (entry.mode == MPS if settings.fail_above_one is None else settings.fail_above_one)


def _above_one(ref: ContainerRef, entry: Entry, count: int) -> Refusal:
    """Refuse in the words with which NVIDIA's plugin fails the pod, when kubelet has it already."""
    return Refusal(
        code=Mistake.TOO_MANY,
        field=f"{entry.resource} of container {ref.name}",
        value=str(count),
        message=f"invalid request: maximum request size for shared resources is 1; found {count}",
        allowed="1: a replica gives access to a device, and two give no more of it",
    )


def _most_devices(entry: Entry, count: int, settings: DialectSettings) -> int:
    """How many devices the first of the ways has, which is the widest."""
    if entry.replicas != MEMORY:
        return count
    return min(count, MOST_ALTERNATIVES) if settings.replicas.shred_memory and not settings.strict else 1


def _ways(entry: Entry, count: int, settings: DialectSettings) -> Iterator[tuple[Ask, ...]]:
    """The ways to serve a count of one resource: what is asked, then what the origin would give instead."""
    own = settings.replicas
    if entry.replicas == MEMORY:
        for devices in range(_most_devices(entry, count, settings), 1, -1):
            yield tuple(MemoryAsk(part * _MIB_PER_UNIT) for part in even(count, devices))
        yield (MemoryAsk(count * _MIB_PER_UNIT),)
        return
    yield (_replicas(entry, 1),) * count
    if entry.replicas > 1 and not (own.distinct_only or settings.strict):
        asks = [_replicas(entry, part) for part in range(min(count, entry.replicas) + 1)]
        for parts in splits(count, entry.replicas):
            yield tuple([asks[part] for part in parts])


def _replicas(entry: Entry, count: int) -> Ask:
    """A number of replicas of one device or slice."""
    if entry.replicas == 1:
        return MigAsk(entry.profile) if entry.profile else WholeAsk()
    nano = NANO_PER_DEVICE // entry.replicas * count
    percent = 100 // entry.replicas * count if entry.mode == MPS else 0
    return FractionAsk(nano, compute_percent=percent, profile=entry.profile)


def _choices(ways: Sequence[Sequence[tuple[Ask, ...]]], *, most: int) -> Iterator[tuple[tuple[Ask, ...], ...]]:
    """One way for each; those that leave the first ways least come first. Of too many, those next to the first go."""
    kept = [list(each) for each in ways]
    while prod(map(len, kept)) > max(most, 1):
        del max(kept, key=len)[1]
    for chosen in sorted(product(*(range(len(each)) for each in kept)), key=sum):
        yield tuple(each[number] for each, number in zip(kept, chosen, strict=True))


# --- the pod -----------------------------------------------------------------------------------------------------


def _asks(wanted: Sequence[_Wanted], ways: Sequence[tuple[Ask, ...]]) -> Asks:
    """One way for each that is wanted, put together by container."""
    asks: dict[ContainerRef, tuple[Ask, ...]] = {}
    for one, way in zip(wanted, ways, strict=True):
        asks[one.ref] = (*asks.get(one.ref, ()), *way)
    return asks


def _assembled(spec: PodSpec, wanted: Sequence[_Wanted], asks: Asks) -> Assembled | Refusal:
    everywhere = [ref for ref, _ in containers(spec)]
    return assembled(spec, asks, key=_KEY, owned=everywhere, replaced=_served_slices(wanted))


def _served_slices(wanted: Iterable[_Wanted]) -> set[tuple[ContainerRef, str]]:
    """Slices under the vendor's own name that are shared."""
    return {(one.ref, one.entry.resource) for one in wanted if one.entry.resource.startswith(names.MIG_RESOURCE_PREFIX)}


def _edits(spec: PodSpec, wanted: Sequence[_Wanted], found: Mapping[str, Entry]) -> tuple[ResourceEdit, ...]:
    """Take out what only we serve, and ask for slices under a new name in the vendor's own words.

    ``nvidia.com/gpu`` itself is not here (gpu/device_plugin.py).
    """
    gone = taken_out(spec, sorted(name for name in found if name != names.GPU_RESOURCE))
    counts = {(edit.container, edit.resource): 0 for edit in gone}
    listed = dict(containers(spec))
    for one in wanted:
        if one.entry.replicas == 1 and one.entry.profile:
            place = (one.ref, one.entry.vendors)
            beside = count_of(one.ref, listed[one.ref], one.entry.vendors)
            counts[place] = counts.get(place, beside if isinstance(beside, int) else 0) + one.count
    return tuple(ResourceEdit(ref, resource, count or None) for (ref, resource), count in counts.items())


def written_back(translation: Translation, given: Sequence[GivenDevice]) -> Written:
    """Nothing: the origins tell containers their devices only, and so does every Binding (gpu/grant.py)."""
    del translation, given
    return Written()
