"""Which processes have to be ended because their pod has more of a GPU's memory than its cap. Pure: no clock, no I/O.

A pod's use of a device is the sum over its processes there. It is over its cap if that is more than the cap and a
tolerance (contexts of drivers differ in size) in two looks running, or in one while the device is nearly full and its
neighbours would get no memory. Exactly the cap is allowed. Then its largest process there is ended, and with the third
kill in a minute all of them. Nothing else is ever ended: no process of a pod without a cap on that device, none whose
pod is not known, and nobody on a device where the memory of a process is not known.

The memory enforcer makes a sample of each look and sends it to the agent, so this stays small: standard library only.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wire.units import SECOND_NS

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Process:
    """A process with memory on a device. ``started``: its start time in clock ticks since boot, as /proc has it.

    PID and start time together name a process: a PID alone is used again. ``used_bytes``: None if the driver does not
    tell. ``sm_percent``: its part of the device's SMs since the last look, None if the driver does not tell.
    ``pod_uid``: "" for a process that is no pod's, or that had ended when it was looked up. ``name``: for people.
    ``count``: for how many processes of the pod it stands, which are told together; then it has no PID (0).
    """

    pid: int
    started: int
    used_bytes: int | None
    sm_percent: int | None = None
    pod_uid: str = ""
    container: str = ""
    name: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or MIG slice. ``sm_percent``: how busy it was, None if the driver does not tell (slices)."""

    uuid: str
    total_bytes: int
    used_bytes: int
    processes: tuple[Process, ...] = ()
    sm_percent: int | None = None

    @property
    def free_bytes(self) -> int:
        """Memory that nobody has."""
        return self.total_bytes - self.used_bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. ``at_ns``: of a monotonic clock. ``unread``: devices that the driver lists and could not describe."""

    at_ns: int
    devices: tuple[Device, ...] = ()
    unread: tuple[str, ...] = ()


#: Whose cap it is: the pod's UID and the device's UUID.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """``tolerance_mib``: a pod may have this much above its cap. ``tight_permille``: a device with less free is full.

    ``window_ns``, ``kills_before_all``: after this many kills within this time all processes of the pod on the device
    are ended. ``leaving_ns``: for this long the memory of a process that got its signal is not counted. ``dry_run``:
    nothing is ended, and each pod is reported once in ``window_ns``.
    """

    tolerance_mib: int = 64
    tight_permille: int = 20
    window_ns: int = 60 * SECOND_NS
    kills_before_all: int = 3
    leaving_ns: int = 5 * SECOND_NS
    dry_run: bool = True


class Action(enum.Enum):
    """What is done: the values are what metrics and events say."""

    END_LARGEST = "largest"
    END_ALL = "all"


@dataclass(frozen=True, slots=True)
class Kill:
    """End these processes, the largest first. ``used_bytes``: of the pod on the device when it was decided."""

    pod_uid: str
    device: str
    used_bytes: int
    cap_mib: int
    action: Action
    victims: tuple[Process, ...]
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """What is remembered between looks; nothing of it outlives a restart.

    ``over``: who was over his cap in the last look. ``kills``: when each one's kills of the last minute were.
    ``leaving``: processes (PID, start time) that were told to end, and when.
    """

    over: frozenset[Key] = frozenset()
    kills: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)
    leaving: Mapping[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """``unjudged``: devices on which nobody could be judged. ``suspects``: pods above their cap for the first look."""

    kills: tuple[Kill, ...]
    history: History
    unjudged: frozenset[str] = frozenset()
    suspects: frozenset[Key] = frozenset()


def judge(
    sample: Sample,
    caps: Mapping[Key, int],
    history: History,
    rules: Rules,
    *,
    counted: Mapping[Key, int] | None = None,
) -> Judgement:
    """Decide on one sample. ``caps``: in MiB, above 0; a pod that is not in them has no cap.

    ``counted``: bytes that the driver counts for a pod against a limit: a better number than the sum over processes.
    """
    now_ns = sample.at_ns
    recent = _recent(history, now_ns, rules)
    kills: list[Kill] = []
    over: set[Key] = set()
    unjudged: set[str] = set()
    for device in sample.devices:
        if any(process.used_bytes is None for process in device.processes):
            unjudged.add(device.uuid)
            continue
        is_full = device.free_bytes * 1000 < device.total_bytes * rules.tight_permille
        for key, processes in _capped(device, caps):
            used_bytes = _used(processes, recent.leaving, (counted or {}).get(key))
            if used_bytes <= _most(key, caps, rules):
                continue
            if not (is_full or key in history.over):
                over.add(key)
                continue
            before = recent.kills.get(key, ())
            if rules.dry_run and before:
                continue
            kills.append(_kill(key, processes, recent, cap_mib=caps[key], used_bytes=used_bytes, rules=rules))
    return Judgement(tuple(kills), _remembered(recent, kills, over, now_ns), frozenset(unjudged), frozenset(over))


def above(sample: Sample, caps: Mapping[Key, int], rules: Rules) -> frozenset[Key]:
    """Return the pods whose processes have more than their cap, so that another count of it can decide."""
    return frozenset(
        key
        for device in sample.devices
        for key, processes in _capped(device, caps)
        if _used(processes, {}, None) > _most(key, caps, rules)
    )


def _most(key: Key, caps: Mapping[Key, int], rules: Rules) -> int:
    return (caps[key] + rules.tolerance_mib) * MIB


def _used(processes: Sequence[Process], leaving: Mapping[tuple[int, int], int], counted_bytes: int | None) -> int:
    """Memory that counts: that of a process which is ending is on its way back."""
    leaves = sum(one.used_bytes or 0 for one in processes if (one.pid, one.started) in leaving) if leaving else 0
    total = sum(one.used_bytes or 0 for one in processes) if counted_bytes is None else counted_bytes
    return max(total - leaves, 0)


def _capped(device: Device, caps: Mapping[Key, int]) -> Iterable[tuple[Key, Sequence[Process]]]:
    """The processes of each pod that has a cap on the device."""
    found: defaultdict[Key, list[Process]] = defaultdict(list)
    for process in device.processes:
        key = (process.pod_uid, device.uuid)
        if process.pod_uid and caps.get(key, 0) > 0:
            found[key].append(process)
    return found.items()


def _kill(
    key: Key, processes: Sequence[Process], history: History, *, cap_mib: int, used_bytes: int, rules: Rules
) -> Kill:
    there = [process for process in processes if (process.pid, process.started) not in history.leaving]
    # Of equals the youngest: it has lost the least work.
    largest_first = tuple(sorted(there, key=lambda each: (-(each.used_bytes or 0), -each.started, each.pid)))
    is_last = len(history.kills.get(key, ())) + 1 >= rules.kills_before_all
    action = Action.END_ALL if is_last else Action.END_LARGEST
    victims = largest_first if is_last else largest_first[:1]
    return Kill(key[0], key[1], used_bytes, cap_mib, action, victims, rules.dry_run)


def _recent(history: History, now_ns: int, rules: Rules) -> History:
    """What still counts."""
    recent = {key: tuple(at for at in when if now_ns - at < rules.window_ns) for key, when in history.kills.items()}
    return History(
        history.over,
        {key: when for key, when in recent.items() if when},
        {who: at for who, at in history.leaving.items() if now_ns - at < rules.leaving_ns},
    )


def _remembered(recent: History, kills: Sequence[Kill], over: set[Key], now_ns: int) -> History:
    """A pod of which processes were ended counts from the start: two looks above its cap before the next kill."""
    when = dict(recent.kills)
    leaving = dict(recent.leaving)
    for kill in kills:
        key = (kill.pod_uid, kill.device)
        when[key] = (*when.get(key, ()), now_ns)
        if not kill.is_dry:
            leaving.update({(victim.pid, victim.started): now_ns for victim in kill.victims})
    return History(frozenset(over), when, leaving)


@dataclass(frozen=True, slots=True)
class Seen:
    """What /proc says of a PID now: its start time, and the pod of its control group ("" for none)."""

    started: int
    pod_uid: str


def is_still(victim: Process, seen: Seen | None) -> bool:
    """Whether a PID is still the process that was judged, in the pod that was judged.

    To be asked after the process was pinned by a pidfd: then nobody else can take its PID between answer and signal.
    Start times have 10 ms, in which a machine can't go through all its PIDs and come back to the same.
    """
    return seen is not None and seen.started == victim.started and seen.pod_uid == victim.pod_uid
