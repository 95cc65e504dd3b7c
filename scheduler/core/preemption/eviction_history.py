"""Evictions for others within the last hour, and whether namespaces keep what others are evicted for.

The hour is kept in pieces of time, each the text of one ConfigMap. An eviction changes the piece of its time alone, so
one write carries what was evicted in minutes, not in an hour. A piece lists evictions by the namespace of the pods that
room was made for (the *taker*).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.preemption.nomination_record import (
    MOST_TIMES,
    WINDOW_S,
    Texts,
    encode,
    is_count,
    long,
    sent_bytes,
    short,
    times_of,
)
from wire import names

#: The key of each ConfigMap that has the text.
KEY: Final = "evictions"
#: A piece is used again when all in it has counted for an hour: 8 * 520 s are an hour and the span of one piece.
PIECES: Final = 8
SPAN_S: Final = 520
#: What a taker takes beside its evictions, and each namespace that it takes from: its counts, at their longest.
_TAKER_BYTES: Final = 120
_COUNTS_BYTES: Final = 40
#: A take, in parts.
WHOLE: Final = 1000
#: Numbers of JSON are exact below.
_MOST: Final = 1 << 53
_ALLOWED: Final = "allowed: 0 and above, below 2^53"


def piece_names(pool: NodePool | None) -> tuple[str, ...]:
    """Names of the ConfigMaps, one for each piece."""
    return tuple(own_name(f"{names.EVICTIONS}-{number}", pool) for number in range(PIECES))


class Take(NamedTuple):
    """A nomination with victims of other namespaces: when it was written (wall clock), and its nominated pods (UIDs).

    It is kept when all its pods are there ten minutes after it was written, or were evicted for others themselves; it
    is given up when one of them ends before that. ``parts``: the namespaces of its victims, and how much of the take
    each of them is, in thousandths.
    """

    at_s: int
    nominees: tuple[str, ...]
    parts: Mapping[str, int]


class Counts(NamedTuple):
    """How many takes from one namespace were kept, and how many given up, in thousandths."""

    kept: int = 0
    given_up: int = 0


class Taken(msgspec.Struct, frozen=True):
    """What one taker did within a piece.

    ``evicted``: owner -> when, the oldest first. ``takes``: by the first nominated pod, those of which nobody knows yet
    whether they are kept. ``counts``: of those that ended, by the namespace of the victims; ``last_s``: when one was
    last given up.
    """

    evicted: Mapping[str, tuple[int, ...]] = {}
    takes: Mapping[str, Take] = {}
    counts: Mapping[str, Counts] = {}
    last_s: int = 0

    @property
    def sources(self) -> set[str]:
        """The namespaces that it takes from."""
        return {*self.counts, *(namespace for take in self.takes.values() for namespace in take.parts)}


class Piece(msgspec.Struct, frozen=True):
    """``number``: which span since the epoch; ``of``: by taker."""

    number: int = 0
    of: Mapping[str, Taken] = {}

    def counts(self, now_s: int) -> bool:
        """Whether something in it may be less than an hour old."""
        return now_s < (self.number + 1) * SPAN_S + WINDOW_S


class Hour(msgspec.Struct, frozen=True):
    """All pieces, each at its number modulo ``PIECES``."""

    pieces: tuple[Piece, ...] = tuple(map(Piece, range(PIECES)))

    @staticmethod
    def of(texts: Iterable[str]) -> tuple[Hour, tuple[str, ...]]:
        """The hour of all texts, by piece, and what of them could not be read, in words."""
        hour, unread = Hour(), list[str]()
        for at, text in enumerate(texts):
            piece, problems = read(text)
            unread += (f"{names.EVICTIONS}-{at}: {problem}" for problem in problems)
            hour = hour.put(piece) if piece.number % PIECES == at else hour
        return hour, tuple(unread)

    def at(self, now_s: int) -> Piece:
        """The piece of this time, empty if there was none."""
        known = self.pieces[now_s // SPAN_S % PIECES]
        return known if known.number == now_s // SPAN_S else Piece(now_s // SPAN_S)

    def put(self, piece: Piece) -> Hour:
        """The hour with this piece."""
        at = piece.number % PIECES
        return Hour((*self.pieces[:at], piece, *self.pieces[at + 1 :]))

    def counting(self, now_s: int) -> Iterator[Piece]:
        """Pieces that count, the oldest first."""
        return iter(sorted((piece for piece in self.pieces if piece.counts(now_s)), key=lambda each: each.number))

    def evicted(self, now_s: int) -> dict[str, tuple[int, ...]]:
        """When pods of each owner were evicted within the hour, the oldest first."""
        found: dict[str, tuple[int, ...]] = {}
        for piece in self.counting(now_s):
            for taken in piece.of.values():
                for owner, times in taken.evicted.items():
                    found[owner] = (*found[owner], *times) if owner in found else times
        return {owner: left for owner, times in found.items() if (left := _newest(times, now_s))}


def _newest(times: tuple[int, ...], now_s: int) -> tuple[int, ...]:
    return tuple(sorted(at_s for at_s in times if at_s > now_s - WINDOW_S)[-MOST_TIMES:])


# --- writing ---------------------------------------------------------------------------------------------------------
def size(namespace: str, taken: Taken, texts: Texts) -> int:
    """The bytes that a taker takes in a piece as it is sent, at most."""
    evicted = sum(texts.owner(owner, times)[1] for owner, times in taken.evicted.items())
    takes = sum(map(take_bytes, taken.takes.values())) + sum(map(counts_bytes, taken.sources))
    return _TAKER_BYTES + len(namespace) + evicted + takes


def take_bytes(take: Take) -> int:
    """The bytes that a take is sent as."""
    return sent_bytes(_take_text(take)) + 1


def counts_bytes(namespace: str) -> int:
    """The bytes that counts of a namespace are sent as, at most."""
    return _COUNTS_BYTES + sent_bytes(encode(namespace))


def written(piece: Piece, texts: Texts) -> str:
    """A piece as text."""
    of = b",".join(
        encode(namespace) + b":" + _taken_text(taken, texts) for namespace, taken in sorted(piece.of.items())
    )
    return (b'{"number":' + encode(piece.number) + b',"of":{' + of + b"}}").decode()


def _taken_text(taken: Taken, texts: Texts) -> bytes:
    evicted = b",".join(sorted(texts.owner(owner, times)[0] for owner, times in taken.evicted.items()))
    takes = b",".join(sorted(map(_take_text, taken.takes.values())))
    counts, last_s = encode(taken.counts), encode(taken.last_s)
    return b'{"counts":' + counts + b',"evicted":{' + evicted + b'},"last_s":' + last_s + b',"takes":[' + takes + b"]}"


def _take_text(take: Take) -> bytes:
    return encode([take.at_s, take.parts, *map(short, take.nominees)])


# --- reading ---------------------------------------------------------------------------------------------------------
class _Taken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    counts: dict[str, tuple[int, int]]
    evicted: dict[str, list[Any]]
    last_s: int
    takes: list[list[Any]]


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int
    of: dict[str, _Taken]


_decoder: Final = msgspec.json.Decoder(_Text)


def read(text: str | bytes) -> tuple[Piece, tuple[str, ...]]:
    """What a text says, and what of it could not be read, in words. Nothing in it raises."""
    if not text:
        return Piece(), ()
    try:
        said = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return Piece(), (f"nothing can be read: {error}",)
    if not 0 <= said.number < _MOST // SPAN_S:
        return Piece(), (f"number: {said.number}; allowed: 0 and above, below 2^53 seconds",)
    unread: list[str] = []
    found = {namespace: _taken(each, f"{namespace!r:.80}", unread) for namespace, each in said.of.items()}
    return Piece(said.number, found), tuple(unread)


def _taken(said: _Taken, of: str, unread: list[str]) -> Taken:
    evicted: dict[str, tuple[int, ...]] = {}
    for owner, times in said.evicted.items():
        try:
            evicted[long(owner)] = times_of(times)
        except ValueError as error:
            unread.append(f"{of}: evicted: {owner!r:.80}: {error}")
    takes: dict[str, Take] = {}
    for each in said.takes:
        try:
            take = _take(each)
        except ValueError as error:
            unread.append(f"{of}: takes: {error}")
            continue
        takes[take.nominees[0]] = take
    counts = {namespace: Counts(*each) for namespace, each in said.counts.items() if all(map(is_count, each))}
    unread += (f"{of}: counts: {said.counts[each]}; {_ALLOWED}" for each in said.counts if each not in counts)
    if not is_count(said.last_s):
        unread.append(f"{of}: last_s: {said.last_s}; {_ALLOWED}")
    return Taken(evicted, takes, counts, said.last_s if is_count(said.last_s) else 0)


def _take(said: list[Any]) -> Take:
    if len(said) < 3 or not is_count(said[0]) or not all(isinstance(uid, str) for uid in said[2:]):
        raise ValueError(f"{said!r:.80}; allowed: a time in seconds, namespaces, and UIDs")
    parts = said[1]
    if not isinstance(parts, dict) or not all(map(is_count, parts.values())) or sum(parts.values()) != WHOLE:
        raise ValueError(f"{parts!r:.80}; allowed: parts of {WHOLE} by namespace")
    return Take(said[0], tuple(map(long, said[2:])), parts)


#: A take whose nominated pods are all there after this time is kept.
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
        #: By nominated pod (UID).
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
            for uid in take.nominees:
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
        """Take that a pod is gone, or has ended; return whether it was a nominated pod.

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
        """Take that nobody was evicted for the take of this first nominated pod."""
        for key in self._of.get(first, ()):
            if key.first == first:
                self._end(key, _Ended.NEVER)

    def settle(self, now_s: int, is_there: Callable[[str], bool]) -> None:
        """Note takes that were kept long enough, and nominated pods that went unseen (``is_there``: pods by UID)."""
        for key, take in self._open():
            if key in self._ended:
                continue
            if now_s >= take.at_s + KEPT_S:
                self._end(key, _Ended.KEPT)
            elif not all(map(is_there, take.nominees)):
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
    """Until when a namespace takes nothing. ``over``: given up but for those that it kept; ``last_s``: the last.

    A namespace that gives up again and again waits before it takes more.
    """
    if over <= _FREE:
        return 0
    return last_s + min(_FIRST_S << min(over - _FREE - 1, _MOST_DOUBLINGS), _LONGEST_S)


def waits_of(hour: Hour, now_s: int) -> dict[str, int]:
    """What an hour on record says of namespaces that take from no other one, and until when."""
    takes = Takes()
    takes.have(hour)
    return takes.waits(now_s)
