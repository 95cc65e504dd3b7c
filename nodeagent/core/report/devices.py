"""When kubelet is asked about which reservation pod, and what of its answer is told before the pod's process runs.

kubelet chooses the device when it admits a pod, seconds before the process in it can ask the driver, and holds it for
the pod until that has ended. Pure: the time is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpu import reservation
from reservation.device import Device
from wire import names
from wire.core import Pod

#: Between a device's UUID and the number of its replica, in the ids of device plug-ins.
_REPLICA: Final = "::"
#: A kubelet that starts knows its pods after so long.
_KNOWN_WITHIN_S: Final = 5.0

#: Annotation -> value; None takes it away.
Annotations = Mapping[str, str | None]
#: What kubelet has given a pod: resource and device ids. None: it knows no pod of that name.
Given = Sequence[tuple[str, Sequence[str]]] | None


@dataclass(frozen=True, slots=True)
class Held:
    """A reservation pod, as far as the device report reads it. ``uuid`` "": nobody has told its device."""

    namespace: str
    name: str
    uid: str
    #: The version that was read; the only one that an answer about it may be written to.
    rv: str
    #: kubelet has admitted it.
    has_started: bool
    #: A container of it was started: its process has its say from then on.
    has_run: bool
    #: It holds no device any more, or soon will not.
    is_over: bool
    #: What it asks of the device plug-in.
    resource: str
    uuid: str
    #: Its annotations of device and device report, as they are.
    told: Mapping[str, str]

    @property
    def is_reported(self) -> bool:
        """Whether it was told by kubelet's word."""
        return self.told.get(names.DEVICE_REPORTER) == names.REPORTER_KUBELET


