"""The schedulers and binders of a simulated cluster, each replica run as cli/processes.py runs it in a process.

Every replica has its own connection to the API server, wall clock and randomness. With an election those of one role
elect a leader; without, all of them work at once, as after a mistake in their manifests.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.retry import Retry
from kube.client.transport import Transport
from kube.events import EventRecorder
from kube.lead.lease import LeaderElection, LeaseSettings
from kube.lead.replica import take_part
from kube.memory.server import MemoryApiServer
from kube.memory.transport import MemoryTransport
from simulator.component import Component
from simulator.parts import Make, Runnable
from simulator.skew import SkewedClock
from wire import names

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
