"""Whether a Queue may be created, changed or deleted: KAI's rules first, in KAI's order, then ours.

A value that is refused in a new queue, and that an old one has already, is a warning when something else is changed:
so a queue that came before the rule can be mended field by field.
"""

from __future__ import annotations

from typing import Final

from admission.objects.findings import Allowed, Finding, Judgement, Refused, Rule
from admission.objects.others import Others
from admission.objects.queue_fields import broken_fields
from admission.objects.queue_tree import above_limit, cycle, doubts, with_children
from wire.crds.queue import Queue

#: Warnings of one review. A queue may have thousands of children.
_MOST_WARNINGS: Final = 16


def judge_written(queue: Queue, *, old: Queue | None, others: Others | None) -> Judgement:
    """Judge a queue as it would be stored.

    ``old``: as it is stored, None if it is new. ``others``: all queues, None if they could not be read; then
    nothing that concerns them is checked, as in KAI without quota validation.
    """
    if queue.spec.resources is None:
        return Refused((Finding(rule=Rule.RESOURCES_MISSING, field="spec.resources", value=""),))
    found = list(broken_fields(queue))
    if others is not None and (circular := cycle(queue, others)) is not None:
        found.append(circular)
    known = {(each.field, each.value) for each in _broken_before(old, others)}
    is_old = [(each.field, each.value) in known for each in found]
    fresh = tuple(each for each, old_one in zip(found, is_old, strict=True) if not old_one)
    if fresh:
        return Refused(fresh)
    return Allowed((*found, *_warnings(queue, others))[:_MOST_WARNINGS])


def judge_deleted(queue: Queue, *, others: Others | None) -> Judgement:
    """Judge whether a queue may be deleted."""
    if others is None:
        return Allowed((_unknown(),))
    found = with_children(queue, others)
    return Allowed() if found is None else Refused((found,))


def _broken_before(old: Queue | None, others: Others | None) -> list[Finding]:
    """What was wrong already."""
    if old is None:
        return []
    circular = None if others is None else cycle(old, others)
    return [*broken_fields(old), *([circular] if circular is not None else ())]


def _warnings(queue: Queue, others: Others | None) -> list[Finding]:
    in_tree = [_unknown()] if others is None else list(doubts(queue, others))
    return [*in_tree, *above_limit(queue)]


def _unknown() -> Finding:
    return Finding(rule=Rule.OTHERS_UNKNOWN, field="", value="")
