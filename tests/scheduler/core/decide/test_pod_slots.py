"""How many pods of a class nodes take: never fewer than placing one after the other finds."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from scheduler.core.decide.capacity import pod_slots
from scheduler.core.decide.placer import Placer
from tests.scheduler.core.objects import cluster, node, pod, reservation


@pytest.mark.parametrize(
    "asked",
    [
        {"gpus": 2},
        {"cpu": "3"},
        {"fraction": "0.4"},
        {"fraction": "0.4", "devices": 2},
        {"mem": 30_000},
        {"gpus": 1, "cpu": "20"},
    ],
)
@pytest.mark.parametrize("seed", range(6))
def test_a_node_takes_no_more_pods_than_it_is_counted_to_take(asked: dict[str, Any], seed: int) -> None:
    rng = Random(seed)
    nodes = [
        node(f"n{number}", gpus=rng.randint(0, 4), cpu=str(rng.randint(1, 40)), mem_mib=81_920) for number in range(3)
    ]
    made = cluster(*nodes, pod("holder", gpus=1, bound_to="n0"), *(pod(f"p{n}", **asked) for n in range(60)))
    placer = Placer(made.prepared(0))
    waiting = [each for n in range(60) if (each := made.pod(f"uid-p{n}")) is not None]
    counted = pod_slots(placer, waiting[0].cls, None)
    placed = [placer.place(each) for each in waiting]
    for number, most in enumerate(counted.tolist()):
        there = sum(each is not None and each.node == f"n{number}" for each in placed)
        assert there <= most
        if "devices" not in asked and "fraction" not in asked and "mem" not in asked:
            assert there == most


def test_nodes_out_of_the_mask_or_closed_to_the_class_take_none() -> None:
    closed = node("n2", taints=[("k", "v", "NoSchedule")])
    made = cluster(node("n0"), node("n1"), closed, pod("p", gpus=4))
    placer, waiting = Placer(made.prepared(0)), made.pod("uid-p")
    assert waiting is not None
    assert pod_slots(placer, waiting.cls, None).tolist() == [2, 2, 0]
    assert pod_slots(placer, waiting.cls, placer.all_but(frozenset({"n0"}))).tolist() == [0, 2, 0]


@pytest.mark.parametrize(("with_idle", "slots"), [(False, 0), (True, 1)])
def test_gpus_that_idle_reservations_hold_count_if_that_is_asked(with_idle: bool, slots: int) -> None:
    made = cluster(node("n1", gpus=1), reservation("g1"), pod("p", gpus=1))
    placer, waiting = Placer(made.prepared(0)), made.pod("uid-p")
    assert waiting is not None
    assert pod_slots(placer, waiting.cls, None, with_idle=with_idle).tolist() == [slots]
