"""What is counted in queues, and what a Queue object gives: quotas, limits, weights.

CPU, memory and GPUs, each as an exact integer in a unit of its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from wire.crds.queue import TOO_MANY_UNITS
from wire.crds.queue import UNITS as UNITS_OF_QUEUES

#: ``quota`` and ``limit`` without end. Sums of what pods use stay far below.
UNLIMITED: Final = TOO_MANY_UNITS

#: The name of each dimension in a Queue's ``spec.resources``, in the order of ``Resources``.
DIMENSIONS: Final = tuple(UNITS_OF_QUEUES)
#: What is given as one piece: a whole GPU, and single millicores and bytes.
UNITS: Final = (1, 1, 10**9)


class Resources(NamedTuple):
    """Amounts of all dimensions. GPUs count in billionths of one (nano), memory in bytes without rounding."""

    cpu_milli: int = 0
    mem_bytes: int = 0
    gpu_nano: int = 0

    def plus(self, other: Resources) -> Resources:
        """The sum of both."""
        return Resources(self[0] + other[0], self[1] + other[1], self[2] + other[2])

    def times(self, count: int) -> Resources:
        """Each amount times a number."""
        return Resources(self[0] * count, self[1] * count, self[2] * count)

    def minus(self, other: Resources) -> Resources:
        """What is left of it without the other; below zero where the other is larger."""
        return Resources(self[0] - other[0], self[1] - other[1], self[2] - other[2])


NOTHING: Final = Resources()
WITHOUT_END: Final = Resources(UNLIMITED, UNLIMITED, UNLIMITED)


class BadField(msgspec.Struct, frozen=True, gc=False):
    """A field of a Queue whose value has no meaning. ``field`` below ``spec``, ``value`` as written there."""

    field: str
    value: str


class QueueElsewhere(msgspec.Struct, frozen=True, gc=False):
    """A Queue object of another node pool, which is named as events do."""

    name: str
    pool: str

    @property
    def key(self) -> str:
        """Queues are known by their names."""
        return self.name


class QueueRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A queue as its object says. ``parent`` "": it is at the top.

    ``quota`` and ``limit``: UNLIMITED for -1. ``weight``: share of what is left above the quotas, in millionths, by
    dimension. ``created`` as the API server writes it. ``bad``: the queue is closed because of this field.
    ``preempt_min_runtime_ns``, ``reclaim_min_runtime_ns``: how long a group runs before it may be evicted for others of
    its queue, and of other queues; None: not said. ``patience_ns``: how long a group waits before nodes are kept for it
    (queues/reserved_nodes.py), below zero: they never are; None: not said.
    """

    name: str
    uid: str = ""
    parent: str = ""
    created: str = ""
    priority: int = 100
    quota: Resources = NOTHING
    limit: Resources = WITHOUT_END
    weight: Resources = NOTHING
    preempt_min_runtime_ns: int | None = None
    reclaim_min_runtime_ns: int | None = None
    patience_ns: int | None = None
    bad: BadField | None = None

    @property
    def key(self) -> str:
        """Queues are known by their names."""
        return self.name
