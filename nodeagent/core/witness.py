"""Which device a reservation pod was given, as kubelet says: what may be told of it, before its process runs.

kubelet chooses the device when it admits a pod, seconds before the process in it can ask the driver, and holds it for
the pod until that has ended. Its answer names a pod by namespace and name and has no UID, and a pod of that name may
have been deleted by force before. So an answer counts under three conditions (docs/design/node.md, Witness):

- the pod, as read *before the question*, had ``status.startTime``: kubelet writes it for a UID after it has admitted
  it, and from then on the name means that UID to it;
- it has not ended and is not being deleted, before and after;
- it is at the same version when the answer is written: UID and resourceVersion are the write's preconditions.

While no container of the pod has run, kubelet's newest answer is written, also over an earlier one: who holds a device
is kubelet's to say, and a device that it takes back may be the next pod's. From then on the process alone counts, as
without an agent: where kubelet says another device, the witness is withdrawn.
"""

from __future__ import annotations

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
    """A reservation pod, as far as the witness reads it. ``uuid`` "": nobody has told its device."""

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
    #: Its annotations of device and witness, as they are.
    told: Mapping[str, str]

    @property
    def is_witnessed(self) -> bool:
        """Whether it was told by kubelet's word."""
        return self.told.get(names.WITNESS) == names.WITNESS_KUBELET


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
        told={key: annotations[key] for key in (*_IDENTITY, names.WITNESS) if key in annotations},
    )


_IDENTITY: Final = (names.RESERVE_FOR_GPU_INDEX, names.DEVICE_INDEX, names.DEVICE_MEMORY)
_WITHDRAWAL: Final[Annotations] = {names.WITNESS: None}


def judge(
    before: Held, after: Held | None, given: Given, devices: Mapping[str, Device], *, asked_for_s: float = 0.0
) -> Verdict:
    """Judge an answer of kubelet's.

    ``before``: the pod as it was read before the question; ``after``: as it is read now, None for gone. ``devices``:
    those of the machine, by UUID. ``asked_for_s``: for how long it is asked about; a kubelet that starts knows no
    pod yet.
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
    if held.uuid == uuid and held.is_witnessed:
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
    return Verdict(Outcome.WITHDRAWN, _WITHDRAWAL, why) if after.is_witnessed else Verdict(outcome, why=why)


def _identity(device: Device) -> Annotations:
    """Return what the process writes (reservation/steps.py), and the witness."""
    return {
        names.RESERVE_FOR_GPU_INDEX: device.uuid,
        names.DEVICE_INDEX: None if device.minor is None else str(device.minor),
        names.DEVICE_MEMORY: None if device.mem_mib is None else str(device.mem_mib),
        names.WITNESS: names.WITNESS_KUBELET,
    }
