"""How much of its share each tenant used in the last five minutes, and who has used next to none of it for long.

In steps of 5 %, so that a tenant whose use does not change is not written of. A step function over looks: what is kept
is a sum and a peak for each ten seconds, whatever the pace of the looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gpu.share import NANO_PER_DEVICE
from nodeagent.core.caps import Tenancy
from nodeagent.core.judging import Key
from nodeagent.core.samples import MIB, Sample

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
    nano: int
    busy_ns: int
    seen_ns: int
    buckets: tuple[_Bucket, ...] = ()


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
            known = self.tenants.get(one.key)
            if one.device not in read:
                if known is not None:
                    kept[one.key] = known
                continue
            memory_bytes, sm_percent = used.get(one.key, (0, 0))
            kept[one.key] = _looked(known, one, sample.at_ns, memory_bytes=memory_bytes, sm_percent=sm_percent)
        return Using(kept)

    def uses(self, now_ns: int) -> dict[Key, Use]:
        """Say what everybody used, as of now."""
        return {key: _use(tenant, now_ns) for key, tenant in self.tenants.items()}


def _used(sample: Sample) -> dict[Key, tuple[int | None, int | None]]:
    """Memory and SM percent of each pod on each device; None where that of a process is not told."""
    memory: defaultdict[Key, list[int | None]] = defaultdict(list)
    sm: defaultdict[Key, list[int | None]] = defaultdict(list)
    for device in sample.devices:
        for process in device.processes:
            memory[process.pod_uid, device.uuid].append(process.used_bytes)
            sm[process.pod_uid, device.uuid].append(process.sm_percent)
    return {key: (_sum(found), _sum(sm[key])) for key, found in memory.items()}


def _sum(found: Iterable[int | None]) -> int | None:
    total = 0
    for one in found:
        if one is None:
            return None
        total += one
    return total


def _looked(
    known: _Tenant | None, held: Tenancy, at_ns: int, *, memory_bytes: int | None, sm_percent: int | None
) -> _Tenant:
    is_new = known is None or known.nano != held.nano or at_ns - known.seen_ns > _LONGEST_GAP_NS
    before = _Tenant(held.nano, at_ns, at_ns) if is_new or known is None else known
    memory = _percent(memory_bytes, held.asked_mib * MIB)
    sm = None if sm_percent is None else min(sm_percent * NANO_PER_DEVICE // held.nano, MOST_PERCENT)
    is_busy = memory is None or sm is None or max(memory, sm) > IDLE_PERCENT
    number = at_ns // _BUCKET_NS
    last = before.buckets[-1] if before.buckets and before.buckets[-1].number == number else _Bucket(number)
    changed = replace(
        last,
        memory_percent=_peak((last.memory_percent, memory)),
        sm_sum=last.sm_sum + (sm or 0),
        sm_looks=last.sm_looks + (sm is not None),
    )
    earlier = [one for one in before.buckets if number - WINDOW_NS // _BUCKET_NS < one.number < number]
    return _Tenant(held.nano, at_ns if is_busy else before.busy_ns, at_ns, (*earlier, changed))


def _percent(used_bytes: int | None, of_bytes: int) -> int | None:
    """Rounded up: the least use is some."""
    if used_bytes is None or of_bytes <= 0:
        return None
    return min(-(-used_bytes * 100 // of_bytes), MOST_PERCENT)


def _use(tenant: _Tenant, now_ns: int) -> Use:
    first = (now_ns - WINDOW_NS) // _BUCKET_NS
    recent = [one for one in tenant.buckets if one.number > first]
    looks = sum(one.sm_looks for one in recent)
    memory = _peak(one.memory_percent for one in recent)
    is_seen = now_ns - tenant.seen_ns <= _LONGEST_GAP_NS
    is_idle = is_seen and tenant.seen_ns - tenant.busy_ns >= IDLE_NS and tenant.nano >= IDLE_NANO
    return Use(
        None if memory is None else _step(memory),
        _step(-(-sum(one.sm_sum for one in recent) // looks)) if looks else None,
        tenant.busy_ns if is_idle else None,
    )


def _peak(found: Iterable[int | None]) -> int | None:
    return max((one for one in found if one is not None), default=None)


def _step(percent: int) -> int:
    return -(-percent // STEP_PERCENT) * STEP_PERCENT
