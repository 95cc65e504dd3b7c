"""What the agent knows and shows of its tenants: who holds what, what they used, whether caps are enforced. Pure.

Fed with the node's reservations and the memory enforcer's reports. Without an enforcer all tenants are known, and
nothing of their use. GPUs and tenants are shown as of the last sample: nothing is measured for a scrape.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import PurePosixPath
from typing import Any, Final

from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE
from nodeagent.core.enforcement.caps import (
    BY_DRIVER,
    BY_KILLING,
    FormerDevices,
    Tenancy,
    caps,
    strongest,
    tenancies,
    with_former,
)
from nodeagent.core.enforcement.messages import Done, Report, can_be_capped
from nodeagent.core.enforcement.overuse import MIB, Device, Key, Process, Sample
from wire import names
from wire.units import SECOND_NS

#: Peaks and means are of this time.
WINDOW_NS: Final = 300 * SECOND_NS
_BUCKET_NS: Final = 10 * SECOND_NS
STEP_PERCENT: Final = 5
#: Use above this is reported as this.
MOST_PERCENT: Final = 1_000
#: At most this much of its memory and of its SMs at every look of this time: idle.
IDLE_PERCENT: Final = 5
IDLE_NS: Final = 1_800 * SECOND_NS
#: Of the smallest share that can be called idle.
IDLE_NANO: Final = NANO_PER_DEVICE // 4
#: After a longer time without a look nobody knows what was in it.
_LONGEST_GAP_NS: Final = 60 * SECOND_NS


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
    """What is remembered of all tenants. An agent that starts knows nothing, and calls nobody idle for half an hour.

    Use in the last five minutes, and that a tenant has been idle for long, are reported in steps of 5 %: a use that
    does not change causes no write. A sum and a peak of each ten seconds are kept, at any sampling rate.
    """

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


#: How many kills there were: what was done, and whether it was a dry run.
KillCounts = Mapping[tuple[str, bool], int]


def counted(before: KillCounts, done: Iterable[Done]) -> KillCounts:
    """Add kills to those of before."""
    total: defaultdict[tuple[str, bool], int] = defaultdict(int, before)
    for one in done:
        total[one.kill.action.value, one.kill.is_dry] += 1
    return dict(total)


FILE: Final = "moorage-view.json"
#: In a container.
MOUNTED_AT: Final = "/run/moorage/view"
SOCKET: Final = "share.sock"
_VERSION: Final = "0.5.0"
_OPTIONS: Final = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")
_ANY_DEVICE: Final = "GPU-0"


def is_sound(pod_uid: str) -> bool:
    """Whether a pod's UID is of the form of one, so that it can be the name of a folder and of a device."""
    return can_be_capped(pod_uid, _ANY_DEVICE)


def content(folder: PurePosixPath, pods: Iterable[str]) -> bytes:
    """Return the CDI file, which mounts each tenant's own folder, one device for each pod.

    ``folder`` has a folder for each pod, named by its UID. The runtime refuses a container that names a device which is
    not in the file, and kubelet tries again: so a container never starts without the view that it was given. Source:
    Container Device Interface, specification 0.5, the first in which a device's name may begin with a digit.
    """
    devices = [{"name": pod, "containerEdits": {"mounts": [_mount(folder / pod)]}} for pod in sorted(pods)]
    kind = names.VIEW_DEVICE_PREFIX.removesuffix("=")
    return json.dumps({"cdiVersion": _VERSION, "kind": kind, "devices": devices}, indent=1).encode()


def _mount(folder: PurePosixPath) -> dict[str, Any]:
    return {"hostPath": str(folder), "containerPath": MOUNTED_AT, "options": list(_OPTIONS)}


#: Of a question with its headers.
MOST_BYTES: Final = 2_048
_PATH: Final = "/share"
_REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 431: "Too Large"}


@dataclass(frozen=True, slots=True)
class OwnShare:
    """One of a tenant's shares, which it is shown from inside its containers.

    A tenant asks by HTTP, so any program can: ``curl --unix-socket /run/moorage/view/share.sock http://x/share``.
    Nothing of another tenant is in an answer, and nothing that a tenant sends is in it either. ``measured``: None where
    its use is not known now. ``enforced``: by what its cap is.
    """

    tenancy: Tenancy
    measured: TenantMeasures | None = None
    enforced: str = ""


