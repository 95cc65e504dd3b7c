"""What the scheduler counts: decisions and how long they take, queues, and questions to one that explains.

What queues hold, may hold and are due is shown under KAI's names and in KAI's units.
"""

from __future__ import annotations

import enum
from collections import Counter as CounterOf
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import anyio
import msgspec

from runtime.metrics.declared import (
    CLASHING_CLAIMS,
    COMMITS,
    DECISIONS,
    EVICTED_IN_VAIN,
    EVICTIONS,
    EXPLAIN_SECONDS,
    EXPLAIN_SLICE_SECONDS,
    KAI_BIND,
    KAI_E2E,
    KAI_TASK,
    LEDGER_DIFFERENCES,
    MIG_ATTEMPTS,
    MIG_GPUS,
    NOMINATIONS,
    POOLS,
    QUEUE_ALLOCATED,
    QUEUE_FAIR,
    QUEUE_FIXED,
    QUEUE_INFO,
    QUEUE_LIMIT,
    QUEUE_OWED,
    QUEUE_QUOTA,
    QUEUE_REQUESTED,
    QUEUE_USED,
    QUEUES,
    STAGE_SECONDS,
    UNUSABLE,
    VERDICTS,
    WAITED,
    WAITING,
    Metric,
)
from runtime.metrics.registry import Registry, Sample
from scheduler.core.model.plan import (
    Attempt,
    Bind,
    Evict,
    Explain,
    Gang,
    GiveUp,
    Hold,
    Join,
    Nominate,
    Prepare,
    Retire,
    Withdraw,
)
from scheduler.core.model.quota import UNLIMITED, Resources
from scheduler.core.model.verdict import Code
from scheduler.report.state import QueueReport, SchedulerState
from scheduler.telemetry.events import (
    Answer,
    Attempted,
    Decided,
    Ended,
    EvictedInVain,
    EvictionAnswered,
    Evicts,
    Judged,
    LedgerDiffers,
    RequestMade,
    SchedulerEvent,
    SeenBound,
    Stage,
    StageTook,
)


class Outcome(enum.StrEnum):
    """What became of a question."""

    ANSWERED = "answered"
    #: It makes no sense, is about nothing that is there, or the asker may not ask it.
    REFUSED = "refused"
    #: Too many questions at one time, or the cluster is not read yet.
    BUSY = "busy"
    #: The API server could not say what the asker may see.
    FAILED = "failed"


class QuestionAnswered(msgspec.Struct, frozen=True, gc=False):
    """A question has ended, after this time."""

    outcome: Outcome
    seconds: float


class SliceTook(msgspec.Struct, frozen=True, gc=False):
    """A slice of an explanation has ended, after this CPU time: a decision may have waited for it."""

    seconds: float


ExplainEvent: TypeAlias = QuestionAnswered | SliceTook


