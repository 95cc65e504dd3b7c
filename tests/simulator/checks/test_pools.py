"""A cluster at rest as each node pool has it, and the queues and nominations of each."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks import facts, ledgers, nominations
from simulator.checks.checker import QUEUES
from simulator.checks.facts import PodFacts
from simulator.checks.fit import Room
from simulator.checks.messages import Scene
from simulator.checks.pools import Pools
from tests.simulator.checks.rooms import RoomStory, holding, nomination
from tests.simulator.made_up import Story
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
        for part, pods in Pools(is_divided=True, groups=GROUPS).parts(scene, waiting)
    ]
    assert parts == [(["m"], ["m"], 2, 1), (["n", "o"], ["n", "o"], 1, 2), ([], [], 3, 1)]
    assert [*Pools(is_divided=False, groups={}).parts(scene, waiting)] == [(scene, waiting)]


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


def test_a_pod_that_changes_pools_is_judged_in_its_queue_by_what_comes_after() -> None:
    story = Story(is_divided=True).sees(_of("a", _queue(1)), kind=QUEUES)
    story.sees(_of("b", _bound("first"))).sees(_of("a", _bound("first"))).after(10)
    assert story.sees(_of("a", _bound("second"))).broken() == {"S6"}


@pytest.mark.parametrize(("pool", "broken"), [("", set[str]()), ("a", {"S7"})])
def test_nobody_is_taken_by_the_scheduler_of_another_pool(pool: str, broken: set[str]) -> None:
    story = RoomStory(is_divided=True)
    story.sees(_of(pool, holding("v"))).after(60)
    assert story.records(nomination("h", "v")).broken() == broken


@pytest.mark.parametrize(("pool", "broken"), [("", {"S14"}), ("a", {"S5"})])
def test_what_victims_left_is_kept_from_pods_of_the_pool(pool: str, broken: set[str]) -> None:
    story = RoomStory(is_divided=True).records(nomination("h", "v")).evicts("v").goes("v")
    story.sees(_of(pool, holding("y", node=""))).after(60)
    assert story.sees(_of(pool, holding("y"))).broken() == broken


@pytest.mark.parametrize(
    ("name", "pool"),
    [("moorage-nominations", ""), ("moorage-nominations-a", "a"), ("moorage-nominations-", None), ("room-a", None)],
)
def test_each_pool_has_a_record_of_its_own(name: str, pool: str | None) -> None:
    assert nominations.pool_of(name) == pool
