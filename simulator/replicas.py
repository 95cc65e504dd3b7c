"""The schedulers and binders of a simulated cluster, each replica run as runtime/replicas.py runs it in a process.

Every replica has its own connection to the API server, wall clock and randomness. With an election those of one role
elect a leader; without, all of them work at once, as after a mistake in their manifests.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus
from typing_extensions import override

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.retry import Retry
from kube.client.transport import Transport
from kube.events import EventRecorder
from kube.lead.lease import LeaderElection, LeaseSettings
from kube.lead.replica import take_part
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.transport import MemoryTransport
from simulator.clock import SkewedClock, Stoppable
from simulator.components import Make, Runnable
from wire import names

#: A timer may fire this much before its time: sums of floating-point seconds.
_EARLY_S: Final = 1e-6
#: A process that ended unasked is started again after this time, as kubelet does it the first time.
_RESTART_S: Final = 1.0


class Run(Protocol):
    """Runs a component on a connection; started when it is ready to work."""

    def __call__(
        self, transport: MemoryTransport, stop: anyio.Event, *, task_status: TaskStatus[None]
    ) -> Awaitable[None]:
        """Run until cancelled, until it has ended in order because ``stop`` was set, or until it ends on its own."""
        ...


class _Ready(TaskStatus[None]):
    """Tells who started a component that it is ready: at most once in fact, however often it says so."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    @override
    def started(self, value: None = None) -> None:
        self.event.set()


class Component:
    """A replica of the scheduler or the binder: one incarnation after another, each with a connection of its own.

    A crash is: its connection goes dead at once, then its tasks are dropped. What they do while they are cancelled
    reaches nobody, as if the process had been killed. A pause is SIGSTOP and SIGCONT: nothing of it runs meanwhile, not
    even its timers. One that is cut off goes on running, and messages from it and to it are held back.
    """

    def __init__(self, name: str, *, connect: Callable[[], MemoryTransport], run: Run) -> None:
        self.name = name
        self.incarnations = 0
        #: Whether it is of an older version, which can't read all that there is: its ledger is no recount of it.
        self.is_older = False
        self._connect = connect
        self._run = run
        self._process = Stoppable()
        self._paused_until = self._cut_until = 0.0
        self._transport: MemoryTransport | None = None
        self._scope: anyio.CancelScope | None = None
        self._stop = anyio.Event()
        self._ended = anyio.Event()

    @property
    def is_running(self) -> bool:
        """Whether an incarnation lives."""
        return self._scope is not None

    @property
    def is_in_touch(self) -> bool:
        """Whether an incarnation lives, runs, and nothing parts it from the API server."""
        is_parted = asyncio.get_running_loop().time() <= self._cut_until
        return self.is_running and not self._process.is_stopped and not is_parted

    async def start(self, group: TaskGroup) -> None:
        """Start it and wait until it is ready to work, or was killed before it was."""
        ready = _Ready()
        group.start_soon(self._live, ready, name=f"{self.name} {self.incarnations + 1}")
        await ready.event.wait()

    def crash(self) -> None:
        """Kill the incarnation, be it paused or not."""
        if self._transport is not None:
            self._transport.kill()
        self._go_on()
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def stop(self) -> None:
        """Tell it to end, as SIGTERM does, and wait until it has; it stays down."""
        self._stop.set()
        if self.is_running:
            await self._ended.wait()

    def pause(self, duration_s: float) -> None:
        """Stop it at any point, and let it go on after a time."""
        if not self.is_running:
            return
        loop = asyncio.get_running_loop()
        self._paused_until = max(self._paused_until, loop.time() + duration_s)
        self._process.stop()
        # In a context that is nobody's: what strikes a component may run in its own, as a rule about its requests does.
        loop.call_later(duration_s, self._go_on_when_over, context=contextvars.Context())

    def cut_off(self, duration_s: float) -> None:
        """Part it from the API server for a time, and all that is started in its place."""
        loop = asyncio.get_running_loop()
        self._cut_until = max(self._cut_until, loop.time() + duration_s)
        if self._transport is not None:
            self._transport.cut()
        loop.call_later(duration_s, self._mend_when_over, context=contextvars.Context())

    def _go_on_when_over(self) -> None:
        if self._process.is_stopped and asyncio.get_running_loop().time() >= self._paused_until - _EARLY_S:
            self._go_on()

    def _go_on(self) -> None:
        self._paused_until = 0.0
        if self._process.is_stopped:
            self._process.go_on()

    def _mend_when_over(self) -> None:
        if self._transport is not None and asyncio.get_running_loop().time() >= self._cut_until - _EARLY_S:
            self._transport.mend()

    async def _live(self, ready: _Ready) -> None:
        """Run one incarnation after another until killed, or told to end."""
        self._process.enter()
        self._stop, self._ended = anyio.Event(), anyio.Event()
        with anyio.CancelScope() as scope:
            self._scope = scope
            while True:
                self.incarnations += 1
                await self._run(self._connection(), self._stop, task_status=ready)
                if self._stop.is_set():
                    break
                await anyio.sleep(_RESTART_S)
        if self._scope is scope:
            self._scope = None
            self._ended.set()
        ready.started()

    def _connection(self) -> MemoryTransport:
        if self._transport is not None:
            self._transport.kill()
        self._transport = self._connect()
        if asyncio.get_running_loop().time() < self._cut_until - _EARLY_S:
            self._transport.cut()
        return self._transport


