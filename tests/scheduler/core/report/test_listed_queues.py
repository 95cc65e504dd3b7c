"""Queues of a list are counted as a cluster that decides counts them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler.conditions.messages import told
from scheduler.core.convert import pod_groups
from scheduler.core.model.plan import Placement
from scheduler.core.queues.queues import Queues
from scheduler.core.report.queue_view import QueueView, queue_views
from tests.scheduler.core.objects import NANO, bound, cluster, node, pod, pod_group, queue
from tests.scheduler.core.report.listing import listed, random_objects
from wire import names


def decided(*objects: Any) -> Queues:
    """The same by a cluster that decides."""
    return cluster(*objects).prepared(0).queues


def views(queues: Queues) -> list[QueueView]:
    return queue_views(queues, queues.accounts(), lambda verdict: told(verdict).message)


@pytest.mark.parametrize("seed", range(60))
def test_any_cluster_is_counted_as_it_is_for_decisions(seed: int) -> None:
    objects = list(random_objects(random.Random(seed)))
    ours, others = listed(*objects).queues, decided(*objects)
    assert views(ours) == views(others)
    assert dict(ours.sums.sums) == dict(others.sums.sums)
    assert ours.capacity == others.capacity
    assert ours.card_sizes == others.card_sizes


def test_random_clusters_have_pods_of_every_stage() -> None:
    clusters = [listed(*random_objects(random.Random(seed))) for seed in range(60)]
    sums = [total for each in clusters for total in each.queues.sums.sums.values()]
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
    plan = pod_groups.render(pod_groups.make("us", [placement]))
    group = pod_group("gang", 2, queue="a", annotations={names.PLAN: plan})
    ours = listed(node(), queue("a"), group, *gang).queues
    assert views(ours) == views(decided(node(), queue("a"), group, *gang))
    assert ours.sums.sums["a"].held.gpu_nano == 2 * NANO


def test_an_older_version_of_a_pod_that_was_listed_twice_says_nothing() -> None:
    made = pod("p", gpus=1, labels={names.QUEUE_LABEL: "a"})
    sums = listed(node(), queue("a"), bound(made, "n1"), made).queues.sums.sums["a"]
    assert (sums.held.gpu_nano, sums.pods) == (NANO, 1)
