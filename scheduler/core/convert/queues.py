"""Queues as their objects say, and which queue a pod is charged to (kai-contract 2.1, 3.1).

The wire has floats; what they count for is said there (wire/crds/queue.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Final

from gpu.translation import shown
from scheduler.core.model.quota import DIMENSIONS, BadField, QueueRecord, Resources
from scheduler.core.model.quota import UNLIMITED as WITHOUT_END
from wire import go, names
from wire.crds.podgroup import NON_PREEMPTIBLE, PREEMPTIBLE
from wire.crds.queue import DEFAULT_PRIORITY, UNITS, UNLIMITED, WEIGHT_UNITS, Queue, QueueResource, counted

_NOTHING: Final = QueueResource()


def queue_record(queue: Queue) -> QueueRecord:
    """Read a Queue. A value without meaning closes it: it never counts as another one."""
    reader, spec, meta = _Reader(), queue.spec, queue.metadata
    resources = spec.resources
    each = [(name, getattr(resources, name, None) or _NOTHING) for name in DIMENSIONS]
    return QueueRecord(
        name=intern(meta.name),
        uid=meta.uid,
        parent=intern(spec.parent_queue),
        created=meta.creation_timestamp or "",
        priority=DEFAULT_PRIORITY if spec.priority is None else spec.priority,
        quota=Resources(*(reader.amount(name, "quota", one.quota) for name, one in each)),
        limit=Resources(*(reader.amount(name, "limit", one.limit) for name, one in each)),
        weight=Resources(*(reader.weight(name, one.over_quota_weight) for name, one in each)),
        preempt_min_runtime_ns=reader.duration_ns("preemptMinRuntime", spec.preempt_min_runtime),
        reclaim_min_runtime_ns=reader.duration_ns("reclaimMinRuntime", spec.reclaim_min_runtime),
        patience_ns=_patience_ns((meta.annotations or {}).get(names.PATIENCE)),
        bad=reader.bad,
    )


class _Reader:
    """Reads numbers, and keeps the first that has no meaning."""

    def __init__(self) -> None:
        self.bad: BadField | None = None

    def amount(self, resource: str, field: str, value: float | None) -> int:
        """In the smallest units of a resource, cut to a whole number; -1 is without end."""
        if value == UNLIMITED:
            return WITHOUT_END
        return self._read(resource, field, value, UNITS[resource])

    def weight(self, resource: str, value: float | None) -> int:
        """In millionths."""
        return self._read(resource, "overQuotaWeight", value, WEIGHT_UNITS)

    def duration_ns(self, field: str, written: str | None) -> int | None:
        """A duration as Go writes it; None if it is absent."""
        try:
            return None if written is None else go.parse_ns(written)
        except go.MalformedDuration:
            self.bad = self.bad or BadField(field, shown(written or ""))
        return None

    def _read(self, resource: str, field: str, value: float | None, scale: int) -> int:
        if value is None:
            return 0
        found = counted(value, scale)
        if found is None:
            self.bad = self.bad or BadField(f"resources.{resource}.{field}", repr(value))
        return found or 0


def _patience_ns(written: str | None) -> int | None:
    """How long a group waits before nodes are kept for it; what can't be read, and admission refuses, is not said."""
    try:
        return None if written is None else go.parse_ns(written)
    except go.MalformedDuration:
        return None


def queue_of(labels: Mapping[str, str], *, is_of_group: bool = False) -> str:
    """The queue that a pod is charged to by its labels, where no PodGroup names another one (kai-contract 3.1).

    ``is_of_group``: it waits and names a PodGroup. While that is not there, its label ``project`` charges nobody:
    admission does not judge that label then (admission/policies.py).
    """
    project = "" if is_of_group else labels.get(names.PROJECT_LABEL)
    return intern(labels.get(names.QUEUE_LABEL) or project or names.DEFAULT_QUEUE)


def is_preemptible(written: str | None) -> bool | None:
    """Whether pods may be preempted, as somebody writes; None: nobody says, so priority decides."""
    return {PREEMPTIBLE: True, NON_PREEMPTIBLE: False}.get(written or "")
