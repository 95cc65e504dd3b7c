"""Nodes of other node pools."""

from __future__ import annotations

import pytest

from scheduler.core.model.settings import NodePool, Settings
from tests.scheduler.core.filters.beside import ZONE, places, reasons
from tests.scheduler.core.filters.test_spread import spread
from tests.scheduler.core.objects import cluster, node, pod
from wire import names

KEY = names.NODE_POOL_LABEL
NODES = (node("p"), node("q", labels={KEY: "a"}), node("r", labels={KEY: "b"}))


@pytest.mark.parametrize(
    ("pool", "at"), [(None, "p"), (NodePool(), "p"), (NodePool(value="a"), "q"), (NodePool(value="b"), "r")]
)
def test_a_pod_is_placed_on_a_node_of_its_pool(pool: NodePool | None, at: str) -> None:
    labels = {} if pool is None else pool.labels
    made = cluster(*NODES, pod(gpus=8, labels=labels), settings=Settings(pool=pool))
    assert places(made.decide(0)) == {"p": at}


def test_it_is_told_before_all_else_that_is_against_a_node() -> None:
    there = node("q", labels={KEY: "a"}, ready=False, cordoned=True)
    made = cluster(there, node("p"), pod("w", gpus=9), settings=Settings(pool=NodePool()))
    assert reasons(made) == {"node-pool": 1, "insufficient": 1}


def test_a_domain_that_only_another_pool_has_does_not_hold_up_a_spread() -> None:
    nodes = [node("p", labels={ZONE: "x"}), node("q", labels={ZONE: "y", KEY: "a"})]
    spread_pods = [pod(f"w{i}", cpu="1", labels={"app": "a"}, spec=spread(ZONE)) for i in range(3)]
    made = cluster(*nodes, *spread_pods, settings=Settings(pool=NodePool()))
    assert places(made.decide(0)) == dict.fromkeys(("w0", "w1", "w2"), "p")
    # Without pools they alternate, as both domains can take them.
    assert {*places(cluster(*nodes, *spread_pods).decide(0)).values()} == {"p", "q"}
