from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.nodes.table import GPUS
from scheduler.core.report.pool_use import Pool, Use, use_of_pools
from tests.scheduler.core.objects import NANO, bind_request, bound, cluster, node, pod, reservation
from wire import names

HALF, QUARTER = NANO // 2, NANO // 4
ASKS = pod("a", fraction="0.5")
SHARED = (
    reservation("g", uuid="GPU-1", book={"uid-a": HALF, "uid-b": QUARTER}),
    bound(pod("a", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1"),
    bound(pod("b", fraction="0.25"), "n1", ("g", QUARTER), uuid="GPU-1"),
)


def use(*objects: Any) -> Use:
    (found,) = use_of_pools(cluster(*objects).refresh()).values()
    return found


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([node(gpus=4)], Use(free=4 * NANO)),
        ([node(gpus=4), pod("w", gpus=3, bound_to="n1")], Use(used=3 * NANO, free=NANO)),
        ([node(gpus=4), *SHARED], Use(used=HALF + QUARTER, free=3 * NANO, pieces=QUARTER)),
        # On its way counts as used.
        ([node(gpus=4), ASKS, bind_request(ASKS, "n1", ("g", HALF))],
         Use(used=HALF, free=3 * NANO, pieces=HALF)),
        ([node(gpus=4, cordoned=True), *SHARED], Use(used=HALF + QUARTER, stranded=3 * NANO + QUARTER)),
        ([node(gpus=4, ready=False)], Use(stranded=4 * NANO)),
        ([node(gpus=4, cpu="8"), pod("c", cpu="8", bound_to="n1")], Use(stranded=4 * NANO)),
        ([node(gpus=4, memory="8Gi"), pod("c", memory="8Gi", bound_to="n1")], Use(stranded=4 * NANO)),
        ([node(gpus=4, pods=1), pod("c", bound_to="n1")], Use(stranded=4 * NANO)),
        # A shared device that is closed: its plugin calls it unhealthy.
        ([node(gpus=4), reservation("g", book={"uid-a": HALF}, is_ill=True)],
         Use(used=HALF, free=3 * NANO, stranded=HALF)),
        # Fewer devices than are used: some have fallen ill.
        ([node(gpus=1), pod("w", gpus=3, bound_to="n1")], Use(used=3 * NANO)),
    ],
)  # fmt: skip
def test_all_that_a_node_has_is_used_free_in_pieces_or_stranded(objects: list[Any], expected: Use) -> None:
    made = cluster(*objects)
    (found,) = use_of_pools(made.refresh()).values()
    assert found == expected
    offered = int(made.ledger.table.total[GPUS, made.ledger.row_of["n1"]]) * NANO
    assert found.used + found.free + found.pieces + found.stranded == max(offered, found.used)


def test_pools_are_told_apart_by_what_their_nodes_labels_say_and_nodes_without_gpus_are_in_none() -> None:
    a100 = {names.NODE_GPU_PRODUCT: "NVIDIA-A100"}
    team = {**a100, names.NODE_POOL_LABEL: "team"}
    nodes = [
        node("n1", gpus=4, labels=a100),
        node("n2", gpus=2, labels=a100),
        node("n3", gpus=8, labels=team),
        node("n4", gpus=1),
        node("n5", gpus=0, labels=team),
    ]
    assert use_of_pools(cluster(*nodes).refresh()) == {
        Pool("", ""): Use(free=NANO),
        Pool("", "NVIDIA-A100"): Use(free=6 * NANO),
        Pool("team", "NVIDIA-A100"): Use(free=8 * NANO),
    }


def test_no_node_no_pool() -> None:
    assert use_of_pools(cluster().refresh()) == {}
