"""How siblings divide what their parent has: KAI's rounds (kai-contract 4.5) in integers, one dimension at a time.

First each queue gets its quota, as far as it asks for it. What is left goes to those that ask for more, by weight, in
rounds: of one priority after the other, highest first. A round gives whole units; what is cut off remains to be given
at the end, one unit each, largest remainder first. So one input has one result, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

from scheduler.core.model.resources import UNLIMITED
from scheduler.core.queues.division_record import DivisionRecord, StepKind

_PPB: Final = 10**9


@dataclass(slots=True)
class Sibling:
    """One queue in one dimension. ``weight`` in millionths; ``age``: by it the older comes first (created, name).

    ``used_ppb``: what it used of the cluster over time, 0 where that does not count. ``fair``: the result.
    """

    quota: int
    limit: int
    weight: int
    priority: int
    asked: int
    age: tuple[str, str]
    used_ppb: int = 0
    fair: int = 0

    @property
    def most(self) -> int:
        """More than this it can't use."""
        return min(self.limit, self.asked)


#: A queue, and what was cut off its part of a round. All of a list have one denominator: they are of one round, since a
#: queue that got less than it wants takes part in the next.
_Remainders = list[tuple[Sibling, int]]


def divide(
    total: int,
    siblings: Sequence[Sibling],
    *,
    unit: int,
    k_milli: int = 1000,
    record: DivisionRecord | None = None,
) -> int:
    """Set the fair share of each, and return what nobody gets.

    Quotas are given in full even where they exceed ``total``. ``unit``: what is given as one piece. ``k_milli``: how
    much use over time counts, in thousandths. ``record``: takes each step.
    """
    left = total
    for each in siblings:
        each.fair = min(total if each.quota >= UNLIMITED else each.quota, each.most)
        left -= each.fair
    if record is not None:
        record.begin(total)
        record.note(StepKind.QUOTA, siblings, left)
    if left <= 0:
        return 0
    by_priority = sorted(siblings, key=attrgetter("priority"), reverse=True)
    classes = [list(group) for _, group in groupby(by_priority, key=attrgetter("priority"))]
    remainders: list[_Remainders] = []
    for group in classes:
        noting = partial(record.note, StepKind.ROUND, siblings, priority=group[0].priority) if record else None
        left, cut_off = _give_rounds(left, group, unit=unit, k_milli=k_milli, noting=noting)
        remainders.append(cut_off)
    for group, cut_off in zip(classes, remainders, strict=True):
        left = _give_remainders(left, cut_off, unit=unit)
        if record is not None:
            record.note(StepKind.LEFTOVER, siblings, left, priority=group[0].priority)
    return left


def _give_rounds(
    left: int, siblings: Sequence[Sibling], *, unit: int, k_milli: int, noting: Callable[[int], None] | None = None
) -> tuple[int, _Remainders]:
    """Give by weight until nobody wants less than it is offered. Each further round satisfies one queue at least.

    ``noting`` is called after each round, with what is left.
    """
    remainders: _Remainders = []
    again = True
    while left > 0 and again:
        wanting = [each for each in siblings if each.weight > 0 and each.fair < each.most]
        weights = sum(each.weight for each in wanting)
        scores = [_score(each, weights, k_milli) for each in wanting]
        all_scores = sum(scores)
        if not all_scores:
            break
        offer, again, remainders = left, False, []
        for each, score in zip(wanting, scores, strict=True):
            wants, part = each.most - each.fair, offer * score
            given = wants if wants * all_scores <= part else part // all_scores // unit * unit
            each.fair += given
            left -= given
            if given < wants:
                remainders.append((each, part - given * all_scores))
            again |= wants * all_scores < part
        if noting is not None:
            noting(left)
    return left, remainders


def _score(sibling: Sibling, weights: int, k_milli: int) -> int:
    """Its part of what is left, by weight, less what it has used above that over time."""
    return max(0, sibling.weight * (1000 + k_milli) * _PPB - k_milli * sibling.used_ppb * weights)


def _give_remainders(left: int, remainders: _Remainders, *, unit: int) -> int:
    """Give one unit to each, largest remainder first, then older; never more than it asks."""
    for each, over in sorted(remainders, key=lambda one: (-one[1], one[0].age)):
        given = min(unit, left, each.most - each.fair) if over else 0
        each.fair += given
        left -= given
    return left
