"""What the agent shows of GPUs and their tenants, made from the last sample: nothing is measured for a scrape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gpu.share import NANO_PER_DEVICE
from nodeagent.core.caps import Tenancy
from nodeagent.core.judging import Key
from nodeagent.core.messages import Done
from nodeagent.core.samples import MIB, Device, Process, Sample


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
