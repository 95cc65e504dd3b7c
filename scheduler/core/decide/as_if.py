"""A decision on a changed snapshot: what would be done after these changes."""

from __future__ import annotations

from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.decide.changes import Change
from scheduler.core.decide.decide import Decision, decide
from scheduler.core.decide.filing import file_touched
from scheduler.core.decide.snapshot import Snapshot


def decide_as_if(
    snapshot: Snapshot, *changes: Change, now_ns: int, limits: Limits = LIMITS, wall_s: int = 0
) -> Decision:
    """Decide on a snapshot with these changes; ``OnlyThese`` among them keeps it to one group.

    Nothing of ``snapshot`` changes. All that wait are judged again, so the first look at a cluster with much that waits
    costs what the first decision on it did.
    """
    changed = snapshot.with_(*changes)
    file_touched(changed, now_ns)
    return decide(changed, now_ns, limits, wall_s=wall_s)
