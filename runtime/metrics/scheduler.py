"""What the scheduler counts: decisions and how long they take, queues, and questions to one that explains.

What queues hold, may hold and are due is shown under KAI's names and in KAI's units.
"""

from __future__ import annotations

import enum
from collections import Counter as CounterOf
from collections.abc import Iterator, Sequence
from typing import Final

import anyio
import msgspec
from typing_extensions import override

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
    Plan,
    Prepare,
    Retire,
    Withdraw,
)
from scheduler.core.model.quota import UNLIMITED, Resources
from scheduler.core.model.verdict import Code
from scheduler.report.state import QueueStanding, Standing
from scheduler.telemetry.observer import Answer, Ended, Evicts, Observer, Stage


class Outcome(enum.StrEnum):
    """What became of a question."""

    ANSWERED = "answered"
    #: It makes no sense, is about nothing that is there, or the asker may not ask it.
    REFUSED = "refused"
    #: Too many questions at one time, or the cluster is not read yet.
    BUSY = "busy"
    #: The API server could not say what the asker may see.
    FAILED = "failed"


class ExplainObserver:
    """Ignores all of it."""

    def asked(self, outcome: Outcome, seconds: float) -> None:
        """Take the end of a question, and its duration."""

    def sliced(self, seconds: float) -> None:
        """Take the end of a slice of an explanation, and its CPU time: a decision may have waited for it."""


class ExplainCounted(ExplainObserver):
    """Counts what the service tells. All series are there from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        seconds = registry.histogram(EXPLAIN_SECONDS)
        self._seconds = {outcome: seconds.labels(outcome.value) for outcome in Outcome}
        self._slices = registry.histogram(EXPLAIN_SLICE_SECONDS)

    @override
    def asked(self, outcome: Outcome, seconds: float) -> None:
        """Count it."""
        self._seconds[outcome].observe(seconds)

    @override
    def sliced(self, seconds: float) -> None:
        """Count it."""
        self._slices.observe(seconds)


_NANO: Final = 10**9
_MILLI: Final = 1000
_GB: Final = 10**9
_PPB: Final = 10**9
_UNLIMITED: Final = -1.0


def show_queues(registry: Registry, standing: Standing) -> None:
    """Read how queues stand, whenever somebody asks."""

    def samples() -> Iterator[tuple[Metric, Sample]]:
        for queue in standing.queues():
            yield from _samples(queue)

    registry.read_together(QUEUES, samples)


def _samples(queue: QueueStanding) -> Iterator[tuple[Metric, Sample]]:
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


class SchedulingCounted(Observer):
    """Counts what the scheduler tells. All series are there from the start, so that a rate sees the first of each."""

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
        self._kais = _UnderKaisNames(registry)

    @override
    def decided(self, plan: Plan) -> None:
        """Count its entries; why pods wait is counted when it changes."""
        for kind, count in CounterOf(type(entry) for entry in plan.entries if not isinstance(entry, Explain)).items():
            self._decisions[kind].inc(count)

    @override
    def took(self, stage: Stage, seconds: float) -> None:
        """Count it."""
        self._seconds[stage].observe(seconds)
        self._kais.took(stage, seconds)

    @override
    def judged(self, code: Code) -> None:
        """Count it."""
        self._verdicts[code].inc()

    @override
    def ended(self, how: Ended) -> None:
        """Count it."""
        self._commits[how].inc()

    @override
    def bound(self, waited_s: float) -> None:
        """Count it."""
        self._waited.observe(waited_s)
        self._kais.task.observe(waited_s * 1000)

    @override
    def ledger_differs(self) -> None:
        """Count it."""
        self._differences.inc()

    @override
    def asked_to_go(self, why: Evicts, answer: Answer) -> None:
        """Count it."""
        self._evictions[why, answer].inc()

    @override
    def evicted_in_vain(self, pods: int) -> None:
        """Count them."""
        self._in_vain.inc(pods)


class _UnderKaisNames:
    """What dashboards for KAI's scheduler ask for, where it means the same here (kai-contract 6.5)."""

    def __init__(self, registry: Registry) -> None:
        self.task = registry.histogram(KAI_TASK)
        self._bind, self._e2e = registry.histogram(KAI_BIND), registry.gauge(KAI_E2E)
        self._decided_s = 0.0

    def took(self, stage: Stage, seconds: float) -> None:
        """Count it; charging comes after deciding."""
        match stage:
            case Stage.DECIDE:
                self._decided_s = seconds
            case Stage.CHARGE:
                self._e2e.set((self._decided_s + seconds) * 1000)
            case Stage.BIND | Stage.JOIN | Stage.HAND_OVER:
                self._bind.observe(seconds * 1000)
            case Stage.GANG | Stage.PREPARE:
                pass


def show_standing(registry: Registry, standing: Standing) -> None:
    """Read why pods wait, and what of each pool is used and what is of no use, whenever somebody asks."""

    def pools() -> Iterator[Sample]:
        for pool, use in standing.pools().items():
            for state, nano in msgspec.structs.asdict(use).items():
                yield (pool.node_pool, pool.product, state), nano

    def unusable() -> Iterator[Sample]:
        for pool, causes in standing.unusable().items():
            for cause, nano in causes.items():
                yield (pool.node_pool, pool.product, cause.value), nano

    registry.read(WAITING, lambda: [((why,), count) for why, count in standing.waiting().items()])
    registry.read(POOLS, pools)
    registry.read(UNUSABLE, unusable)
    registry.read_one(CLASHING_CLAIMS, standing.clashing_claims)
    registry.read(MIG_ATTEMPTS, lambda: [((how,), count) for how, count in standing.mig_attempts().items()])
    registry.read(MIG_GPUS, lambda: [((state,), n) for state, n in standing.mig_gpus(anyio.current_time()).items()])
    registry.read(NOMINATIONS, lambda: [((action,), count) for action, count in standing.nominations().items()])
