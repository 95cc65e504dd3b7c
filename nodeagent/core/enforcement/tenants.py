"""What the agent knows of its tenants: who holds what, what they used, and whether their caps are enforced. Pure.

Fed with the node's reservations and the memory enforcer's reports. Without an enforcer all tenants are known, and
nothing of their use.

A tenant is shown its own shares from inside its containers: share, cap and use. It is asked as HTTP, so that any
program can ask: ``curl --unix-socket /run/moorage/view/share.sock http://x/share``. Nothing of another tenant is in an
answer, and nothing that a tenant sends is in it either.

A CDI file mounts each tenant's own folder, one device for each pod. Source: Container Device Interface, specification
0.5, the first in which a device's name may begin with a digit. The runtime refuses a container that names a device
which is not in the file, and kubelet tries again: so a container never starts without the view that it was given.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from gpu.reservation import Reservation
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
from nodeagent.core.enforcement.overuse import MIB, Key
from nodeagent.core.enforcement.usage import Deeds, Measures, TenantMeasures, Use, Using, counted, measures
from wire import names

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
    """Return the file. ``folder`` has a folder for each pod, named by its UID."""
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
    """One of a tenant's shares. ``measured``: None where its use is not known now. ``enforced``: by what its cap is."""

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
_TOLD_NS: Final = 60 * 10**9
#: A report older than this says nothing about now: three looks at the slowest pace.
STALE_NS: Final = 30 * 10**9
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


class Standing:
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
        self.deeds: Deeds = {}
        #: Whose caps hold, by the back end that holds them; over-use that is ended is not among them.
        self._in_place: Mapping[str, Collection[Key]] = {}

    def hold(self, reservations: Iterable[Reservation], memory_mib: Mapping[str, int]) -> dict[Key, int]:
        """Take in all reservations of the node, and its devices' memory by UUID. Returns the caps for the warden."""
        there = tuple(reservations)
        self._held = tenancies(there, memory_mib, cap_all=self._cap_all)
        self._measured = None
        self._of = {}
        for one in self._held:
            self._of.setdefault(one.pod_uid, []).append(one)
        self._capped = with_former(self._held, self._devices.take(there, self._held))
        return caps(self._capped)

    def hear(self, report: Report) -> list[tuple[Tenancy, Done]]:
        """Take a report in. Returns deeds that pods are to be told of by an event, at most one a minute and pod."""
        self._report, self._measured = report, None
        self._using = self._using.after(report.sample, self._held)
        self.deeds = counted(self.deeds, report.done)
        now_ns = report.sample.at_ns
        self._told = {uid: at_ns for uid, at_ns in self._told.items() if now_ns - at_ns < _TOLD_NS}
        held = {one.key: one for one in self._capped}
        found: list[tuple[Tenancy, Done]] = []
        for done in report.done:
            tenancy = held.get((done.deed.pod_uid, done.deed.device))
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
        by_warden = _by_warden(report)
        return [_told(one, uses.get(one.key), self._enforced(one, by_warden)) for one in self._held]

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
        by_warden = _by_warden(report)
        if self._measured is None and report is not None:
            self._measured = {one.tenancy.key: one for one in measures(report.sample, self._held).tenants}
        measured = {} if report is None else self._measured or {}
        return tuple(
            OwnShare(one, measured.get(one.key), self._enforced(one, by_warden)) for one in self._of.get(pod_uid, ())
        )

    def _enforced(self, one: Tenancy, by_warden: _ByWarden) -> str:
        """By what a tenant's cap is enforced: the one place that says it."""
        if not one.cap_mib:
            return ""
        holding = {name for name, keys in self._in_place.items() if one.key in keys}
        return strongest(holding | by_warden.of(one.key))

    def fresh(self, now_ns: int) -> Report | None:
        """The last report; None where it says nothing about now."""
        report = self._report
        return report if report is not None and now_ns - report.sample.at_ns <= STALE_NS else None


@dataclass(frozen=True, slots=True)
class _ByWarden:
    """``judged``: devices on which over-use is ended. ``held``: whose caps the driver holds."""

    judged: frozenset[str]
    held: frozenset[Key]

    def of(self, key: Key) -> frozenset[str]:
        """What of both enforces a cap."""
        found = {BY_KILLING: key[1] in self.judged, BY_DRIVER: key in self.held}
        return frozenset(name for name, holds in found.items() if holds)


def _by_warden(report: Report | None) -> _ByWarden:
    held = () if report is None or report.driver is None else report.driver.held
    return _ByWarden(_judged(report), frozenset(held))


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
