"""Queues of a list are counted as a cluster that decides counts them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.core.convert import written_plan
from scheduler.core.model.plan import Placement
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from scheduler.core.report.listed_queues import ListedQueues
from scheduler.core.report.queue_view import QueueView, queue_views
from scheduler.status.reasons import told
from tests.scheduler.core.objects import NANO, bind_request, bound, cluster, ended, node, pod, pod_group, queue
from tests.scheduler.core.objects import reservation as held
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

QUEUES = ("top", "left", "right", "closed")


def listed(*objects: Any, used: UseOverTime = NOT_COUNTED) -> Queues:
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


def decided(*objects: Any) -> Queues:
    """The same by a cluster that decides."""
    return cluster(*objects).prepared(0).queues


def views(queues: Queues) -> list[QueueView]:
    return queue_views(queues, queues.accounts(), lambda verdict: told(verdict).message)


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


@pytest.mark.parametrize("seed", range(60))
def test_any_cluster_is_counted_as_it_is_for_decisions(seed: int) -> None:
    objects = list(random_objects(random.Random(seed)))
    ours, others = listed(*objects), decided(*objects)
    assert views(ours) == views(others)
    assert dict(ours.sums.sums) == dict(others.sums.sums)
    assert ours.capacity == others.capacity
    assert ours.card_sizes == others.card_sizes


def test_random_clusters_have_pods_of_every_stage() -> None:
    sums = [total for seed in range(60) for total in listed(*random_objects(random.Random(seed))).sums.sums.values()]
    assert any(total.held.gpu_nano for total in sums)
    assert any(total.held != total.kept for total in sums)
    assert any(total.asked.gpu_nano > total.kept.gpu_nano for total in sums)
    assert any(total.held.gpu_nano % NANO for total in sums)


def test_a_pod_with_a_place_in_a_written_plan_is_on_its_way() -> None:
    gang = [pod(f"w{at}", gpus=2, group="gang", labels={names.QUEUE_LABEL: "a"}) for at in range(2)]
    first = gang[0].metadata
    placement = Placement(
        pod_uid=first.uid, namespace="ns", name=first.name, rv=first.resource_version, node="n1", devices=()
    )
    plan = written_plan.render(written_plan.make("us", [placement]))
    group = pod_group("gang", 2, queue="a", annotations={names.PLAN: plan})
    ours = listed(node(), queue("a"), group, *gang)
    assert views(ours) == views(decided(node(), queue("a"), group, *gang))
    assert ours.sums.sums["a"].held.gpu_nano == 2 * NANO


def test_an_older_version_of_a_pod_that_was_listed_twice_says_nothing() -> None:
    made = pod("p", gpus=1, labels={names.QUEUE_LABEL: "a"})
    sums = listed(node(), queue("a"), bound(made, "n1"), made).sums.sums["a"]
    assert (sums.held.gpu_nano, sums.pods) == (NANO, 1)
