"""How attempts to bind a pod end: causes, which the binder writes and the scheduler reads, and the fences of a pod."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from wire import names


class Cause(enum.Enum):
    """What ended an attempt. The value is the stable name that is written on the wire.

    It is written to the annotation ``moorage.dev/fenced-because`` as "Cause: detail".
    """

    #: The book has no room (the prediction was late), or another attempt of the pod is in it.
    DEVICE_TAKEN = "DeviceTaken"
    #: The reservation pod can't be joined: foreign, ending, of another identity.
    NOT_JOINABLE = "ReservationNotJoinable"
    #: kubelet refused or ended the reservation pod: its node had no free device.
    RESERVATION_FAILED = "ReservationFailed"
    #: The reservation pod went away before the pod was bound.
    RESERVATION_LOST = "ReservationLost"
    #: The reservation pod did not say in time which device it holds.
    RESERVATION_SILENT = "ReservationSilent"
    #: The device is claimed by another group, or used by a pod that is not in its book.
    DEVICE_CLAIMED = "DeviceClaimed"
    #: The device turned out to have less memory than was asked.
    CARD_TOO_SMALL = "CardTooSmall"
    #: The device that was opened is not one that the pod names by index or UUID.
    OTHER_DEVICE = "OtherDevice"
    #: The node does not say any more that it has memory caps by the driver, which the pod's containers read.
    NOT_ENFORCED = "NotEnforced"
    #: The pod is gone, ended, or is another of that name.
    POD_GONE = "PodGone"
    #: The pod is bound by somebody else.
    BOUND_ELSEWHERE = "BoundElsewhere"
    #: The pod's request changed after the decision.
    REQUEST_CHANGED = "RequestChanged"
    #: The BindRequest was taken back.
    WITHDRAWN = "Withdrawn"
    #: Another member of the gang failed.
    GANG_FAILED = "GangFailed"
    #: Not all members of the gang were handed over in time.
    GANG_LATE = "GangLate"
    #: The server refused the Binding or a ConfigMap, again and again.
    REFUSED = "Refused"


#: Causes that say nothing against the node: the pod may be tried there again at once.
NOT_THE_NODE = frozenset({
    Cause.DEVICE_TAKEN, Cause.POD_GONE, Cause.BOUND_ELSEWHERE, Cause.REQUEST_CHANGED, Cause.WITHDRAWN,
    Cause.GANG_FAILED, Cause.GANG_LATE, Cause.CARD_TOO_SMALL, Cause.OTHER_DEVICE,
})  # fmt: skip


def taught_device(because: str) -> bool:
    """Whether the attempt failed by learning what a device is: too small, or not the one that the pod names.

    The next attempt knows it, and need not wait.
    """
    return because.partition(":")[0] in {Cause.CARD_TOO_SMALL.value, Cause.OTHER_DEVICE.value}


def is_silence(because: str) -> bool:
    """Whether the attempt failed because the node did not start a reservation: other pods' would not be, either."""
    return because.partition(":")[0] in {Cause.RESERVATION_SILENT.value, Cause.RESERVATION_FAILED.value}


def blames_node(because: str) -> bool:
    """Whether an attempt that ended with this text should not be tried on the same node at once."""
    name = because.partition(":")[0]
    return name not in {cause.value for cause in NOT_THE_NODE}


#: Earlier fences that are kept. A pod has one attempt at a time, and a withdrawn one is ended within minutes.
_MOST_BEFORE: Final = 8


def fences(annotations: Mapping[str, str] | None) -> tuple[str, ...]:
    """Attempts that were fenced, the last one first."""
    found = annotations or {}
    last = found.get(names.FENCED, "")
    before = found.get(names.FENCED_BEFORE, "").split()[:_MOST_BEFORE]
    return tuple(dict.fromkeys((last, *before))) if last else ()


def fencing(annotations: Mapping[str, str] | None, attempt: str) -> dict[str, str]:
    """Return the annotations that fence ``attempt`` and keep the earlier fences.

    A later fence must not hide an earlier one: a slow process would go on with an attempt that was withdrawn.
    """
    before = [one for one in fences(annotations) if one != attempt][:_MOST_BEFORE]
    kept = {names.FENCED_BEFORE: " ".join(before)} if before else {}
    return {names.FENCED: attempt, **kept}
