"""What may go wrong between a client and the server, decided by rules that are asked at fixed points.

``Fault`` is the one vocabulary: the server in memory does these things in virtual time, and tools/faultyproxy.py before
a real server. Three points: a request on its way to the server, a watch line on its way back, and a question of the
server to an admission webhook. A rule is a plain callable, so a scenario can aim at one write, and a random run can
roll dice (``sometimes``) with a random source of its own. Watches are cut by ``MemoryApiServer.cut_watches``; a dead
client is ``MemoryTransport.kill``. ``on_answer`` is called for each request at the moment at which it has been carried
out, before anybody hears: a client can be killed right there.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from simulator.apiserver.calls import Call


class End(enum.Enum):
    """How a watch ends before its time, or goes on worse; the answer to a read just breaks off."""

    NOT = "not"
    BREAKS = "the connection breaks between two lines"
    BREAKS_INSIDE = "the connection breaks inside a line, or inside the answer to a read"
    CLOSES = "the stream ends as if all were said"
    CLOSES_INSIDE = "the stream ends as if all were said, inside a line"
    GARBLES = "a line loses its second part, and the others come"
    EXPIRES = "410 Gone, as an event"
    FALLS_SILENT = "nothing comes any more"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one request. The default is nothing."""

    #: For people, and to tell two faults apart.
    name: str = ""
    #: Seconds that the request is on its way.
    delay_s: float = 0.0
    #: HTTP status with which it is refused instead of carried out; 0 for none.
    refuse_with: int = 0
    #: With ``refuse_with``: it is carried out, and the answer lies.
    carried_out: bool = False
    #: Retry-After of a 429.
    retry_after_s: int = 1
    #: ``request``: the server never sees it. ``answer``: it is carried out, but nobody hears. Both look the same.
    lost: Literal["", "request", "answer"] = ""
    #: With ``lost="request"``: it was only late, and is carried out this long after it was sent, whether or not the
    #: sender still waits. Needs ``MemoryApiServer.run``.
    lands_after_s: float | None = None
    #: With ``lost``: the connection breaks at once, and the sender hears that instead of waiting for its time-out.
    breaks: bool = False
    #: A list that may come in pages has this many items on each at most; 0: as many as were asked.
    page: int = 0
    #: Seconds that the answer is on its way.
    answer_delay_s: float = 0.0
    #: With ``refuse_with``: something in between refuses it that does not speak Kubernetes.
    in_prose: bool = False
    #: Seconds that each line of a watch is on its way; those behind it wait.
    line_delay_s: float = 0.0
    end: End = End.NOT
    #: With ``end``: how many lines of a watch come through before it.
    after_lines: int = 0
    #: What comes through of a line, or of the answer to a read, that is cut.
    kept_permille: int = 500

    @property
    def is_carried_out(self) -> bool:
        """Whether the server does what is asked, now or later."""
        if self.lost == "request":
            return self.lands_after_s is not None
        return self.carried_out or not self.refuse_with

    @property
    def strikes_lines(self) -> bool:
        """Whether lines of a watch are struck: later than the request, or never, if the watch ends first."""
        return self.end is not End.NOT or self.line_delay_s > 0.0

    def cut(self, whole: bytes) -> bytes:
        """Return what comes through: something, and not all."""
        return whole[: min(max(1, len(whole) * self.kept_permille // 1000), len(whole) - 1)]


NOTHING = Fault()


class ReviewFault(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one question to an admission webhook. The default is nothing."""

    #: Nobody listens at the webhook's address.
    down: bool = False
    #: Seconds until the webhook answers.
    delay_s: float = 0.0
    #: Seconds that the server waits for the answer (``timeoutSeconds`` of its configuration).
    timeout_s: float = 5.0
    #: A mutating webhook is asked a second time, with what came of its first answer (reinvocationPolicy IfNeeded).
    twice: bool = False


UNDISTURBED = ReviewFault()

#: The most lines that are kept of each watch, to be repeated.
REPEATED_MOST: Final = 8

RequestRule = Callable[[Call], Fault | None]
#: What happens to a question to the webhook of that name.
ReviewRule = Callable[[str], ReviewFault | None]
#: Seconds by which a line of this watch is held back (those behind it wait, too).
WatchRule = Callable[[Call, bytes], float]
#: How many of this watch's newest lines, this one among them, are sent a second time right after it.
RepeatRule = Callable[[Call, bytes], int]
#: Told of a request that was carried out, and of the status of its answer.
Listener = Callable[[Call, int], None]
#: Told of a request that a rule struck, and of what happens to it.
StrikeListener = Callable[[Call, Fault], None]


class Faults:
    """The rules in force.

    The first that has a fault for a request decides; delays of watch lines add up, of repeats the longest counts.
    """

    def __init__(self) -> None:
        self.on_request: list[RequestRule] = []
        self.on_review: list[ReviewRule] = []
        self.on_watch_line: list[WatchRule] = []
        self.on_watch_repeat: list[RepeatRule] = []
        self.on_answer: list[Listener] = []
        self.on_strike: list[StrikeListener] = []

    def clear(self) -> None:
        """Let everything go well from now on. Listeners stay."""
        self.on_request.clear()
        self.on_review.clear()
        self.on_watch_line.clear()
        self.on_watch_repeat.clear()

    def of_request(self, call: Call) -> Fault:
        """Return what happens to a request."""
        for rule in self.on_request:
            fault = rule(call)
            if fault is not None:
                if call.verb != "watch" or not fault.strikes_lines:
                    self.struck(call, fault)
                return fault
        return NOTHING

    def struck(self, call: Call, fault: Fault) -> None:
        """Tell the listeners that a fault happens to a request, or to lines of its watch."""
        for listener in tuple(self.on_strike):
            listener(call, fault)

    def of_review(self, webhook: str) -> ReviewFault:
        """Return what happens to a question to a webhook."""
        found = (rule(webhook) for rule in self.on_review)
        return next((fault for fault in found if fault is not None), UNDISTURBED)

    def answered(self, call: Call, code: int) -> None:
        """Tell the listeners that a request was carried out."""
        for listener in tuple(self.on_answer):
            listener(call, code)

    def watch_delay_s(self, call: Call, line: bytes) -> float:
        """Return by how many seconds a line of a watch is held back."""
        return sum(rule(call, line) for rule in self.on_watch_line)

    def watch_repeats(self, call: Call, line: bytes) -> int:
        """Return how many of a watch's newest lines are sent again after this one, at most REPEATED_MOST."""
        return min(REPEATED_MOST, max((rule(call, line) for rule in self.on_watch_repeat), default=0))


def sometimes(
    rng: random.Random, per_mille: int, fault: Fault, *, when: Callable[[Call], bool] = lambda _: True
) -> RequestRule:
    """Return a rule that strikes a number in a thousand of the requests that ``when`` picks."""

    def rule(call: Call) -> Fault | None:
        return fault if when(call) and rng.randrange(1000) < per_mille else None

    return rule


def once(fault: Fault, *, when: Callable[[Call], bool]) -> RequestRule:
    """Return a rule that strikes the first request that ``when`` picks, and no other."""
    left = [fault]

    def rule(call: Call) -> Fault | None:
        return left.pop() if left and when(call) else None

    return rule
