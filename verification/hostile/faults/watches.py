"""Watches that are late, stand still, repeat themselves, break, or find their history gone.

Under all of these everything is promised: a cache only predicts, and what is decided is settled by preconditions and
quorum reads. Liveness may be late by as long as the fault lasts.
"""

from __future__ import annotations

from typing import Final

import anyio
from typing_extensions import override

from simulator.apiserver.calls import Call
from verification.hostile.faults.ground import Ground, Timed, is_struck

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
