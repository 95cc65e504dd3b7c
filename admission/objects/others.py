"""The queues beside one that is judged, and sums of what stands below each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admission.objects.amounts import NOTHING, Amount, amount
from wire.crds.queue import Queue, QueueResource

_ABSENT: Final = QueueResource()


class Others:
    """All queues that are known; the judged one may be among them, as it is stored.

    Made in time linear in their number. Sums are made when they are asked for, once, so that all queues of a flat tree
    can be judged in linear time. A queue that is being deleted is found, and is nobody's child.
    """

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self._by_name = {queue.metadata.name: queue for queue in queues}
        self._below: dict[str, list[Queue]] = {}
        for _, queue in sorted(self._by_name.items()):
            if _is_child(queue, queue.spec.parent_queue):
                self._below.setdefault(queue.spec.parent_queue, []).append(queue)
        self._sums: dict[tuple[str, str], Amount] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Queue | None:
        """Return a queue by its name."""
        return self._by_name.get(name)

    def below(self, parent: str) -> list[Queue]:
        """Return the children of a queue, by name, without itself."""
        return [queue for queue in self._below.get(parent, ()) if queue.metadata.name != parent]

    def quota_below(self, parent: str, resource: str, *, besides: str) -> Amount:
        """Return the sum of the children's quotas, without the child of this name."""
        total, left_out = self._sum(parent, resource), self._by_name.get(besides)
        return total if left_out is None or not _is_child(left_out, parent) else total - quota(left_out, resource)

    def _sum(self, parent: str, resource: str) -> Amount:
        if (known := self._sums.get((parent, resource))) is None:
            known = NOTHING
            for queue in self._below.get(parent, ()):
                known += quota(queue, resource)
            self._sums[parent, resource] = known
        return known


def quota(queue: Queue, resource: str) -> Amount:
    """Return a queue's quota of ``cpu``, ``memory`` or ``gpu``."""
    return amount(said_of(queue, resource).quota)


def said_of(queue: Queue, resource: str) -> QueueResource:
    """Return what a queue says of a resource; absent is all 0."""
    return getattr(queue.spec.resources, resource, None) or _ABSENT


def _is_child(queue: Queue, parent: str) -> bool:
    return bool(parent) and queue.spec.parent_queue == parent and not queue.metadata.deletion_timestamp
