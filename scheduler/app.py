"""The scheduler: it follows the cluster always, and decides and commits while it leads.

Nothing is decided before all books, BindRequests and plans of the leader before it are in the cache: a term begins
with fresh lists (kube/lead/replica.py).
"""
# ruff: noqa: PLW0108 - the cache calls parts that are made after it: each lambda looks its part up at the call

from __future__ import annotations

import random
from collections.abc import Sequence
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
from kube.lead.secondary import Secondary
from kube.telemetry.logevents import each_of, ignore
from kube.telemetry.tracing import Tracer
from kube.watch.reflector import Reflector
from scheduler.autoscale.scaling_pods import Scaling
from scheduler.background.loops import Answering, JoiningNodes, Pricing, Recounting
from scheduler.background.queue_use import AskedUse, QueueUse
from scheduler.background.stale_gangs import Releasing
from scheduler.commit.bind_requests import HandedOver
from scheduler.commit.claim_binding import Preparing
from scheduler.commit.claim_writes import LeavingClaims
from scheduler.commit.direct import Direct
from scheduler.commit.gangs import Gangs
from scheduler.conditions.enforcement import CapsInPlace, ClashingClaims, Enforcing, Remarking
from scheduler.conditions.pod_scheduled import Status
from scheduler.conditions.status_writers import PodGroupStatuses, QueueStatuses
from scheduler.conditions.suggestions import Suggesting
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain
from scheduler.core.scores.registry import SCORES
from scheduler.cycle import Carriers, Cycle
from scheduler.mig_partitioning.partitioner import Partitioner
from scheduler.preemption.evictor import Evictor
from scheduler.preemption.preemption import Preemption
from scheduler.report.state import SchedulerState
from scheduler.settings import SchedulerSettings
from scheduler.telemetry.events import Emit, PodTraces, SeenBound
from scheduler.watch.cache import Cache, CacheListeners
from scheduler.watch.secondary import NodeUses, budgets, config_maps, numa_nodes, plain_owners, secondary, taint_rules
from scheduler.watch.sinks import BudgetLabels, KueueTopologies, NodeSink, PodGroupSink, PodSink, RequestSink


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
    emit: Emit


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
        emit: Emit = ignore,
        tracer: Tracer | None = None,
    ) -> None:
        self._traces = _traces(tracer, settings)
        self._emit = emit if self._traces is None else each_of(emit, self._traces.take)
        decided = cluster or Cluster(settings.decisions, scores=settings.scores or SCORES)
        self.cache = cache = Cache(decided, listeners=self._listeners(settings), traces=self._traces)
        of = _Means(api, cache, settings=settings, clock=clock, rng=rng, events=events, emit=self._emit)
        self._scaling = _scaling(of)
        self._partitioning = _partitioning(of)
        #: What agents report of use; None: nobody follows it.
        self.uses = NodeUses(api, rng=rng, is_fed=self._partitioning is not None) if settings.follows_use else None
        cdi = CdiNames(api, settings.cdi)
        super().__init__(_followed(of, scaling=self._scaling, partitioning=self._partitioning, uses=self.uses, cdi=cdi))
        self._status = _status(of)
        self._suggesting = _suggesting(of, self._status)
        #: The state of the scheduler's work, for metrics and reports.
        self.state = SchedulerState(
            cache, self._status.codes, None if self._partitioning is None else self._partitioning.attempts
        )
        self._evictor = _evictor(of)
        self._releasing = _releasing(of, self._evictor)
        self._making = _making(of, self._evictor)
        self._remarking = Remarking(events)
        self._answering = Answering(cache, answer_s=settings.answer_s)
        self._pricing = Pricing(cache, settings.pricing)
        self._uses_prices = settings.decisions.uses_prices
        self._queue_statuses = QueueStatuses(api, cache, clock=clock) if settings.object_status else None
        self._group_statuses = _group_statuses(of)
        self._budget_labels = BudgetLabels(api, cache) if settings.decisions.preemption else None
        self._parts = self._parts_of(of)
        self._carriers = _carriers(of, cdi, self._making, self._releasing)
        self._cycle = Cycle(
            api,
            cache,
            self._carriers,
            explain=self._explain,
            after_each=ClashingClaims(cache, events).tell,
            settings=settings,
            emit=self._emit,
        )

    def _listeners(self, settings: SchedulerSettings) -> CacheListeners:
        """The parts that the cache calls. They are made after it, so each is looked up at the call."""
        decisions, shows = settings.decisions, settings.object_status
        return CacheListeners(
            pod=lambda uid: self._carriers.handed.pod_changed(uid),
            pod_gone=self._pod_gone if decisions.preemption else ignore,
            bound=lambda pod, alternative: self._remarking.bound(pod, alternative),
            waited=self._waited,
            device_freed=lambda node: self._carriers.handed.device_freed(node),
            device_asked=lambda uid: self._answering.ask(uid),
            gang=lambda key: self._releasing.gang_changed(key),
            group_shown=self._group_shown if shows else ignore,
            group_sums=self._group_sums if shows else ignore,
            queue_shown=self._queue_shown if shows else ignore,
            request_gone=lambda uid: self._carriers.handed.request_gone(uid),
            requests_listed=lambda uids: self._carriers.handed.requests_listed(uids),
            stored=lambda key: self._carriers.preparing.stored_changed(key),
            budgeted=self._budgeted if decisions.preemption else ignore,
        )

    def _waited(self, waited_s: float) -> None:
        if self.state.is_leading:
            self._emit(SeenBound(waited_s))

    def _pod_gone(self, uid: str) -> None:
        if self._making is not None:
            self._making.pod_gone(uid)

    def _budgeted(self, namespace: str) -> None:
        if self._budget_labels is not None:
            self._budget_labels.want(namespace)

    def _queue_shown(self, name: str) -> None:
        if self._queue_statuses is not None:
            self._queue_statuses.shown(name)

    def _group_shown(self, key: tuple[str, str]) -> None:
        if self._group_statuses is not None:
            self._group_statuses.shown(key)

    def _group_sums(self, key: tuple[str, str]) -> None:
        if self._group_statuses is not None:
            self._group_statuses.sums_changed(key)

    def _parts_of(self, of: _Means) -> tuple[Part, ...]:
        """What goes on beside the decisions, in the order in which it starts."""
        caps = None if self.uses is None else CapsInPlace(of.api, of.cache, self.uses, clock=of.clock, events=of.events)
        parts: tuple[Part | None, ...] = (
            Recounting(of.cache, of.emit),
            self._status,
            _enforcing(of),
            self._releasing,
            self._remarking,
            self._answering,
            JoiningNodes(of.cache, settle_s=of.settings.settle_s),
            self._suggesting,
            caps,
            self._scaling,
            self._partitioning,
            _queue_use(of),
            self._queue_statuses,
            self._group_statuses,
            self._budget_labels,
            self._pricing if self._uses_prices else None,
            self._evictor,
        )
        return tuple(part for part in parts if part is not None)

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
        if self._partitioning is not None:
            self._partitioning.decided()

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
        self._lead(True)
        try:
            await self._work_together()
        finally:
            self._lead(False)

    def _lead(self, is_leading: bool) -> None:
        self.state.is_leading = is_leading
        if self._traces is not None:
            self._traces.leads(is_leading)

    async def _work_together(self) -> None:
        if self._partitioning is not None:
            self._partitioning.begin()  # what goes by attempts under way does not count in the first decision
        if self._uses_prices:
            self._pricing.begin()  # the first decision goes by the pods that run
        async with anyio.create_task_group() as tasks:
            for part in self._parts:
                tasks.start_soon(part.run)
            if self._making is not None:
                await self._making.begin()  # what is kept for nominated pods is charged before the first decision
                tasks.start_soon(self._making.run)
            tasks.start_soon(self._cycle.run)


