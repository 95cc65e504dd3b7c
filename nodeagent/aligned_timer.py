"""A beat for loops that look at something every so often: those of one process look at the same time.

A node at rest costs what it takes to wake its agent up, not what the agent then does. So a loop doesn't pause for a
time of its own, but until the event loop's clock is at a multiple of it.
"""

from __future__ import annotations

import math

import anyio


def next_beat_s(now_s: float, every_s: float) -> float:
    """Return the first multiple of ``every_s`` that is at least half of ``every_s`` away.

    A timer may go off a moment early; without that half a beat would then come twice.
    """
    return (math.floor(now_s / every_s + 0.5) + 1) * every_s


async def beat(every_s: float) -> None:
    """Pause for ``every_s`` seconds, the first time half as long at least and 1.5 times as long at most."""
    await anyio.sleep_until(next_beat_s(anyio.current_time(), every_s))


def until_beat(every_s: float) -> anyio.CancelScope:
    """Return a scope for a ``with`` statement: what is awaited in it is given up at the next beat."""
    return anyio.CancelScope(deadline=next_beat_s(anyio.current_time(), every_s))
