"""What may be written of new nominations: bytes are divided between the namespaces that room is made for.

A revision takes the place of the version that is on record, and may have its bytes in any case. If it needs more than
its namespace has room for, that version stays until it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.model.preemption import Nomination
from scheduler.core.preemption.eviction_history import WHOLE, Hour, Piece, Take, Taken, counts_bytes, size, take_bytes
from scheduler.core.preemption.nomination_record import (
    FRAME_BYTES,
    MOST_BYTES,
    MOST_TIMES,
    Record,
    Texts,
    owners,
    pods_of,
)

#: The part of an empty text that a namespace may have: of the nominations, and of a piece of the hour.
SHARE: Final = (1, 2)
#: So one alone may fill three quarters of a piece: an eviction takes a third of the bytes of its nomination there.
_SHARE_OF_HOUR: Final = (3, 4)


@dataclass(slots=True)
class Shares:
    """Bytes of one text, by namespace: the less others leave free, the smaller is the part of it that one may have.

    Of a text of ``T`` bytes, of which others leave ``F``, it may have ``1/2 * F * F / T``. So one alone may fill half.
    Beside one that did so each other one may have an eighth, 112 KiB: a gang of 600 with a victim each, or of 100 with
    eight each, has room (``test_record_shares.py``). Beside more of them it is less, and when 40 have taken all that
    they may there is still room for a nomination. What is written stays. ``part``: what one alone may have of it.
    """

    most: int
    used: dict[str, int]
    part: tuple[int, int] = SHARE
    _total: int = field(init=False)

    def __post_init__(self) -> None:
        self._total = sum(self.used.values())

    def may_have(self, namespace: str, more: int) -> bool:
        """Whether a namespace may have this number of bytes more."""
        mine = self.used.get(namespace, 0)
        left = self.most - (self._total - mine)
        return mine + more <= left and self.part[1] * (mine + more) * self.most <= self.part[0] * left * left

    def take(self, namespace: str, more: int) -> None:
        """Have it take them."""
        self.used[namespace] = self.used.get(namespace, 0) + more
        self._total += more


@dataclass(slots=True)
class _Adding:
    """One piece of the hour to which evictions are added."""

    piece: Piece
    now_s: int
    texts: Texts
    open: frozenset[str]
    #: Takers to which something was added: theirs as it is now.
    evicted: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    takes: dict[str, dict[str, Take]] = field(default_factory=dict)
    sources: dict[str, set[str]] = field(default_factory=dict)

    def more(self, nomination: Nomination) -> tuple[int, dict[str, tuple[int, ...]], Take | None]:
        """What a nomination adds to its taker: bytes, times by owner, and the take."""
        known = self.piece.of.get(nomination.namespace, Taken())
        before = self.evicted.get(nomination.namespace, known.evicted)
        times = {owner: (*before.get(owner, ()), self.now_s)[-MOST_TIMES:] for owner in owners(nomination)}
        takes = sum(self.texts.owner(owner, each)[1] for owner, each in times.items())
        takes -= sum(self.texts.owner(owner, before[owner])[1] for owner in times if owner in before)
        take = self._take(nomination)
        if take is not None:
            sources = self._sources(nomination.namespace)
            takes += take_bytes(take) + sum(counts_bytes(each) for each in take.parts if each not in sources)
        if nomination.namespace not in self.piece.of and nomination.namespace not in self.evicted:
            takes += size(nomination.namespace, Taken(), self.texts)
        return takes, times, take

    def _sources(self, taker: str) -> set[str]:
        """The namespaces that a taker takes from, read once."""
        if taker not in self.sources:
            self.sources[taker] = self.piece.of.get(taker, Taken()).sources
        return self.sources[taker]

    def _take(self, nomination: Nomination) -> Take | None:
        """What a nomination takes from other namespaces; None if it takes nothing, or is known as it was before."""
        nominees = tuple(place.pod_uid for place in nomination.places)
        is_open = nominees[0] in self.open or nominees[0] in self.takes.get(nomination.namespace, ())
        others = Counter(victim.namespace for victim in nomination.victims if victim.namespace != nomination.namespace)
        return Take(self.now_s, nominees, _parts(others)) if others and not is_open else None

    def add(self, namespace: str, times: Mapping[str, tuple[int, ...]], take: Take | None) -> None:
        """Add it."""
        known = self.piece.of.get(namespace, Taken())
        self.evicted.setdefault(namespace, dict(known.evicted)).update(times)
        takes = self.takes.setdefault(namespace, dict(known.takes))
        if take is not None:
            takes[take.nominees[0]] = take
            self._sources(namespace).update(take.parts)

    def added(self) -> Piece:
        """The piece with all of it."""
        of = dict(self.piece.of)
        for namespace, evicted in self.evicted.items():
            known = of.get(namespace, Taken())
            takes = self.takes[namespace]
            of[namespace] = Taken(evicted, takes, known.counts, known.last_s)
        return Piece(self.piece.number, of)


def _parts(victims: Counter[str]) -> dict[str, int]:
    """How much of a take each namespace is, by its victims. What is left over is the first one's."""
    parts = {namespace: WHOLE * count // victims.total() for namespace, count in sorted(victims.items())}
    parts[min(parts)] += WHOLE - sum(parts.values())
    return parts


def added(
    record: Record,
    hour: Hour,
    nominations: Sequence[Nomination],
    *,
    now_s: int,
    most_bytes: int = MOST_BYTES,
    texts: Texts | None = None,
) -> tuple[Record, Hour]:
    """The record with those of these nominations that their namespaces have room for, in their order; the others wait.

    One that is on record is a revision, and takes the place of that version. In the hour each owner of their victims is
    evicted once more, and each taker has taken once more.
    """
    texts = texts or Texts()
    standing = Shares(most_bytes - FRAME_BYTES, {})
    for nomination in record.nominations:
        standing.take(nomination.namespace, texts.nomination(nomination)[1])
    piece = hour.at(now_s)
    used = {namespace: size(namespace, each, texts) for namespace, each in piece.of.items()}
    evicted = Shares(most_bytes - FRAME_BYTES, used, _SHARE_OF_HOUR)
    adding = _Adding(piece, now_s, texts, open_takes(hour))
    kept = {nomination.id: nomination for nomination in record.nominations}
    named = _named_before(kept, nominations)
    for nomination in sorted(nominations, key=lambda each: each.id not in kept):
        before = kept.get(nomination.id)
        had = 0 if before is None else texts.nomination(before)[1]
        takes, (more, times, take) = texts.nomination(nomination)[1] - had, adding.more(nomination)
        may_stand = takes <= 0 < had or standing.may_have(nomination.namespace, takes)
        is_free = all(named.get(uid, nomination.id) == nomination.id for uid in pods_of(nomination)) if named else True
        if may_stand and is_free and evicted.may_have(nomination.namespace, more):
            standing.take(nomination.namespace, takes)
            evicted.take(nomination.namespace, more)
            adding.add(nomination.namespace, times, take)
            kept[nomination.id] = nomination
            named = {uid: of for uid, of in named.items() if of != nomination.id}
    return Record(tuple(kept.values())), hour.put(adding.added()) if adding.evicted else hour


def _named_before(kept: Mapping[str, Nomination], nominations: Sequence[Nomination]) -> dict[str, str]:
    """Pods (UIDs) that no other nomination may name before a revision is written, with the id of that."""
    revised = [(kept[nomination.id], nomination) for nomination in nominations if nomination.id in kept]
    return {uid: old.id for old, new in revised for uid in {*pods_of(old)} - {*pods_of(new)}}


def open_takes(hour: Hour) -> frozenset[str]:
    """First nominated pods of takes that are not known to be kept or given up."""
    return frozenset(first for piece in hour.pieces for taken in piece.of.values() for first in taken.takes)
