"""What may go wrong between a client and the API server, as data: a mishap a request, dealt in an order from a seed.

tools/faultyproxy.py lets them happen on a real connection.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec


class Kind(enum.Enum):
    """Requests that different things happen to."""

    READ = "read"
    WATCH = "watch"
    WRITE = "write"


class End(enum.Enum):
    """How an answer ends before its time, or goes on worse. The lines are a watch's."""

    NOT = "not"
    BREAKS = "the connection breaks between two lines"
    BREAKS_INSIDE = "the connection breaks inside a line, or inside the answer to a read"
    CLOSES = "the stream ends as if all were said"
    CLOSES_INSIDE = "the stream ends as if all were said, inside a line"
    GARBLES = "a line loses its second part, and the others come"
    EXPIRES = "410 Gone, as an event"
    FALLS_SILENT = "nothing comes any more"


class Mishap(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one request. The default is nothing."""

    name: str = ""
    #: The request is on its way for so long, in seconds.
    delay_s: float = 0.0
    #: Each line of a watch is, too, and those behind it wait.
    line_delay_s: float = 0.0
    #: Refused with this status instead of carried out; 0: not.
    refuse_with: int = 0
    retry_after_s: int = 0
    #: It is refused by something in between that does not speak Kubernetes.
    in_prose: bool = False
    #: The connection breaks before the request has been heard, or after it was carried out.
    lost: str = ""
    end: End = End.NOT
    #: So many lines come through before the end.
    after_lines: int = 0
    #: What comes through of a line, or of the answer to a read, that is cut.
    kept_permille: int = 500

    def cut(self, whole: bytes) -> bytes:
        """What comes through: something, and not all."""
        return whole[: min(max(1, len(whole) * self.kept_permille // 1000), len(whole) - 1)]


NOTHING: Final = Mishap()

_GONE = "The resourceVersion for the provided watch is too old."


def status(code: int, *, message: str = "by mishap") -> bytes:
    """A Status as the API server writes it."""
    reasons = {410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
    return msgspec.json.encode({**body, "reason": reasons.get(code, "")})


def expired_event() -> bytes:
    """The line that ends a watch whose version is too old."""
    return b'{"type":"ERROR","object":' + status(410, message=_GONE) + b"}\n"


class Fate(Protocol):
    """Says what goes wrong, and is told when it did: a watch may end by itself before its mishap strikes."""

    def deal(self, kind: Kind) -> Mishap:
        """What is to happen to a request that has just come."""
        ...

    def struck(self, mishap: Mishap) -> None:
        """It has happened."""
        ...


_REFUSALS: Final = (
    Mishap(name="429", refuse_with=429, retry_after_s=1),
    Mishap(name="500", refuse_with=500),
    Mishap(name="503 in prose", refuse_with=503, in_prose=True),
    Mishap(name="request lost", lost="request"),
)


def catalogue(rng: random.Random) -> dict[Kind, list[Mishap]]:
    """Everything that may go wrong, once of each kind, with details from ``rng``."""
    ends = [
        Mishap(name=end.value, end=end, after_lines=rng.randrange(4), kept_permille=rng.randrange(1, 1000))
        for end in End
        if end is not End.NOT
    ]
    inside = Mishap(name="answer breaks off", end=End.BREAKS_INSIDE, kept_permille=rng.randrange(1, 1000))
    answer_lost = Mishap(name="answer lost", lost="answer")
    late = Mishap(name="late", delay_s=rng.uniform(0.05, 0.2))
    gone = Mishap(name="410", refuse_with=410)
    late_lines = Mishap(name="late lines", line_delay_s=rng.uniform(0.005, 0.03))
    return {
        Kind.READ: [*_REFUSALS, gone, inside, answer_lost, late],
        Kind.WATCH: [*_REFUSALS, gone, *ends, late, late_lines],
        Kind.WRITE: [*_REFUSALS, answer_lost, late],
    }


class Deck:
    """Deals each mishap until it has struck once, in seeded order, with good luck in between."""

    def __init__(self, mishaps: Mapping[Kind, Sequence[Mishap]], rng: random.Random, *, luck: float = 0.2) -> None:
        self._rng = rng
        self._luck = luck
        self._left = {kind: rng.sample(of_kind, len(of_kind)) for kind, of_kind in mishaps.items()}
        self._is_calm = False

    def deal(self, kind: Kind) -> Mishap:
        """The next one of this kind; it goes to the bottom until it has struck."""
        left = self._left.get(kind, [])
        if self._is_calm or not left or self._rng.random() < self._luck:
            return NOTHING
        left.append(left.pop(0))
        return left[-1]

    def struck(self, mishap: Mishap) -> None:
        """It has happened, and is not dealt again."""
        for left in self._left.values():
            if mishap in left:
                left.remove(mishap)
                return

    def left(self) -> list[str]:
        """Names of what has not happened yet."""
        return [f"{kind.value}: {mishap.name}" for kind, left in self._left.items() for mishap in left]

    def calm(self) -> None:
        """From now on nothing goes wrong; what was dealt may still strike."""
        self._is_calm = True
