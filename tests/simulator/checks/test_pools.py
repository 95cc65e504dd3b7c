"""A cluster at rest as each node pool has it, and the queues and nominations of each."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks import facts, ledgers
from simulator.checks.at_rest import parts_by_pool
from simulator.checks.checker import BIND_REQUESTS, NODES, POD_GROUPS, QUEUES
from simulator.checks.facts import PodFacts
from simulator.checks.fit import Room
from simulator.checks.gangs import Pools
from simulator.checks.limits import Lateness
from simulator.checks.messages import Scene
from tests.simulator.checks.preemptions import PreemptionStory, holding, nomination
from tests.simulator.made_up import NODE, Story, node, pod, pod_group, reservation
from wire import names

KEY = names.NODE_POOL_LABEL
GROUPS = {("team", "of-a"): {KEY: "a"}, ("team", "of-none"): {}}


def _pod(label: str = "", group: str = "") -> PodFacts:
    labels = {KEY: label} if label else {}
    annotations = {names.POD_GROUP_NAME: group} if group else {}
    metadata = {"name": "p", "namespace": "team", "uid": "p", "labels": labels, "annotations": annotations}
    return facts.pod({"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": {}})


def _node(name: str, pool: str = "") -> ledgers.NodeFacts:
    labels: dict[str, Any] = {KEY: pool} if pool else {}
    return ledgers.node({"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {}})


@pytest.mark.parametrize(
    ("label", "group", "pool"),
    [("", "", ""), ("a", "", "a"), ("a", "of-none", ""), ("", "of-a", "a"), ("a", "unknown", "a")],
)
def test_a_pod_is_of_the_pool_of_its_podgroup_or_of_its_own(label: str, group: str, pool: str) -> None:
    pools = Pools(is_divided=True, groups=GROUPS)
    assert pools.of(_pod(label, group)) == pool
    assert pools.may_use(_pod(label, group), _node("n", pool))
    assert not pools.may_use(_pod(label, group), _node("n", "other"))
    assert Pools(is_divided=False, groups=GROUPS).may_use(_pod(label, group), _node("n", "other"))


def test_each_pool_is_judged_by_its_own_nodes() -> None:
    nodes = {node.name: node for node in (_node("m"), _node("n", "a"), _node("o", "a"))}
    rooms = [Room(name, gpus=1, cpu_milli=0, mem_mib=0, pods=1, smallest_mib=0, is_cut=False) for name in nodes]
    scene = Scene(nodes=nodes, rooms=rooms, members={}, minimums={})
    waiting = [_pod(), _pod("a"), _pod("", "of-a"), _pod("gone")]
    parts = [
        ([*part.nodes], [room.name for room in part.rooms], part.others, len(pods))
        for part, pods in parts_by_pool(Pools(is_divided=True, groups=GROUPS), scene, waiting)
    ]
    assert parts == [(["m"], ["m"], 2, 1), (["n", "o"], ["n", "o"], 1, 2), ([], [], 3, 1)]
    assert [*parts_by_pool(Pools(is_divided=False, groups={}), scene, waiting)] == [(scene, waiting)]


# --- S6, S7 and S14 of each pool -------------------------------------------------------------------------------------
def _of(pool: str, raw: dict[str, Any]) -> dict[str, Any]:
    """The same object in a pool."""
    metadata = raw["metadata"]
    return {**raw, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), KEY: pool}}}


def _queue(limit: int) -> dict[str, Any]:
    free = {"limit": -1}
    spec = {"resources": {"cpu": free, "memory": free, "gpu": {"quota": -1, "limit": limit}}}
    return {"metadata": {"name": "q", "uid": "uid-q"}, "spec": spec}


def _bound(name: str) -> dict[str, Any]:
    return holding(name, labels={names.QUEUE_LABEL: "q"})


@pytest.mark.parametrize(("pool", "broken"), [("a", {"S6"}), ("b", set[str]())])
def test_pods_of_other_pools_count_in_no_queue_of_a_pool(pool: str, broken: set[str]) -> None:
    story = Story(is_divided=True).sees(_of("a", _queue(1)), kind=QUEUES)
    assert story.sees(_of(pool, _bound("first"))).sees(_of("a", _bound("second"))).broken() == broken


def test_a_queue_of_another_pool_is_none() -> None:
    story = Story(is_divided=True).sees(_of("a", _queue(1)), kind=QUEUES)
    story.sees(_of("b", {**_queue(1), "metadata": {"name": "other", "uid": "uid-other"}}), kind=QUEUES)
    assert story.sees(_of("b", _bound("p"))).broken() == {"S6"}


@pytest.mark.parametrize(("pool", "broken"), [("", set[str]()), ("a", {"S7"})])
def test_nobody_is_taken_by_the_scheduler_of_another_pool(pool: str, broken: set[str]) -> None:
    story = PreemptionStory(is_divided=True)
    story.sees(_of(pool, holding("v"))).after(60)
    assert story.records(nomination("h", "v")).broken() == broken


@pytest.mark.parametrize(("pool", "broken"), [("", {"S14"}), ("a", {"S5"})])
def test_what_victims_left_is_kept_from_pods_of_the_pool(pool: str, broken: set[str]) -> None:
    story = PreemptionStory(is_divided=True).records(nomination("h", "v")).evicts("v").goes("v")
    story.sees(_of(pool, holding("y", node=""))).after(60)
    assert story.sees(_of(pool, holding("y"))).broken() == broken


# S5 in pools: a pod is bound on a node that its pool has, or had when that may have been decided.

LATENESS = Lateness(usual_s=2)


def of(pool: str, raw: dict[str, Any]) -> dict[str, Any]:
    """The same object in a pool."""
    labels = {**raw["metadata"].get("labels", {}), **({names.NODE_POOL_LABEL: pool} if pool else {})}
    return {**raw, "metadata": {**raw["metadata"], "labels": labels}}


def there(pool: str, *, is_divided: bool = True) -> Story:
    """A cluster with one node, in this pool for a minute."""
    return Story(is_divided=is_divided, lateness=LATENESS).sees(of(pool, node()), kind=NODES).after(60)


def request() -> dict[str, Any]:
    return {"metadata": {"uid": "r", "name": "p", "namespace": "team"}, "spec": {"selectedNode": NODE, "podName": "p"}}


@pytest.mark.parametrize(
    ("pool", "where", "is_right"),
    [("", "", True), ("a", "a", True), ("a", "", False), ("", "a", False), ("a", "b", False)],
)
def test_a_pod_is_bound_on_a_node_of_its_pool(pool: str, where: str, is_right: bool) -> None:
    assert there(where).sees(of(pool, pod("p"))).broken() == (set() if is_right else {"S5"})
    assert there(where, is_divided=False).sees(of(pool, pod("p"))).broken() == set()


def test_the_label_that_a_binding_brings_makes_no_node_the_right_one() -> None:
    story = there("a").sees(pod("p", node=""))
    assert story.sees(of("a", pod("p"))).broken() == {"S5"}


@pytest.mark.parametrize(("group", "broken"), [("a", set[str]()), ("", {"S5"})])
def test_a_member_is_of_the_pool_of_its_podgroup(group: str, broken: set[str]) -> None:
    story = there("a").sees(of(group, pod_group("g", 1)), kind=POD_GROUPS)
    assert story.sees(of("a", pod("p", annotations={names.POD_GROUP_NAME: "g"}))).broken() == broken


@pytest.mark.parametrize(("seconds", "broken"), [(1, set[str]()), (3, {"S5"})])
def test_a_node_that_left_is_used_until_who_decides_may_have_heard(seconds: float, broken: set[str]) -> None:
    story = there("a").sees(of("b", node()), kind=NODES).after(seconds)
    assert story.sees(of("b", pod("q"))).broken() == set()
    assert story.sees(of("a", pod("p"))).broken() == broken


@pytest.mark.parametrize(("is_before", "broken"), [(True, set[str]()), (False, {"S5"})])
def test_what_was_decided_before_a_node_left_is_bound_after_it(is_before: bool, broken: set[str]) -> None:
    story = there("a").sees(of("a", pod("p", node="")))
    for raw, kind in ((request(), BIND_REQUESTS), (of("b", node()), NODES))[:: 1 if is_before else -1]:
        story.sees(raw, kind=kind, event="ADDED" if kind == BIND_REQUESTS else "MODIFIED").after(30)
    assert story.sees(of("a", pod("p"))).broken() == broken


@pytest.mark.parametrize(("seconds", "broken"), [(1, set[str]()), (3, {"S5"})])
def test_a_pod_that_has_just_changed_pools_is_not_judged(seconds: float, broken: set[str]) -> None:
    story = there("a").sees(of("a", pod("p", node=""))).sees(pod("p", node="")).after(seconds)
    assert story.sees(pod("p")).broken() == broken


def test_a_node_that_comes_back_in_another_pool_was_in_the_former() -> None:
    story = there("a").sees(of("a", node()), kind=NODES, event="DELETED").after(60)
    story.sees(of("b", node()), kind=NODES, event="ADDED").after(1)
    assert story.sees(of("a", pod("p"))).broken() == set()
    assert story.after(2).sees(of("a", pod("q"))).broken() == {"S5"}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(pod("p", scheduler="default-scheduler"), id="another scheduler's"),
        pytest.param(reservation("r", "g"), id="a reservation"),
    ],
)
def test_only_pods_of_ours_are_judged(raw: dict[str, Any]) -> None:
    assert there("a").sees(raw).broken() == set()
