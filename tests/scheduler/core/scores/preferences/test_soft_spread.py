"""Topology spread that need not hold."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.scheduler.core.filters.beside import HOST, NODES, ZONE, running
from tests.scheduler.core.objects import node
from tests.scheduler.core.scores.preferences.scoring import scores, soft


def _spec(*constraints: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"topologySpreadConstraints": list(constraints), **more}


def _there(**on: int) -> list[Any]:
    return [running(f"{name}{number}", name) for name, many in on.items() for number in range(many)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # 3 pods in zone x, 1 in y: 3 and 1 times log(2 + 2), rounded: 4 and 1. The node without the label has 0.
        (_spec(soft(ZONE)), {"p": 25, "q": 25, "r": 100, "s": 0}),
        (_spec(soft(ZONE, skew=5)), {"p": 62, "q": 62, "r": 100, "s": 0}),
        # 2, 1, 1 and 0 pods times log(4 + 2), rounded: 4, 2, 2 and 0.
        (_spec(soft(HOST)), {"p": 0, "q": 50, "r": 50, "s": 100}),
        # The node without a zone counts for the hosts neither: log(3 + 2).
        (_spec(soft(ZONE), soft(HOST)), {"p": 42, "q": 57, "r": 100, "s": 0}),
        (_spec(soft("nobody-has-this")), {"p": 0, "q": 0, "r": 0, "s": 0}),
        # The empty selector counts nobody, and so does none.
        (_spec(soft(ZONE, labelSelector={})), {"p": 100, "q": 100, "r": 100, "s": 0}),
        (_spec(soft(ZONE, labelSelector=None)), {"p": 100, "q": 100, "r": 100, "s": 0}),
        (_spec(soft(ZONE, whenUnsatisfiable="DoNotSchedule")), {}),
    ],
)
def test_the_fewer_in_the_domain_the_better(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert scores("soft-spread", *_there(p=2, q=1, r=1), spec=spec) == expected


def test_domains_are_counted_among_nodes_that_fit() -> None:
    found = scores("soft-spread", *_there(p=2, q=1, r=1), spec=_spec(soft(HOST)), only="pq")
    two = round(2 * math.log(4)), round(math.log(4))
    assert found == {"p": 100 * two[1] // two[0], "q": 100}


def test_terminating_pods_and_those_of_other_namespaces_do_not_count() -> None:
    there = running("1", "p", deleting=True), running("2", "p", namespace="other")
    assert scores("soft-spread", *there, spec=_spec(soft(HOST))) == dict.fromkeys("pqrs", 100)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # The pod's selector leaves only p, so of zone x only its pods count; on request all.
        ({}, {"p": 100, "r": 100}),
        ({"nodeAffinityPolicy": "Ignore"}, {"p": 25, "r": 100}),
    ],
)
def test_policies_say_on_which_nodes_pods_count(policy: dict[str, Any], expected: dict[str, int]) -> None:
    spec = _spec(soft(ZONE, **policy), nodeSelector={"kind": "good"})
    kinds = ("good", "bad", "good", "good")
    nodes = tuple(
        node(each.metadata.name, labels={**(each.metadata.labels or {}), "kind": kind})
        for each, kind in zip(NODES, kinds, strict=True)
    )
    there = _there(p=1, q=2, r=1)
    assert scores("soft-spread", *there, spec=spec, nodes=nodes, only="pr") == expected
