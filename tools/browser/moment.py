"""A moment of a simulated cluster, the same whenever and wherever it is made, and its page."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.retry import Retry
from kube.serving import serve
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.nodes import shape
from ui.page.auth import Open
from ui.page.counts import Listed, listed
from ui.page.explanations import PageExplains
from ui.page.objects import Objects
from ui.page.server import Answering
from ui.page.simulated import Play
from ui.page.watch import Following, Publishing, Unusable
from ui.queues import reader
from ui.queues.count import EvictionsRead

#: 2026-03-02T10:00:00Z: when the play begins.
_BEGINS_NS: Final = 1_772_445_600 * 1_000_000_000


class Moment:
    """What the page is made of, ``now_ms`` milliseconds after the epoch. ``rooms``: records of evictions, by pool."""

    def __init__(self, objects: Objects, now_ms: int, rooms: Mapping[str, EvictionsRead]) -> None:
        self.objects = objects
        self.now_ms = now_ms
        self.rooms = rooms
        self.publishing = Publishing("moment", make=lambda _: objects)

    async def listed(self, _: int | None) -> Listed:
        """List it, for explanations."""
        return listed(self.objects, self.now_ms // 1000, rooms=self.rooms)

    def draw(self) -> None:
        """Show the objects as they are now."""
        Unusable(self.objects, self.publishing.note_unusable).count()
        for _ in self.publishing.frames.draw():
            pass


async def moment(nodes: Sequence[str], *, at_s: float) -> Moment:
    """What ``moorage ui --simulate`` with these ``--nodes`` shows after a number of seconds, made in virtual time."""
    # Virtual time has a loop of its own, and that a thread.
    made = Moment(*await anyio.to_thread.run_sync(_made, nodes, at_s))
    made.draw()
    return made


def _made(nodes: Sequence[str], at_s: float) -> tuple[Objects, int, dict[str, EvictionsRead]]:
    return anyio.run(_played, nodes, at_s, backend_options={"loop_factory": VirtualTimeLoop})


async def _played(nodes: Sequence[str], at_s: float) -> tuple[Objects, int, dict[str, EvictionsRead]]:
    clock = VirtualClock(asyncio.get_running_loop(), epoch_ns=_BEGINS_NS)
    play = Play(shape.parse(nodes), seed=0, clock=clock)
    objects = Objects()
    api = Api(play.transport, retry=Retry(random.Random(1)))  # noqa: S311 - a play
    following = Following(api, objects, rng=random.Random(2))  # noqa: S311 - a play
    async with anyio.create_task_group() as tasks:
        await tasks.start(play.run)
        await tasks.start(following.run)
        await anyio.sleep(at_s)
        now_ms = clock.now_ns() // 1_000_000
        rooms = await reader.evictions(api, tuple(objects.queues.values()), now_ms // 1000, [])
        tasks.cancel_scope.cancel()
    return objects, now_ms, rooms


class _Still:
    """A source (ui/page/server.py) of which nothing more will come."""

    is_in_step = True

    def troubles(self) -> tuple[str, ...]:
        return ()

    def silent_s(self) -> int:
        return 0

    def idle(self) -> tuple[str, ...]:
        return ()


@asynccontextmanager
async def served(shown: Moment) -> AsyncIterator[str]:
    """Serve its page to this machine; the address."""
    explains = PageExplains(shown.listed, clock=SystemClock())
    answering = Answering(shown.publishing, _Still(), Open(), source="simulated cluster", hosts=None, explains=explains)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as tasks:

            async def answer(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                await serve(answering.app(), listener, task_status=task_status)

            await tasks.start(answer)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            tasks.cancel_scope.cancel()