SCHEDULER: Final = "scheduler"
BINDER: Final = "binder"


@dataclass(frozen=True, slots=True)
class Role:
    """What the replicas of a component have in common. ``controller`` signs their events."""

    name: str
    controller: str
    make: Make
    settings: Any
    count: int = 1

    @property
    def replicas(self) -> list[str]:
        """Names of its replicas: ``binder``, ``binder-2``..."""
        return [self.name, *(f"{self.name}-{number}" for number in range(2, self.count + 1))][: self.count]


@dataclass(slots=True, kw_only=True)
class Replicas:
    """All replicas of all ``roles``. ``seed``: what their randomness is made from.

    ``wire`` stands between a replica (its name) and the API server. ``started_again`` is called for each incarnation
    but the first.
    """

    server: MemoryApiServer
    roles: Sequence[Role]
    clock: Clock
    seed: int
    election: LeaseSettings | None
    wire: Callable[[str, MemoryTransport], Transport]
    started_again: Callable[[str], None]
    #: By their names.
    components: Mapping[str, Component] = field(init=False)
    #: Schedulers that run now, by the names of their components.
    running: dict[str, Runnable] = field(default_factory=dict)
    #: The wall clock of each component, by its name; setting one ahead or back is a jump.
    clocks: dict[str, SkewedClock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.components = {name: self._component(name, role) for role in self.roles for name in role.replicas}

    @property
    def leases(self) -> Sequence[str]:
        """Names of the leases that roles elect their leaders by; none without election."""
        return [_lease(role) for role in self.roles] if self.election else []

    def _component(self, name: str, role: Role) -> Component:
        return Component(name, connect=partial(self.server.transport, name), run=partial(self._run, name, role))

    async def _run(
        self, name: str, role: Role, transport: MemoryTransport, stop: anyio.Event, *, task_status: TaskStatus[None]
    ) -> None:
        """Run one incarnation of a replica."""
        incarnation = f"{name}/{self.components[name].incarnations}"
        clock = self.clocks.setdefault(name, SkewedClock(self.clock))
        wired, retry = self.wire(name, transport), Retry(self._rng(name))
        api = unfenced = Api(wired, retry=retry)
        election = self._election(unfenced, role, clock, incarnation)
        if election is not None:
            api = Api(wired, retry=retry, fence=election.fence)
        async with anyio.create_task_group() as group:
            replica = role.make(
                api,
                settings=role.settings,
                clock=clock,
                rng=self._rng(incarnation),
                events=_events(unfenced, role.controller, clock, group),
            )
            if role.name.startswith(SCHEDULER):
                self.running[name] = replica
            if self.components[name].incarnations > 1:
                self.started_again(incarnation)
            if election is None:
                await group.start(_run_alone, replica, group.cancel_scope)
                task_status.started()
                await stop.wait()
            else:
                fence = election.fence
                await take_part(replica, election=election, fence=fence, stop=stop, task_status=task_status)
            group.cancel_scope.cancel()

    def _election(self, api: Api, role: Role, clock: Clock, incarnation: str) -> LeaderElection | None:
        if self.election is None:
            return None
        return LeaderElection(
            api,
            namespace=names.SYSTEM_NAMESPACE,
            name=_lease(role),
            identity=incarnation,
            clock=clock,
            rng=self._rng(f"{incarnation}/election"),
            settings=self.election,
        )

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}/{purpose}")


async def _run_alone(replica: Runnable, scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
    """Run a replica; its process ends with it."""
    await replica.run(task_status=task_status)
    scope.cancel()


def _lease(role: Role) -> str:
    return f"moorage-{role.name}"


def _events(api: Api, controller: str, clock: Clock, group: TaskGroup) -> EventRecorder:
    recorder = EventRecorder(api, clock=clock, controller=controller, instance="simulated")
    group.start_soon(recorder.run)
    return recorder


def is_ours(user: str) -> bool:
    """Whether a client of the API server is one of our components, whichever replica."""
    return user.startswith((SCHEDULER, BINDER))
