"""Whether namespaces keep what others are evicted for: one that gives it up again and again waits before it takes more.

A *take* is an intent with victims of other namespaces. It is kept when all its holders are there ten minutes after it
was written, or were evicted for others themselves; it is given up when one of them ends before. A namespace that has
given up more takes within an hour than it has kept takes from no other one for a while: 30 s after the second one too
many, doubled with each further one, 10 minutes at most. So a namespace that keeps nothing takes at most ``MOST`` times
in an hour, one after the other, however many groups it has; what it takes at one time its queues bound.

Takes are compared by the namespace of their victims, in parts where these are of several. So nobody is evicted in vain
more often because a tenant keeps what one of its namespaces takes from another one.

A namespace is what a tenant has rights in, so a queue's other namespaces don't wait for one of them. Sizes don't count:
a gang of a thousand takes once, and a thousand pods that run for ten minutes have kept a thousand times.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from scheduler.core.room.written_hour import WHOLE, Counts, Hour, Piece, Take, Taken

#: A take whose holders are all there after this time is kept.
KEPT_S: Final = 600
#: Takes that a namespace may give up beyond those that it keeps, without a wait.
_FREE: Final = 1
_FIRST_S: Final = 30
_LONGEST_S: Final = 600
_MOST_DOUBLINGS: Final = 10
#: The most takes within an hour of a namespace that gives all of them up, one after the other.
MOST: Final = 12


class _Ended(enum.Enum):
    """How a take ended that was not given up."""

    KEPT = enum.auto()
    #: Nobody was evicted for it.
    NEVER = enum.auto()


class _Key(NamedTuple):
    number: int
    taker: str
    first: str


@dataclass(slots=True)
class _Balance:
    """Takes of one namespace that it gave up but for those that it keeps, in thousandths, by that of the victims.

    ``over``: the sum of those above 0. ``last_s``: when one was last given up.
    """

    of: dict[str, int] = field(default_factory=dict)
    over: int = 0
    last_s: int = 0

    def add(self, parts: Mapping[str, int], times: int) -> None:
        """Count parts of a take this number of times."""
        for namespace, part in parts.items():
            before = self.of.get(namespace, 0)
            self.of[namespace] = before + times * part
            self.over += max(self.of[namespace], 0) - max(before, 0)


class Takes:
    """Takes of the hour on record that are open, and what became of them since it was written."""

    def __init__(self) -> None:
        self._hour = Hour()
        #: By holder (UID).
        self._of: dict[str, list[_Key]] = {}
        #: How takes ended: when one was given up, or how else.
        self._ended: dict[_Key, int | _Ended] = {}
        #: By taker, of these pieces (numbers).
        self._balances: dict[str, _Balance] = {}
        self._balanced: tuple[int, ...] = ()

    def have(self, hour: Hour) -> None:
        """Go on from this hour."""
        self._hour, self._of, self._balanced = hour, {}, ()
        for key, take in self._open():
            for uid in take.holders:
                self._of.setdefault(uid, []).append(key)
        open_keys = {key for keys in self._of.values() for key in keys}
        self._ended = {key: how for key, how in self._ended.items() if key in open_keys}

    def _open(self) -> Iterator[tuple[_Key, Take]]:
        for piece in self._hour.pieces:
            for taker, taken in piece.of.items():
                for first, take in taken.takes.items():
                    yield _Key(piece.number, taker, first), take

    @property
    def known(self) -> Hour:
        """The hour that this goes on from."""
        return self._hour

    @property
    def has_news(self) -> bool:
        """Whether the hour on record lacks how a take ended."""
        return bool(self._ended)

    # --- what happens ------------------------------------------------------------------------------------------------
    def gone(self, uid: str, now_s: int, *, taken_by: str = "") -> bool:
        """Take that a pod is gone, or has ended; return whether it was a holder.

        ``taken_by``: the namespace for whose pods it was evicted. A namespace that takes from itself gives up: else
        each pod of its own with a higher priority would end a take as kept.
        """
        keys = [key for key in self._of.get(uid, ()) if key not in self._ended]
        for key in keys:
            is_taken = taken_by not in {"", key.taker}
            is_kept = is_taken or now_s >= self._take(key).at_s + KEPT_S
            self._end(key, _Ended.KEPT if is_kept else now_s)
        return bool(keys)

    def never(self, first: str) -> None:
        """Take that nobody was evicted for the take of this first holder."""
        for key in self._of.get(first, ()):
            if key.first == first:
                self._end(key, _Ended.NEVER)

    def settle(self, now_s: int, is_there: Callable[[str], bool]) -> None:
        """Note takes that were kept long enough, and holders that went unseen (``is_there``: pods by UID)."""
        for key, take in self._open():
            if key in self._ended:
                continue
            if now_s >= take.at_s + KEPT_S:
                self._end(key, _Ended.KEPT)
            elif not all(map(is_there, take.holders)):
                self._end(key, now_s)

    def _end(self, key: _Key, how: int | _Ended) -> None:
        """Note how a take ended. While it was open it counted as kept."""
        self._ended[key] = how
        if how is _Ended.KEPT or key.number not in self._balanced:
            return
        balance, parts = self._balances[key.taker], self._take(key).parts
        balance.add(parts, 1)
        if isinstance(how, int):
            balance.add(parts, 1)
            balance.last_s = max(balance.last_s, how)

    def _take(self, key: _Key) -> Take:
        piece = next(each for each in self._hour.pieces if each.number == key.number)
        return piece.of[key.taker].takes[key.first]

    # --- what follows ------------------------------------------------------------------------------------------------
    def hour(self) -> Hour:
        """The hour with all that ended."""
        hour, numbers = self._hour, {key.number for key in self._ended}
        for piece in self._hour.pieces:
            if piece.number in numbers:
                hour = hour.put(Piece(piece.number, {taker: self._now(piece, taker) for taker in piece.of}))
        return hour

    def _now(self, piece: Piece, taker: str) -> Taken:
        known = piece.of[taker]
        ended = [(first, self._ended.get(_Key(piece.number, taker, first))) for first in known.takes]
        if all(how is None for _, how in ended):
            return known
        counts, last_s = dict(known.counts), known.last_s
        for first, how in ended:
            if how is None or how is _Ended.NEVER:
                continue
            for namespace, part in known.takes[first].parts.items():
                kept, given_up = counts.get(namespace, Counts())
                is_kept = how is _Ended.KEPT
                counts[namespace] = Counts(kept + part, given_up) if is_kept else Counts(kept, given_up + part)
            last_s = max(last_s, how) if isinstance(how, int) else last_s
        takes = {first: known.takes[first] for first, how in ended if how is None}
        return msgspec.structs.replace(known, takes=takes, counts=counts, last_s=last_s)

    def waits(self, now_s: int) -> dict[str, int]:
        """Namespaces that take from no other one now, and until when (wall clock)."""
        counting = tuple(piece.number for piece in self._hour.counting(now_s))
        if counting != self._balanced:
            self._balances, self._balanced = _balances(self.hour(), now_s), counting
        found = {
            taker: waits_until_s(balance.over // WHOLE, min(balance.last_s, now_s))
            for taker, balance in self._balances.items()
            if balance.over
        }
        return {taker: until_s for taker, until_s in found.items() if until_s > now_s}


def _balances(hour: Hour, now_s: int) -> dict[str, _Balance]:
    found: dict[str, _Balance] = {}
    for piece in hour.counting(now_s):
        for taker, taken in piece.of.items():
            balance = found.setdefault(taker, _Balance())
            for take in taken.takes.values():
                balance.add(take.parts, -1)
            balance.add({namespace: counts.given_up - counts.kept for namespace, counts in taken.counts.items()}, 1)
            balance.last_s = max(balance.last_s, taken.last_s)
    return found


def waits_until_s(over: int, last_s: int) -> int:
    """Until when a namespace takes nothing. ``over``: given up but for those that it kept; ``last_s``: the last."""
    if over <= _FREE:
        return 0
    return last_s + min(_FIRST_S << min(over - _FREE - 1, _MOST_DOUBLINGS), _LONGEST_S)


def waits_of(hour: Hour, now_s: int) -> dict[str, int]:
    """What an hour on record says of namespaces that take from no other one, and until when."""
    takes = Takes()
    takes.have(hour)
    return takes.waits(now_s)
