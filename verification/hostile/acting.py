"""What every action has: its time, and that nothing which the API server answers is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from kube.client import errors

if TYPE_CHECKING:
    from simulator.world import World

#: How often somebody looks who waits for something.
LOOK_S: Final = 0.05


class Act(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """``at_s``: virtual seconds after the cluster was ready."""

    at_s: float

    async def perform(self, world: World) -> None:
        """Do it. What the API server refuses is an expected outcome."""
        try:
            await self._do(world)
        except errors.ApiError:
            return

    async def _do(self, world: World) -> None:
        """Do it. Raises kube.client.errors.ApiError."""
        raise NotImplementedError


async def seen(condition: Callable[[], bool], limit_s: float) -> bool:
    """Wait until a condition holds, for at most so long; say whether it does."""
    until = anyio.current_time() + limit_s
    while not condition():
        if anyio.current_time() >= until:
            return False
        await anyio.sleep(LOOK_S)
    return True
