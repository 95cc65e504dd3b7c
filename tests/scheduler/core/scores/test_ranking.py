"""Ranks that are kept up to date are those of a new ranking, whatever was placed, taken back and evicted."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from scheduler.core.decide.placer import Placer
from scheduler.core.devices.device_fit import NOWHERE
from scheduler.core.model.pod_class import Weights
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.scores.preferences.preferred import preferred_of
from scheduler.core.scores.ranking import Ranking
from scheduler.core.snapshot.statement import Statement
from tests.scheduler.core.filters.beside import APP_A, HOST, ZONE, affinity, anti_affinity, running, term, waiting
from tests.scheduler.core.filters.test_beside_pods import spread
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


_RACK = "rack"
_OPEN_RANKS_KINDS: tuple[dict[str, Any], ...] = (
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
    pods = (waiting(rng.choice(_OPEN_RANKS_KINDS), f"w{i}", rng.choice("ab")) for i in range(16))
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


_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _soft(key: str = ZONE, **more: Any) -> dict[str, Any]:
    one = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": APP_A, **more}
    return {"topologySpreadConstraints": [one]}


def _pods(kind: str, key: str, weight: int) -> dict[str, Any]:
    return {"affinity": {kind: {_PREFERRED: [{"weight": weight, "podAffinityTerm": term(key)}]}}}


_PREFERRED_RANKS_NODES = {
    "weight": 7,
    "preference": {"matchExpressions": [{"key": _RACK, "operator": "In", "values": ["r1", "r2"]}]},
}
_PREFERRED_RANKS_KINDS: tuple[dict[str, Any], ...] = (
    _soft(),
    _soft(HOST),
    {"topologySpreadConstraints": [*_soft()["topologySpreadConstraints"], *_soft(HOST)["topologySpreadConstraints"]]},
    _soft() | _pods("podAntiAffinity", HOST, 100),
    _soft(maxSkew=3) | _pods("podAntiAffinity", HOST, 3),
    _pods("podAntiAffinity", HOST, 10),
    _pods("podAffinity", ZONE, 10),
    _pods("podAffinity", _RACK, 10),
    affinity(term()),
    _soft() | {"affinity": {"nodeAffinity": {_PREFERRED: [_PREFERRED_RANKS_NODES]}}},
)


def _preferred_ranks_nodes(rng: random.Random, zones: int, count: int) -> tuple[Node, ...]:
    """Nodes in zones, some in none; racks across them; of three sizes, so that some are full soon."""
    found = []
    for number in range(count):
        labels = {HOST: f"n{number}", _RACK: f"r{rng.randrange(count // 4)}"}
        if rng.random() < 0.95:
            labels[ZONE] = f"z{rng.randrange(zones)}"
        found.append(node(f"n{number:03}", cpu=rng.choice("148"), labels=labels))
    return tuple(found)


def _preferred_ranks_plainly(statement: Statement, ranking: Ranking) -> int | None:
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
    pods = [waiting(rng.choice(_PREFERRED_RANKS_KINDS), f"w{i}", rng.choice("ab")) for i in range(16)]
    found = cluster(*_preferred_ranks_nodes(rng, zones, count), *there, *pods)
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
            assert best == _preferred_ranks_plainly(placer.statement, ranking)
            seen.add(best)
    assert len(seen) > 1


@pytest.mark.parametrize("count", [1, 3])
def test_where_no_node_fits_there_is_none(count: int) -> None:
    found = cluster(*(node(f"n{number}", cpu="1") for number in range(count)), waiting(_PREFERRED_RANKS_KINDS[0]))
    snapshot = found.snapshot()
    placer, pod = Placer(snapshot), snapshot.pods.records["uid-w"]
    for _ in range(count):
        assert placer.place(pod) is not None
    mark = placer.statement.checkpoint()
    assert placer.ranking(pod.cls).best() is None
    assert mark == count
    placer.statement.rollback(count - 1)
    assert placer.ranking(pod.cls).best() is not None
