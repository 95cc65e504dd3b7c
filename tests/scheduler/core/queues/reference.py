"""Division as KAI's contract words it (4.5), in exact fractions: slow, plain, and sharing nothing with the product."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

UNLIMITED = None


@dataclass
class Asker:
    """One queue. ``quota`` and ``limit`` None: without end. ``age``: smaller is older."""

    quota: int | None
    limit: int | None
    weight: Fraction
    priority: int
    asked: int
    age: int
    used: Fraction = Fraction(0)


def shares(total: int, askers: list[Asker], *, unit: int, k: Fraction = Fraction(1)) -> list[int]:
    """The fair share of each, in their order."""
    most = [asker.asked if asker.limit is None else min(asker.limit, asker.asked) for asker in askers]
    given = [min(total if asker.quota is None else asker.quota, top) for asker, top in zip(askers, most, strict=True)]
    left = total - sum(given)
    if left <= 0:
        return given
    cut_off: dict[int, Fraction] = {}
    priorities = sorted({asker.priority for asker in askers}, reverse=True)
    for priority in priorities:
        again = True
        while left > 0 and again:
            hungry = [
                i
                for i, asker in enumerate(askers)
                if asker.priority == priority and asker.weight > 0 and given[i] < most[i]
            ]
            amount, again = left, False
            for i, offer in _offers(amount, [(i, askers[i]) for i in hungry], k):
                lacks = most[i] - given[i]
                cut_off.pop(i, None)
                gift = lacks
                if lacks > offer:
                    gift = int(offer / unit) * unit
                    cut_off[i] = offer - gift
                again |= lacks < offer
                given[i] += gift
                left -= gift
    for priority in priorities:
        waiting = [i for i in cut_off if askers[i].priority == priority and cut_off[i] > 0]
        for i in sorted(waiting, key=lambda i: (-cut_off[i], askers[i].age)):
            gift = min(unit, left, most[i] - given[i])
            given[i] += gift
            left -= gift
    return given


def _offers(amount: int, hungry: list[tuple[int, Asker]], k: Fraction) -> list[tuple[int, Fraction]]:
    """What each is offered in one round; nothing at all where nobody has a claim to more."""
    weights = sum((asker.weight for _, asker in hungry), Fraction(0))
    if not weights:
        return []
    normal = {i: asker.weight / weights for i, asker in hungry}
    portions = {i: max(Fraction(0), normal[i] + k * (normal[i] - asker.used)) for i, asker in hungry}
    whole = sum(portions.values())
    return [(i, amount * portions[i] / whole) for i, _ in hungry] if whole else []
