"""Reading what pods prefer."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.convert.pod_preferences import MOST_PREFERENCES, drawing_terms, image_name, pod_preferences
from scheduler.core.model.pod_class import AntiTerm, PodPreferences, Requirement, Spread, WeightedTerm, Weights
from tests.scheduler.core.filters.beside import HOST, ZONE, affinity, term
from tests.scheduler.core.filters.test_spread import spread
from tests.scheduler.core.objects import pod
from tests.scheduler.core.scores.preferences.scoring import PREFERRED, pods_preferred, soft

_ALL = Weights(images=1)
_APP = (Requirement("app", "In", ("a",)),)
_UNREADABLE = {"matchExpressions": [{"key": "app", "operator": "Newer", "values": ["a"]}]}


def _term(key: str = ZONE) -> AntiTerm:
    return AntiTerm(key, selector=_APP, namespaces=frozenset(("ns",)))


def _read(spec: dict[str, Any], weights: Weights = _ALL) -> PodPreferences | None:
    return pod_preferences(pod(spec=spec, labels={"app": "a"}), weights)


@pytest.mark.parametrize(
    ("spec", "weights"),
    [
        ({"containers": [{"name": "c"}]}, _ALL),
        (affinity(term()), Weights()),
        (spread(), Weights()),
        (pods_preferred((1, ZONE)), Weights(pod_affinity=0)),
        ({"topologySpreadConstraints": [soft(ZONE)]}, Weights(soft_spread=0)),
        ({"containers": [{"name": "c", "image": "i"}]}, Weights()),
        (pods_preferred((0, ZONE)), Weights()),
        (pods_preferred((1, ZONE), selector=_UNREADABLE), Weights()),
        ({"topologySpreadConstraints": [soft(ZONE, labelSelector=_UNREADABLE)]}, Weights()),
    ],
)
def test_a_pod_that_prefers_nothing_that_counts_has_none(spec: dict[str, Any], weights: Weights) -> None:
    assert _read(spec, weights) is None


def test_anti_affinity_weighs_less_than_nothing() -> None:
    both = pods_preferred((7, ZONE))["affinity"] | pods_preferred((5, HOST), kind="podAntiAffinity")["affinity"]
    found = _read({"affinity": both}, Weights())
    assert found is not None
    assert found.pod_terms == (WeightedTerm(7, _term()), WeightedTerm(-5, _term(HOST)))


def test_soft_constraints_are_read_as_hard_ones_are() -> None:
    hard = spread(HOST)["topologySpreadConstraints"]
    found = _read({"topologySpreadConstraints": [*hard, soft(ZONE, 2, matchLabelKeys=["app"])]}, Weights())
    assert found is not None
    assert found.spread == (Spread(key=ZONE, most_skew=2, selector=_APP),)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a", "a:latest"),
        ("a:1", "a:1"),
        ("r:5000/a", "r:5000/a:latest"),
        ("r:5000/a:1", "r:5000/a:1"),
        ("a@sha256:0", "a@sha256:0"),
    ],
)
def test_an_image_without_a_tag_is_the_latest(written: str, name: str) -> None:
    assert image_name(written) == name


def test_what_draws_others_has_the_sum_of_equal_terms_and_of_required_affinity() -> None:
    required, preferred = affinity(term()), pods_preferred((4, ZONE), (2, HOST))
    own = {"affinity": {"podAffinity": required["affinity"]["podAffinity"] | preferred["affinity"]["podAffinity"]}}
    assert drawing_terms(pod(spec=own), Weights(hard_pod_affinity=3)) == (
        WeightedTerm(7, _term()),
        WeightedTerm(2, _term(HOST)),
    )
    assert drawing_terms(pod(spec=own), Weights(hard_pod_affinity=0))[0].weight == 4
    assert drawing_terms(pod(spec=own), Weights(pod_affinity=0)) == ()


def test_equal_terms_of_pods_are_kept_once() -> None:
    one, other = (drawing_terms(pod(name, spec=pods_preferred((1, ZONE))), Weights()) for name in "ab")
    assert one is other


def test_what_is_beyond_the_bounds_does_not_count() -> None:
    many = pods_preferred(*((1 + number, f"key-{number}") for number in range(99)))
    found = _read(many, Weights())
    assert found is not None
    assert [each.weight for each in found.pod_terms] == list(range(1, 1 + MOST_PREFERENCES))
    assert len(drawing_terms(pod(spec=many), Weights())) == MOST_PREFERENCES
    wide = {"matchExpressions": [{"key": "app", "operator": "In", "values": [str(n) for n in range(400)]}]}
    few = _read(pods_preferred(*((1, key) for key in "abcd"), selector=wide), Weights())
    assert few is not None
    assert [each.term.key for each in few.pod_terms] == ["a", "b"]


def test_a_term_for_nodes_without_expressions_or_with_a_value_that_no_label_has_does_not_count() -> None:
    drawn = [
        {"weight": 1, "preference": {}},
        {"weight": 1, "preference": {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["-2"]}]}},
        {"weight": 1, "preference": {"matchExpressions": [{"key": "n", "operator": "Exists"}]}},
    ]
    found = _read({"affinity": {"nodeAffinity": {PREFERRED: drawn}}}, Weights())
    assert found is not None
    assert len(found.node_terms) == 1
