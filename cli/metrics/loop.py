"""How late the event loop is: a delay there delays everything, leases included."""

from __future__ import annotations

from typing import Final

import anyio

from cli.metrics.declared import LOOP_LAG
from cli.metrics.registry import Registry

#: Between two looks: often enough to see what lasts, seldom enough to cost nothing.
_LOOK_S: Final = 1.0


async def measure_loop(registry: Registry) -> None:
    """Sleep, and see how much longer it took, until cancelled."""
    lag = registry.histogram(LOOP_LAG)
    while True:
        due = anyio.current_time() + _LOOK_S
        await anyio.sleep_until(due)
        lag.observe(max(0.0, anyio.current_time() - due))
