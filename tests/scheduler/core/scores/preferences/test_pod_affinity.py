"""Preferred affinity between pods, the pod's own and others'."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.scheduler.core.filters.beside import HOST, ZONE, affinity, anti_affinity, running, term
from tests.scheduler.core.scores.preferences.scoring import ONCE, pods_preferred, scores

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
