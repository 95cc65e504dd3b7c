"""Which GPUs of a node are cut, and how, so that it has slices that it lacks: each GPU takes as many as it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from gpu.miglayout import MOST_MEMORY_SLICES, Cut, Place, Slice, cut
from gpu.slices import slice_resource
from scheduler.core.model.mig_card import MigCard

#: Searches in one look, and results that are kept.
MOST_SEARCHES: Final = 32
_MOST_KNOWN: Final = 4096


class CardCut(msgspec.Struct, frozen=True):
    """A GPU's new layout, all slices of it. ``gone`` and ``new``: how many slices of each resource go and come."""

    uuid: str
    layout: tuple[tuple[str, int], ...]
    gone: tuple[tuple[str, int], ...]
    new: tuple[tuple[str, int], ...]
    #: Slices destroyed, memory slices lost to profiles, and memory slices that stay free: fewer are better.
    cost: tuple[int, int, int]


@dataclass(slots=True)
class Cutter:
    """Searches GPUs for cuts, and knows those that it found: most GPUs are like another one.

    ``left``: searches that may still be made in this look. One takes up to ten milliseconds.
    """

    left: int = 0
    _known: dict[object, Cut | None] = field(default_factory=dict)

    def begin(self, most: int = MOST_SEARCHES) -> None:
        """Begin a look."""
        self.left = most
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()

    def best(self, slices: tuple[Slice, ...], card: MigCard, wanted: tuple[str, ...]) -> Cut | None:
        """Return the cut with the most of what is wanted, in its order; None: there is none, or no time to search."""
        key = (slices, tuple(card.profiles.items()), wanted)
        if key not in self._known:
            if self.left <= 0:
                return None
            self.left -= 1
            self._known[key] = _search(slices, card, wanted)
        return self._known[key]


def _search(slices: Sequence[Slice], card: MigCard, wanted: Iterable[str]) -> Cut | None:
    taken: list[str] = []
    best: Cut | None = None
    for profile in wanted:
        if len(taken) == MOST_MEMORY_SLICES:
            break
        one = cut(slices, card.profiles, [*taken, profile])
        if one is not None:
            taken, best = [*taken, profile], one
    return best


def cuts(
    cutter: Cutter, cards: Iterable[MigCard], missing: Counter[str], spoken: Mapping[str, int]
) -> tuple[list[CardCut], Counter[str]]:
    """Return cuts of a node's GPUs, and what they leave missing. ``spoken``: free slices that pods are on their way to.

    Nobody knows which of the free slices these are, so all of such a resource count as in use.
    """
    left, found, there = missing.copy(), list[CardCut](), list(cards)
    while left.total() and there:
        best: tuple[tuple[int, tuple[int, int, int]], CardCut, MigCard] | None = None
        for card in there:
            one = _cut(cutter, card, left, spoken)
            if one is not None:
                rank = (-sum(number for _, number in one.new), one.cost)
                if best is None or rank < best[0]:
                    best = (rank, one, card)
        if best is None:
            break
        found.append(best[1])
        there.remove(best[2])
        left -= Counter(dict(best[1].new))
    return found, +left


def _cut(cutter: Cutter, card: MigCard, missing: Counter[str], spoken: Mapping[str, int]) -> CardCut | None:
    """As much of what is missing as the GPU takes beside its slices in use; None if that is nothing."""
    names = {slice_resource(profile): profile for profile in card.profiles}
    wanted = [names[resource] for resource in missing.elements() if resource in names]
    wanted = sorted(wanted, key=lambda profile: -_size(card, profile))[: 2 * MOST_MEMORY_SLICES]
    if any(not each.is_whole and each.in_use for each in card.slices):
        return None  # a layout can't name it, so it would be destroyed
    slices = tuple(
        Slice(each.profile, Place(each.start, each.size), each.in_use or bool(spoken.get(each.resource)))
        for each in card.slices
    )
    best = cutter.best(slices, card, tuple(wanted))
    return None if best is None else _card_cut(card, slices, best)


def _size(card: MigCard, profile: str) -> int:
    return max((place.size for place in card.profiles[profile].places), default=0)


def _card_cut(card: MigCard, slices: Sequence[Slice], best: Cut) -> CardCut:
    kept = [each for each in slices if each not in best.gone]
    layout = [(each.profile, each.place.start) for each in kept]
    layout += [(profile, place.start) for profile, place in best.new]
    used = sum(each.place.size for each in kept if each.in_use)
    return CardCut(
        uuid=card.uuid,
        layout=tuple(sorted(layout, key=lambda each: each[1])),
        gone=_counted(each.profile for each in best.gone),
        new=_counted(profile for profile, _ in best.new),
        cost=(len(best.gone), best.lost, MOST_MEMORY_SLICES - used),
    )


def _counted(profiles: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(map(slice_resource, profiles)).items()))
