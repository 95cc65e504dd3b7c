"""The scheduler: watches, the cycle, conditions and events, in one task group."""

from __future__ import annotations

import random

import anyio
from anyio.abc import TaskStatus

from kube.api import Api
from kube.clock import Clock
from kube.events import EventRecorder
from kube.reflector import Reflector
from kube.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS
from scheduler.cache import Cache, NodeSink, PodGroupSink, PodSink, RequestSink
from scheduler.core.cluster import Cluster
from scheduler.cycle import Cycle
from scheduler.direct import Direct
from scheduler.gangs import Gangs
from scheduler.handed import HandedOver
from scheduler.releasing import Releasing
from scheduler.settings import SchedulerSettings
from scheduler.status import Status


class Scheduler:
    """Decides where pods go, and commits what needs no binder."""

    def __init__(
        self, api: Api, *, settings: SchedulerSettings, clock: Clock, rng: random.Random, events: EventRecorder
    ) -> None:
        self._api = api
        self._rng = rng
        self.cache = Cache(Cluster(settings.decisions))
        handed = HandedOver(api, self.cache, clock=clock, orphan_s=settings.orphan_s)
        direct = Direct(api, self.cache, clock=clock, rng=rng, events=events)
        self._status = Status(
            api,
            self.cache,
            clock=clock,
            events=events,
            condition_s=settings.condition_s,
            in_flight=settings.explain_in_flight,
        )
        self._releasing = Releasing(api, self.cache, events=events, grace_s=settings.broken_gang_s)
        self._cycle = Cycle(
            api,
            self.cache,
            clock=clock,
            direct=direct,
            gangs=Gangs(api, self.cache, direct=direct, handed=handed, clock=clock, rng=rng),
            handed=handed,
            status=self._status,
            settings=settings,
        )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. Nothing is decided before everything is synced (invariants.md, R3)."""
        async with anyio.create_task_group() as tasks:
            cache = self.cache
            await tasks.start(Reflector(self._api, NODES, NodeSink(cache), rng=self._rng).run)
            await tasks.start(Reflector(self._api, POD_GROUPS, PodGroupSink(cache), rng=self._rng).run)
            await tasks.start(Reflector(self._api, BIND_REQUESTS, RequestSink(cache), rng=self._rng).run)
            await tasks.start(Reflector(self._api, PODS, PodSink(cache), rng=self._rng).run)
            tasks.start_soon(self._status.run)
            tasks.start_soon(self._releasing.run)
            tasks.start_soon(self._cycle.run)
            task_status.started()
