"""Answers of searches that found nobody: what proves that, what keeps the others, and one answer for all actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.core.model.preemption import Bound, Kept, KeptPods, NoRoom
from scheduler.core.model.verdict import Code
from scheduler.core.room.sifting import Sifted

#: How far a search came before it was answered no.
_FARTHEST: Final = (Bound.DELAY, Bound.CLAIMS, Bound.GIVEN_UP, Bound.QUEUE, Bound.CANDIDATES, Bound.NODES, None)


def no_room(sifted: Sifted, bound: Bound | None, code: Code | None = None) -> NoRoom:
    """No room, with what keeps others. ``bound``: what proves it; ``code``: what the queue says."""
    kept = tuple(sifted.kept[why] for why in Kept if why in sifted.kept)
    times = [each.until_s for each in kept if each.until_s]
    return NoRoom(bound=bound, queue_code=code, kept=kept, until_s=min(times, default=0))


def joined(refused: Sequence[NoRoom]) -> NoRoom:
    """One answer for all actions: proven if each is."""
    kept: dict[Kept, list[KeptPods]] = {}
    for each in (each for answer in refused for each in answer.kept):
        kept.setdefault(each.why, []).append(each)
    times = [answer.until_s for answer in refused if answer.until_s]
    last = max(refused, key=lambda answer: _FARTHEST.index(answer.bound))
    return NoRoom(
        bound=last.bound,
        queue_code=last.queue_code,
        kept=tuple(_together(why, parts) for why, parts in kept.items()),
        until_s=min(times, default=0),
    )


def _together(why: Kept, parts: Sequence[KeptPods]) -> KeptPods:
    times = [part.until_s for part in parts if part.until_s]
    pods, nano = sum(part.pods for part in parts), sum(part.nano_gpu for part in parts)
    return KeptPods(why, pods, nano, min(times, default=0))
