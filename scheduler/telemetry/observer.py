"""What of the scheduler is counted, as values; the metrics library is used by runtime/metrics, not here.

What is read when somebody asks, and not counted as it happens, is ``scheduler/report/state.py``'s.
"""

from __future__ import annotations

import enum
from typing import Protocol

from typing_extensions import override

from scheduler.core.model.plan import Plan
from scheduler.core.model.verdict import Code


class Stage(enum.Enum):
    """Where the time of a placement goes. The value is its stable name for machines."""

    #: One decision about all that waits.
    DECIDE = "decide"
    #: Charging what was decided, and starting its writes.
    CHARGE = "charge"
    #: Binding what needs no books, to the answer.
    BIND = "bind"
    #: Entering books and binding, to the answer.
    JOIN = "join"
    #: Writing a BindRequest.
    HAND_OVER = "hand-over"
    #: Starting a gang: its plan, its books, its bindings or BindRequests.
    GANG = "gang"
    #: Having the claims of pods bound, to the last of them.
    PREPARE = "prepare"


class Ended(enum.Enum):
    """How a direct commit ended. The value is its stable name for machines."""

    BOUND = "bound"
    #: A device had no room any more.
    DEVICE_TAKEN = "DeviceTaken"
    #: A device was not the one that was verified any more.
    RESERVATION_LOST = "ReservationLost"
    #: The API server refused the Binding.
    REFUSED = "Refused"
    #: The pod changed, went, or was bound by somebody else: it is decided on again, if it is there.
    OVERTAKEN = "Overtaken"


def ended_by(because: str) -> Ended:
    """How a commit ended that is given back for this reason ("" : nobody failed)."""
    name = because.partition(":")[0]
    return next((ended for ended in Ended if ended.value == name), Ended.OVERTAKEN)


class Evicts(enum.Enum):
    """Why a pod is evicted; the values are KAI's names of its actions."""

    #: From a queue with more than its share, for a pod of another queue.
    RECLAIM = "reclaim"
    #: For a pod of higher priority in the same queue.
    PREEMPT = "preempt"
    #: Onto another node, so that what is free comes together.
    MOVE = "consolidation"
    #: What is left of a gang below its minimum.
    STALE_GANG = "stalegangeviction"


class Answer(enum.Enum):
    """What became of asking for an eviction. The value is its stable name for machines."""

    EVICTED = "evicted"
    #: It is gone, or is going already.
    GONE = "gone"
    #: A pod of another UID has its name.
    OTHER_POD = "other-pod"
    #: A PodDisruptionBudget forbids it now: it is asked again.
    REFUSED = "refused"
    #: No clear answer, or not allowed: it is asked again.
    FAILED = "failed"
    #: Nobody needs it to go any more, so it was not asked.
    SPARED = "spared"


class Observer(Protocol):
    """Is called with what happens. It must not raise, and returns within microseconds."""

    def decided(self, plan: Plan) -> None:
        """A decision was made that is not the one before."""
        ...

    def took(self, stage: Stage, seconds: float) -> None:
        """Something took so long, by the event loop's clock."""
        ...

    def judged(self, code: Code) -> None:
        """A pod waits for another reason than before, or for its first one."""
        ...

    def ended(self, how: Ended) -> None:
        """A direct commit of one pod ended."""
        ...

    def bound(self, waited_s: float) -> None:
        """A pod of ours is seen bound, so long after it was seen first."""
        ...

    def ledger_differs(self) -> None:
        """A node's row of the ledger was not what a recount gives."""
        ...

    def asked_to_go(self, why: Evicts, answer: Answer) -> None:
        """The eviction of a pod was asked for, or it was spared in the end."""
        ...

    def evicted_in_vain(self, pods: int) -> None:
        """Room was given up for which a number of pods were evicted, and nobody started there."""
        ...


class Unobserved(Observer):
    """Nobody counts."""

    @override
    def decided(self, plan: Plan) -> None:
        """Nothing."""

    @override
    def took(self, stage: Stage, seconds: float) -> None:
        """Nothing."""

    @override
    def judged(self, code: Code) -> None:
        """Nothing."""

    @override
    def ended(self, how: Ended) -> None:
        """Nothing."""

    @override
    def bound(self, waited_s: float) -> None:
        """Nothing."""

    @override
    def ledger_differs(self) -> None:
        """Nothing."""

    @override
    def asked_to_go(self, why: Evicts, answer: Answer) -> None:
        """Nothing."""

    @override
    def evicted_in_vain(self, pods: int) -> None:
        """Nothing."""
