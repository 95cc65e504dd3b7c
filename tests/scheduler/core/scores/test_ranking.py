"""Ranks that are kept up to date are those of a new ranking, whatever was placed, taken back and evicted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler.core.decide.placer import Placer
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.scores.ranking import Ranking
from tests.scheduler.core.objects import cluster, node, pod
from tests.whole import seeds
from wire.core import Node

_FPGA = "example.com/fpga"
_NODES = 40
#: Without GPUs, with GPUs, with a resource that few nodes have, and with one that none has.
_KINDS: tuple[dict[str, Any], ...] = (
    {"cpu": "1"},
    {"cpu": "3", "memory": "2Gi"},
    {"gpus": 1},
    {"gpus": 3, "cpu": "2"},
    {"spec": {"containers": [{"name": "c", "resources": {"limits": {_FPGA: "1"}}}]}},
    {"spec": {"containers": [{"name": "c", "resources": {"limits": {"example.com/none": "1"}}}]}},
)


def _node(rng: random.Random, number: int) -> Node:
    """One that is full soon."""
    extended = {_FPGA: "2"} if rng.random() < 0.4 else None
    return node(f"n{number:02}", rng.choice((0, 1, 4)), cpu=rng.choice("248"), memory="8Gi", pods=4, extended=extended)


@pytest.mark.parametrize("strategy", [Strategy.BINPACK, Strategy.SPREAD])
@pytest.mark.parametrize("seed", seeds(15))
def test_ranks_that_are_kept_are_those_of_a_new_ranking(seed: int, strategy: Strategy) -> None:
    rng = random.Random(seed)
    there = [pod(f"r{i}", cpu="1", bound_to=f"n{rng.randrange(_NODES):02}") for i in range(8)]
    pods = [pod(f"w{i}", **kind) for i, kind in enumerate(_KINDS)]
    settings = Settings(gpu_strategy=strategy, cpu_strategy=strategy)
    found = cluster(*(_node(rng, number) for number in range(_NODES)), *there, *pods, settings=settings)
    snapshot = found.snapshot()
    placer = Placer(snapshot)
    statement = placer.statement
    records = [each for i in range(len(pods)) if (each := found.pod(f"uid-w{i}")) is not None]
    bound = [each for i in range(len(there)) if (each := found.pod(f"uid-r{i}")) is not None]
    assert (len(records), len(bound)) == (len(pods), len(there))
    placed = 0
    for _ in range(50):
        mark = statement.checkpoint()
        for _ in range(rng.choice((1, 1, 1, 3, 9))):
            if bound and rng.random() < 0.1:
                statement.evict(bound.pop())
            placed += placer.place(rng.choice(records)) is not None
        if not bound and rng.random() < 0.3:  # an eviction that was taken back could come again
            statement.rollback(mark)
        for record in records:
            ranking = placer.ranking(record.cls)
            ranking.best()
            assert ranking.keys.tolist() == Ranking(statement, record.cls, snapshot.settings).keys.tolist()
    assert placed > 20
