"""The scheduler: it follows the cluster always, and decides and commits while it leads.

Nothing is decided before all books, BindRequests and plans of the leader before it are in the cache: a term begins
with fresh lists (kube/lead/replica.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

import anyio
from typing_extensions import override

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS
from kube.cluster_policies import CdiNames
from kube.events import EventRecorder
from kube.lead.replica import Followed, Follower
from kube.lead.secondary import Kind, Secondary
from kube.telemetry.tracing import Tracer
from kube.watch.reflector import Reflector
from scheduler.autoscale.scaling_pods import Scaling
from scheduler.background.loops import Answering, JoiningNodes, Pricing, Recounting
from scheduler.background.queue_use import AskedUse, QueueUse
from scheduler.background.stale_gangs import Releasing
from scheduler.commit.bind_requests import HandedOver
from scheduler.commit.direct import Direct
from scheduler.commit.gangs import Gangs
from scheduler.conditions.enforcement import CapsInPlace, Enforcing
from scheduler.conditions.events import ClashingClaims, Remarking
from scheduler.conditions.pod_scheduled import Status
from scheduler.conditions.status_writers import PodGroupStatuses, QueueStatuses
from scheduler.conditions.suggestions import Suggesting
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain
from scheduler.core.scores.registry import SCORES
from scheduler.cycle import Cycle
from scheduler.mig_partitioning.partitioner import Partitioner
from scheduler.preemption.evictor import Evictor
from scheduler.preemption.preemption import Preemption
from scheduler.report.state import Standing
from scheduler.settings import SchedulerSettings
from scheduler.telemetry.observer import Observer, Unobserved
from scheduler.telemetry.traces import Traced, Traces, Untraced
from scheduler.watch.cache import Cache
from scheduler.watch.listed import BudgetLabels, KueueTopologies
from scheduler.watch.node_agents import NodeUses
from scheduler.watch.secondary import budgets, numa_nodes, secondary, taint_rules
from scheduler.watch.sinks import NodeSink, PodGroupSink, PodSink, RequestSink
from wire.crds.gpunode import GpuNode


class Part(Protocol):
    """Work that goes on beside the decisions."""

    async def run(self) -> None:
        """Work until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class _Means:
    """What the parts of a scheduler are made with."""

    api: Api
    cache: Cache
    _: KW_ONLY
    settings: SchedulerSettings
    clock: Clock
    rng: random.Random
    events: EventRecorder
    observer: Observer


