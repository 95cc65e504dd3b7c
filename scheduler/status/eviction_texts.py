"""Why a pod is evicted, in KAI's words (kai-contract 4.7, 4.8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from scheduler.core.model.quota import NOTHING, UNLIMITED, Resources
from scheduler.core.model.verdict import SubgroupShort
from scheduler.status.reasons import decimal

if TYPE_CHECKING:
    from scheduler.core.report.queue_state import QueueState


def eviction_text(minimum: int, short: SubgroupShort | None, pod: str) -> str:
    """Say why a pod of a gang below its minimum is evicted (kai-contract 4.7). ``pod``: namespace and name."""
    what, required, where = "pods", minimum, ""
    if short is not None:
        what, required = "sub-groups" if short.is_of_subgroups else "pods", short.required
        where = f" in sub-group {short.name}" if short.name else ""
    lacks = f"Workload doesn't meet the minimum required number of {what} ({required}){where}"
    return f"{lacks}, evicting remaining pod: {pod}"


def preempted_text(pod: str, workload: str) -> str:
    """Say for whom a pod is evicted in its own queue (kai-contract 4.8). Both: namespace and name.

    Of a workload in another namespace than the pod no more than its queue (``of queue NAME``).
    """
    return f"Pod {pod} was preempted by higher priority workload {workload}"


def moved_text(pod: str) -> str:
    """Say that a pod is evicted to be placed on another node (kai-contract 4.8). ``pod``: namespace and name."""
    return f"Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure"


def reclaimed_text(pod: str, workload: str, queues: Iterable[QueueState]) -> str:
    """Say for whom of another queue a pod is evicted, and how the queues stand: its own, and the other one.

    ``workload`` as above.
    """
    sentences = (f"Pod {pod} was preempted by workload {workload}.", *map(_queue_sentence, queues))
    return " ".join(sentences)


def _queue_sentence(state: QueueState) -> str:
    record = state.record
    quota, fair = _amounts(record.quota), _amounts(state.fair or NOTHING)
    return (
        f"{record.name} uses <{_amounts(state.held)}> with a quota of <{quota}>, fair-share of <{fair}> "
        f"and queue priority of <{record.priority}>."
    )


def _amounts(resources: Resources) -> str:
    gpu, cpu, mem = (
        "unlimited" if amount >= UNLIMITED else decimal(amount, one)
        for amount, one in ((resources.gpu_nano, 10**9), (resources.cpu_milli, 1000), (resources.mem_bytes, 10**9))
    )
    return f"GPU: {gpu}, CPU: {cpu} (cores), memory: {mem} (GB)"
