"""Which GPUs of a node are cut, and how, so that it has slices that it lacks: each GPU takes as many as it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from gpu.mig import MOST_MEMORY_SLICES, Cut, Place, Slice, cut
from gpu.node_resources import slice_resource
from scheduler.core.model.mig import MigCard

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


class Best(msgspec.Struct, frozen=True):
    """The best cut of GPUs of one kind. ``rank``: less is better. The ``uuid`` of ``cut`` is that of any of them."""

    rank: tuple[int, tuple[int, int, int]]
    cut: CardCut

    def of(self, card: MigCard) -> CardCut:
        """The same cut of another GPU of the kind."""
        return msgspec.structs.replace(self.cut, uuid=card.uuid)


#: Resources with their numbers, sorted by name.
_Amounts: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Cutter:
    """Searches GPUs for cuts, and knows those that it found: most GPUs are like another one.

    ``left``: searches that may still be made in this look. One takes up to ten milliseconds.
    """

    left: int = 0
    #: By the GPU's kind, resources of which all free slices are spoken for, and what is missing.
    _known: dict[tuple[bytes, tuple[str, ...], _Amounts], Best | None] = field(default_factory=dict)
    #: By the same, and profiles in the order in which they are wanted.
    _searched: dict[tuple[bytes, tuple[str, ...], tuple[str, ...]], Cut | None] = field(default_factory=dict)

    def begin(self, most: int = MOST_SEARCHES) -> None:
        """Begin a look."""
        self.left = most
        for known in (self._known, self._searched):
            if len(known) > _MOST_KNOWN:
                known.clear()

    def best(
        self, card: MigCard, missing: _Amounts, spoken: tuple[str, ...], *, may_search: bool = True
    ) -> Best | None:
        """Return the cut with the most of what is missing; None: there is none, or no time to search."""
        key = (card.kind, spoken, missing)
        try:
            return self._known[key]
        except KeyError:
            if self.left <= 0 or not may_search:
                return None
        wanted = _wanted(card, missing)
        slices = _slices(card, spoken)
        if not wanted or any(not each.is_whole and each.in_use for each in card.slices):
            self._known[key] = None  # a layout can't name such a slice, so it would be destroyed
            return None
        search = (card.kind, spoken, wanted)
        if search not in self._searched:
            self.left -= 1
            self._searched[search] = _search(slices, card, wanted)
        found = self._searched[search]
        one = None if found is None else _card_cut(card, slices, found)
        best = None if one is None else Best((-sum(number for _, number in one.new), one.cost), one)
        self._known[key] = best
        return best


def _wanted(card: MigCard, missing: _Amounts) -> tuple[str, ...]:
    """Profiles of the GPU that are missing, each as often as it is, the largest first."""
    names = {slice_resource(profile): profile for profile in card.profiles}
    sizes = {name: _size(card, name) for name in card.profiles}
    wanted = (profile for resource, number in missing for profile in [names.get(resource)] * number)
    largest_first = sorted((each for each in wanted if each is not None), key=lambda each: -sizes[each])
    return tuple(largest_first[: 2 * MOST_MEMORY_SLICES])


def _slices(card: MigCard, spoken: Container[str]) -> tuple[Slice, ...]:
    """Its slices; free ones of a resource that pods are on their way to count as in use."""
    return tuple(
        Slice(each.profile, Place(each.start, each.size), each.in_use or each.resource in spoken)
        for each in card.slices
    )


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
    cutter: Cutter, cards: Iterable[MigCard], missing: Mapping[str, int], spoken: Collection[str], *, may_search: bool
) -> Generator[None, None, tuple[list[CardCut], Counter[str]]]:
    """Return cuts of a node's GPUs, and what they leave missing, in steps: each search ends one.

    ``spoken``: resources of which pods are on their way to some free slices. Nobody knows which of them these are, so
    all of such a resource count as in use. ``may_search``: without that it is one step, by what is known.
    """
    left = {resource: number for resource, number in missing.items() if number > 0}
    found, there, taken = list[CardCut](), list(cards), tuple(sorted(spoken))
    while left and there:
        wanted = tuple(sorted(left.items()))
        best: tuple[Best, MigCard] | None = None
        for card in there:
            searches = cutter.left
            one = cutter.best(card, wanted, taken, may_search=may_search)
            if cutter.left < searches:
                yield
            if one is not None and (best is None or one.rank < best[0].rank):
                best = one, card
        if best is None:
            break
        one, card = best
        found.append(one.of(card))
        there.remove(card)
        new = dict(one.cut.new)
        left = {resource: lacks for resource, number in left.items() if (lacks := number - new.get(resource, 0)) > 0}
    return found, Counter(left)


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
