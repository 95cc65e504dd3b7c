"""Requests that are refused, get lost or come late, or whose answer does; watches that are late, repeat or break.

Under all of these everything is promised: what became of a write is settled by reading, never by guessing, and a write
that lands late meets preconditions that no longer hold. A cache only predicts, and what is decided is settled by
preconditions and quorum reads. Liveness may be late by as long as the fault lasts.
"""

from __future__ import annotations

import random
from typing import ClassVar, Final, Literal

import anyio
from typing_extensions import override

from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from verification.hostile.faults.ground import READS, Ground, Timed, is_struck

#: What became of a request without an answer: carried out, never, or these seconds later.
Outcome = Literal["done", "not-done", "later"]


class Requests(Timed, frozen=True, kw_only=True):
    """Of a thousand requests of ``user`` ("": of all processes) ``per_mille`` are struck.

    ``plural``: only those for this resource; "": for all.
    """

    user: str = ""
    plural: str = ""
    per_mille: int = 1000
    seed: int = 0

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)

        def rule(call: Call) -> Fault | None:
            if not is_struck(call, self.user) or self.plural not in {"", call.kind.plural} or not self._picks(call):
                return None
            return self._fault(dice, ground.left_s(self.end_s)) if dice.randrange(1000) < self.per_mille else None

        with ground.requests(rule):
            await anyio.sleep(self.for_s)

    def _picks(self, call: Call) -> bool:
        """Whether such a request can be struck."""
        return call.verb not in READS

    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        """Make the fault of one request; it has to be over in ``left_s``."""
        raise NotImplementedError


class _Refused(Requests, frozen=True, kw_only=True):
    """Any request, reads and watches too, is refused with ``_code``."""

    _code: ClassVar[int]

    @override
    def _picks(self, call: Call) -> bool:
        return True

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        return Fault(refuse_with=self._code)


class Conflicts(_Refused, frozen=True, kw_only=True, tag="conflict"):
    """409 to updates, patches and Bindings: somebody else was faster.

    Not to creates and deletions: there a 409 means that the name is taken or the UID is another, which is a statement
    about the object, and a server that makes it falsely is not one that anything could be promised on.
    """

    _code = 409

    @override
    def _picks(self, call: Call) -> bool:
        return call.verb in {"update", "patch"} or call.subresource == "binding"


class Expired(_Refused, frozen=True, kw_only=True, tag="expired"):
    """410 as the status of a watch that is opened: the version is too old, list again."""

    _code = 410

    @override
    def _picks(self, call: Call) -> bool:
        return call.verb == "watch"


class Throttled(_Refused, frozen=True, kw_only=True, tag="throttled"):
    """429 to anything, with a Retry-After."""

    retry_after_s: int = 1

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        return Fault(refuse_with=429, retry_after_s=self.retry_after_s)


class Unauthorized(_Refused, frozen=True, kw_only=True, tag="unauthorized"):
    """401 to anything: a token that has run out, or an API server that can't check tokens just now."""

    _code = 401


class Forbidden(_Refused, frozen=True, kw_only=True, tag="forbidden"):
    """403 to anything: a role that is missing for a while, as while a chart is upgraded."""

    _code = 403


class ServerErrors(_Refused, frozen=True, kw_only=True, tag="server-error"):
    """500 to anything; of a thousand such writes ``done_per_mille`` were carried out nevertheless."""

    done_per_mille: int = 500

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        return Fault(refuse_with=500, carried_out=dice.randrange(1000) < self.done_per_mille)


class _Lost(Requests, frozen=True, kw_only=True):
    """The answer to a write is lost; whether it was carried out, ``outcome`` says, and when, ``later_s``."""

    outcome: Outcome
    later_s: float = 0.0
    _breaks: ClassVar[bool]

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        return _lost(self.outcome, min(self.later_s, left_s), breaks=self._breaks)


class TimeOuts(_Lost, frozen=True, kw_only=True, tag="time-out"):
    """Nothing comes back of a write until its sender gives up."""

    _breaks = False


class Resets(_Lost, frozen=True, kw_only=True, tag="reset"):
    """The connection of a write breaks at once."""

    _breaks = True


