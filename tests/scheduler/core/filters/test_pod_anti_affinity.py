"""Required anti-affinity of a pod that waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.filters.beside import (
    HOST,
    NODES,
    allowed,
    anti_affinity,
    made,
    places,
    reasons,
    running,
    term,
    waiting,
)

_OTHER = {"namespace": "other"}


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [
        ([term()], "rs"),
        ([term(HOST)], "qrs"),
        ([term(HOST), term(HOST, {"matchLabels": {"app": "b"}})], "qs"),
        ([term(selector={})], "s"),
        ([term(selector=None)], "pqrs"),
        ([term(selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]})], "pqs"),
        ([term(namespaces=["other"])], "pqrs"),
        ([term(namespaceSelector={})], "rs"),
        ([term("nobody-has-this")], "pqrs"),
    ],
)
def test_pods_that_a_term_takes_close_their_domains(terms: list[dict[str, Any]], nodes: str) -> None:
    assert allowed(running("a", "p"), running("b", "r", "b"), spec=anti_affinity(*terms)) == nodes


@pytest.mark.parametrize(("team", "nodes"), [("x", "rs"), ("y", "pqrs")])
def test_namespaces_are_taken_by_their_labels(team: str, nodes: str) -> None:
    spec = anti_affinity(term(namespaceSelector={"matchLabels": {"team": "x"}}))
    assert allowed(running("a", "p", **_OTHER), spec=spec, teams={"other": team}) == nodes


def test_terminating_pods_close_their_domain_until_they_are_gone() -> None:
    found = made(running("a", "p", deleting=True), running("b", "r"), waiting(anti_affinity(term(HOST), term())))
    assert places(found.decide(0)) == {"w": "s"}


def test_replicas_that_avoid_each_other_spread_in_one_decision() -> None:
    replicas = [waiting(anti_affinity(term(HOST)), f"w{i}", "a") for i in range(5)]
    found = made(*replicas)
    assert len({*places(found.decide(0)).values()}) == 4
    assert reasons(found, "uid-w4") == {"pod-anti-affinity": 4}


def test_a_pod_without_rules_keeps_off_those_that_were_placed_in_the_same_decision() -> None:
    avoiding, plain = waiting(anti_affinity(term()), "v", priority=5), waiting({}, "w", "a")
    found = places(made(avoiding, plain, nodes=NODES[:2]).decide(0))
    assert found == {"v": "p"}


def test_a_pod_that_goes_opens_its_domain() -> None:
    found = made(*(running(name, name) for name in "pqrs"), waiting(anti_affinity(term(HOST))))
    assert reasons(found) == {"pod-anti-affinity": 4}
    found.remove_pod("uid-q")
    assert places(found.decide(0)) == {"w": "q"}
