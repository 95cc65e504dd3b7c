"""Clusters of which queues are counted and turns are lined up from lists, as others decide on them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from scheduler.core.report.queue_explanation import Listed, ListedQueues
from tests.scheduler.core.objects import NANO, bind_request, bound, ended, node, pod, pod_group, queue
from tests.scheduler.core.objects import reservation as held
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

QUEUES: Final = ("top", "left", "right", "closed")


def listed(*objects: Any, used: UseOverTime = NOT_COUNTED) -> Listed:
    made = ListedQueues()

    def of(kind: type) -> list[Any]:
        return [each for each in objects if isinstance(each, kind)]

    return made.count(
        of(Node),
        [made.read_pod(each) for each in of(Pod)],
        found=of(Queue),
        groups=of(PodGroup),
        requests=of(BindRequest),
        used=used,
    )


def random_objects(rng: random.Random) -> Iterator[Any]:
    """Queues, nodes with cards of several sizes, and pods of all stages."""
    yield from (queue("top", gpu=(8, 1, 12)), queue("left", "top", gpu=(3, 2, -1)), queue("right", "top"))
    yield queue("closed", "nowhere")
    nodes = [f"n{at}" for at in range(rng.randint(1, 3))]
    yield from (
        node(name, rng.choice((0, 4, 8)), mem_mib=rng.choice((0, 24_576, 81_920)), ready=rng.random() < 0.9)
        for name in nodes
    )
    yield from (pod_group(f"g{at}", 2, queue=rng.choice(QUEUES)) for at in range(2))
    for at in range(rng.randint(5, 25)):
        yield from _random_pod(rng, f"p{at}", rng.choice((*nodes, "unknown")))


def _random_pod(rng: random.Random, name: str, where: str) -> Iterator[Any]:
    asked = rng.choice(({"gpus": 2}, {"gpus": 1}, {"fraction": "0.25"}, {"mem": 4_096}, {}))
    labels = {names.QUEUE_LABEL: rng.choice(QUEUES)} if rng.random() < 0.9 else {}
    made = pod(
        name,
        cpu=rng.choice(("", "1500m")),
        labels=labels,
        group=rng.choice(("", "", "g0", "g1", "missing")),
        deleting=rng.random() < 0.1,
        scheduler="default-scheduler" if rng.random() < 0.1 else names.SCHEDULER_NAME,
        **asked,
    )
    is_shared = "fraction" in asked
    group = f"of-{name}"
    match rng.choice(("waits", "bound", "ended", "on its way", "bound and named")):
        case "bound":
            if is_shared:
                yield held(group, where, book={f"uid-{name}": NANO // 4}, mem_mib=24_576)
            yield bound(made, where, *(((group, NANO // 4),) if is_shared else ()))
        case "ended":
            yield ended(bound(made, where))
        case "on its way":
            yield made
            yield bind_request(made, where, *(((group, NANO // 4),) if is_shared else ()), handover=rng.random() < 0.9)
        case "bound and named":
            there = bound(made, where)
            yield there
            yield bind_request(there, where)
        case _:
            yield made
