"""The order in which ``decide`` gives turns: what is printed of queues is compared with it."""

from __future__ import annotations

from scheduler.core.decide.allowance import LIMITS
from scheduler.core.decide.decide import Waiting, _Deciding
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.steps import ended
from scheduler.core.queues.order import QueueOrder


def order_of_turns(snapshot: Snapshot, now_ns: int) -> QueueOrder[Waiting]:
    """All that is awake in the order in which a decision begins with it, before anything is placed."""
    snapshot.check()
    deciding = _Deciding(snapshot, now_ns, LIMITS)
    ended(deciding.line_up())
    return deciding.order
