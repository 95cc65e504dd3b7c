"""What queues hold, may hold and are due, under KAI's names and in KAI's units (kai-contract 6.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cli.metrics.declared import (
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
)
from cli.metrics.metric import Metric
from cli.metrics.registry import Registry, Sample
from scheduler.core.model.quota import UNLIMITED, Resources
from scheduler.report.state import QueueStanding, Standing

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
