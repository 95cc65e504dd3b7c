"""Wall clocks that jump. The machine's monotonic clock goes on as ever: deadlines and leases are counted on that."""

from __future__ import annotations

import anyio
from typing_extensions import override

from verification.hostile.faults.ground import Ground
from verification.hostile.faults.timed import Timed


class ClockJump(Timed, frozen=True, kw_only=True, tag="clock-jump"):
    """The wall clock of one component jumps by ``by_s`` seconds (back, if negative) and jumps back at the end.

    Everything is promised: no wall clock is part of the argument for safety, and liveness may suffer only while the
    clock is wrong. Times that the component writes into objects are wrong, of course.
    """

    component: str
    by_s: float

    @override
    async def _happen(self, ground: Ground) -> None:
        clock = ground.world.clocks.get(self.component)
        if clock is None:
            return
        by_ns = round(self.by_s * 1e9)
        clock.ahead_ns += by_ns
        try:
            await anyio.sleep(self.for_s)
        finally:
            clock.ahead_ns -= by_ns
