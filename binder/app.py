"""The binder: watches, units and the collector, in one task group."""

from __future__ import annotations

import logging
import random
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from binder.carrying import Carrier
from binder.collecting import Collector
from binder.core.attempt import Attempt
from binder.desk import Desk
from binder.settings import BinderSettings
from binder.unit import Unit
from binder.view import NodeSink, PodSink, RequestSink, View
from kube.api import Api
from kube.clock import Clock
from kube.events import EventRecorder
from kube.reflector import Reflector
from kube.resources import BIND_REQUESTS, NODES, PODS

_log: Final = logging.getLogger(__name__)


class Binder:
    """Carries out BindRequests and keeps the books."""

    def __init__(
        self, api: Api, *, settings: BinderSettings, clock: Clock, rng: random.Random, events: EventRecorder
    ) -> None:
        self._api = api
        self._settings = settings
        self._rng = rng
        self._events = events
        self._units: dict[str, Unit] = {}
        #: (reservation UID, device UUID) of which no other claim was found.
        self._verified: set[tuple[str, str]] = set()
        self._new: list[Attempt] = []
        self.view = View(namespace=settings.reservation.namespace, on_request=self._take)
        self._desk = Desk(api, self.view, settings)
        self._carrier = Carrier(
            api, view=self.view, desk=self._desk, clock=clock, events=events, verified=self._verified
        )
        self._collector = Collector(
            api, view=self.view, desk=self._desk, settings=settings, clock=clock, at_work=self._at_work
        )
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. Started when all watches have synced: nothing is done on half a picture."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(Reflector(self._api, NODES, NodeSink(self.view), rng=self._rng).run)
            await tasks.start(Reflector(self._api, PODS, PodSink(self.view), rng=self._rng).run)
            await tasks.start(Reflector(self._api, BIND_REQUESTS, RequestSink(self.view), rng=self._rng).run)
            self._tasks = tasks
            for attempt in self._new:
                self._begin(attempt)
            tasks.start_soon(self._collector.run)
            task_status.started()

    def _take(self, attempt: Attempt) -> None:
        """A new BindRequest: join its unit, or begin one; before all is synced it waits."""
        if self._tasks is None:
            self._new.append(attempt)
        else:
            self._begin(attempt)

    def _begin(self, attempt: Attempt) -> None:
        unit = self._units.get(attempt.unit)
        if unit is not None:
            unit.add(attempt)
            return
        unit = Unit(
            attempt,
            view=self.view,
            carrier=self._carrier,
            verified=self._verified,
            learn_timeout_s=self._settings.learn_timeout_s,
        )
        self._units[attempt.unit] = unit
        assert self._tasks is not None  # noqa: S101 - only begun while running
        self._tasks.start_soon(self._run_unit, attempt.unit, unit)

    async def _run_unit(self, key: str, unit: Unit) -> None:
        try:
            await unit.run()
        finally:
            if self._units.get(key) is unit:
                del self._units[key]

    def _at_work(self) -> set[str]:
        return {uid for unit in self._units.values() for uid in unit.pods}