class Outcome(Enum):
    """What came of a question. The value is what metrics call it."""

    TOLD = "told"
    AGREES = "agrees"
    WITHDRAWN = "withdrawn"
    UNKNOWN_POD = "unknown-pod"
    NO_DEVICE = "no-device"
    UNCLEAR = "unclear"
    UNKNOWN_DEVICE = "unknown-device"
    CONTRADICTED = "contradicted"
    LEFT_TO_PROCESS = "left-to-process"

    @property
    def is_settled(self) -> bool:
        """Whether nothing is to be asked until the pod or kubelet is another one."""
        return self in {Outcome.TOLD, Outcome.AGREES, Outcome.CONTRADICTED, Outcome.LEFT_TO_PROCESS}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be written, None for nothing, and why in words for the log."""

    outcome: Outcome
    write: Annotations | None = None
    why: str = ""


def held(pod: Pod) -> Held:
    """Read a reservation pod."""
    read, annotations = reservation.read(pod), pod.metadata.annotations or {}
    return Held(
        namespace=read.namespace,
        name=read.name,
        uid=read.uid,
        rv=read.rv,
        has_started=bool(pod.status.start_time),
        has_run=reservation.has_run(pod),
        is_over=read.is_terminal or read.deleting,
        resource=read.resource,
        uuid=read.uuid,
        told={key: annotations[key] for key in (*_IDENTITY, names.DEVICE_REPORTER) if key in annotations},
    )


_IDENTITY: Final = (names.RESERVE_FOR_GPU_INDEX, names.DEVICE_INDEX, names.DEVICE_MEMORY)
_WITHDRAWAL: Final[Annotations] = {names.DEVICE_REPORTER: None}


def judge(
    before: Held, after: Held | None, given: Given, devices: Mapping[str, Device], *, asked_for_s: float = 0.0
) -> Verdict:
    """Judge an answer of kubelet's.

    ``before``: the pod as it was read before the question; ``after``: as it is read now, None for gone. ``devices``:
    those of the machine, by UUID. ``asked_for_s``: for how long it is asked about; a kubelet that starts knows no
    pod yet.

    An answer names a pod by namespace and name and has no UID, and a pod of that name may have been deleted by force
    before. So it counts under three conditions (docs/design/node.md, Device report):

    - the pod, as read *before the question*, had ``status.startTime``: kubelet writes it for a UID after it has
      admitted it, and from then on the name means that UID to it;
    - it has not ended and is not being deleted, before and after;
    - it is at the same version when the answer is written: UID and resourceVersion are the write's preconditions.

    While no container of the pod has run, kubelet's newest answer is written, also over an earlier one: who holds a
    device is kubelet's to say, and a device that it takes back may be the next pod's. From then on the process alone
    counts, as without an agent: where kubelet says another device, the device report is withdrawn.
    """
    if not before.has_started or before.is_over:
        raise ValueError(f"{before.name} was asked about before kubelet had admitted it, or after its end")
    if after is None or after.uid != before.uid or after.is_over:
        return Verdict(Outcome.UNKNOWN_POD, why="it ended meanwhile")
    if given is None:
        why = "kubelet knows no such pod"
        is_late = asked_for_s >= _KNOWN_WITHIN_S
        return _without(after, Outcome.UNKNOWN_POD, why) if is_late else Verdict(Outcome.UNKNOWN_POD, why=why)
    ids = [each for resource, of_resource in given if resource == after.resource for each in of_resource]
    if len(ids) != 1:
        outcome = Outcome.UNCLEAR if ids else Outcome.NO_DEVICE
        return _without(after, outcome, f"kubelet has given it {len(ids) or 'no'} {after.resource}")
    return _compared(after, ids[0].partition(_REPLICA)[0], devices)


def _compared(held: Held, uuid: str, devices: Mapping[str, Device]) -> Verdict:
    if held.has_run:
        return _compared_with_process(held, uuid)
    if held.uuid == uuid and held.is_reported:
        return Verdict(Outcome.AGREES)
    device = devices.get(uuid)
    if device is not None:
        return Verdict(Outcome.TOLD, _identity(device))
    why = f"the driver knows no {uuid}"
    is_old = held.uuid not in {"", uuid}
    return _without(held, Outcome.UNKNOWN_DEVICE, why) if is_old else Verdict(Outcome.UNKNOWN_DEVICE, why=why)


def _compared_with_process(held: Held, uuid: str) -> Verdict:
    """Nothing is told for a process that keeps failing: its device may be lost, and would look as if it answered."""
    if not held.uuid:
        return Verdict(Outcome.LEFT_TO_PROCESS)
    if held.uuid != uuid:
        return _without(held, Outcome.CONTRADICTED, f"kubelet says {uuid}, its process {held.uuid}")
    return Verdict(Outcome.AGREES)


def held_back() -> Verdict:
    """Judge the word of a kubelet that just started where it names another device than the one before it.

    The new one is not told yet; the old one is not held any more, so nobody is to join it.
    """
    return Verdict(Outcome.WITHDRAWN, _WITHDRAWAL, "a kubelet that has just started names another device")


def _without(after: Held, outcome: Outcome, why: str) -> Verdict:
    """Take back what kubelet is said to have said."""
    return Verdict(Outcome.WITHDRAWN, _WITHDRAWAL, why) if after.is_reported else Verdict(outcome, why=why)


def _identity(device: Device) -> Annotations:
    """Return what the process writes (reservation/steps.py), and the device report."""
    return {
        names.RESERVE_FOR_GPU_INDEX: device.uuid,
        names.DEVICE_INDEX: None if device.minor is None else str(device.minor),
        names.DEVICE_MEMORY: None if device.mem_mib is None else str(device.mem_mib),
        names.DEVICE_REPORTER: names.REPORTER_KUBELET,
    }


#: (for so long after the first question, a question each), in seconds; after all of them, the last pause.
PACE: Final = ((5.0, 0.05), (60.0, 1.0))
SELDOM_S: Final = 10.0
#: A kubelet that starts admits its pods once more, and may refuse one that has been given a device by then already. A
#: pod that was admitted before this kubelet, as far as is known, gets no new device within that time.
SETTLES_S: Final = 10.0
#: After a write that failed, doubled each time, up to SELDOM_S. Where a right is missing, which a person has to give,
#: up to LONGEST_FORBIDDEN_S.
FAILED_S: Final = 0.5
LONGEST_FORBIDDEN_S: Final = 300.0
#: More would be no number that a float can hold.
_MOST_DOUBLINGS: Final = 60


@dataclass(slots=True)
class _Entry:
    """A pod; ``since_s``: when its questions began; ``next_s``: when the next is due, infinite for never."""

    held: Held
    since_s: float
    next_s: float
    #: Its device may be told from then on.
    tell_s: float
    #: What its annotations are once what we wrote is seen; None: it is not settled.
    settled: tuple[str, bool] | None = None
    #: How often in a row a write failed.
    failures: int = 0


class Asking:
    """The node's reservation pods that kubelet has admitted and not ended, by UID.

    A pod is asked about often at first, then seldom, and not at all once it is settled. It is asked about again after a
    change of its annotations by somebody else, and all pods are when another kubelet listens: after a reboot, or the
    loss of its notes, it may have given another device.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        #: Seen before their admission, under this kubelet.
        self._new: set[str] = set()
        self._kubelet_since_s = -math.inf

    def see(self, held: Held, now_s: float) -> None:
        """Take a pod as it is now."""
        if held.is_over:
            self.forget(held.uid)
            return
        if not held.has_started:
            self._new.add(held.uid)
            return
        entry = self._entries.get(held.uid)
        if entry is None:
            tell_s = now_s if held.uid in self._new else self._kubelet_since_s + SETTLES_S
            self._entries[held.uid] = _Entry(held, now_s, now_s, tell_s)
            self._new.discard(held.uid)
            return
        entry.held = held
        if entry.settled is not None and entry.settled != _told(held):
            self._again(entry, now_s)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._entries.pop(uid, None)
        self._new.discard(uid)

    def get(self, uid: str) -> Held | None:
        """Return a pod as it was seen last; None: it is not asked about."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.held

    def uids(self) -> frozenset[str]:
        """Return all pods, those too that kubelet has not admitted."""
        return frozenset(self._entries) | self._new

    def another_kubelet(self, now_s: float) -> None:
        """Ask about all of them again; called for the first kubelet as well."""
        self._kubelet_since_s = now_s
        self._new.clear()
        for entry in self._entries.values():
            self._again(entry, now_s)
            entry.tell_s = now_s + SETTLES_S

    def may_tell(self, uid: str, now_s: float) -> bool:
        """Whether a pod's device may be told now."""
        entry = self._entries.get(uid)
        return entry is not None and now_s >= entry.tell_s

    def due(self, now_s: float) -> list[Held]:
        """Return the pods whose question is due."""
        return [entry.held for entry in self._entries.values() if entry.next_s <= now_s]

    def next_s(self) -> float:
        """Return when the next question is due; infinite: none is."""
        return min((entry.next_s for entry in self._entries.values()), default=math.inf)

    def asked_for_s(self, uid: str, now_s: float) -> float:
        """Return for how long a pod has been asked about."""
        entry = self._entries.get(uid)
        return 0.0 if entry is None else now_s - entry.since_s

    def answered(self, uid: str, outcome: Outcome, now_s: float, *, uuid: str = "") -> None:
        """Note what came of a question, after what was to be written is written.

        ``uuid``: the device that was told with TOLD.
        """
        entry = self._entries.get(uid)
        if entry is None:
            return
        if not outcome.is_settled:
            self.postpone(uid, now_s)
            return
        entry.failures = 0
        entry.next_s = math.inf
        entry.settled = (uuid, True) if outcome is Outcome.TOLD else _told(entry.held)

    def postpone(self, uid: str, now_s: float) -> None:
        """No answer came, or the pod was changed before it could be written: ask again at the usual pace."""
        if (entry := self._entries.get(uid)) is not None:
            entry.next_s = now_s + _pause_s(now_s - entry.since_s)

    def failed(self, uid: str, now_s: float, *, is_forbidden: bool) -> None:
        """What was to be written could not be: ask again after a pause."""
        if (entry := self._entries.get(uid)) is not None:
            entry.failures += 1
            longest_s = LONGEST_FORBIDDEN_S if is_forbidden else SELDOM_S
            entry.next_s = now_s + min(FAILED_S * (1 << min(entry.failures, _MOST_DOUBLINGS)), longest_s)

    @staticmethod
    def _again(entry: _Entry, now_s: float) -> None:
        entry.since_s = entry.next_s = now_s
        entry.settled = None


def _told(held: Held) -> tuple[str, bool]:
    return held.uuid, held.is_reported


def _pause_s(asked_for_s: float) -> float:
    return next((pause for until, pause in PACE if asked_for_s < until), SELDOM_S)
