"""S5 in pools: a pod is bound on a node that its pool has, or had when that may have been decided."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks.checker import BIND_REQUESTS, NODES, POD_GROUPS
from simulator.checks.limits import Lateness
from tests.simulator.made_up import NODE, Story, node, pod, pod_group, reservation
from wire import names

LATENESS = Lateness(usual_s=2)


def of(pool: str, raw: dict[str, Any]) -> dict[str, Any]:
    """The same object in a pool."""
    labels = {**raw["metadata"].get("labels", {}), **({names.NODE_POOL_LABEL: pool} if pool else {})}
    return {**raw, "metadata": {**raw["metadata"], "labels": labels}}


def there(pool: str, *, is_divided: bool = True) -> Story:
    """A cluster with one node, in this pool for a minute."""
    return Story(is_divided=is_divided, lateness=LATENESS).sees(of(pool, node()), kind=NODES).after(60)


def request() -> dict[str, Any]:
    return {"metadata": {"uid": "r", "name": "p", "namespace": "team"}, "spec": {"selectedNode": NODE, "podName": "p"}}


@pytest.mark.parametrize(
    ("pool", "where", "is_right"),
    [("", "", True), ("a", "a", True), ("a", "", False), ("", "a", False), ("a", "b", False)],
)
def test_a_pod_is_bound_on_a_node_of_its_pool(pool: str, where: str, is_right: bool) -> None:
    assert there(where).sees(of(pool, pod("p"))).broken() == (set() if is_right else {"S5"})
    assert there(where, is_divided=False).sees(of(pool, pod("p"))).broken() == set()


def test_the_label_that_a_binding_brings_makes_no_node_the_right_one() -> None:
    story = there("a").sees(pod("p", node=""))
    assert story.sees(of("a", pod("p"))).broken() == {"S5"}


@pytest.mark.parametrize(("group", "broken"), [("a", set[str]()), ("", {"S5"})])
def test_a_member_is_of_the_pool_of_its_podgroup(group: str, broken: set[str]) -> None:
    story = there("a").sees(of(group, pod_group("g", 1)), kind=POD_GROUPS)
    assert story.sees(of("a", pod("p", annotations={names.POD_GROUP_NAME: "g"}))).broken() == broken


@pytest.mark.parametrize(("seconds", "broken"), [(1, set[str]()), (3, {"S5"})])
def test_a_node_that_left_is_used_until_who_decides_may_have_heard(seconds: float, broken: set[str]) -> None:
    story = there("a").sees(of("b", node()), kind=NODES).after(seconds)
    assert story.sees(of("b", pod("q"))).broken() == set()
    assert story.sees(of("a", pod("p"))).broken() == broken


@pytest.mark.parametrize(("is_before", "broken"), [(True, set[str]()), (False, {"S5"})])
def test_what_was_decided_before_a_node_left_is_bound_after_it(is_before: bool, broken: set[str]) -> None:
    story = there("a").sees(of("a", pod("p", node="")))
    for raw, kind in ((request(), BIND_REQUESTS), (of("b", node()), NODES))[:: 1 if is_before else -1]:
        story.sees(raw, kind=kind, event="ADDED" if kind == BIND_REQUESTS else "MODIFIED").after(30)
    assert story.sees(of("a", pod("p"))).broken() == broken


@pytest.mark.parametrize(("seconds", "broken"), [(1, set[str]()), (3, {"S5"})])
def test_a_pod_that_has_just_changed_pools_is_not_judged(seconds: float, broken: set[str]) -> None:
    story = there("a").sees(of("a", pod("p", node=""))).sees(pod("p", node="")).after(seconds)
    assert story.sees(pod("p")).broken() == broken


def test_a_node_that_comes_back_in_another_pool_was_in_the_former() -> None:
    story = there("a").sees(of("a", node()), kind=NODES, event="DELETED").after(60)
    story.sees(of("b", node()), kind=NODES, event="ADDED").after(1)
    assert story.sees(of("a", pod("p"))).broken() == set()
    assert story.after(2).sees(of("a", pod("q"))).broken() == {"S5"}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(pod("p", scheduler="default-scheduler"), id="another scheduler's"),
        pytest.param(reservation("r", "g"), id="a reservation"),
    ],
)
def test_only_pods_of_ours_are_judged(raw: dict[str, Any]) -> None:
    assert there("a").sees(raw).broken() == set()