class Scheduler(Follower):
    """Decides where pods go, and commits what needs no binder. ``cluster`` is what it decides on, empty at first."""

    def __init__(
        self,
        api: Api,
        *,
        settings: SchedulerSettings,
        clock: Clock,
        rng: random.Random,
        events: EventRecorder,
        cluster: Cluster | None = None,
        observer: Observer | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._observer = observer or Unobserved()
        self._traces = _traces(tracer, settings)
        decided = cluster or Cluster(settings.decisions, scores=settings.scores or SCORES)
        self.cache = cache = Cache(decided, traces=self._traces)
        of = _Means(api, cache, settings=settings, clock=clock, rng=rng, events=events, observer=self._observer)
        self._scaling = _scaling(of)
        self._carving = (
            None if settings.carving is None else Partitioner(api, cache, settings=settings.carving, rng=rng)
        )
        is_fed = self._carving is not None
        #: What agents report of use; None: nobody follows it.
        self.uses = NodeUses(api, rng=rng, is_fed=is_fed) if settings.follows_use else None
        cdi = CdiNames(api, settings.cdi)
        also = () if self.uses is None else (self.uses,)
        gpu_nodes = () if self._carving is None else (self._carving.kind(*(uses.sink for uses in also)),)
        super().__init__((*_followed(of, self._scaling, gpu_nodes, cdi), *also))
        handed = HandedOver(api, cache, clock=clock, orphan_s=settings.orphan_s)
        direct = Direct(
            api,
            cache,
            clock=clock,
            rng=rng,
            events=events,
            cdi=cdi,
            memory_caps=settings.memory_caps,
            observer=self._observer,
        )
        self._status = _status(of)
        self._suggesting = _suggesting(of, self._status)
        #: The state of the scheduler's work, for metrics and reports.
        attempts = None if self._carving is None else self._carving.attempts
        self.standing = Standing(cache, self._status.codes, attempts)
        self._recounting = Recounting(cache, self._observer)
        cache.on_waited = self._waited
        self._enforcing = _enforcing(of)
        self._caps = None if self.uses is None else CapsInPlace(api, cache, self.uses, clock=clock, events=events)
        self._evictor = Evictor(api, per_s=settings.evictions_per_s)
        self._releasing = _releasing(of, self._evictor)
        self._remarking = Remarking(cache, events)
        clashing = ClashingClaims(cache, events)
        self._answering = Answering(cache, answer_s=settings.answer_s)
        self._joining = JoiningNodes(cache, settle_s=settings.settle_s)
        self._queue_use = _queue_use(of)
        self._pricing = Pricing(cache, settings.pricing)
        self._uses_prices = settings.decisions.uses_prices
        self._queue_statuses = QueueStatuses(api, cache, clock=clock) if settings.object_status else None
        self._group_statuses = _group_statuses(of)
        self._budget_labels = BudgetLabels(api, cache) if settings.decisions.preemption else None
        self._making = _making(of, self._evictor)
        self._cycle = _cycle(of, direct, handed, self._explain)
        self._cycle.on_decided = clashing.tell
        self._cycle.release_gang = self._releasing.take
        if self._making is not None:
            self._cycle.preempt = self._making.take

    def _waited(self, waited_s: float) -> None:
        if self.standing.is_leading:
            self._observer.bound(waited_s)

    def _explain(self, explained: Sequence[Explain]) -> None:
        self._status.want(explained)
        if self._suggesting is not None:
            self._suggesting.decided(explained)
        if self._queue_statuses is not None:
            self._queue_statuses.decided()
        if self._group_statuses is not None:
            self._group_statuses.want(explained)
        if self._scaling is not None:
            self._scaling.decided()
        if self._carving is not None:
            self._carving.decided()

    @override
    def _forget_gone(self) -> None:
        self.cache.forget_gone()
        self._status.forget_gone()
        self._pricing.halve_if_due()
        if self._scaling is not None:
            self._scaling.forget_gone()

    @override
    async def finish(self) -> None:
        """Decide nothing more, and wait until what was decided is written."""
        await self._cycle.finish()

    @override
    async def _work(self) -> None:
        self.standing.is_leading = True
        self._traces.leads(True)
        try:
            await self._work_together()
        finally:
            self.standing.is_leading = False
            self._traces.leads(False)

    async def _work_together(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._recounting.run)
            tasks.start_soon(self._status.run)
            tasks.start_soon(self._enforcing.run)
            tasks.start_soon(self._releasing.run)
            tasks.start_soon(self._remarking.run)
            tasks.start_soon(self._answering.run)
            tasks.start_soon(self._joining.run)
            if self._carving is not None:
                self._carving.begin()  # what goes by attempts under way does not count in the first decision
            for part in self._chosen():
                tasks.start_soon(part.run)
            if self._uses_prices:
                self._pricing.begin()  # the first decision goes by the pods that run
                tasks.start_soon(self._pricing.run)
            tasks.start_soon(self._evictor.run)
            if self._making is not None:
                await self._making.begin()  # what is kept for holders is charged before the first decision
                tasks.start_soon(self._making.run)
            tasks.start_soon(self._cycle.run)

    def _chosen(self) -> Iterator[Part]:
        """What settings have it do."""
        parts: tuple[Part | None, ...] = (
            self._suggesting,
            self._caps,
            self._scaling,
            self._carving,
            self._queue_use,
            self._queue_statuses,
            self._group_statuses,
            self._budget_labels,
        )
        return (part for part in parts if part is not None)


def _traces(tracer: Tracer | None, settings: SchedulerSettings) -> Traces:
    return Untraced() if tracer is None else Traced(tracer, scheduler_name=settings.decisions.scheduler_name)


def _scaling(of: _Means) -> Scaling | None:
    asked = of.settings.scaling
    return None if asked is None else Scaling(of.api, of.cache, clock=of.clock, settings=asked)


def _followed(
    of: _Means, scaling: Scaling | None, gpu_nodes: tuple[Kind[GpuNode], ...], cdi: CdiNames
) -> tuple[Followed, ...]:
    """What is read before anything is decided: what safety rests on, and each decision needs.

    In this order: a pod whose PodGroup, BindRequest or claim is not known yet is not taken for one without it.
    """
    api, cache, rng = of.api, of.cache, of.rng
    kinds = (*secondary(cache), budgets(cache)) if of.settings.decisions.preemption else secondary(cache)
    kinds = (*kinds, numa_nodes(cache)) if of.settings.decisions.aligns_numa else kinds
    kinds = (*kinds, taint_rules(cache)) if of.settings.device_taint_rules else kinds
    return (
        Reflector(api, NODES, NodeSink(cache), rng=rng),  # what there is to give
        Reflector(api, POD_GROUPS, PodGroupSink(cache), rng=rng),  # devices that a plan promises to a gang
        Reflector(api, BIND_REQUESTS, RequestSink(cache), rng=rng),  # devices that are on their way to a pod
        Secondary(api, (*kinds, *gpu_nodes), rng=rng),
        KueueTopologies(api, cache),
        Reflector(api, PODS, PodSink(cache), rng=rng),  # devices that are used; books, in reservation pods
        *(() if scaling is None else (scaling.reflector(rng),)),  # pods once more: no second one is made
        cdi,
    )


def _status(of: _Means) -> Status:
    return Status(
        of.api,
        of.cache,
        clock=of.clock,
        events=of.events,
        condition_s=of.settings.condition_s,
        in_flight=of.settings.explain_in_flight,
        observer=of.observer,
    )


def _suggesting(of: _Means, status: Status) -> Suggesting | None:
    return Suggesting(of.cache, clock=of.api.clock, suggest=status.suggest) if of.settings.suggestions else None


def _enforcing(of: _Means) -> Enforcing:
    retry_s, in_flight = of.settings.condition_s, of.settings.explain_in_flight
    return Enforcing(of.api, of.cache, clock=of.clock, retry_s=retry_s, in_flight=in_flight)


def _releasing(of: _Means, evictor: Evictor) -> Releasing:
    return Releasing(
        of.api,
        of.cache,
        evictor=evictor,
        events=of.events,
        observer=of.observer,
        grace_s=of.settings.broken_gang_s,
    )


def _queue_use(of: _Means) -> QueueUse | AskedUse | None:
    """Who says what queues used over time; None: that does not count."""
    api, cache, period, source = of.api, of.cache, of.settings.queue_use, of.settings.use_source
    if period is None:
        return None
    if source is None:
        return QueueUse(api, cache, clock=api.clock, period=period)
    return AskedUse(api, cache, clock=api.clock, period=period, source=source)


def _group_statuses(of: _Means) -> PodGroupStatuses | None:
    if not of.settings.object_status:
        return None
    return PodGroupStatuses(of.api, of.cache, clock=of.clock, events=of.events)


def _making(of: _Means, evictor: Evictor) -> Preemption | None:
    if not of.settings.decisions.preemption:
        return None
    return Preemption(of.api, of.cache, evictor=evictor, clock=of.api.clock, events=of.events, observer=of.observer)


def _cycle(of: _Means, direct: Direct, handed: HandedOver, explain: Callable[[Sequence[Explain]], None]) -> Cycle:
    return Cycle(
        of.api,
        of.cache,
        direct=direct,
        gangs=Gangs(of.api, of.cache, direct=direct, handed=handed, clock=of.clock, rng=of.rng),
        handed=handed,
        explain=explain,
        settings=of.settings,
        observer=of.observer,
    )
