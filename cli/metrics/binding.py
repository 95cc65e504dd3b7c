"""How attempts end at the binder and how long they take, counted; and how things stand, read when somebody asks."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from binder.report.standing import Standing
from binder.telemetry.observing import Observer, Stage
from cli.metrics.declared import BIND_SECONDS, BIND_STAGE_SECONDS, BINDS, DRIFT, GROUPS, RESERVATIONS, TENANTS
from cli.metrics.registry import Registry
from gpu.cause import Cause

_BOUND: Final = "bound"
_FAILED: Final = "failed"


class BindingCounted(Observer):
    """Counts what the binder tells. All series are there from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        binds, seconds = registry.counter(BINDS), registry.histogram(BIND_SECONDS)
        stages = registry.histogram(BIND_STAGE_SECONDS)
        self._bound, self._bound_s = binds.labels(_BOUND), seconds.labels(_BOUND)
        self._failed, self._failed_s = {cause: binds.labels(cause.value) for cause in Cause}, seconds.labels(_FAILED)
        self._stages = {stage: stages.labels(stage.value) for stage in Stage}

    @override
    def took(self, stage: Stage, seconds: float) -> None:
        """Count it."""
        self._stages[stage].observe(seconds)

    @override
    def ended(self, because: Cause | None, took_s: float) -> None:
        """Count it."""
        if because is None:
            self._bound.inc()
            self._bound_s.observe(took_s)
        else:
            self._failed[because].inc()
            self._failed_s.observe(took_s)


def show_standing(registry: Registry, standing: Standing) -> None:
    """Read shared GPUs, their reservations and what books are wrong about, whenever somebody asks."""
    registry.read_one(GROUPS, standing.groups)
    registry.read_one(TENANTS, standing.tenants)
    registry.read(RESERVATIONS, lambda: [((state.value,), count) for state, count in standing.reservations().items()])
    registry.read(DRIFT, lambda: [((kind.value,), count) for kind, count in standing.drift().items()])
