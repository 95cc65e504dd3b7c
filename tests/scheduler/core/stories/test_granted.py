"""What a placed pod counts for is what it was granted: nothing that its tenant writes later changes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpu.grant import Charged
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import placements
from scheduler.core.model.settings import NodePool, Settings
from tests.scheduler.core.objects import NANO, bind_request, bound, changed, cluster, feed, node, pod, pod_group, queue
from tests.scheduler.core.stories.test_preemption import Shell
from tests.scheduler.core.stories.test_queues import of, placed
from wire import names
from wire.core import Pod

IN_A = Charged("a", True)


def limited(*queues: str) -> list[Any]:
    """Queues that may use one GPU each."""
    return [queue(name, gpu=(0, 1, 1)) for name in queues]


def held(made: Cluster) -> dict[str, int]:
    """GPUs that are held, by queue."""
    made.count_queues()
    assert made.validate() == []
    sums = made.queues.sums.sums
    return {name: each.held.gpu_nano // NANO for name, each in sums.items() if each.held.gpu_nano}


def relabelled(obj: Pod, labels: Mapping[str, str], **annotations: str) -> Pod:
    """The pod with these labels and no others, and annotations beside those of the Binding."""
    known = {key: text for key, text in (obj.metadata.annotations or {}).items() if key.startswith("moorage.dev/")}
    return changed(obj, labels=dict(labels), annotations={**known, **annotations})


def test_a_decision_says_what_its_pods_count_for() -> None:
    alone = of("a", "alone", labels={names.PREEMPTIBILITY_LABEL: "non-preemptible"})
    member = of("b", "member", group="g")
    queues = [queue(name, gpu=(1, 1, 1)) for name in "ab"]
    made = cluster(node("n1", 8), *queues, pod_group("g", 1, queue="b"), alone, member)
    found = {each.name: each.charged for each in placements(made.decide(0).entries)}
    assert found == {"member": Charged("b", True, minimum=1), "alone": Charged("a", False)}


@pytest.mark.parametrize("has_label", [False, True])
def test_a_podgroup_that_is_deleted_frees_nothing_of_what_its_pods_use(has_label: bool) -> None:
    labels = {names.QUEUE_LABEL: "elsewhere"} if has_label else {}
    runs = bound(pod("r", gpus=1, group="g", labels=labels), "n1", charged=IN_A)
    made = cluster(node("n1", 8), *limited("a", "elsewhere"), pod_group("g", 1, queue="a"), runs, of("a", "p"))
    assert (placed(made), held(made)) == ([], {"a": 1})
    made.remove_pod_group("ns", "g")
    assert (placed(made), held(made)) == ([], {"a": 1})


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({names.QUEUE_LABEL: "victim"}, {}),
        ({names.PROJECT_LABEL: "victim"}, {names.POD_GROUP_NAME: "nothing"}),
        ({}, {}),
        ({names.QUEUE_LABEL: "victim"}, {names.POD_GROUP_NAME: "g"}),
    ],
    ids=["another queue", "a project and no PodGroup", "no queue", "a PodGroup of another queue"],
)
def test_a_pod_that_is_relabelled_loads_no_other_queue(labels: dict[str, str], annotations: dict[str, str]) -> None:
    runs = bound(of("a", "r"), "n1", charged=IN_A)
    group = pod_group("g", 1, queue="victim")
    made = cluster(node("n1", 8), *limited("a", "victim"), group, runs)
    feed(made, relabelled(runs, labels, **annotations))
    assert held(made) == {"a": 1}
    feed(made, of("victim", "own"), of("a", "more"))
    assert placed(made) == ["own"]


def test_a_pod_that_was_bound_without_a_grant_counts_by_its_labels() -> None:
    """So do pods that KAI bound before a migration: nobody wrote what they were placed for."""
    runs = bound(of("a", "r"), "n1")
    made = cluster(node("n1", 8), *limited("a", "b"), runs)
    feed(made, relabelled(runs, {names.QUEUE_LABEL: "b"}))
    assert held(made) == {"b": 1}


def test_a_pod_that_waits_counts_by_its_labels_whatever_it_brings_along() -> None:
    brought = pod("p", gpus=1, labels={names.QUEUE_LABEL: "b"}, annotations={names.CHARGED: '{"queue":"a"}'})
    made = cluster(node("n1", 8), *limited("a", "b"), bound(of("a", "r"), "n1", charged=IN_A), brought)
    assert placed(made) == ["p"]
    assert held(made) == {"a": 1, "b": 1}


@pytest.mark.parametrize("has_group", [True, False])
def test_a_waiting_pod_of_a_podgroup_asks_for_nothing_in_the_queue_of_its_project(has_group: bool) -> None:
    groups = [pod_group("g", 1, queue="a")] if has_group else []
    waits = pod("p", gpus=1, group="g", labels={names.PROJECT_LABEL: "victim"})
    made = cluster(node("n1", 8), *limited("a", "victim"), *groups, waits)
    assert placed(made) == (["p"] if has_group else [])
    assert held(made) == ({"a": 1} if has_group else {})
    assert "victim" not in made.queues.sums.sums


def test_a_pod_on_its_way_counts_as_it_was_decided_on() -> None:
    waits = of("a", "p")
    made = cluster(node("n1", 8), *limited("a", "b"), waits)
    assert placed(made) == ["p"]
    feed(made, changed(waits, labels={names.QUEUE_LABEL: "b"}))
    assert held(made) == {"a": 1}
    feed(made, of("a", "more"), of("b", "other"))
    assert placed(made) == ["other"]


def test_a_pod_at_the_binder_counts_as_it_was_handed_over_after_a_restart_as_well() -> None:
    waits = of("b", "p")
    request = bind_request(waits, "n1", charged=IN_A)
    assert held(cluster(node("n1", 8), *limited("a", "b"), waits, request)) == {"a": 1}


@pytest.mark.parametrize("is_charged", [True, False])
@pytest.mark.parametrize("by_group", [True, False])
def test_what_was_placed_as_preemptible_gives_way_whatever_it_is_called_since(by_group: bool, is_charged: bool) -> None:
    """A queue with quota gets it back from pods that have become non-preemptible while they ran over theirs."""
    charged = IN_A if is_charged else None
    group = pod_group("g", 1, queue="a", preemptibility="non-preemptible")
    called = {} if by_group else {names.PREEMPTIBILITY_LABEL: "non-preemptible"}
    runs = bound(of("a", "r", labels=called, group="g" if by_group else ""), "n1", charged=charged)
    queues = (queue("a", gpu=(0, 1, -1)), queue("b", gpu=(1, 1, -1)))
    shell = Shell().feed(node("n1", 1), *queues, *([group] if by_group else []), runs, of("b", "entitled")).run()
    assert shell.asked == (["r"] if is_charged else [])


def test_members_of_a_podgroup_that_changes_its_queue_stay_where_they_are_and_give_way_one_by_one() -> None:
    old = [bound(of("a", f"r{i}", group="g"), "n1", charged=IN_A) for i in range(2)]
    queues = (queue("a", gpu=(0, 1, -1)), queue("b", gpu=(1, 1, -1)), queue("c", gpu=(0, 1, -1)))
    new = bound(of("a", "r2", group="g"), "n1", charged=Charged("c", True))
    shell = Shell().feed(node("n1", 3), *queues, pod_group("g", 2, queue="c"), *old, new)
    assert held(shell.cluster) == {"a": 2, "c": 1}
    shell.feed(of("b", "entitled")).run()
    assert (len(shell.asked), held(shell.cluster)) == (1, {"a": 1, "b": 1, "c": 1})


@pytest.mark.parametrize("pool", ["mine", "other"])
def test_a_pod_counts_in_the_node_pool_that_placed_it(pool: str) -> None:
    labels = {names.QUEUE_LABEL: "a", names.NODE_POOL_LABEL: "other" if pool == "mine" else "mine"}
    runs = bound(pod("r", gpus=1, labels=labels), "n1", charged=Charged("a", True, pool))
    made = Cluster(Settings(pool=NodePool(value="mine")))
    feed(made, node("n1", 8, labels={names.NODE_POOL_LABEL: "mine"}), *limited("a"), runs)
    assert held(made) == ({"a": 1} if pool == "mine" else {})


def test_a_pod_of_a_cluster_that_was_not_divided_counts_in_the_node_pool_that_its_label_names() -> None:
    runs = bound(of("a", "r", labels={names.NODE_POOL_LABEL: "mine"}), "n1", charged=IN_A)
    made = Cluster(Settings(pool=NodePool(value="mine")))
    feed(made, node("n1", 8, labels={names.NODE_POOL_LABEL: "mine"}), *limited("a"), runs)
    assert held(made) == {"a": 1}


@pytest.mark.parametrize(("pool", "expected"), [("mine", {"a": 1}), ("other", {"b": 1}), (None, {"a": 1})])
def test_a_pod_at_the_binder_counts_in_the_node_pool_that_handed_it_over(
    pool: str | None, expected: dict[str, int]
) -> None:
    """Its labels say that it waits in queue b of this pool."""
    waits = of("b", "p", labels={names.NODE_POOL_LABEL: "mine"})
    request = bind_request(waits, "n1", charged=Charged("a", True, pool))
    made = Cluster(Settings(pool=NodePool(value="mine")))
    feed(made, node("n1", 8, labels={names.NODE_POOL_LABEL: "mine"}), *limited("a", "b"), waits, request)
    assert held(made) == expected


def test_every_order_of_what_is_seen_counts_the_same() -> None:
    runs = bound(pod("r", gpus=1, group="g"), "n1", charged=IN_A)
    objects = [node("n1", 8), *limited("a", "b"), pod_group("g", 1, queue="b"), runs]
    for turn in range(len(objects)):
        assert held(cluster(*objects[turn:], *objects[:turn])) == {"a": 1}


def test_of_a_gang_that_grew_around_a_pod_that_can_not_be_preempted_the_others_give_way() -> None:
    queues = (queue("a", gpu=(1, 1, -1)), queue("b", gpu=(3, 1, -1)))
    shell = Shell().feed(node("n1", 4), *queues, pod_group("g", 1, queue="a", preemptibility="non-preemptible"))
    shell.feed(of("a", "r0", group="g")).run()
    shell.feed(pod_group("g", 4, queue="a", preemptibility="preemptible"))
    shell.feed(*(of("a", f"r{i}", group="g") for i in range(1, 4))).run()
    assert len(shell.placed) == 4
    shell.feed(*(of("b", f"owed{i}") for i in range(3))).run(6)
    assert sorted(shell.asked) == ["r1", "r2", "r3"]
    assert {"owed0", "owed1", "owed2"} <= shell.placed.keys()
