"""Where kube-scheduler's plug-ins let pods be, Moorage does: random snapshots, each node and each first reason.

``make test-all`` compares 1,000 snapshots, ``make nightly`` a million of the day.
"""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core.filters.registry import FILTERS, Filters
from tests.whole import IS_WHOLE
from tools.kubeoracle.comparing import SAME, Coverage, differences, is_same, judge_of, run
from tools.kubeoracle.drawing.rules import ASKS
from tools.kubeoracle.drawing.snapshot import Drawn, draw
from tools.kubeoracle.ours import SETTINGS, Ours, answer
from tools.kubeoracle.program import Answer, Oracle, Reason

pytestmark = pytest.mark.oracle
#: Slices, so that they are shared by the processes that run tests.
_SLICE = 1_000
_SLICES = 4 if IS_WHOLE else 1
#: The least part of all nodes that is feasible, and the most: snapshots in which everything fits compare nothing.
_LEAST, _MOST = 0.2, 0.8


@pytest.mark.parametrize("number", range(_SLICES))
def test_moorage_and_kube_scheduler_say_the_same_of_each_node(oracle: Oracle, number: int) -> None:
    found = run(oracle, range(number * _SLICE, (number + 1) * _SLICE))
    assert not found.differences
    seen = found.coverage
    assert seen.snapshots == _SLICE
    assert seen.one_sided() == []
    assert _LEAST < seen.feasible / seen.nodes < _MOST
    for plugin in SAME:
        assert 0 < seen.ranked_some[plugin] < seen.ranked[plugin]


@pytest.mark.parametrize(
    "kind", ["cordoned", "taint", "enforced-affinity", "selector", "affinity", "disks", "features"]
)
def test_a_rule_that_is_left_out_is_found(oracle: Oracle, kind: str) -> None:
    without = Filters([each for each in FILTERS.all if each.kind != kind])
    assert run(oracle, range(300), filters=without, most=1).differences


@pytest.mark.parametrize(
    ("field", "number"),
    [
        ("containerStatuses", 71),
        ("initContainerStatuses", 719),
        ("resources", 394),
        ("allocatedResources", 41),
        ("conditions", 3_049),
    ],
)
def test_a_part_of_a_resize_that_is_not_looked_at_is_found(oracle: Oracle, field: str, number: int) -> None:
    """By the snapshot of this number, the first that shows it; where it no longer does, by any: that takes seconds."""
    for each in map(draw, (number, *range(6_000))):
        if any(field in pod["status"] for pod in each.question["pods"]):
            (theirs,) = oracle.ask([each.question])
            pods = [{**pod, "status": {**pod["status"], field: None}} for pod in each.question["pods"]]
            if list(differences(each, theirs, answer({**each.question, "pods": pods}))):
                return
    pytest.fail("nothing differs")


@pytest.mark.parametrize("preference", ["prefer_no_schedule", "node_affinity", "pod_affinity", "soft_spread", "images"])
def test_a_preference_that_has_no_weight_is_found(oracle: Oracle, preference: str) -> None:
    without = msgspec.structs.replace(SETTINGS, weights=msgspec.structs.replace(SETTINGS.weights, **{preference: 0}))
    assert run(oracle, range(300), settings=without, most=1).differences


def test_the_same_number_is_the_same_snapshot() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_each_feature_that_is_drawn_has_a_judge() -> None:
    features = {feature for seed in range(500) for feature in draw(seed).features}
    assert len(features) > len(ASKS)
    assert all(map(judge_of, features))
    with pytest.raises(LookupError, match="no plug-in is known to judge 'rain'"):
        judge_of("rain")


def _scored(**columns: dict[str, int]) -> Answer:
    nodes = {node: {plugin: of[node] for plugin, of in columns.items()} for node in "nm"}
    return Answer(feasible=("n", "m"), why={}, scores=nodes)


@pytest.mark.parametrize(
    ("theirs", "ours", "chosen", "words"),
    [
        ({"NodeAffinity": {"n": 200, "m": 0}}, {"node-affinity": {"n": 200, "m": 0}}, "n", ""),
        ({"NodeAffinity": {"n": 200, "m": 0}}, {"node-affinity": {"n": 198, "m": 0}}, "n", "NodeAffinity: theirs"),
        ({"NodeAffinity": {"n": 200, "m": 0}}, {"node-affinity": {"n": 200, "m": 0}}, "m", "choice: ours 'm'"),
        ({"NodeAffinity": {"n": 200, "m": 0}}, {}, "n", "NodeAffinity: theirs"),
        ({}, {"node-affinity": {"n": 1, "m": 0}}, "n", "NodeAffinity: theirs"),
        # Where nothing is said, all nodes are alike.
        ({"TaintToleration": {"n": 300, "m": 300}}, {}, "m", ""),
        ({}, {"pod-affinity": {"n": 0, "m": 0}}, "m", ""),
        # What packs nodes is not compared.
        ({"NodeResourcesFit": {"n": 90, "m": 0}}, {}, "m", ""),
    ],
)
def test_scores_that_differ_are_said(
    theirs: dict[str, dict[str, int]], ours: dict[str, dict[str, int]], chosen: str, words: str
) -> None:
    mine = Ours(frozenset("nm"), {}, chosen=chosen, scores=ours)
    said = "; ".join(differences(Drawn({"nodes": [_NODE, _OTHER]}, frozenset()), _scored(**theirs), mine))
    assert words in said
    assert bool(said) is bool(words)


