"""Evictions for others within the last hour, in pieces of time, and as the texts of one ConfigMap each.

An eviction changes the piece of its time alone, so one write carries what was evicted in minutes, not in an hour. A
piece lists evictions by the namespace of the pods that room was made for (the *taker*): the bytes of a piece are
divided between takers, and an hour says how often a taker gave up what others were evicted for (takes.py).

What can't be read counts for nothing, and is named for the log. UIDs are written as in the record (written.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.room.written import MOST_TIMES, WINDOW_S, Texts, encode, is_count, long, sent_bytes, short, times_of
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
    """An intent that others are evicted for: when it was written (wall clock), and its holders (UIDs).

    ``parts``: the namespaces of its victims, and how much of the take each of them is, in thousandths.
    """

    at_s: int
    holders: tuple[str, ...]
    parts: Mapping[str, int]


class Counts(NamedTuple):
    """How many takes from one namespace were kept, and how many given up, in thousandths."""

    kept: int = 0
    given_up: int = 0


class Taken(msgspec.Struct, frozen=True):
    """What one taker did within a piece.

    ``evicted``: owner -> when, the oldest first. ``takes``: by the first holder, those of which nobody knows yet
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
    return encode([take.at_s, take.parts, *map(short, take.holders)])


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
        takes[take.holders[0]] = take
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
