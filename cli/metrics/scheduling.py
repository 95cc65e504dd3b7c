"""What the scheduler decides and how long it takes, counted; and how things stand, read when somebody asks."""

from __future__ import annotations

from collections import Counter as CounterOf
from collections.abc import Iterator
from typing import Final

import anyio
import msgspec
from typing_extensions import override

from cli.metrics.declared import (
    CLASHING_CLAIMS,
    COMMITS,
    DECISIONS,
    EVICTED_IN_VAIN,
    EVICTIONS,
    INTENTS,
    KAI_BIND,
    KAI_E2E,
    KAI_TASK,
    LEDGER_DIFFERENCES,
    MIG_ATTEMPTS,
    MIG_GPUS,
    POOLS,
    STAGE_SECONDS,
    UNUSABLE,
    VERDICTS,
    WAITED,
    WAITING,
)
from cli.metrics.registry import Registry, Sample
from scheduler.core.model.plan import (
    Attempt,
    Bind,
    Evict,
    Explain,
    Gang,
    GiveUp,
    Hold,
    Join,
    MakeRoom,
    Plan,
    Prepare,
    Retire,
    Withdraw,
)
from scheduler.core.model.verdict import Code
from scheduler.report.state import Standing
from scheduler.telemetry.observer import Answer, Ended, Evicts, Observer, Stage

_KINDS: Final = {
    Bind: "bind", Join: "join", Attempt: "attempt", Hold: "hold", Gang: "gang", Prepare: "prepare",
    Retire: "retire", Withdraw: "withdraw", MakeRoom: "make-room", GiveUp: "give-up", Evict: "evict",
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
    registry.read(INTENTS, lambda: [((action,), count) for action, count in standing.intents().items()])
