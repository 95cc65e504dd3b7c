"""What pods prefer, as scores of nodes."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from scheduler.core.decide.placer import Placer
from scheduler.core.model.pod_class import Weights
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.nodes.table import Int64s
from scheduler.core.scores.preferences.preferred import Preferred, preferred_of
from tests.scheduler.core.filters.beside import (
    HOST,
    NODES,
    ZONE,
    affinity,
    anti_affinity,
    made,
    places,
    running,
    term,
    waiting,
)
from tests.scheduler.core.objects import cluster, node, pod, pod_group
from tests.scheduler.core.scores.preferences.scoring import ONCE, PREFERRED, pods_preferred, scores, soft, with_images

# Images that nodes have already.

_NODES = (with_images(node("a"), big=2000, small=20), with_images(node("b"), big=1000), node("c"), node("d"))


def _spec(*images: str, **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": f"c{i}", "image": image} for i, image in enumerate(images)], **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # Two of four nodes have it, so half of its bytes count: from 23 MiB to 1,000 MiB a container.
        (_spec("big"), {"a": 100, "b": 48, "c": 0, "d": 0}),
        (_spec("big:latest"), {"a": 100, "b": 48, "c": 0, "d": 0}),
        (_spec("big", "none"), {"a": 49, "b": 24, "c": 0, "d": 0}),
        (_spec("big", "big"), {"a": 100, "b": 49, "c": 0, "d": 0}),
        (_spec("small"), {"a": 0, "b": 0, "c": 0, "d": 0}),
        (_spec("none", volumes=[{"name": "v", "image": {"reference": "big"}}]), {"a": 100, "b": 48, "c": 0, "d": 0}),
    ],
)
def test_bytes_that_are_there_count(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert scores("images", spec=spec, nodes=_NODES) == expected


def test_they_do_not_count_unless_that_is_set() -> None:
    assert Weights().images == 0
    assert scores("images", spec=_spec("big"), nodes=_NODES, weights=Weights()) == {}


# Preferred node affinity.


def _prefers(*terms: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    drawn = [{"weight": weight, "preference": term} for weight, term in terms]
    return {"affinity": {"nodeAffinity": {PREFERRED: drawn}}}


def _zone(*values: str, operator: str = "In") -> dict[str, Any]:
    return {"matchExpressions": [{"key": ZONE, "operator": operator, "values": list(values)}]}


_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["s"]}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (_prefers((10, _zone("x"))), {"p": 100, "q": 100, "r": 0, "s": 0}),
        (_prefers((30, _zone("x")), (70, _zone("y"))), {"p": 42, "q": 42, "r": 100, "s": 0}),
        (_prefers((30, _zone("x", "y")), (60, _zone("y"))), {"p": 33, "q": 33, "r": 100, "s": 0}),
        (_prefers((5, _NAME)), {"p": 0, "q": 0, "r": 0, "s": 100}),
        (_prefers((5, _zone("nowhere"))), {"p": 0, "q": 0, "r": 0, "s": 0}),
        # A term without expressions holds nowhere, one without weight does not count.
        (_prefers((5, {}), (0, _zone("x"))), {}),
    ],
)
def test_nodes_where_more_weight_holds_are_better(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert scores("node-affinity", spec=spec) == expected


def test_the_best_of_nodes_that_fit_has_all() -> None:
    spec = _prefers((30, _zone("x")), (70, _zone("y")))
    assert scores("node-affinity", spec=spec, only="ps") == {"p": 100, "s": 0}


# Preferred affinity between pods, the pod's own and others'.

_NO = "podAntiAffinity"
_W = {"matchLabels": {"app": "w"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (pods_preferred((1, ZONE)), {"p": 100, "q": 100, "r": 33, "s": 0}),
        (pods_preferred((1, HOST)), {"p": 100, "q": 50, "r": 50, "s": 0}),
        (pods_preferred((1, HOST), kind=_NO), {"p": 0, "q": 50, "r": 50, "s": 100}),
        (pods_preferred((1, ZONE), (3, HOST)), {"p": 100, "q": 66, "r": 44, "s": 0}),
        (pods_preferred((1, "nobody-has-this")), {"p": 0, "q": 0, "r": 0, "s": 0}),
        (pods_preferred((1, ZONE), selector={"matchLabels": {"app": "gone"}}), {"p": 0, "q": 0, "r": 0, "s": 0}),
        (pods_preferred((0, ZONE)), {}),
    ],
)
def test_terms_of_the_pod_draw_it_to_those_that_they_take(spec: dict[str, Any], expected: dict[str, int]) -> None:
    there = [running(name, on) for name, on in (("1", "p"), ("2", "p"), ("3", "q"), ("4", "r"))]
    assert scores("pod-affinity", *there, spec=spec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (pods_preferred((1, ZONE), selector=_W), {"p": 100, "q": 100, "r": 0, "s": 0}),
        (pods_preferred((1, HOST), selector=_W, kind=_NO), {"p": 0, "q": 100, "r": 100, "s": 100}),
        (affinity(term(HOST, _W)), {"p": 100, "q": 0, "r": 0, "s": 0}),
        # Required anti-affinity closes nodes, and is no preference.
        (anti_affinity(term(HOST, _W)), {}),
        (pods_preferred((1, ZONE)), {}),
    ],
)
def test_terms_of_others_that_take_the_pod_draw_it_to_their_owners(
    spec: dict[str, Any], expected: dict[str, int]
) -> None:
    assert scores("pod-affinity", running("1", "p", spec=spec), spec={}) == expected


def test_rounding_is_that_of_floating_point() -> None:
    there = [running(f"{on}{number}", on) for on, many in (("p", 100), ("q", 29)) for number in range(many)]
    assert scores("pod-affinity", *there, spec=pods_preferred((1, HOST)))["q"] == 28


def test_of_two_equal_terms_of_a_pod_each_counts() -> None:
    twice = running("1", "p", spec=pods_preferred((1, HOST), (1, HOST), selector=_W))
    once = running("2", "q", spec=pods_preferred((1, HOST), selector=_W))
    assert scores("pod-affinity", twice, once, spec={}) == {"p": 100, "q": 50, "r": 0, "s": 0}


def test_required_affinity_of_others_counts_as_it_is_set() -> None:
    required, preferred = affinity(term(HOST, _W)), pods_preferred((4, HOST), selector=_W)
    there = running("1", "p", spec=required), running("2", "q", spec=preferred)
    assert scores("pod-affinity", *there, spec={}) == {"p": 25, "q": 100, "r": 0, "s": 0}
    heavier = replace(ONCE, hard_pod_affinity=8)
    assert scores("pod-affinity", *there, spec={}, weights=heavier) == {"p": 100, "q": 50, "r": 0, "s": 0}
    off = replace(ONCE, hard_pod_affinity=0)
    assert scores("pod-affinity", *there, spec={}, weights=off) == {"p": 0, "q": 100, "r": 0, "s": 0}


def test_terms_of_others_may_be_left_out_for_pods_without_terms() -> None:
    there, ignoring = running("1", "p", spec=pods_preferred((1, HOST), selector=_W)), replace(ONCE, ignores_others=True)
    assert scores("pod-affinity", there, spec={}, weights=ignoring) == {}
    own = pods_preferred((1, ZONE))
    assert scores("pod-affinity", there, spec=own, weights=ignoring) == {"p": 100, "q": 50, "r": 0, "s": 0}


# Taints PreferNoSchedule.

_P, _Q = ("p", "", "PreferNoSchedule"), ("q", "1", "PreferNoSchedule")
_PREFER_NO_SCHEDULE_NODES = (
    node("a"),
    node("b", taints=[_P]),
    node("c", taints=[_P, _Q, ("q", "2", "PreferNoSchedule")]),
)


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], {"a": 100, "b": 67, "c": 0}),
        ([{"key": "p", "operator": "Exists"}], {"a": 100, "b": 100, "c": 0}),
        ([{"key": "q", "operator": "Exists", "effect": "PreferNoSchedule"}], {"a": 100, "b": 0, "c": 0}),
        ([{"key": "q", "value": "1"}], {"a": 100, "b": 50, "c": 0}),
        ([{"operator": "Exists"}], {"a": 100, "b": 100, "c": 100}),
        # For another effect it is no toleration of these.
        ([{"key": "p", "operator": "Exists", "effect": "NoSchedule"}], {"a": 100, "b": 67, "c": 0}),
    ],
)
def test_the_fewer_untolerated_the_better(tolerations: list[dict[str, Any]], expected: dict[str, int]) -> None:
    assert scores("prefer-no-schedule", spec={"tolerations": tolerations}, nodes=_PREFER_NO_SCHEDULE_NODES) == expected


def test_only_nodes_that_fit_are_compared() -> None:
    assert scores("prefer-no-schedule", spec={}, nodes=_PREFER_NO_SCHEDULE_NODES, only="ab") == {"a": 100, "b": 0}


def test_where_no_node_has_one_nothing_is_said() -> None:
    assert scores("prefer-no-schedule", spec={}, nodes=(node("a", taints=[("p", "", "NoSchedule")]), node("b"))) == {}


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


# Topology spread that need not hold.


def _soft_spread_spec(*constraints: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"topologySpreadConstraints": list(constraints), **more}


def _there(**on: int) -> list[Any]:
    return [running(f"{name}{number}", name) for name, many in on.items() for number in range(many)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # 3 pods in zone x, 1 in y: 3 and 1 times log(2 + 2), rounded: 4 and 1. The node without the label has 0.
        (_soft_spread_spec(soft(ZONE)), {"p": 25, "q": 25, "r": 100, "s": 0}),
        (_soft_spread_spec(soft(ZONE, skew=5)), {"p": 62, "q": 62, "r": 100, "s": 0}),
        # 2, 1, 1 and 0 pods times log(4 + 2), rounded: 4, 2, 2 and 0.
        (_soft_spread_spec(soft(HOST)), {"p": 0, "q": 50, "r": 50, "s": 100}),
        # The node without a zone counts for the hosts neither: log(3 + 2).
        (_soft_spread_spec(soft(ZONE), soft(HOST)), {"p": 42, "q": 57, "r": 100, "s": 0}),
        (_soft_spread_spec(soft("nobody-has-this")), {"p": 0, "q": 0, "r": 0, "s": 0}),
        # The empty selector counts nobody, and so does none.
        (_soft_spread_spec(soft(ZONE, labelSelector={})), {"p": 100, "q": 100, "r": 100, "s": 0}),
        (_soft_spread_spec(soft(ZONE, labelSelector=None)), {"p": 100, "q": 100, "r": 100, "s": 0}),
        (_soft_spread_spec(soft(ZONE, whenUnsatisfiable="DoNotSchedule")), {}),
    ],
)
def test_the_fewer_in_the_domain_the_better(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert scores("soft-spread", *_there(p=2, q=1, r=1), spec=spec) == expected


def test_domains_are_counted_among_nodes_that_fit() -> None:
    found = scores("soft-spread", *_there(p=2, q=1, r=1), spec=_soft_spread_spec(soft(HOST)), only="pq")
    two = round(2 * math.log(4)), round(math.log(4))
    assert found == {"p": 100 * two[1] // two[0], "q": 100}


def test_terminating_pods_and_those_of_other_namespaces_do_not_count() -> None:
    there = running("1", "p", deleting=True), running("2", "p", namespace="other")
    assert scores("soft-spread", *there, spec=_soft_spread_spec(soft(HOST))) == dict.fromkeys("pqrs", 100)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # The pod's selector leaves only p, so of zone x only its pods count; on request all.
        ({}, {"p": 100, "r": 100}),
        ({"nodeAffinityPolicy": "Ignore"}, {"p": 25, "r": 100}),
    ],
)
def test_policies_say_on_which_nodes_pods_count(policy: dict[str, Any], expected: dict[str, int]) -> None:
    spec = _soft_spread_spec(soft(ZONE, **policy), nodeSelector={"kind": "good"})
    kinds = ("good", "bad", "good", "good")
    nodes = tuple(
        node(each.metadata.name, labels={**(each.metadata.labels or {}), "kind": kind})
        for each, kind in zip(NODES, kinds, strict=True)
    )
    there = _there(p=1, q=2, r=1)
    assert scores("soft-spread", *there, spec=spec, nodes=nodes, only="pr") == expected
