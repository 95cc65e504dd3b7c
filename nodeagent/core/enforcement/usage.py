"""What the agent shows of GPUs and their tenants, made from the last sample: nothing is measured for a scrape.

How much of its share each tenant used in the last five minutes, and who has used next to none of it for long.

In steps of 5 %, so that a tenant whose use does not change is not written of. A step function over looks: what is kept
is a sum and a peak for each ten seconds, whatever the pace of the looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from gpu.share import NANO_PER_DEVICE
from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.messages import Done
from nodeagent.core.enforcement.overuse import MIB, Device, Key, Process, Sample

_SECOND_NS: Final = 10**9
#: Peaks and means are of this time.
WINDOW_NS: Final = 300 * _SECOND_NS
_BUCKET_NS: Final = 10 * _SECOND_NS
STEP_PERCENT: Final = 5
#: Use above this is reported as this.
MOST_PERCENT: Final = 1_000
#: At most this much of its memory and of its SMs at every look of this time: idle.
IDLE_PERCENT: Final = 5
IDLE_NS: Final = 1_800 * _SECOND_NS
#: Of the smallest share that can be called idle.
IDLE_NANO: Final = NANO_PER_DEVICE // 4
#: After a longer time without a look nobody knows what was in it.
_LONGEST_GAP_NS: Final = 60 * _SECOND_NS


@dataclass(frozen=True, slots=True)
class Use:
    """Percent of the tenant's share, up to the next step; a share may be passed. None: not known of these minutes.

    ``idle_since_ns``: since when it has been idle; None if it is not, has not been for long, or holds too little.
    """

    memory_peak_percent: int | None
    sm_mean_percent: int | None
    idle_since_ns: int | None = None


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Ten seconds. Percent of the share; ``sm_looks`` looks told the SMs. ``memory_percent`` None: no look told it."""

    number: int
    memory_percent: int | None = None
    sm_sum: int = 0
    sm_looks: int = 0


@dataclass(frozen=True, slots=True)
class _Tenant:
    """``last`` is the bucket of the last look; a look changes no ``earlier`` one, so it costs the same at any time."""

    nano: int
    busy_ns: int
    seen_ns: int
    last: _Bucket
    earlier: tuple[_Bucket, ...] = ()

    @property
    def buckets(self) -> tuple[_Bucket, ...]:
        """All that is remembered, in the order of time."""
        return (*self.earlier, self.last)


@dataclass(frozen=True, slots=True)
class Using:
    """What is remembered of all tenants. An agent that starts knows nothing, and calls nobody idle for half an hour."""

    tenants: Mapping[Key, _Tenant] = field(default_factory=dict)

    def after(self, sample: Sample, held: Iterable[Tenancy]) -> Using:
        """Take a look in; tenants that are gone are forgotten."""
        used = _used(sample)
        read = {device.uuid for device in sample.devices}
        kept: dict[Key, _Tenant] = {}
        for one in held:
            key = one.key
            known = self.tenants.get(key)
            if one.device not in read:
                if known is not None:
                    kept[key] = known
                continue
            memory_bytes, sm_percent = used.get(key, (0, 0))
            kept[key] = _looked(known, one, sample.at_ns, memory_bytes=memory_bytes, sm_percent=sm_percent)
        return Using(kept)

    def uses(self, now_ns: int) -> dict[Key, Use]:
        """Say what everybody used, as of now."""
        return {key: _use(tenant, now_ns) for key, tenant in self.tenants.items()}