class ExplainMetrics:
    """Counts events of the service. All series are there from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        seconds = registry.histogram(EXPLAIN_SECONDS)
        self._seconds = {outcome: seconds.labels(outcome.value) for outcome in Outcome}
        self._slices = registry.histogram(EXPLAIN_SLICE_SECONDS)

    def take(self, event: ExplainEvent) -> None:
        """Count an event."""
        match event:
            case QuestionAnswered(outcome=outcome, seconds=seconds):
                self._seconds[outcome].observe(seconds)
            case SliceTook(seconds=seconds):
                self._slices.observe(seconds)


_NANO: Final = 10**9
_MILLI: Final = 1000
_GB: Final = 10**9
_PPB: Final = 10**9
_UNLIMITED: Final = -1.0


def show_queues(registry: Registry, scheduler: SchedulerState) -> None:
    """Read how queues stand, whenever somebody asks."""

    def samples() -> Iterator[tuple[Metric, Sample]]:
        for queue in scheduler.queues():
            yield from _samples(queue)

    registry.read_together(QUEUES, samples)


def _samples(queue: QueueReport) -> Iterator[tuple[Metric, Sample]]:
    state, name = queue.state, queue.state.record.name
    labels = (name, name, queue.display_name)
    yield QUEUE_INFO, (labels, 1.0)
    yield QUEUE_OWED, ((name,), queue.owed)
    of_all: tuple[tuple[Sequence[Metric], Resources], ...] = (
        (QUEUE_QUOTA, state.record.quota),
        (QUEUE_LIMIT, state.record.limit),
        (QUEUE_ALLOCATED, state.held),
        (QUEUE_FIXED, state.fixed),
        (QUEUE_REQUESTED, state.asked),
    )
    for metrics, amounts in of_all:
        for metric, value in zip(metrics, _values(amounts), strict=True):
            yield metric, (labels, value)
    if state.fair is not None:
        gpus, cores, memory = _values(state.fair)
        for metric, value in zip(QUEUE_FAIR, (gpus, cores, memory / _GB), strict=True):
            yield metric, (labels, value)
    if queue.used_ppb is not None:
        for metric, used in zip(QUEUE_USED, queue.used_ppb, strict=True):
            yield metric, (labels, used / _PPB)


def _values(amounts: Resources) -> tuple[float, float, float]:
    """GPUs, cores and bytes."""
    return _value(amounts.gpu_nano, _NANO), _value(amounts.cpu_milli, _MILLI), _value(amounts.mem_bytes, 1)


def _value(amount: int, one: int) -> float:
    return _UNLIMITED if amount >= UNLIMITED else amount / one


_KINDS: Final = {
    Bind: "bind", Join: "join", Attempt: "attempt", Hold: "hold", Gang: "gang", Prepare: "prepare",
    Retire: "retire", Withdraw: "withdraw", Nominate: "nominate", GiveUp: "give-up", Evict: "evict",
}  # fmt: skip


_OF_KAIS_BINDING: Final = frozenset({Stage.BIND, Stage.JOIN, Stage.HAND_OVER})


class SchedulerMetrics:
    """Counts events of the scheduler. All series exist from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        decisions, verdicts = registry.counter(DECISIONS), registry.counter(VERDICTS)
        commits, seconds = registry.counter(COMMITS), registry.histogram(STAGE_SECONDS)
        self._decisions = {kind: decisions.labels(name) for kind, name in _KINDS.items()}
        self._verdicts = {code: verdicts.labels(code.value) for code in Code}
        self._commits = {how: commits.labels(how.value) for how in Ended}
        self._seconds = {stage: seconds.labels(stage.value) for stage in Stage}
        self._waited = registry.histogram(WAITED)
        self._differences = registry.counter(LEDGER_DIFFERENCES)
        evictions = registry.counter(EVICTIONS)
        self._evictions = {
            (why, answer): evictions.labels(why.value, answer.value) for why in Evicts for answer in Answer
        }
        self._in_vain = registry.counter(EVICTED_IN_VAIN)
        # What dashboards for KAI's scheduler query, where it means the same here.
        self._kai_task, self._kai_bind = registry.histogram(KAI_TASK), registry.histogram(KAI_BIND)
        self._kai_e2e = registry.gauge(KAI_E2E)

    def take(self, event: SchedulerEvent) -> None:
        """Count an event; why pods wait is counted when it changes, and not for each decision."""
        match event:
            case Decided():
                self._decided(event)
            case StageTook(stage=stage, seconds=seconds):
                self._took(stage, seconds)
            case Judged(code=code):
                self._verdicts[code].inc()
            case RequestMade():
                pass  # its stage is counted
            case Attempted():
                self._commits[event.how].inc()
            case SeenBound(waited_s=waited_s):
                self._waited.observe(waited_s)
                self._kai_task.observe(waited_s * 1000)
            case LedgerDiffers():
                self._differences.inc()
            case EvictionAnswered(why=why, answer=answer):
                self._evictions[why, answer].inc()
            case EvictedInVain(pods=pods):
                self._in_vain.inc(pods)

    def _decided(self, event: Decided) -> None:
        entries = (type(entry) for entry in event.plan.entries if not isinstance(entry, Explain))
        for kind, count in CounterOf(entries).items():
            self._decisions[kind].inc(count)
        self._took(Stage.DECIDE, event.decided_s - event.began_s)
        self._took(Stage.CHARGE, event.charged_s - event.decided_s)
        self._kai_e2e.set((event.charged_s - event.began_s) * 1000)

    def _took(self, stage: Stage, seconds: float) -> None:
        self._seconds[stage].observe(seconds)
        if stage in _OF_KAIS_BINDING:
            self._kai_bind.observe(seconds * 1000)


def show_state(registry: Registry, scheduler: SchedulerState) -> None:
    """Read why pods wait, and what of each pool is used and what is of no use, whenever somebody asks."""

    def pools() -> Iterator[Sample]:
        for pool, use in scheduler.pools().items():
            for state, nano in msgspec.structs.asdict(use).items():
                yield (pool.node_pool, pool.product, state), nano

    def unusable() -> Iterator[Sample]:
        for pool, causes in scheduler.unusable().items():
            for cause, nano in causes.items():
                yield (pool.node_pool, pool.product, cause.value), nano

    registry.read(WAITING, lambda: [((why,), count) for why, count in scheduler.waiting().items()])
    registry.read(POOLS, pools)
    registry.read(UNUSABLE, unusable)
    registry.read_one(CLASHING_CLAIMS, scheduler.clashing_claims)
    registry.read(MIG_ATTEMPTS, lambda: [((how,), count) for how, count in scheduler.mig_attempts().items()])
    registry.read(MIG_GPUS, lambda: [((state,), n) for state, n in scheduler.mig_gpus(anyio.current_time()).items()])
    registry.read(NOMINATIONS, lambda: [((action,), count) for action, count in scheduler.nominations().items()])
