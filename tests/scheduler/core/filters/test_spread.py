"""Topology spread that has to hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.filters.beside import (
    APP_A,
    HOST,
    NODES,
    ZONE,
    allowed,
    made,
    places,
    reasons,
    running,
    waiting,
)
from tests.scheduler.core.objects import node, pod

_TAINTED = (*NODES, node("t", labels={ZONE: "z"}, taints=[("dedicated", "ml", "NoSchedule")]))


def spread(key: str = ZONE, skew: int = 1, *, selector: Any = APP_A, **more: Any) -> dict[str, Any]:
    made_of = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [{**made_of, **more}]}


def _both(*specs: dict[str, Any]) -> dict[str, Any]:
    return {"topologySpreadConstraints": [each for spec in specs for each in spec["topologySpreadConstraints"]]}


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        (spread(), "r"),
        (spread(skew=2), "pqr"),
        (spread(HOST), "qrs"),
        (spread(selector={"matchLabels": {"app": "nobody"}}), "pqr"),
        # The empty selector takes the pod itself and counts nobody; none takes nobody.
        (spread(selector={}), "pqr"),
        (spread(selector=None), "pqr"),
        (spread("nobody-has-this"), ""),
        (spread(minDomains=3), "r"),
        (spread(skew=2, minDomains=2), "pqr"),
        (_both(spread(), spread(HOST)), "r"),
        (spread(matchLabelKeys=["app"]), "r"),
        (spread(matchLabelKeys=["version"]), "pqr"),
        (spread(whenUnsatisfiable="ScheduleAnyway"), "pqrs"),
    ],
)
def test_domains_differ_by_the_skew_at_most(spec: dict[str, Any], nodes: str) -> None:
    found = [on for on in "pqrs" if _is_placed(spec, on)]
    assert "".join(found) == nodes


def _is_placed(spec: dict[str, Any], on: str) -> bool:
    here = _ignoring_affinity({**spec, "nodeSelector": {HOST: on}})
    waits = pod("w", labels={"app": "a", "version": "2"}, spec=here)
    return bool(places(made(running("a", "p"), waits).decide(0)))


def _ignoring_affinity(spec: dict[str, Any]) -> dict[str, Any]:
    """The selector by which nodes are asked one by one is not to count."""
    every = [{"nodeAffinityPolicy": "Ignore", **each} for each in spec["topologySpreadConstraints"]]
    return {**spec, "topologySpreadConstraints": every}


@pytest.mark.parametrize(
    ("policy", "is_placed"),
    [({}, True), ({"nodeAffinityPolicy": "Honor"}, True), ({"nodeAffinityPolicy": "Ignore"}, False)],
)
def test_only_nodes_that_the_pod_asks_for_count_unless_it_says_otherwise(
    policy: dict[str, Any], is_placed: bool
) -> None:
    spec = {**spread(**policy), "nodeSelector": {ZONE: "x"}}
    assert bool(places(made(running("a", "p"), waiting(spec, app="a")).decide(0))) is is_placed


@pytest.mark.parametrize(("policy", "is_placed"), [({}, False), ({"nodeTaintsPolicy": "Honor"}, True)])
def test_nodes_with_taints_count_unless_they_are_to_be_honoured(policy: dict[str, Any], is_placed: bool) -> None:
    there = [running(f"a{on}", on) for on in "pr"]
    found = made(*there, waiting(spread(**policy), app="a"), nodes=_TAINTED)
    assert bool(places(found.decide(0))) is is_placed


@pytest.mark.parametrize(
    ("more", "is_placed"), [({"deleting": True}, True), ({"namespace": "other"}, True), ({}, False)]
)
def test_terminating_pods_and_those_of_other_namespaces_do_not_count(more: dict[str, Any], is_placed: bool) -> None:
    spec = {**spread(), "nodeSelector": {HOST: "p"}}
    spec = _ignoring_affinity(spec)
    assert bool(places(made(running("a", "p", **more), waiting(spec, app="a")).decide(0))) is is_placed


def test_a_decision_spreads_what_it_places() -> None:
    found = made(*(waiting(spread(), f"w{i}", "a") for i in range(6)))
    zones = [{"p": "x", "q": "x", "r": "y"}[on] for on in places(found.decide(0)).values()]
    assert sorted(zones) == ["x"] * 3 + ["y"] * 3


def test_it_is_told_which_nodes_lack_the_label() -> None:
    found = made(running("a", "p"), running("b", "r"), waiting(spread(skew=1, minDomains=3), app="a"))
    assert reasons(found) == {"spread": 3, "spread-label": 1}


def test_nodes_without_the_label_are_out() -> None:
    assert allowed(spec=_ignoring_affinity(spread())) == "pqr"