def _used(sample: Sample) -> dict[Key, tuple[int | None, int | None]]:
    """Memory and SM percent of each pod on each device; None where that of a process is not told."""
    found: dict[Key, tuple[int | None, int | None]] = {}
    for device in sample.devices:
        for process in device.processes:
            key = (process.pod_uid, device.uuid)
            memory, sm = found.get(key, (0, 0))
            found[key] = (_plus(memory, process.used_bytes), _plus(sm, process.sm_percent))
    return found


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _looked(
    known: _Tenant | None, held: Tenancy, at_ns: int, *, memory_bytes: int | None, sm_percent: int | None
) -> _Tenant:
    number = at_ns // _BUCKET_NS
    if known is None or known.nano != held.nano or at_ns - known.seen_ns > _LONGEST_GAP_NS:
        known = _Tenant(held.nano, at_ns, at_ns, _Bucket(number))
    memory = _percent(memory_bytes, held.asked_mib * MIB)
    sm = None if sm_percent is None else min(sm_percent * NANO_PER_DEVICE // held.nano, MOST_PERCENT)
    is_busy = memory is None or sm is None or memory > IDLE_PERCENT or sm > IDLE_PERCENT
    last, earlier = known.last, known.earlier
    if last.number != number:
        earlier = tuple(one for one in known.buckets if number - WINDOW_NS // _BUCKET_NS < one.number < number)
        last = _Bucket(number)
    return _Tenant(
        held.nano,
        at_ns if is_busy else known.busy_ns,
        at_ns,
        _Bucket(
            number,
            _higher(last.memory_percent, memory),
            last.sm_sum + (sm or 0),
            last.sm_looks + (sm is not None),
        ),
        earlier,
    )


def _percent(used_bytes: int | None, of_bytes: int) -> int | None:
    """Rounded up: the least use is some."""
    if used_bytes is None or of_bytes <= 0:
        return None
    return min(-(-used_bytes * 100 // of_bytes), MOST_PERCENT)


def _use(tenant: _Tenant, now_ns: int) -> Use:
    first = (now_ns - WINDOW_NS) // _BUCKET_NS
    recent = [one for one in tenant.buckets if one.number > first]
    looks = sum(one.sm_looks for one in recent)
    memory = reduce(_higher, (one.memory_percent for one in recent), None)
    is_seen = now_ns - tenant.seen_ns <= _LONGEST_GAP_NS
    is_idle = is_seen and tenant.seen_ns - tenant.busy_ns >= IDLE_NS and tenant.nano >= IDLE_NANO
    return Use(
        None if memory is None else _step(memory),
        _step(-(-sum(one.sm_sum for one in recent) // looks)) if looks else None,
        tenant.busy_ns if is_idle else None,
    )


def _higher(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _step(percent: int) -> int:
    return -(-percent // STEP_PERCENT) * STEP_PERCENT


@dataclass(frozen=True, slots=True)
class DeviceMeasures:
    """A GPU or MIG slice. ``sm_percent``: None if the driver does not tell. ``asked_nano``: the sum of its book.

    ``unattributed_bytes``: memory of processes that belong to no tenant of the device.
    """

    uuid: str
    total_bytes: int
    used_bytes: int
    sm_percent: int | None
    asked_nano: int
    unattributed_bytes: int


@dataclass(frozen=True, slots=True)
class TenantMeasures:
    """A tenant on a device. None: the driver does not tell. ``cap_bytes``: None for no cap.

    ``sm_of_share_percent`` may pass 100. ``idle_ns``: for how long it has been idle; None if it is not.
    """

    tenancy: Tenancy
    processes: int
    used_bytes: int | None
    sm_percent: int | None
    cap_bytes: int | None
    idle_ns: int | None = None

    @property
    def asked_bytes(self) -> int:
        """Memory that its share stands for."""
        return self.tenancy.asked_mib * MIB

    @property
    def sm_of_share_percent(self) -> int | None:
        """Use of the SMs that its share stands for."""
        return None if self.sm_percent is None else self.sm_percent * NANO_PER_DEVICE // self.tenancy.nano


@dataclass(frozen=True, slots=True)
class Measures:
    """All of a node."""

    devices: tuple[DeviceMeasures, ...] = ()
    tenants: tuple[TenantMeasures, ...] = ()


def measures(
    sample: Sample, held: Collection[Tenancy], idle_since_ns: Mapping[Key, int | None] | None = None
) -> Measures:
    """Return what a sample says. A tenant whose device could not be read is left out.

    ``idle_since_ns``: of those that are idle, by the sample's clock.
    """
    idle = {key: sample.at_ns - since for key, since in (idle_since_ns or {}).items() if since is not None}
    asked: defaultdict[str, int] = defaultdict(int)
    for one in held:
        asked[one.device] += one.nano
    keys = {one.key for one in held}
    found: defaultdict[Key, list[Process]] = defaultdict(list)
    for device in sample.devices:
        for process in device.processes:
            found[process.pod_uid, device.uuid].append(process)
    devices = {device.uuid: device for device in sample.devices}
    return Measures(
        tuple(_device(device, asked[device.uuid], keys) for device in devices.values()),
        tuple(_tenant(one, found.get(one.key, ()), idle.get(one.key)) for one in held if one.device in devices),
    )


def _device(device: Device, asked_nano: int, keys: Collection[Key]) -> DeviceMeasures:
    nobodys = (one.used_bytes or 0 for one in device.processes if (one.pod_uid, device.uuid) not in keys)
    return DeviceMeasures(
        device.uuid, device.total_bytes, device.used_bytes, device.sm_percent, asked_nano, sum(nobodys)
    )


def _tenant(one: Tenancy, processes: Collection[Process], idle_ns: int | None) -> TenantMeasures:
    return TenantMeasures(
        one,
        sum(process.count for process in processes),
        _sum(process.used_bytes for process in processes),
        _sum(process.sm_percent for process in processes),
        one.cap_mib * MIB or None,
        idle_ns,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


#: How many deeds there were: what was done, and whether it was a dry run.
Deeds = Mapping[tuple[str, bool], int]


def counted(before: Deeds, done: Iterable[Done]) -> Deeds:
    """Add deeds to those of before."""
    total: defaultdict[tuple[str, bool], int] = defaultdict(int, before)
    for one in done:
        total[one.deed.action.value, one.deed.is_dry] += 1
    return dict(total)