def refused(question: bytes) -> int | None:
    """Return why a question is not answered, as an HTTP status; None: it is asked well.

    ``question``: what was read up to the empty line, or MOST_BYTES without one.
    """
    if len(question) >= MOST_BYTES:
        return 431
    words = question.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return 400
    if words[0] != b"GET":
        return 405
    return None if words[1] == _PATH.encode() else 404


def answer(shares: Sequence[OwnShare]) -> bytes:
    """Return the whole response to a question about these shares."""
    return _response(200, {"shares": [_use_shown(one) for one in shares]})


def refusal(status: int) -> bytes:
    """Return the whole response to a question that is not answered."""
    return _response(status, {"error": _REASONS[status].lower(), "allowed": f"GET {_PATH}"})


def _use_shown(share: OwnShare) -> dict[str, Any]:
    tenancy, measured = share.tenancy, share.measured
    used_bytes = None if measured is None else measured.used_bytes
    return {
        "device": tenancy.device,
        "shareNano": tenancy.nano,
        "shareMiB": tenancy.asked_mib or None,
        "capMiB": tenancy.cap_mib or None,
        "enforced": share.enforced,
        "mode": tenancy.mode,
        # Rounded up: the least use is some.
        "usedMiB": None if used_bytes is None else -(-used_bytes // MIB),
        "smPercent": None if measured is None else measured.sm_percent,
        "processes": None if measured is None else measured.processes,
    }


def _response(status: int, said: dict[str, Any]) -> bytes:
    body = json.dumps(said, separators=(",", ":")).encode() + b"\n"
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


#: Between two events on a pod.
_TOLD_NS: Final = 60 * SECOND_NS
#: A report older than this says nothing about now: three looks at the slowest pace.
STALE_NS: Final = 30 * SECOND_NS
_MOST_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class TenantUse:
    """A tenant as others are told of it. Percent of its share, 100 at most; None: not known. ``enforced``: by what.

    ``idle_since_ns``: by the clock of samples; None: it is not idle.
    """

    tenancy: Tenancy
    memory_percent: int | None = None
    sm_percent: int | None = None
    idle_since_ns: int | None = None
    enforced: str = ""


class TenantTable:
    """State of one node's tenants. No I/O, no clock: times are those of samples; ``now_ns`` is by the same clock."""

    def __init__(self, *, cap_all: bool = False) -> None:
        self._cap_all = cap_all
        self._held: tuple[Tenancy, ...] = ()
        self._devices = FormerDevices()
        #: All who may have a cap.
        self._capped: tuple[Tenancy, ...] = ()
        self._using = Using()
        self._report: Report | None = None
        self._told: dict[str, int] = {}
        self._of: dict[str, list[Tenancy]] = {}
        #: Of the last report; None: nobody has asked yet.
        self._measured: dict[Key, TenantMeasures] | None = None
        self.kills: KillCounts = {}
        #: Whose caps hold, by the back end that holds them; over-use that is ended is not among them.
        self._in_place: Mapping[str, Collection[Key]] = {}

    def hold(self, reservations: Iterable[Reservation], memory_mib: Mapping[str, int]) -> dict[Key, int]:
        """Take in all reservations of the node, and its devices' memory by UUID.

        Returns the caps for the memory enforcer.
        """
        there = tuple(reservations)
        self._held = tenancies(there, memory_mib, cap_all=self._cap_all)
        self._measured = None
        self._of = {}
        for one in self._held:
            self._of.setdefault(one.pod_uid, []).append(one)
        self._capped = with_former(self._held, self._devices.take(there, self._held))
        return caps(self._capped)

    def hear(self, report: Report) -> list[tuple[Tenancy, Done]]:
        """Take a report in. Returns kills that pods are to be told of by an event, at most one a minute and pod."""
        self._report, self._measured = report, None
        self._using = self._using.after(report.sample, self._held)
        self.kills = counted(self.kills, report.done)
        now_ns = report.sample.at_ns
        self._told = {uid: at_ns for uid, at_ns in self._told.items() if now_ns - at_ns < _TOLD_NS}
        held = {one.key: one for one in self._capped}
        found: list[tuple[Tenancy, Done]] = []
        for done in report.done:
            tenancy = held.get((done.kill.pod_uid, done.kill.device))
            if tenancy is not None and tenancy.pod_uid not in self._told:
                self._told[tenancy.pod_uid] = now_ns
                found.append((tenancy, done))
        return found

    def measures(self, now_ns: int) -> Measures:
        """What an exporter shows; nothing where the last report is old."""
        report = self.fresh(now_ns)
        if report is None:
            return Measures()
        idle_since_ns = {key: use.idle_since_ns for key, use in self._using.uses(now_ns).items()}
        return measures(report.sample, self._held, idle_since_ns)

    def tenants(self, now_ns: int) -> list[TenantUse]:
        """Everybody who holds a share."""
        report = self.fresh(now_ns)
        uses = {} if report is None else self._using.uses(now_ns)
        by_enforcer = _by_enforcer(report)
        return [_told(one, uses.get(one.key), self._enforced(one, by_enforcer)) for one in self._held]

    @property
    def pods(self) -> frozenset[str]:
        """UIDs of all that hold shares."""
        return frozenset(self._of)

    @property
    def held(self) -> Mapping[str, Sequence[Tenancy]]:
        """What each pod holds, by its UID."""
        return self._of

    def place(self, in_place: Mapping[str, Collection[Key]]) -> bool:
        """Take in whose caps each back end holds now. Returns whether that has changed."""
        changed = in_place != self._in_place
        self._in_place = in_place
        return changed

    def shares(self, pod_uid: str, now_ns: int) -> tuple[OwnShare, ...]:
        """What one pod holds, with its use where a report says that."""
        report = self.fresh(now_ns)
        by_enforcer = _by_enforcer(report)
        if self._measured is None and report is not None:
            self._measured = {one.tenancy.key: one for one in measures(report.sample, self._held).tenants}
        measured = {} if report is None else self._measured or {}
        return tuple(
            OwnShare(one, measured.get(one.key), self._enforced(one, by_enforcer)) for one in self._of.get(pod_uid, ())
        )

    def _enforced(self, one: Tenancy, by_enforcer: _ByEnforcer) -> str:
        """By what a tenant's cap is enforced: the one place that says it."""
        if not one.cap_mib:
            return ""
        holding = {name for name, keys in self._in_place.items() if one.key in keys}
        return strongest(holding | by_enforcer.of(one.key))

    def fresh(self, now_ns: int) -> Report | None:
        """The last report; None where it says nothing about now."""
        report = self._report
        return report if report is not None and now_ns - report.sample.at_ns <= STALE_NS else None


@dataclass(frozen=True, slots=True)
class _ByEnforcer:
    """``judged``: devices on which over-use is ended. ``held``: whose caps the driver holds."""

    judged: frozenset[str]
    held: frozenset[Key]

    def of(self, key: Key) -> frozenset[str]:
        """What of both enforces a cap."""
        found = {BY_KILLING: key[1] in self.judged, BY_DRIVER: key in self.held}
        return frozenset(name for name, holds in found.items() if holds)


def _by_enforcer(report: Report | None) -> _ByEnforcer:
    held = () if report is None or report.driver is None else report.driver.held
    return _ByEnforcer(_judged(report), frozenset(held))


def _judged(report: Report | None) -> frozenset[str]:
    """Devices on which somebody above his cap would be ended."""
    if report is None or report.is_dry or report.caps is None:
        return frozenset()
    return frozenset(device.uuid for device in report.sample.devices) - frozenset(report.unjudged)


def _told(one: Tenancy, use: Use | None, enforced: str) -> TenantUse:
    if use is None:
        return TenantUse(one, enforced=enforced)
    memory, sm = _at_most_all(use.memory_peak_percent), _at_most_all(use.sm_mean_percent)
    return TenantUse(one, memory, sm, use.idle_since_ns, enforced)


def _at_most_all(percent: int | None) -> int | None:
    return None if percent is None else min(percent, _MOST_PERCENT)
