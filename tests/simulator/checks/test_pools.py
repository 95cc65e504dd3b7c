"""A cluster at rest as each node pool has it."""

from __future__ import annotations

from typing import Any

import pytest

from simulator import facts
from simulator.checks import counting
from simulator.checks.pools import Pools
from simulator.checks.room import Room
from simulator.checks.telling import Scene
from simulator.facts import PodFacts
from wire import names

KEY = names.NODE_POOL_LABEL
GROUPS = {("team", "of-a"): {KEY: "a"}, ("team", "of-none"): {}}


def _pod(label: str = "", group: str = "") -> PodFacts:
    labels = {KEY: label} if label else {}
    annotations = {names.POD_GROUP_NAME: group} if group else {}
    metadata = {"name": "p", "namespace": "team", "uid": "p", "labels": labels, "annotations": annotations}
    return facts.pod({"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": {}})


def _node(name: str, pool: str = "") -> counting.NodeFacts:
    labels: dict[str, Any] = {KEY: pool} if pool else {}
    return counting.node({"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {}})


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
