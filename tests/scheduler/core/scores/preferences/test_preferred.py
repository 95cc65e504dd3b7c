"""The weighted sum of what a class prefers, and where it stands in the order of nodes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from scheduler.core.decide.placer import Placer
from scheduler.core.model.pod_class import Weights
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.nodes.table import Int64s
from scheduler.core.scores.preferences.preferred import Preferred, preferred_of
from tests.scheduler.core.filters.beside import HOST, NODES, ZONE, made, places, running, waiting
from tests.scheduler.core.objects import cluster, node, pod, pod_group
from tests.scheduler.core.scores.preferences.scoring import PREFERRED, pods_preferred, soft

_APART = pods_preferred((1, HOST), selector={"matchLabels": {"app": "w"}}, kind="podAntiAffinity")
_KINDS: tuple[dict[str, Any], ...] = (
    pods_preferred((3, ZONE), (1, HOST)),
    _APART,
    {"topologySpreadConstraints": [soft(ZONE), soft(HOST)]},
    {"topologySpreadConstraints": [soft(HOST)], **pods_preferred((1, ZONE), kind="podAntiAffinity")},
    {},
)


def _named(name: str) -> dict[str, Any]:
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": field}]}}}


def test_a_class_that_prefers_nothing_has_no_sums() -> None:
    found = made(running("r", "p"), waiting({}))
    record = found.pod("uid-w")
    assert record is not None
    assert Placer(found.snapshot()).ranking(record.cls).preferred is None


@pytest.mark.parametrize(
    ("weights", "node_of"),
    [
        (Weights(), "r"),
        (Weights(node_affinity=0), "p"),
        (Weights(node_affinity=1, pod_affinity=3), "p"),
        (Weights(node_affinity=1, pod_affinity=0), "r"),
    ],
)
def test_weights_decide_between_preferences(weights: Weights, node_of: str) -> None:
    """It prefers node r, where is one of the pods that it prefers to be beside; two are on node p."""
    spec = {**_named("r")}
    spec["affinity"] = {**spec["affinity"], **pods_preferred((1, HOST))["affinity"]}
    there = [running("1", "p"), running("2", "p"), running("3", "r")]
    found = cluster(*NODES, *there, waiting(spec), settings=Settings(weights=weights))
    assert places(found.decide(0)) == {"w": node_of}


@pytest.mark.parametrize("strategy", list(Strategy))
def test_what_is_preferred_comes_before_the_strategy(strategy: Strategy) -> None:
    """The last node by any strategy but for its name."""
    nodes = node("a"), node("b"), node("c")
    there = [pod("1", gpus=2, bound_to="b")] if strategy is Strategy.SPREAD else [pod("1", gpus=2, bound_to="a")]
    settings = Settings(gpu_strategy=strategy, cpu_strategy=strategy)
    for name, asks in (("cpu", {"cpu": "1"}), ("gpu", {"gpus": 1})):
        for wanted in "abc":
            found = cluster(*nodes, *there, pod(name, **asks, spec=_named(wanted)), settings=settings)
            assert places(found.decide(0)) == {name: wanted}


def test_what_is_preferred_comes_before_nodes_without_gpus() -> None:
    found = cluster(node("a"), node("b", gpus=0), waiting(_named("a")))
    assert places(found.decide(0)) == {"w": "a"}


def test_among_nodes_that_are_preferred_alike_the_strategy_decides() -> None:
    zones = [node(name, labels={ZONE: zone}) for name, zone in (("a", "x"), ("b", "y"), ("c", "y"))]
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["y"]}]}
    spec = {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": term}]}}}
    found = cluster(*zones, pod("1", gpus=1, bound_to="a"), pod("2", gpus=1, bound_to="c"), pod("p", gpus=1, spec=spec))
    assert places(found.decide(0)) == {"p": "c"}


def test_a_full_node_is_not_preferred() -> None:
    found = cluster(node("a"), node("b", gpus=1), pod("1", gpus=1, bound_to="b"), pod("p", gpus=1, spec=_named("b")))
    assert places(found.decide(0)) == {"p": "a"}


def test_members_of_a_gang_keep_apart_as_they_are_placed() -> None:
    labels = {"app": "w"}
    members = [pod(f"m{i}", gpus=1, group="g", labels=labels, spec=_APART) for i in range(6)]
    found = cluster(*NODES, pod_group("g", 6), *members)
    (gang,) = found.decide(0).entries
    on = sorted(placement.node for placement in gang.placements)  # type: ignore[union-attr]  # it is one
    assert on == ["p", "p", "q", "q", "r", "s"]


@pytest.mark.parametrize("seed", range(30))
def test_after_any_placements_taken_back_all_sums_are_as_before(seed: int) -> None:
    rng = random.Random(seed)
    there = [running(f"r{i}", rng.choice("pqrs"), rng.choice("aw"), spec=rng.choice(_KINDS)) for i in range(4)]
    found = made(*there, *(waiting(rng.choice(_KINDS), f"w{i}", rng.choice("aw")) for i in range(8)))
    snapshot = found.snapshot()
    placer, pods = Placer(snapshot), snapshot.waiting(map(snapshot.pods.records.__getitem__, snapshot.pods.unbound))

    def columns() -> list[Preferred]:
        of = (preferred_of(pod.cls, placer.statement.counts, Weights()) for pod in pods)
        return [each for each in of if each is not None]

    kept = columns()
    marks = [(placer.statement.checkpoint(), _sums(kept))]
    for _ in range(20):
        if rng.random() < 0.6 or len(marks) == 1:
            placer.place(rng.choice(pods))
            assert _sums(kept) == _sums(columns())
            marks.append((placer.statement.checkpoint(), _sums(kept)))
        else:
            mark, sums = marks.pop(rng.randrange(1, len(marks)))
            del marks[next((i for i, (at, _) in enumerate(marks) if at > mark), len(marks)) :]
            placer.statement.rollback(mark)
            assert _sums(kept) == sums
    placer.statement.rollback(marks[0][0])
    assert _sums(kept) == marks[0][1]
    assert _sums(columns()) == marks[0][1]


def _sums(columns: list[Preferred]) -> list[list[int]]:
    fits: list[Int64s] = [each.sums(np.array([True, True, True, True])) for each in columns]
    return [each.tolist() for each in fits]


def test_asking_again_costs_effort_if_something_was_placed() -> None:
    found = made(*(running(f"r{i}", "p") for i in range(200)), waiting(_KINDS[0]), waiting(_KINDS[0], "w2"))
    placer = Placer(found.snapshot())
    pods = [found.pod(uid) for uid in ("uid-w", "uid-w2")]
    assert pods[0] is not None
    assert pods[1] is not None
    assert placer.place(pods[0]) is not None
    assert placer.statement.counts.take_effort() > 50
    assert placer.place(pods[1]) is not None
    assert placer.statement.counts.take_effort() == 2 * 3  # two terms that are asked