_NODE, _OTHER = {"metadata": {"name": "n"}}, {"metadata": {"name": "m"}}
_OUT = Answer(feasible=(), why={"n": Reason("NodeResourcesFit", ("Insufficient cpu",))})
_IN = Answer(feasible=("n",), why={})
_TAKEN = Answer(
    feasible=(),
    why={
        "n": Reason("VolumeRestrictions", ("... with ReadWriteOncePod access mode already in-use by another pod",)),
        "m": Reason("TaintToleration"),
    },
)
_LATER = Answer(feasible=(), why={"n": Reason("PodTopologySpread")})
_WAITS = Ours(frozenset(), {}, blocker="ClaimInUse: c")


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        (_IN, Ours(frozenset(("n",)), {}, chosen="n"), ""),
        (_IN, Ours(frozenset(), {"n": frozenset(("taint",))}), "only theirs ['n']"),
        (_IN, Ours(frozenset(("n",)), {}), "choice: ours ''"),
        (_IN, Ours(frozenset(), {}, blocker="UnsupportedConstraint: hostPort"), "ours waits: UnsupportedConstraint"),
        (_TAKEN, _WAITS, ""),
        (_LATER, _WAITS, "ours waits: ClaimInUse: c"),
        (_IN, _WAITS, "ours waits: ClaimInUse: c"),
        (_OUT, Ours(frozenset(("n",)), {}, chosen="n"), "only ours ['n']"),
        (_OUT, Ours(frozenset(), {"n": frozenset(("insufficient memory",))}), "reason of n"),
        (_OUT, Ours(frozenset(), {"n": frozenset(("insufficient cpu",))}), "told: {}"),
        (_OUT, Ours(frozenset(), {"n": frozenset(("insufficient cpu",))}, told={"insufficient cpu": 1}), ""),
        (Answer(feasible=(), why={}, pre=Reason("NodeAffinity")), Ours(frozenset(("n",)), {}, chosen="n"), "only ours"),
    ],
)
def test_what_differs_is_said(theirs: Answer, ours: Ours, words: str) -> None:
    said = "; ".join(differences(Drawn({"nodes": [_NODE]}, frozenset()), theirs, ours))
    assert words in said
    assert bool(said) is bool(words)


@pytest.mark.parametrize(
    ("theirs", "ours", "are_same"),
    [
        (Reason("NodeUnschedulable"), ("cordoned",), True),
        (Reason("NodeUnschedulable"), ("taint",), False),
        (Reason("NodeResourcesFit", ("Too many pods", "Insufficient cpu")), ("insufficient cpu", "pods"), True),
        (Reason("NodeResourcesFit", ("Too many pods", "Insufficient cpu")), ("pods",), False),
        (Reason("NodeResourcesFit", ("Insufficient cpu",)), ("insufficient cpu", "volumes"), True),
        (Reason("NodeResourcesFit", ("Insufficient cpu",)), ("volume-zone",), True),
        (Reason("NodeResourcesFit", ("Insufficient cpu",)), ("affinity",), False),
        (Reason("VolumeZone"), ("volumes",), False),
        (Reason("VolumeBinding"), ("volume-zone",), True),
        (Reason("VolumeRestrictions", ("node(s) had no available disk",)), ("disks",), True),
        (Reason("NodeAffinity", ("node(s) didn't match scheduler-enforced node affinity",)), ("affinity",), False),
        (Reason("NodeAffinity", ("node(s) didn't match Pod's node affinity/selector",)), ("enforced-affinity",), False),
        (Reason("InterPodAffinity", ("node(s) didn't match pod affinity rules",)), ("others-anti-affinity",), False),
        (Reason("Unknown"), (), False),
    ],
)
def test_reasons_are_the_same_by_what_they_say(theirs: Reason, ours: tuple[str, ...], are_same: bool) -> None:
    assert is_same(theirs, frozenset(ours)) is are_same


def test_a_feature_with_one_answer_only_is_named() -> None:
    seen = Coverage()
    drawn = Drawn({"nodes": [_NODE]}, frozenset(("cordon", "amount cpu")))
    seen.note(drawn, _OUT)
    seen.note(drawn, _IN)
    assert seen.one_sided() == ["cordon"]
