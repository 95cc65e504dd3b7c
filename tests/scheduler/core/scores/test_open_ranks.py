"""The best of open nodes is the one that a look at all nodes finds, whatever was placed, taken back and struck."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from scheduler.core.decide.placer import Placer
from scheduler.core.devices.device_fit import NOWHERE
from scheduler.core.model.pod_class import Weights
from scheduler.core.model.settings import Settings
from scheduler.core.scores.ranking import Ranking
from tests.scheduler.core.filters.beside import HOST, ZONE, affinity, anti_affinity, running, term, waiting
from tests.scheduler.core.filters.test_spread import spread
from tests.scheduler.core.objects import cluster, node
from tests.whole import seeds
from wire.core import Node

_RACK = "rack"
_KINDS: tuple[dict[str, Any], ...] = (
    anti_affinity(term(HOST)),
    anti_affinity(term(ZONE, {"matchLabels": {"app": "b"}})),
    affinity(term()),
    affinity(term(), term(_RACK)),
    spread(),
    spread(_RACK),
    spread() | anti_affinity(term(HOST)),
    spread(HOST, maxSkew=2),
    {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]},
)


def _nodes(rng: random.Random, zones: int, count: int) -> tuple[Node, ...]:
    """Nodes in zones, some in none; racks across them; of two sizes."""
    found = []
    for number in range(count):
        labels = {HOST: f"n{number}", _RACK: f"r{rng.randrange(count // 4)}"}
        if rng.random() < 0.95:
            labels[ZONE] = f"z{rng.randrange(zones)}"
        found.append(node(f"n{number:03}", cpu=rng.choice("48"), labels=labels))
    return tuple(found)


def _plainly(ranking: Ranking) -> int | None:
    """The first of the open nodes with the least rank."""
    keys = np.where(ranking.open, ranking.keys, NOWHERE)
    position = int(keys.argmin())
    return None if keys[position] == NOWHERE else position


@pytest.mark.parametrize("seed", seeds(40))
def test_the_best_is_the_first_of_the_open_nodes_with_the_least_rank(seed: int) -> None:
    rng = random.Random(seed)
    zones, count = rng.choice(((1, 50), (2, 80), (3, 200), (5, 60)))
    nodes = _nodes(rng, zones, count)
    there = [running(f"r{i}", f"n{rng.randrange(count):03}", rng.choice("ab")) for i in range(rng.randrange(20))]
    pods = (waiting(rng.choice(_KINDS), f"w{i}", rng.choice("ab")) for i in range(16))
    # Required affinity of others would be a preference.
    found = cluster(*nodes, *there, *pods, settings=Settings(weights=Weights(hard_pod_affinity=0), preemption=False))
    snapshot = found.snapshot()
    placer = Placer(snapshot)
    records = snapshot.waiting(map(snapshot.pods.records.__getitem__, snapshot.pods.unbound))
    classes = list(dict.fromkeys(record.cls for record in records))
    mark, seen, evicted = placer.statement.checkpoint(), set[int | None](), set[str]()
    for _ in range(60):
        match rng.choices(("place", "back", "strike", "evict"), (8, 1, 1, 1))[0]:
            case "place":
                placer.place(rng.choice(records))
            case "back":
                placer.statement.rollback(mark)
                evicted.clear()
            case "strike":
                ranking = placer.ranking(rng.choice(classes))
                if (position := ranking.best()) is not None:
                    ranking.strike(position)
            case "evict" if there:
                record = found.pod(rng.choice(there).metadata.uid)
                assert record is not None
                if record.uid not in evicted:
                    evicted.add(record.uid)
                    placer.statement.evict(record)
            case _:
                pass
        for cls in rng.sample(classes, min(3, len(classes))):
            ranking = placer.ranking(cls)
            best = ranking.best()
            assert best == _plainly(ranking)
            again = Ranking(placer.statement, cls, snapshot.settings)
            assert ranking.open.tolist() == again.open.tolist()
            assert ranking.eligible.tolist() == again.eligible.tolist()
            seen.add(best)
    assert len(seen) > 1
