"""Which resources are replicas of what: iktos' notation, and NVIDIA's two ways to share (rows I1-I9, N3-N5).

An entry is ``<what>:<name>:<replicas>``: devices (``gpu``) or MIG slices of a profile (``mig-3g.20gb``) are asked under
``nvidia.com/<name>``, each as that number of replicas. -1 means memory, in units of 1000 MiB. What no entry names is
served under its own name, as the origin's help says and its code doesn't (I8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from gpu.dialects.settings import ReplicasSettings
from gpu.refusal import Mistake, Refusal, shown
from gpu.share import NANO_PER_DEVICE
from wire import names

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
