"""The podgrouper: it follows pods and PodGroups always, and writes PodGroups while it leads.

Any number of these could work side by side, for all of them write the same (work/unit.py); they are elected so that
each thing is written once.
"""

from __future__ import annotations

import logging
import random
from typing import Final

import anyio
from typing_extensions import override

from kube.client.api import Api
from kube.client.resources import POD_GROUPS, PODS, PRIORITY_CLASSES
from kube.events import EventRecorder
from kube.lead.replica import Follower
from kube.lead.secondary import Kind, Secondary
from kube.telemetry.logevents import ignore
from kube.watch.reflector import Reflector
from podgrouper.core.projection import Key
from podgrouper.read.owners import Owners
from podgrouper.settings import WorkloadSettings
from podgrouper.telemetry.events import Emit
from podgrouper.watch.sinks import GroupSink, PodSink, PriorityClassSink
from podgrouper.watch.view import View
from podgrouper.work.owner_watches import OwnerWatches
from podgrouper.work.queue import Backlog
from podgrouper.work.scaled_away import ScaledAway
from podgrouper.work.unit import Unit
from wire import names

_log: Final = logging.getLogger(__name__)

_OURS: Final = f"spec.schedulerName={names.SCHEDULER_NAME}"
#: Pods of a workload go together, mostly.
_GATHERED_S: Final = 1.0
_WITHOUT_CLASSES: Final = "a priority class that a workload names is taken, whether or not it exists"


class Podgrouper(Follower):
    """Groups the pods of workloads. ``events`` is run by the caller."""

    def __init__(
        self,
        api: Api,
        *,
        settings: WorkloadSettings,
        rng: random.Random,
        events: EventRecorder,
        emit: Emit = ignore,
    ) -> None:
        self.view = View()
        # PodGroups first: a pod whose PodGroup is there has nothing to be done.
        super().__init__(
            (
                Reflector(api, POD_GROUPS, GroupSink(self.view), rng=rng),
                Reflector(api, PODS, PodSink(self.view), field_selector=_OURS, rng=rng),
                Secondary(api, [Kind(PRIORITY_CLASSES, PriorityClassSink(self.view), _WITHOUT_CLASSES)], rng=rng),
            )
        )
        self._backlog = Backlog(at_once=settings.at_once, backoff=settings.backoff, rng=rng)
        self._owners = Owners(api, keep_s=settings.reread_s)
        self._owner_watches = OwnerWatches(api, view=self.view, owners=self._owners, rng=rng)
        self._unit = Unit(
            api,
            view=self.view,
            owners=self._owners,
            settings=settings,
            events=events,
            emit=emit,
            again=self._backlog.again,
        )
        self._scaled_away = ScaledAway(api, view=self.view, owners=self._owners, emit=emit)

    @property
    def waiting(self) -> int:
        """How many workloads wait to be grouped, as far as this replica works on them."""
        return len(self._backlog)

    @override
    def _forget_gone(self) -> None:
        self._owners.forget()

    @override
    async def finish(self) -> None:
        """Nothing has to be finished: the next leader sees what is left undone."""

    @override
    async def _work(self) -> None:
        self.view.due = self._backlog.add
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._owner_watches.run)
                tasks.start_soon(self._look_again)
                tasks.start_soon(self._scaled_away.run)
                await self._backlog.run(self.view.keys(), self._work_on)
        finally:
            # What it hears of from here on is for the next leader.
            self.view.due = lambda _: None

    async def _look_again(self) -> None:
        """Have PodGroups follow owners that changed, and pods that went: those of a moment together."""
        while True:
            await self.view.on_changed.wait()
            await anyio.sleep(_GATHERED_S)
            changed, self.view.changed = self.view.changed, {}
            below, self.view.below = self.view.below, {}
            for group, news in changed.items():
                for key in self.view.look_again(group, news.keys, anyio.current_time()):
                    if news.was_edited:
                        self._backlog.edited(key)
            for key in below:
                self.view.look_below(key, anyio.current_time())
                self._backlog.edited(key)

    async def _work_on(self, key: Key) -> bool:
        """Do the work of a key; a fault of ours in it is logged, and stops nothing else (S11)."""
        try:
            return await self._unit.work(key, failures=self._backlog.failures(key))
        except Exception:  # noqa: BLE001 - the edge of the component
            _log.exception("workload %s/%s can't be grouped, by a fault of Moorage's, and is tried again", *key)
            return False
