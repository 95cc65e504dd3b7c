"""MIG slices of a card: where missing ones can be cut beside those in use, and how far that is."""

from __future__ import annotations

import enum
import functools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from wire.crds.gpunode import MOST_CARDS, CardStatus, GpuNode, MigLayout

#: No card has more. One that is said to have more is not cut.
MOST_MEMORY_SLICES: Final = 8


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Memory slices ``start`` to ``start + size - 1`` of a card."""

    start: int
    size: int

    @property
    def bits(self) -> int:
        """The same as a set of bits."""
        return ((1 << self.size) - 1) << self.start


@dataclass(frozen=True, slots=True)
class Profile:
    """Where a slice of a profile may lie, and how many of them a card can have at once."""

    places: tuple[Place, ...]
    most: int


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice that is there."""

    profile: str
    place: Place
    in_use: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """What to do: ``gone`` are destroyed, then ``new`` are made, each a profile and its place.

    ``lost``: free memory slices, each as often as there is a profile of which no slice can have it any more.
    """

    new: tuple[tuple[str, Place], ...]
    gone: tuple[Slice, ...]
    lost: int


def cut(slices: Sequence[Slice], profiles: Mapping[str, Profile], missing: Sequence[str]) -> Cut | None:
    """Return how to add slices of the ``missing`` profiles; None if they don't fit beside those in use.

    Of several ways the one that destroys the fewest slices, of these the one that loses the fewest memory slices, of
    these the one with the lowest places. Slices are never moved: one in use stays, one that is in the way is destroyed.
    None as well for a card whose slices or profiles can't be as they are said to be.

    A card has a row of memory slices, and its driver says at which places of the row a slice of each profile may lie. A
    slice that nobody uses may be destroyed for others. The search is exhaustive: a card has eight memory slices.
    Source: NVIDIA Multi-Instance GPU User Guide, "Partitioning"; NVML's GpuInstancePossiblePlacements.
    """
    is_too_much = len(missing) > MOST_MEMORY_SLICES or any(profile not in profiles for profile in missing)
    if is_too_much or _is_odd(slices, profiles):
        return None
    used = _union(each.place for each in slices if each.in_use)
    best: Cut | None = None
    for new in _ways(tuple(sorted(missing)), profiles, used):
        taken = _union(place for _, place in new)
        gone = tuple(each for each in slices if not each.in_use and each.place.bits & taken)
        if not _within_most(slices, gone, new, profiles):
            continue
        kept = _union(each.place for each in slices if each not in gone)
        found = Cut(new, gone, _lost(kept | taken, profiles))
        if best is None or _cost(found) < _cost(best):
            best = found
    return best


def _ways(
    missing: tuple[str, ...], profiles: Mapping[str, Profile], taken: int
) -> Iterator[tuple[tuple[str, Place], ...]]:
    """The ways to place slices beside what is taken, of those that take the same memory slices the lowest.

    Those of one profile are in the order of their places. What remains to be done depends on what is taken by then,
    so each such state is looked at once: at most 256 times the missing slices times their places.
    """
    seen: set[tuple[int, int, Place | None]] = set()

    def placed(at: int, taken: int, least: Place | None) -> Iterator[tuple[tuple[str, Place], ...]]:
        if (at, taken, least) in seen:
            return
        seen.add((at, taken, least))
        if at == len(missing):
            yield ()
            return
        profile = missing[at]
        is_same = at + 1 < len(missing) and missing[at + 1] == profile
        for place in sorted(profiles[profile].places):
            if not place.bits & taken and (least is None or place > least):
                for others in placed(at + 1, taken | place.bits, place if is_same else None):
                    yield (profile, place), *others

    yield from placed(0, taken, None)


def _within_most(
    slices: Sequence[Slice], gone: Sequence[Slice], new: Sequence[tuple[str, Place]], profiles: Mapping[str, Profile]
) -> bool:
    """Whether no new profile has more slices than a card can have of it at once."""
    numbers = Counter(each.profile for each in slices)
    numbers.subtract(each.profile for each in gone)
    numbers.update(profile for profile, _ in new)
    return all(numbers[profile] <= profiles[profile].most for profile, _ in new)


def _lost(taken: int, profiles: Mapping[str, Profile]) -> int:
    free = _union(place for profile in profiles.values() for place in profile.places) & ~taken
    return sum((free & ~_reached(profile, taken)).bit_count() for profile in profiles.values())


def _reached(profile: Profile, taken: int) -> int:
    """Memory slices that a further slice of the profile can have."""
    return _union(place for place in profile.places if not place.bits & taken)


def _union(places: Iterable[Place]) -> int:
    return functools.reduce(operator.or_, (place.bits for place in places), 0)


def _cost(found: Cut) -> tuple[int, int, tuple[Place, ...]]:
    return len(found.gone), found.lost, tuple(place for _, place in found.new)


def _is_odd(slices: Sequence[Slice], profiles: Mapping[str, Profile]) -> bool:
    """Whether slices overlap, or a place is beyond what a card can have."""
    places = [each.place for each in slices]
    if any(not _is_possible(each) for each in (*places, *(at for one in profiles.values() for at in one.places))):
        return True
    return sum(place.size for place in places) != _union(places).bit_count()


def _is_possible(place: Place) -> bool:
    return place.start >= 0 and place.size > 0 and place.start + place.size <= MOST_MEMORY_SLICES


_UNDER_WAY: Final = "underway"
_FAILED: Final = "failed"
#: Of a text that others wrote, in characters.
_LONGEST: Final = 120


class Stage(enum.Enum):
    """How far an attempt has come."""

    #: The agent has not taken it up.
    ASKED = "asked"
    UNDER_WAY = "under way"
    FAILED = "failed"


class GpuPartitioning(msgspec.Struct, frozen=True):
    """An attempt that has not ended, or has failed. ``index`` -1: the GPU is not shown.

    ``layout``: all slices that the GPU is to have. ``why``: the driver's words.
    """

    uuid: str
    index: int
    stage: Stage
    layout: tuple[str, ...]
    why: str = ""


def partitionings(report: GpuNode) -> tuple[GpuPartitioning, ...]:
    """Return what is asked of a node's GPUs and has not come about, by index. For what people read (docs/mig.md).

    What the agent and users write on a GpuNode is bounded: texts are cut.
    """
    cards = {card.uuid: card for card in (report.status.cards or ())[:MOST_CARDS]}
    found = (_partitioned(asked, cards.get(asked.uuid)) for asked in (report.spec.mig or ())[:MOST_CARDS])
    return tuple(sorted((one for one in found if one is not None), key=lambda one: (one.index, one.uuid)))


def _partitioned(asked: MigLayout, card: CardStatus | None) -> GpuPartitioning | None:
    told = None if card is None else card.partitioning
    stage, why = Stage.ASKED, ""
    if told is not None and told.attempt == asked.attempt:
        if told.state not in {_UNDER_WAY, _FAILED}:
            return None
        stage = Stage.UNDER_WAY if told.state == _UNDER_WAY else Stage.FAILED
        why = told.why[:_LONGEST]
    places = sorted((each.start, each.profile) for each in asked.layout[:MOST_MEMORY_SLICES])
    layout = tuple(f"{profile[:_LONGEST]} at {start}" for start, profile in places)
    return GpuPartitioning(asked.uuid[:_LONGEST], -1 if card is None else card.index, stage, layout, why)
