"""A cluster that several schedulers divide by node pools: what each of them decides on, and what it counts."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.pod_groups import GangPlan, render
from scheduler.core.model.plan import Explain, Gang, placements
from scheduler.core.model.records import PlannedMember
from scheduler.core.model.settings import NodePool, Settings
from tests.scheduler.core.filters.beside import ZONE, affinity, anti_affinity, places, term
from tests.scheduler.core.objects import (
    bind_request,
    bound,
    changed,
    changed_group,
    cluster,
    feed,
    node,
    pod,
    pod_group,
    queue,
    reservation,
)
from wire import names

KEY = names.NODE_POOL_LABEL
A, B = {KEY: "a"}, {KEY: "b"}
NODES = (node("na", labels=A), node("nb", labels=B))
_GPU_NANO = 1_000_000_000


def _pools(*objects: Any, **settings: Any) -> tuple[Cluster, Cluster]:
    """The clusters of two schedulers that have seen the same."""
    of_a, of_b = (cluster(*objects, settings=Settings(pool=NodePool(value=value), **settings)) for value in "ab")
    return of_a, of_b


def _placed(made: Cluster) -> dict[str, str]:
    return {each.name: each.node for each in placements(made.decide(0).entries)}


def _told(made: Cluster) -> set[str]:
    return {uid for entry in made.decide(0).entries if isinstance(entry, Explain) for uid in entry.pods}


def _relabelled(name: str, labels: dict[str, str], **more: Any) -> Any:
    return node(name, labels=labels, **more)


# --- whose a pod is ---------------------------------------------------------------------------------------------------
def test_each_pod_is_placed_by_one_scheduler_on_a_node_of_its_pool() -> None:
    of_a, of_b = _pools(*NODES, pod("p", gpus=1, labels=A), pod("q", gpus=1, labels=B), pod("r", gpus=1))
    assert (_placed(of_a), _placed(of_b)) == ({"p": "na"}, {"q": "nb"})


def test_nobody_says_of_another_pools_pod_why_it_waits() -> None:
    of_a, of_b = _pools(*NODES, pod("p", gpus=9, labels=A))
    assert (_told(of_a), _told(of_b)) == ({"uid-p"}, set())


def test_a_gang_is_its_podgroups_pools_whatever_its_pods_say() -> None:
    gang = changed_group(pod_group("g", 2), labels=B)
    of_a, of_b = _pools(*NODES, gang, *(pod(f"p{i}", gpus=1, group="g", labels=A) for i in range(2)))
    assert (_placed(of_a), _placed(of_b)) == ({}, {"p0": "nb", "p1": "nb"})


@pytest.mark.parametrize("is_first", [True, False])
def test_a_gang_whose_podgroup_moves_is_decided_on_by_the_other_scheduler(is_first: bool) -> None:
    group, pods = pod_group("g", 2), [pod(f"p{i}", gpus=1, group="g") for i in range(2)]
    before = [changed_group(group, labels=A), *pods] if is_first else [*pods, changed_group(group, labels=A)]
    of_a, of_b = _pools(*NODES, *before)
    assert ({*_placed(of_a).values()}, {*_placed(of_b).values()}) == ({"na"}, set())
    for made in (of_a, of_b):
        feed(made, changed_group(group, labels=B))
    assert ({*_placed(of_a).values()}, {*_placed(of_b).values()}) == (set(), {"nb"})
    assert isinstance(of_b.decide(0).entries[0], Gang)
    for made in (of_a, of_b):
        assert made.validate() == []


def test_a_pod_whose_label_changes_is_decided_on_by_the_other_scheduler() -> None:
    waits = pod("p", gpus=1, labels=A)
    of_a, of_b = _pools(*NODES, waits)
    assert (_placed(of_a), _placed(of_b)) == ({"p": "na"}, {})
    for made in (of_a, of_b):
        feed(made, changed(waits, labels=B))
    assert (_placed(of_a), _placed(of_b)) == ({}, {"p": "nb"})


def test_a_gang_below_its_minimum_is_evicted_by_the_scheduler_of_its_pool_alone() -> None:
    gang = changed_group(pod_group("g", 2), labels=A)
    of_a, of_b = _pools(*NODES, gang, bound(pod("p", gpus=1, group="g"), "na"))
    assert ([group.name for group in of_a.broken_gangs()], of_b.broken_gangs()) == (["g"], [])


def test_plans_that_nobody_carries_out_are_the_scheduler_of_their_pools() -> None:
    plan = render(GangPlan("plan", {"uid-p": PlannedMember("na")}))
    gang = changed_group(pod_group("g", 2, annotations={names.PLAN: plan}), labels=A)
    of_a, of_b = _pools(*NODES, gang, pod("p", gpus=1, group="g"))
    assert (of_a.open_plans(), of_b.open_plans()) == ([("ns", "g")], [])
    for made in (of_a, of_b):  # and both charge what it keeps
        assert [charge.pod_uid for charge in made.commits.charges_at("na")] == ["uid-p"]
        assert made.validate() == []


# --- what is counted --------------------------------------------------------------------------------------------------
def test_pods_of_all_pools_count_for_anti_affinity_and_affinity() -> None:
    nodes = (node("na", labels={**A, ZONE: "x"}), node("nb", labels={**B, ZONE: "x"}))
    there = bound(pod("there", cpu="1", labels={**B, "app": "a"}), "nb")
    kept_off = pod("p", cpu="1", labels=A, spec=anti_affinity(term()))
    drawn = pod("q", cpu="1", labels=A, spec=affinity(term()))
    of_a, _ = _pools(*nodes, there, kept_off, drawn)
    assert places(of_a.decide(0)) == {"q": "na"}


def test_a_pod_on_its_way_by_the_other_schedulers_bindrequest_is_charged() -> None:
    """Reservations may be on nodes that change pools, so nobody may leave one out."""
    waits = pod("p", fraction="0.5", labels=A)
    order = bind_request(waits, "na", ("g1", _GPU_NANO // 2))
    _, of_b = _pools(node("na", 1, labels=A), node("nb", 1, labels=B), waits, order)
    feed(of_b, _relabelled("na", B, gpus=1), pod("q", gpus=1, labels=B), pod("r", gpus=1, labels=B))
    of_b.settle_node("na")
    assert [*_placed(of_b).values()] == ["nb"]
    assert of_b.validate() == []


def test_queues_divide_what_the_pools_nodes_have() -> None:
    of_a, of_b = _pools(*NODES, node("other", 4))
    for made in (of_a, of_b):
        made.snapshot()
        assert made.queues.capacity.gpu_nano == 8 * _GPU_NANO
    of_a.upsert_node(_relabelled("other", A, gpus=4))
    of_a.snapshot()
    assert of_a.queues.capacity.gpu_nano == 12 * _GPU_NANO
    of_a.upsert_node(_relabelled("na", {}))
    of_a.snapshot()
    assert of_a.queues.capacity.gpu_nano == 4 * _GPU_NANO


def test_a_queue_counts_its_pools_pods_alone_wherever_they_are() -> None:
    on_other = bound(pod("left", gpus=2, labels=A), "nb")
    of_other = bound(pod("theirs", gpus=3, labels=B), "na")
    of_a, _ = _pools(*NODES, queue("default-queue"), on_other, of_other)
    of_a.snapshot()
    found = of_a.queues.account_of("default-queue")
    assert found is not None
    assert found[1].held.gpu_nano == 2 * _GPU_NANO
    # What theirs holds of a node of this pool can't be divided.
    assert of_a.queues.capacity.gpu_nano == 5 * _GPU_NANO
    assert of_a.validate() == []


def test_nobody_evicts_pods_of_another_pool() -> None:
    queues = (queue("default-queue", gpu=(0, 1, -1)), queue("q", gpu=(8, 1, -1)))
    theirs = bound(pod("theirs", gpus=8, labels=B), "na")
    wants = pod("p", gpus=8, labels={**A, names.QUEUE_LABEL: "q"})
    of_a, _ = _pools(*NODES, *queues, theirs, wants, preemption=True)
    assert _told(of_a) == {"uid-p"}
    ours = bound(pod("ours", gpus=8, labels=A), "na")
    of_a, _ = _pools(*NODES, *queues, ours, wants, preemption=True)
    assert [type(entry).__name__ for entry in of_a.decide(0, wall_s=1).entries][:1] == ["Nominate"]


# --- a node that changes pools ----------------------------------------------------------------------------------------
def test_a_node_that_leaves_takes_nobody_any_more_and_keeps_what_runs_there() -> None:
    runs = bound(pod("runs", gpus=5, labels=A), "na")
    of_a, of_b = _pools(*NODES, runs, pod("p", gpus=8, labels=B), pod("q", gpus=4, labels=B))
    for made in (of_a, of_b):
        feed(made, _relabelled("na", B))
        feed(made, pod("late", gpus=1, labels=A))
    assert _placed(of_a) == {}
    assert _placed(of_b) == {"p": "nb"}  # na takes nobody yet
    of_b.settle_node("na")
    assert _placed(of_b) == {"p": "nb"}  # five of its eight GPUs are in use
    feed(of_b, pod("r", gpus=3, labels=B))
    assert _placed(of_b)["r"] == "na"
    for made in (of_a, of_b):
        assert made.validate() == []


def test_a_node_that_has_just_come_takes_nobody_before_it_has_settled() -> None:
    of_a, _ = _pools(node("n", labels=B), pod("p", gpus=1, labels=A))
    feed(of_a, _relabelled("n", A))
    assert [*of_a.joining] == ["n"]
    assert _placed(of_a) == {}
    feed(of_a, _relabelled("n", {**A, "more": "labels"}))  # it has not settled by that
    assert [*of_a.joining] == ["n"]
    assert _placed(of_a) == {}
    of_a.settle_node("n")
    assert [*of_a.joining] == []
    assert _placed(of_a) == {"p": "n"}


@pytest.mark.parametrize("labels", [B, None])
def test_a_node_that_leaves_again_or_is_gone_does_not_join(labels: dict[str, str] | None) -> None:
    of_a, _ = _pools(node("n", labels=B))
    feed(of_a, _relabelled("n", A))
    if labels is None:
        of_a.remove_node("n")
    else:
        feed(of_a, _relabelled("n", labels))
    assert [*of_a.joining] == []
    of_a.settle_node("n")
    assert of_a.validate() == []


def test_shares_of_a_node_that_has_changed_pools_stay_charged() -> None:
    held = reservation("g1", "na", book={"uid-s": _GPU_NANO * 3 // 4})
    tenant = bound(pod("s", fraction="0.75", labels=A), "na", ("g1", _GPU_NANO * 3 // 4), reservation="r-g1")
    nodes = (node("na", 1, labels=A), node("nb", 0, labels=B))
    of_a, of_b = _pools(*nodes, held, tenant, pod("p", fraction="0.5", labels=B), pod("q", fraction="0.25", labels=B))
    for made in (of_a, of_b):
        feed(made, _relabelled("na", B, gpus=1))
        made.settle_node("na")
        assert made.validate() == []
    assert _placed(of_a) == {}
    assert _placed(of_b) == {"q": "na"}
