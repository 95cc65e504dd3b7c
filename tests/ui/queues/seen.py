"""Clusters as they are read for what is shown of queues."""

from __future__ import annotations

from typing import Any

from scheduler.conditions.messages import told
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from scheduler.core.report.queue_explanation import Explanation, explanation
from scheduler.core.report.queue_view import QueueView, queue_views
from tests.scheduler.core.objects import pod
from tests.scheduler.core.report.listing import listed
from ui.queues.count import Counting, Known
from ui.queues.pools import About, Found, digested
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue


def known(*objects: Any, about: About | None = None) -> Known:
    counting = Counting(about=about)

    def of(kind: type) -> list[Any]:
        return [each for each in objects if isinstance(each, kind)]

    found: Found[Pod] = Found(
        nodes=of(Node), pods=of(Pod), queues=of(Queue), groups=of(PodGroup), requests=of(BindRequest)
    )
    return counting.count(digested(found, counting.read_pod))


def views(*objects: Any) -> list[QueueView]:
    queues = known(*objects).snapshot.queues
    return queue_views(queues, queues.accounts(), lambda verdict: told(verdict).message)


def explained(name: str, *objects: Any, used: UseOverTime = NOT_COUNTED) -> Explanation:
    found = explanation(listed(*objects, used=used), name, lambda verdict: told(verdict).message)
    assert found is not None
    return found


def of(team: str, name: str, *, gpus: int = 1, **more: Any) -> Pod:
    """A pod of a queue."""
    return pod(name, gpus=gpus, labels={names.QUEUE_LABEL: team}, **more)