class Slow(Requests, frozen=True, kw_only=True, tag="slow"):
    """Requests take up to ``there_s`` to the server and answers up to ``back_s`` from it, watches aside."""

    there_s: float
    back_s: float = 0.0

    @override
    def _picks(self, call: Call) -> bool:
        return call.verb != "watch"

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        there_s = min(dice.uniform(0.0, self.there_s), left_s)
        return Fault(delay_s=there_s, answer_delay_s=min(dice.uniform(0.0, self.back_s), left_s - there_s))


def _lost(outcome: Outcome, later_s: float, *, breaks: bool) -> Fault:
    if outcome == "done":
        return Fault(lost="answer", breaks=breaks)
    return Fault(lost="request", breaks=breaks, lands_after_s=later_s if outcome == "later" else None)


_FOR_EVER_S: Final = 10.0**9


class _Watch(Timed, frozen=True, kw_only=True):
    """Watches of ``user`` ("": of all processes) on the resource ``plural`` ("": on all)."""

    user: str = ""
    plural: str = ""

    def _strikes(self, call: Call) -> bool:
        return is_struck(call, self.user) and self.plural in {"", call.kind.plural}


class WatchDelayed(_Watch, frozen=True, kw_only=True, tag="watch-delayed"):
    """Each line is late by up to ``most_s``; the order within a watch stays, that between watches does not."""

    most_s: float
    seed: int

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)

        def delay_s(call: Call, _: bytes) -> float:
            if not self._strikes(call):
                return 0.0
            return min(dice.uniform(0.0, self.most_s), ground.left_s(self.end_s))

        with ground.lines(delay_s):
            await anyio.sleep(self.for_s)


class WatchHeld(_Watch, frozen=True, kw_only=True, tag="watch-held"):
    """Nothing is heard until the end, then everything at once: one kind of object lags far behind the others."""

    @override
    async def _happen(self, ground: Ground) -> None:
        with ground.lines(lambda call, _: ground.left_s(self.end_s) if self._strikes(call) else 0.0):
            await anyio.sleep(self.for_s)


class CacheOld(WatchHeld, frozen=True, kw_only=True, tag="cache-old"):
    """All that a component knows stays as old as the fault is long: minutes.

    It goes on deciding and writing. Its reflectors find the silence suspicious and connect again, which helps nothing.
    """


class WatchRepeated(_Watch, frozen=True, kw_only=True, tag="watch-repeated"):
    """Of a thousand lines ``per_mille`` are followed by the newest ``lines`` once more: at-least-once delivery."""

    per_mille: int
    seed: int
    lines: int = 1

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)

        def repeats(call: Call, _: bytes) -> int:
            return self.lines if self._strikes(call) and dice.randrange(1000) < self.per_mille else 0

        with ground.repeats(repeats):
            await anyio.sleep(self.for_s)


class WatchCut(_Watch, frozen=True, kw_only=True, tag="watch-cut"):
    """Connections break at once and every ``every_s`` again. Lines are ``late_s`` on their way, and get lost there."""

    every_s: float
    late_s: float = 0.0

    @override
    async def _happen(self, ground: Ground) -> None:
        def delay_s(call: Call, _: bytes) -> float:
            return min(self.late_s, ground.left_s(self.end_s)) if self._strikes(call) else 0.0

        with ground.lines(delay_s), anyio.move_on_after(self.for_s):
            while True:
                ground.server.cut_watches(self._strikes)
                await anyio.sleep(self.every_s)


class WatchExpired(_Watch, frozen=True, kw_only=True, tag="watch-expired"):
    """Nothing is heard until the end; then the connections break, and the server has forgotten its history.

    A watcher that missed something is answered 410 (an ERROR event) when it resumes, and has to list again.
    """

    @override
    async def _happen(self, ground: Ground) -> None:
        with ground.lines(lambda call, _: _FOR_EVER_S if self._strikes(call) else 0.0):
            await anyio.sleep(self.for_s)
        ground.server.compact()
        ground.server.cut_watches(self._strikes)
