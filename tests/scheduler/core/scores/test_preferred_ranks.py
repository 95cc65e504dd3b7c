"""What a class prefers most is what a look at all nodes finds, whatever was placed, taken back and struck."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from scheduler.core.decide.placer import Placer
from scheduler.core.devices.device_fit import NOWHERE
from scheduler.core.model.pod_class import Weights
from scheduler.core.scores.preferences.preferred import preferred_of
from scheduler.core.scores.ranking import Ranking
from scheduler.core.snapshot.statement import Statement
from tests.scheduler.core.filters.beside import APP_A, HOST, ZONE, affinity, running, term, waiting
from tests.scheduler.core.objects import cluster, node
from tests.whole import seeds
from wire.core import Node

_RACK = "rack"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _soft(key: str = ZONE, **more: Any) -> dict[str, Any]:
    one = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": APP_A, **more}
    return {"topologySpreadConstraints": [one]}


def _pods(kind: str, key: str, weight: int) -> dict[str, Any]:
    return {"affinity": {kind: {_PREFERRED: [{"weight": weight, "podAffinityTerm": term(key)}]}}}


_NODES = {"weight": 7, "preference": {"matchExpressions": [{"key": _RACK, "operator": "In", "values": ["r1", "r2"]}]}}
_KINDS: tuple[dict[str, Any], ...] = (
    _soft(),
    _soft(HOST),
    {"topologySpreadConstraints": [*_soft()["topologySpreadConstraints"], *_soft(HOST)["topologySpreadConstraints"]]},
    _soft() | _pods("podAntiAffinity", HOST, 100),
    _soft(maxSkew=3) | _pods("podAntiAffinity", HOST, 3),
    _pods("podAntiAffinity", HOST, 10),
    _pods("podAffinity", ZONE, 10),
    _pods("podAffinity", _RACK, 10),
    affinity(term()),
    _soft() | {"affinity": {"nodeAffinity": {_PREFERRED: [_NODES]}}},
)


def _nodes(rng: random.Random, zones: int, count: int) -> tuple[Node, ...]:
    """Nodes in zones, some in none; racks across them; of three sizes, so that some are full soon."""
    found = []
    for number in range(count):
        labels = {HOST: f"n{number}", _RACK: f"r{rng.randrange(count // 4)}"}
        if rng.random() < 0.95:
            labels[ZONE] = f"z{rng.randrange(zones)}"
        found.append(node(f"n{number:03}", cpu=rng.choice("148"), labels=labels))
    return tuple(found)


def _plainly(statement: Statement, ranking: Ranking) -> int | None:
    """Of the nodes with the largest sum the first with the least rank."""
    fits = ranking.keys != NOWHERE
    found = preferred_of(ranking.cls, statement.counts, Weights())
    if not fits.any():
        return None
    sums = np.zeros(len(fits), np.int64) if found is None else found.sums(fits)
    keys = np.where(sums == sums[fits].max(), ranking.keys, NOWHERE)
    return int(np.where(fits, keys, NOWHERE).argmin())


@pytest.mark.parametrize("seed", seeds(40))
def test_the_best_is_the_first_in_rank_of_those_with_the_largest_sum(seed: int) -> None:
    rng = random.Random(seed)
    zones, count = rng.choice(((1, 50), (2, 80), (3, 200), (5, 60)))
    there = [running(f"r{i}", f"n{rng.randrange(count):03}", rng.choice("ab")) for i in range(rng.randrange(20))]
    pods = [waiting(rng.choice(_KINDS), f"w{i}", rng.choice("ab")) for i in range(16)]
    found = cluster(*_nodes(rng, zones, count), *there, *pods)
    snapshot = found.snapshot()
    placer = Placer(snapshot)
    records = snapshot.waiting(map(snapshot.pods.records.__getitem__, snapshot.pods.unbound))
    classes = [cls for cls in dict.fromkeys(record.cls for record in records) if cls.rules is None]
    mark, seen = placer.statement.checkpoint(), set[int | None]()
    for _ in range(60):
        match rng.choices(("place", "back", "strike"), (8, 1, 1))[0]:
            case "place":
                placer.place(rng.choice(records))
            case "back":
                placer.statement.rollback(mark)
            case _:
                ranking = placer.ranking(rng.choice(classes))
                if (position := ranking.best()) is not None:
                    ranking.strike(position)
        for cls in rng.sample(classes, min(3, len(classes))):
            ranking = placer.ranking(cls)
            best = ranking.best()
            assert best == _plainly(placer.statement, ranking)
            seen.add(best)
    assert len(seen) > 1


@pytest.mark.parametrize("count", [1, 3])
def test_where_no_node_fits_there_is_none(count: int) -> None:
    found = cluster(*(node(f"n{number}", cpu="1") for number in range(count)), waiting(_KINDS[0]))
    snapshot = found.snapshot()
    placer, pod = Placer(snapshot), snapshot.pods.records["uid-w"]
    for _ in range(count):
        assert placer.place(pod) is not None
    mark = placer.statement.checkpoint()
    assert placer.ranking(pod.cls).best() is None
    assert mark == count
    placer.statement.rollback(count - 1)
    assert placer.ranking(pod.cls).best() is not None
