"""What may be written of new intents: bytes are divided between the namespaces that room is made for.

The less others leave free, the smaller is the part of it that a namespace may have: of a text of ``T`` bytes, of which
others leave ``F``, it may have ``3/4 * F * F / T``. So one alone may fill three quarters, a second one then 1/21, and
when 40 have taken all that they may, three hundredths are free, and the next one has room for an intent. What is
written stays; nobody's room depends on what one other namespace does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.model.room import Intent
from scheduler.core.room.written import FRAME_BYTES, MOST_BYTES, MOST_TIMES, Record, Texts, owners
from scheduler.core.room.written_hour import WHOLE, Hour, Piece, Take, Taken, counts_bytes, size, take_bytes

#: The part of an empty text that a namespace may have.
SHARE: Final = (3, 4)


@dataclass(slots=True)
class Shares:
    """Bytes of one text, by namespace."""

    most: int
    used: dict[str, int]
    _total: int = field(init=False)

    def __post_init__(self) -> None:
        self._total = sum(self.used.values())

    def may_have(self, namespace: str, more: int) -> bool:
        """Whether a namespace may have this number of bytes more."""
        mine = self.used.get(namespace, 0)
        left = self.most - (self._total - mine)
        return mine + more <= left and SHARE[1] * (mine + more) * self.most <= SHARE[0] * left * left

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

    def more(self, intent: Intent) -> tuple[int, dict[str, tuple[int, ...]], Take | None]:
        """What an intent adds to its taker: bytes, times by owner, and the take."""
        known = self.piece.of.get(intent.namespace, Taken())
        before = self.evicted.get(intent.namespace, known.evicted)
        times = {owner: (*before.get(owner, ()), self.now_s)[-MOST_TIMES:] for owner in owners(intent)}
        takes = sum(self.texts.owner(owner, each)[1] for owner, each in times.items())
        takes -= sum(self.texts.owner(owner, before[owner])[1] for owner in times if owner in before)
        take = self._take(intent)
        if take is not None:
            sources = self._sources(intent.namespace)
            takes += take_bytes(take) + sum(counts_bytes(each) for each in take.parts if each not in sources)
        if intent.namespace not in self.piece.of and intent.namespace not in self.evicted:
            takes += size(intent.namespace, Taken(), self.texts)
        return takes, times, take

    def _sources(self, taker: str) -> set[str]:
        """The namespaces that a taker takes from, read once."""
        if taker not in self.sources:
            self.sources[taker] = self.piece.of.get(taker, Taken()).sources
        return self.sources[taker]

    def _take(self, intent: Intent) -> Take | None:
        """What an intent takes from other namespaces; None if it takes nothing, or is known as it was before."""
        holders = tuple(place.pod_uid for place in intent.places)
        is_open = holders[0] in self.open or holders[0] in self.takes.get(intent.namespace, ())
        others = Counter(victim.namespace for victim in intent.victims if victim.namespace != intent.namespace)
        return Take(self.now_s, holders, _parts(others)) if others and not is_open else None

    def add(self, namespace: str, times: Mapping[str, tuple[int, ...]], take: Take | None) -> None:
        """Add it."""
        known = self.piece.of.get(namespace, Taken())
        self.evicted.setdefault(namespace, dict(known.evicted)).update(times)
        takes = self.takes.setdefault(namespace, dict(known.takes))
        if take is not None:
            takes[take.holders[0]] = take
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
    intents: Sequence[Intent],
    *,
    now_s: int,
    most_bytes: int = MOST_BYTES,
    texts: Texts | None = None,
) -> tuple[Record, Hour]:
    """The record with those of these intents that their namespaces have room for, in their order; the others wait.

    In the hour each owner of their victims is evicted once more, and each taker has taken once more.
    """
    texts = texts or Texts()
    standing = Shares(most_bytes - FRAME_BYTES, {})
    for intent in record.intents:
        standing.take(intent.namespace, texts.intent(intent)[1])
    piece = hour.at(now_s)
    evicted = Shares(
        most_bytes - FRAME_BYTES, {namespace: size(namespace, each, texts) for namespace, each in piece.of.items()}
    )
    adding = _Adding(piece, now_s, texts, open_takes(hour))
    kept = list(record.intents)
    for intent in intents:
        takes, (more, times, take) = texts.intent(intent)[1], adding.more(intent)
        if standing.may_have(intent.namespace, takes) and evicted.may_have(intent.namespace, more):
            standing.take(intent.namespace, takes)
            evicted.take(intent.namespace, more)
            adding.add(intent.namespace, times, take)
            kept.append(intent)
    return Record(tuple(kept)), hour.put(adding.added()) if adding.evicted else hour


def open_takes(hour: Hour) -> frozenset[str]:
    """First holders of takes that are not known to be kept or given up."""
    return frozenset(first for piece in hour.pieces for taken in piece.of.values() for first in taken.takes)
