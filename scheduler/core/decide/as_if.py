"""A decision on a changed snapshot: what would be done after these changes, and what those that wait would be told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from scheduler.core.decide import costs
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.decide.changes import Change
from scheduler.core.decide.decide import Decision, decide, deciding
from scheduler.core.decide.filing import file_touched, filing_touched
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Verdict

#: Notes that are taken in one step, and what one costs, in operations.
_NOTES_AT_ONCE: Final = 32
_NOTING: Final = 20


class Answer(msgspec.Struct, frozen=True):
    """A decision, and by UID the verdicts on pods that it leaves waiting."""

    decision: Decision
    verdicts: Mapping[str, Verdict]


def decide_as_if(
    snapshot: Snapshot, *changes: Change, now_ns: int, limits: Limits = LIMITS, wall_s: int = 0
) -> Decision:
    """Decide on a snapshot with these changes; ``OnlyThese`` among them keeps it to one group.

    Nothing of ``snapshot`` changes. All that wait are judged again, so the first look at a cluster with much that waits
    costs what the first decision on it did.
    """
    return decide(filed(snapshot, *changes, now_ns=now_ns), now_ns, limits, wall_s=wall_s)


def answer_as_if(
    snapshot: Snapshot, *changes: Change, uids: Iterable[str], now_ns: int, limits: Limits = LIMITS, wall_s: int = 0
) -> Answer:
    """Decide likewise, and return the verdicts on these pods (UIDs) besides."""
    return ended(answering_as_if(snapshot, *changes, uids=uids, now_ns=now_ns, limits=limits, wall_s=wall_s))


def answering_as_if(
    snapshot: Snapshot, *changes: Change, uids: Iterable[str], now_ns: int, limits: Limits = LIMITS, wall_s: int = 0
) -> Steps[Answer]:
    """Do so in steps, which have to be given up when the cluster changes between two of them."""
    changed = snapshot.with_(*changes)
    yield costs.of_changing(snapshot)
    yield from filing_touched(changed, now_ns)
    decision = yield from deciding(changed, now_ns, limits, wall_s=wall_s)
    for number, note in enumerate(decision.notes):
        if number % _NOTES_AT_ONCE == 0:
            yield _NOTES_AT_ONCE * _NOTING
        note.take(changed.backlog)  # its own: with_ made it
    yield _NOTING
    said = changed.backlog.said
    return Answer(decision, {uid: verdict for uid in uids if (verdict := said.verdict(uid)) is not None})


def filed(snapshot: Snapshot, *changes: Change, now_ns: int) -> Snapshot:
    """Return a snapshot with these changes that can be decided on."""
    changed = snapshot.with_(*changes)
    file_touched(changed, now_ns)
    return changed
