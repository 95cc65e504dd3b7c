"""What befalls a component is what befalls a process: killed, stopped and continued, parted from the API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.abc import TaskStatus

from kube.client.errors import Timeout
from simulator.apiserver.calls import Call
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.transport import MemoryTransport
from simulator.clock import VirtualClock
from simulator.replicas import Component

VIRTUAL_TIME = True

PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"


Work = Callable[[MemoryTransport], Awaitable[None]]


@dataclass(slots=True)
class Bench:
    """A component that does ``work`` once, on a server of its own."""

    work: Work
    server: MemoryApiServer = field(init=False)
    component: Component = field(init=False)

    def __post_init__(self) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        self.server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
        self.component = Component("it", connect=lambda: self.server.transport("it"), run=self._run)

    async def _run(self, transport: MemoryTransport, stop: anyio.Event, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        await self.work(transport)
        await stop.wait()

    def strike_on_the_way(self, strike: Callable[[], None]) -> None:
        """Strike right before the first write's bytes leave."""
        strikes = [strike]

        def rule(call: Call) -> None:
            if call.verb == "create" and strikes:
                strikes.pop()()

        self.server.faults.on_request.append(rule)


async def create(transport: MemoryTransport, *, timeout_s: float = 5.0) -> str:
    try:
        await transport.request("POST", NAMESPACES, query={}, body=b'{"metadata":{"name":"x"}}', timeout_s=timeout_s)
    except Timeout:
        return "timed out"
    return "answered"


async def test_a_paused_component_does_nothing_and_its_timers_are_late() -> None:
    ticks: list[float] = []

    async def tick(_: MemoryTransport) -> None:
        while True:
            await anyio.sleep(1.0)
            ticks.append(anyio.current_time())

    it = Bench(tick)
    async with anyio.create_task_group() as tasks:
        await it.component.start(tasks)
        await anyio.sleep(2.5)
        it.component.pause(10.0)
        await anyio.sleep(11.5)
        it.component.crash()
    assert ticks == [1.0, 2.0, 12.5, 13.5]


@pytest.mark.parametrize(
    ("befall", "for_s", "told", "after_s", "is_made"),
    [
        (Component.pause, 3.0, "answered", 3.0, True),
        # Told when it goes on: its own timers stood still.
        (Component.pause, 9.0, "timed out", 9.0, False),
        (Component.cut_off, 3.0, "answered", 3.0, True),
        (Component.cut_off, 9.0, "timed out", 5.0, False),
    ],
)
async def test_a_write_under_way_arrives_when_its_component_is_back_unless_it_is_too_late(
    befall: Callable[[Component, float], None], for_s: float, told: str, after_s: float, is_made: bool
) -> None:
    heard: list[tuple[str, float]] = []

    async def write(transport: MemoryTransport) -> None:
        heard.append((await create(transport), anyio.current_time()))

    it = Bench(write)
    it.strike_on_the_way(lambda: befall(it.component, for_s))
    async with anyio.create_task_group() as tasks:
        await it.component.start(tasks)
        await anyio.sleep(20.0)
        it.component.crash()
    assert heard == [(told, after_s)]
    assert bool([entry for entry in it.server.audit if entry.verb == "create"]) is is_made


async def test_who_is_cut_off_hears_what_happened_when_the_network_is_back_and_so_does_its_next_incarnation() -> None:
    lines: list[float] = []

    def note() -> None:
        lines.append(anyio.current_time())

    async def watch(transport: MemoryTransport) -> None:
        async with transport.stream(PODS, query={"watch": "true"}, timeout_s=60.0) as (_, told):
            async for _ in told:
                note()

    it = Bench(watch)
    pod = b'{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
    async with anyio.create_task_group() as tasks:
        await it.component.start(tasks)
        await anyio.sleep(1.0)
        it.component.cut_off(10.0)
        await it.server.transport("user").request(
            "POST", "/api/v1/namespaces/n/pods", query={}, body=pod, timeout_s=5.0
        )
        await anyio.sleep(5.0)
        assert lines == []
        it.component.crash()
        await it.component.start(tasks)
        await anyio.sleep(10.0)
        it.component.crash()
    assert lines == [11.0]


async def test_who_starts_a_rounding_error_before_the_network_is_back_is_not_cut_off_for_good() -> None:
    heard: list[str] = []

    async def write(transport: MemoryTransport) -> None:
        heard.append(await create(transport))

    it = Bench(write)
    async with anyio.create_task_group() as tasks:
        it.component.cut_off(10.0)
        await anyio.sleep(10.0 - 1e-12)
        await it.component.start(tasks)
        await anyio.sleep(20.0)
        it.component.crash()
    assert heard == ["answered"]


async def test_a_paused_component_can_be_killed() -> None:
    it = Bench(create_for_ever)
    async with anyio.create_task_group() as tasks:
        await it.component.start(tasks)
        await anyio.sleep(1.5)
        it.component.pause(100.0)
        await anyio.sleep(1.0)
        made = len(it.server.audit)
        it.component.crash()
        assert not it.component.is_running
        await anyio.sleep(5.0)
        assert len(it.server.audit) == made
        await it.component.start(tasks)
        await anyio.sleep(2.0)
        assert len(it.server.audit) > made
        await it.component.stop()
        assert not it.component.is_running


async def create_for_ever(transport: MemoryTransport) -> None:
    for _ in range(3):
        await anyio.sleep(0.5)
        await create(transport)


async def test_a_component_that_ends_by_itself_is_started_again() -> None:
    started: list[float] = []

    async def run(transport: MemoryTransport, stop: anyio.Event, *, task_status: TaskStatus[None]) -> None:
        del transport, stop
        started.append(anyio.current_time())
        task_status.started()
        await anyio.sleep(3.0)

    it = Bench(create_for_ever)
    component = Component("it", connect=lambda: it.server.transport("it"), run=run)
    async with anyio.create_task_group() as tasks:
        await component.start(tasks)
        await anyio.sleep(9.0)
        component.crash()
    assert started == [0.0, 4.0, 8.0]
    assert component.incarnations == 3
