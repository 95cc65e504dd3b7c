"""The binder: it follows the cluster always, and carries out BindRequests and keeps the books while it leads.

Any number of binders could work side by side: books are kept by compare-and-set, and every step is safe beside another
process that takes it (docs/design/protocol.md). They are elected nevertheless, because two that do the same work meet
at every write: each conflict costs another read, and an attempt that one withdraws while the other binds is tried
again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection
from typing import Final

import anyio
from anyio.abc import TaskGroup
from typing_extensions import override

from binder.bind.actions import Carrier
from binder.bind.join_batches import JoinBatcher
from binder.bind.unit import Unit
from binder.collect.book_repair import Clearing, Restoring
from binder.collect.collector import Collector, Retiring, Searching
from binder.heal.lost_devices import Guarding, Healing, Moving
from binder.report.status import BinderState
from binder.settings import BinderSettings
from binder.telemetry.tracing import AttemptTraces, Emit
from binder.watch.sinks import NodeSink, PodSink, RequestSink
from binder.watch.view import View
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import BIND_REQUESTS, NODES, PODS
from kube.client.retry import Backoff, BackoffRange
from kube.cluster_policies import CdiNames
from kube.events import EventRecorder
from kube.lead.replica import Follower
from kube.telemetry.logevents import each_of, ignore
from kube.telemetry.tracing import Tracer
from kube.watch.reflector import Reflector
from sharing.attempt import Attempt

_log: Final = logging.getLogger(__name__)

_AFTER_A_FAULT: Final = BackoffRange(first_s=1.0, most_s=60.0)


class Binder(Follower):
    """Carries out BindRequests and keeps the books. ``events`` is run by the caller; ``desk`` makes what joins."""

    def __init__(
        self,
        api: Api,
        *,
        settings: BinderSettings,
        clock: Clock,
        rng: random.Random,
        events: EventRecorder,
        desk: Callable[[Api, View, BinderSettings], JoinBatcher] = JoinBatcher,
        emit: Emit = ignore,
        tracer: Tracer | None = None,
    ) -> None:
        traces = None if tracer is None else AttemptTraces(tracer)
        self._emit = emit if traces is None else each_of(emit, traces.take)
        self._settings = settings
        self._rng = rng
        self._units: dict[str, Unit] = {}
        #: Pod UID -> units that work on it.
        self._working: dict[str, set[str]] = {}
        self.view = View(on_request=self._take)
        #: The state of the binder's work, for metrics and reports.
        self.state = BinderState(self.view)
        pods, cdi = PodSink(self.view, settings.reservation, traces=traces), CdiNames(api, settings.cdi)
        super().__init__(
            (
                Reflector(api, NODES, NodeSink(self.view), rng=rng),
                Reflector(api, PODS, pods, rng=rng),
                Reflector(api, BIND_REQUESTS, RequestSink(self.view, traces=traces), rng=rng),
                cdi,
            )
        )
        self._carrier = Carrier(
            api,
            view=self.view,
            desk=desk(api, self.view, settings),
            settings=settings,
            clock=clock,
            events=events,
            cdi=cdi,
            traces=traces,
        )
        guarding = Guarding(api, view=self.view, settings=settings)
        self._healing = Healing(api, view=self.view, settings=settings, guarding=guarding, moving=Moving(api, events))
        self._searching = Searching(view=self.view, keep_s=settings.uneven_idle_s)
        self._collector = Collector(
            view=self.view,
            settings=settings,
            clearing=Clearing(api, view=self.view, clock=clock, at_work=self._at_work),
            restoring=Restoring(api, view=self.view, settings=settings),
            retiring=Retiring(api, view=self.view),
            searching=self._searching,
            events=events,
            is_needed=guarding.is_needed,
        )
        self._tasks: TaskGroup | None = None

    @override
    def _forget_gone(self) -> None:
        self.view.forget_gone()

    @override
    async def finish(self) -> None:
        """Nothing has to be finished: the next binder takes up unfinished work from the BindRequest."""

    @override
    async def _work(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                for attempt in self.view.attempts():
                    self._begin(attempt, tasks)
                self.view.tend()
                tasks.start_soon(self._healing.run)
                await self._collector.run()
            finally:
                # What it hears of from here on is for the next leader (Follower says why this can't wait).
                self._tasks = None

    def _take(self, attempt: Attempt) -> None:
        """A new BindRequest: join its unit, or begin one; who does not lead only knows of it."""
        if self._tasks is not None:
            self._begin(attempt, self._tasks)

    def _begin(self, attempt: Attempt, tasks: TaskGroup) -> None:
        self._searching.begin(attempt)
        self._working.setdefault(attempt.pod_uid, set()).add(attempt.unit)
        unit = self._units.get(attempt.unit)
        if unit is not None:
            unit.add(attempt)
            return
        unit = Unit(
            attempt,
            view=self.view,
            carrier=self._carrier,
            learn_timeout_s=self._settings.learn_timeout_s,
            emit=self._emit,
        )
        self._units[attempt.unit] = unit
        tasks.start_soon(self._run_unit, attempt.unit, unit)

    async def _run_unit(self, key: str, unit: Unit) -> None:
        """Carry a unit to its end. A fault of ours in it is logged, and it starts over later; the others go on.

        Between the unit's last look at its members and its removal nothing is awaited, so no member that comes late
        can be added to a unit that has ended.
        """
        backoff = Backoff(_AFTER_A_FAULT, self._rng)
        try:
            while True:
                try:
                    await unit.run()
                except Exception:  # noqa: BLE001 - the edge of the component: one bad object stops nothing (S11)
                    _log.exception("unit %s failed and starts over", key)
                    await anyio.sleep(backoff.fail())
                    unit.start_over()
                else:
                    unit.tell_end()
                    return
        finally:
            del self._units[key]
            for uid in unit.pods:
                self._working[uid].discard(key)
                if not self._working[uid]:
                    del self._working[uid]
            unit.close()

    def _at_work(self) -> Collection[str]:
        return self._working