def _traces(tracer: Tracer | None, settings: SchedulerSettings) -> PodTraces | None:
    return None if tracer is None else PodTraces(tracer, scheduler_name=settings.decisions.scheduler_name)


def _partitioning(of: _Means) -> Partitioner | None:
    asked = of.settings.partitioning
    return None if asked is None else Partitioner(of.api, of.cache, settings=asked, rng=of.rng)


def _scaling(of: _Means) -> Scaling | None:
    asked = of.settings.scaling
    return None if asked is None else Scaling(of.api, of.cache, clock=of.clock, settings=asked)


def _followed(
    of: _Means, *, scaling: Scaling | None, partitioning: Partitioner | None, uses: NodeUses | None, cdi: CdiNames
) -> tuple[Followed, ...]:
    """What is read before anything is decided: what safety rests on, and each decision needs.

    In this order: a pod whose PodGroup, BindRequest or claim is not known yet is not taken for one without it.
    """
    api, cache, rng = of.api, of.cache, of.rng
    kinds = (*secondary(cache), budgets(cache)) if of.settings.decisions.preemption else secondary(cache)
    kinds = (*kinds, config_maps(cache)) if of.settings.wait_for_config_maps else kinds
    kinds = (*kinds, numa_nodes(cache)) if of.settings.decisions.numa_alignment else kinds
    kinds = (*kinds, *plain_owners(cache)) if cache.cluster.settings.workloads_are_grouped else kinds
    kinds = (*kinds, taint_rules(cache)) if of.settings.device_taint_rules else kinds
    kinds = kinds if partitioning is None else (*kinds, partitioning.kind(*(() if uses is None else (uses.sink,))))
    return (
        Reflector(api, NODES, NodeSink(cache), rng=rng),  # what there is to give
        Reflector(api, POD_GROUPS, PodGroupSink(cache), rng=rng),  # devices that a plan promises to a gang
        Reflector(api, BIND_REQUESTS, RequestSink(cache), rng=rng),  # devices that are on their way to a pod
        Secondary(api, kinds, rng=rng),
        KueueTopologies(api, cache),
        Reflector(api, PODS, PodSink(cache), rng=rng),  # devices that are used; books, in reservation pods
        *(() if scaling is None else (scaling.reflector(rng),)),  # pods once more: no second one is made
        cdi,
        *(() if uses is None else (uses,)),
    )


