"""Required affinity of a pod that waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.filters.beside import (
    HOST,
    affinity,
    allowed,
    made,
    places,
    reasons,
    running,
    term,
    waiting,
)
from tests.scheduler.core.objects import pod_group

_APP_B = {"matchLabels": {"app": "b"}}


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [
        ([term()], "pq"),
        ([term(HOST)], "p"),
        ([term(selector=_APP_B)], "r"),
        ([term(), term(HOST)], "p"),
        ([term(), term(selector=_APP_B)], ""),
        ([term(selector={})], "pqr"),
        ([term(selector=None)], ""),
        ([term("nobody-has-this")], ""),
        ([term(namespaces=["other"])], ""),
        ([term(namespaceSelector={})], "pq"),
    ],
)
def test_a_pod_follows_those_that_all_its_terms_take(terms: list[dict[str, Any]], nodes: str) -> None:
    assert allowed(running("a", "p"), running("b", "r", "b"), spec=affinity(*terms)) == nodes


@pytest.mark.parametrize(
    ("there", "app", "nodes"),
    [
        ([], "a", "pqr"),
        ([], "w", ""),
        ([running("a", "p")], "a", "pq"),
        # It has no zone, so it is in no domain: the next one is the first of a series as well.
        ([running("a", "s")], "a", "pqr"),
        ([running("a", "p", namespace="other")], "a", "pqr"),
    ],
)
def test_the_first_of_a_series_goes_wherever_there_are_the_labels(there: list[Any], app: str, nodes: str) -> None:
    assert allowed(*there, spec=affinity(term()), app=app) == nodes


def test_a_series_follows_its_first_in_one_decision() -> None:
    series = [waiting(affinity(term()), f"w{i}", "a", priority=i) for i in range(6)]
    zones = {"p": "x", "q": "x", "r": "y"}
    assert len({zones[on] for on in places(made(*series).decide(0)).values()}) == 1


def test_members_of_a_gang_follow_one_that_comes_after_them() -> None:
    def member(name: str, app: str, spec: dict[str, Any]) -> Any:
        return waiting(spec, name, app, group="g")

    found = made(member("w0", "w", affinity(term())), member("w1", "w", affinity(term())), member("w9", "a", {}))
    found.upsert_pod_group(pod_group("g", 3))
    plan = found.decide(0)
    placed = {
        placement.name: placement.node for entry in plan.entries for placement in getattr(entry, "placements", ())
    }
    assert placed.keys() == {"w0", "w1", "w9"}
    assert {*placed.values()} <= {"p", "q"} or {*placed.values()} == {"r"}


def test_a_gang_that_is_taken_back_leaves_nobody_to_follow() -> None:
    too_large = [waiting({}, f"g{i}", "a", group="g", priority=9) for i in range(2)]
    too_large.append(waiting({"nodeSelector": {"nobody": "has-this"}}, "g9", "a", group="g", priority=9))
    found = made(*too_large, waiting(affinity(term())))
    found.upsert_pod_group(pod_group("g", 3))
    assert reasons(found) == {"pod-affinity": 4}


def test_a_pod_that_comes_wakes_who_looks_for_it() -> None:
    found = made(waiting(affinity(term())))
    assert reasons(found) == {"pod-affinity": 4}
    found.upsert_pod(running("a", "r"))
    assert places(found.decide(1)) == {"w": "r"}


def test_the_labels_of_a_running_pod_may_change() -> None:
    found = made(running("a", "r", "b"), waiting(affinity(term())))
    assert not places(found.decide(0))
    found.upsert_pod(running("a", "r"))
    assert places(found.decide(1)) == {"w": "r"}
