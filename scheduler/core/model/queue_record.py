"""What the core keeps of a Queue object."""

from __future__ import annotations

import msgspec

from scheduler.core.model.resources import NOTHING, WITHOUT_END, Resources


class BadField(msgspec.Struct, frozen=True, gc=False):
    """A field of a Queue whose value has no meaning. ``field`` below ``spec``, ``value`` as written there."""

    field: str
    value: str


class QueueRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A queue as its object says. ``parent`` "": it is at the top.

    ``quota`` and ``limit``: UNLIMITED for -1. ``weight``: share of what is left above the quotas, in millionths, by
    dimension. ``created`` as the API server writes it. ``bad``: the queue is closed because of this field.
    ``preempt_min_runtime_ns``, ``reclaim_min_runtime_ns``: how long a group runs before it may be evicted for others of
    its queue, and of other queues; None: not said. ``patience_ns``: how long a group waits before nodes are kept for it
    (queues/berths.py), below zero: they never are; None: not said.
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