def _status(of: _Means) -> Status:
    return Status(
        of.api,
        of.cache,
        clock=of.clock,
        events=of.events,
        condition_s=of.settings.condition_s,
        in_flight=of.settings.explain_in_flight,
        emit=of.emit,
    )


def _suggesting(of: _Means, status: Status) -> Suggesting | None:
    return Suggesting(of.cache, clock=of.api.clock, suggest=status.suggest) if of.settings.suggestions else None


def _enforcing(of: _Means) -> Enforcing:
    retry_s, in_flight = of.settings.condition_s, of.settings.explain_in_flight
    return Enforcing(of.api, of.cache, clock=of.clock, retry_s=retry_s, in_flight=in_flight)


def _evictor(of: _Means) -> Evictor:
    on_refused = of.cache.note_refused if of.settings.decisions.preemption else ignore
    return Evictor(of.api, per_s=of.settings.evictions_per_s, on_refused=on_refused)


def _releasing(of: _Means, evictor: Evictor) -> Releasing:
    return Releasing(
        of.api,
        of.cache,
        evictor=evictor,
        events=of.events,
        emit=of.emit,
        staleness_grace_s=of.settings.staleness_grace_s,
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
    return Preemption(of.api, of.cache, evictor=evictor, clock=of.api.clock, events=of.events, emit=of.emit)


def _carriers(of: _Means, cdi: CdiNames, making: Preemption | None, releasing: Releasing) -> Carriers:
    api, cache, settings = of.api, of.cache, of.settings
    handed = HandedOver(api, cache, clock=of.clock, orphan_s=settings.orphan_s)
    direct = Direct(
        api,
        cache,
        clock=of.clock,
        rng=of.rng,
        events=of.events,
        cdi=cdi,
        memory_caps=settings.memory_caps,
        emit=of.emit,
    )
    return Carriers(
        direct=direct,
        gangs=Gangs(api, cache, direct=direct, handed=handed, clock=of.clock, rng=of.rng),
        handed=handed,
        preparing=Preparing(
            api, cache, timeout_s=settings.prepare_s, in_flight=settings.in_flight, tell_pending=direct.tell_pending
        ),
        leaving=LeavingClaims(api, cache, clock=api.clock),
        preempt=None if making is None else making.take,
        release_gang=releasing.take,
    )
