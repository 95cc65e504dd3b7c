"""What is unusable of pools is what is unusable of their nodes, one by one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.pod_kind import Kind
from scheduler.core.model.settings import NodePool
from scheduler.core.report.fragmentation import Cause, unusable_nano
from scheduler.core.report.pool_use import Pool, fragmented_pools, use_of_pools
from tests.scheduler.core.objects import NANO, cluster, node, pod, reservation
from tests.scheduler.core.report.fragmented import SETTINGS, Machine, kinds, left_of, machines
from wire import names

_POOLS: tuple[dict[str, str], ...] = (
    {},
    {names.NODE_GPU_PRODUCT: "H100"},
    {names.NODE_GPU_PRODUCT: "H100", names.NODE_POOL_LABEL: "team"},
)


def _pool(labels: dict[str, str]) -> Pool:
    return Pool(labels.get(names.NODE_POOL_LABEL, ""), labels.get(names.NODE_GPU_PRODUCT, ""))


@given(
    placed=st.lists(st.tuples(machines(3, 3), st.sampled_from(_POOLS)), max_size=5),
    known=st.lists(kinds(), max_size=5),
)
def test_pools_are_the_sums_of_their_nodes(placed: list[tuple[Machine, dict[str, str]]], known: list[Kind]) -> None:
    objects: list[Any] = []
    for number, (machine, labels) in enumerate(placed):
        objects += machine.objects(f"n{number}", labels)
    made = cluster(*objects, settings=SETTINGS)
    expected: dict[Pool, Counter[Cause]] = {}
    for number, (machine, labels) in enumerate(placed):
        if machine.gpus or machine.shared:
            sums = expected.setdefault(_pool(labels), Counter())
            sums.update(unusable_nano(left_of(made, f"n{number}"), known, SETTINGS))
    found = fragmented_pools(made.refresh(), known, SETTINGS)
    assert found == {pool: {cause: expected[pool][cause] for cause in Cause} for pool in expected}
    for pool, use in use_of_pools(made.ledger).items():
        assert sum(found[pool].values()) <= use.free + use.pieces + use.stranded


def test_only_nodes_of_the_own_node_pool_are_looked_at() -> None:
    team = {names.NODE_POOL_LABEL: "team"}
    made = cluster(node("n1", gpus=1, ready=False), node("n2", gpus=2, ready=False, labels=team), node("n3", gpus=0))
    found = fragmented_pools(made.refresh(), [], SETTINGS, NodePool(key=names.NODE_POOL_LABEL, value="team"))
    assert {pool: causes[Cause.NOT_READY] for pool, causes in found.items()} == {Pool("team", ""): 2 * NANO}


def test_no_node_no_pool() -> None:
    assert fragmented_pools(cluster().refresh(), [], SETTINGS) == {}


def test_amounts_beyond_all_bounds_fit_nowhere() -> None:
    huge = Kind(1 << 62, 0, 1 << 62, 1 << 62, 1 << 62)
    made = cluster(node(gpus=2), reservation("g", book={"x": NANO // 2}), pod("w", bound_to="n1"), settings=SETTINGS)
    assert fragmented_pools(made.refresh(), [huge], SETTINGS)[Pool("", "")][Cause.PIECES] == 3 * NANO // 2
