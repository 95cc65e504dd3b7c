"""One decision is bounded, and its bound is divided between namespaces."""

from __future__ import annotations

import pytest

from scheduler.core.decide.allowance import Allowance, Limits
from tests.scheduler.core.objects import cluster, node, pod


def test_a_namespace_goes_on_within_its_share_once_the_bound_is_spent() -> None:
    allowance = Allowance(namespaces=4, most=1_000)
    allowance.spend("busy", 1_000)
    assert not allowance.has_left("busy")
    assert allowance.has_left("other")
    allowance.spend("other", 251)
    assert not allowance.has_left("other")


def test_one_pod_that_costs_many_times_the_bound_leaves_others_their_turn() -> None:
    allowance = Allowance(namespaces=2, most=1_000)
    allowance.spend("busy", 90_000)
    assert not allowance.has_left("busy")
    assert allowance.has_left("other")


def test_behind_many_such_pods_some_namespaces_still_have_a_first_turn_each() -> None:
    allowance = Allowance(namespaces=100, most=1_000)
    for number in range(3):
        allowance.spend(f"busy-{number}", 90_000)
    served = 0
    while allowance.has_left(f"late-{served}"):
        allowance.spend(f"late-{served}", 20)
        assert allowance.has_left(f"late-{served}"), "a comparison alone is no turn"
        allowance.spend(f"late-{served}", 90_000)
        assert not allowance.has_left(f"late-{served}")
        served += 1
    assert served == 16
    assert not allowance.has_left("busy-0")


def test_first_turns_are_counted_as_soon_as_all_is_spent_that_namespaces_may_exceed() -> None:
    allowance = Allowance(namespaces=100, most=1_000)
    for number in range(3):
        allowance.spend(f"busy-{number}", 1_000)
    served = 0
    while allowance.has_left(f"late-{served}"):
        allowance.spend(f"late-{served}", 1_000)
        served += 1
    assert served == 16


@pytest.mark.parametrize(
    ("namespaces", "spent", "asks", "may"),
    [
        # Below the bound all go on; at it, each until it has spent its share.
        (4, [("a", 999)], "a", True),
        (4, [("a", 750), ("b", 250)], "b", True),
        (4, [("a", 749), ("b", 251)], "b", False),
        (1, [("a", 1_000)], "a", True),
        (1, [("a", 1_001)], "a", False),
        # Three bounds are spent: only those have a turn that have had none.
        (1, [("a", 900), ("b", 3_000), ("c", 3_000), ("d", 3_000)], "a", True),
        (1, [("a", 1_000), ("b", 3_000), ("c", 3_000), ("d", 3_000)], "a", False),
    ],
)
def test_a_namespace_goes_on_until_it_has_spent_what_it_may(
    namespaces: int, spent: list[tuple[str, int]], asks: str, may: bool
) -> None:
    allowance = Allowance(namespaces=namespaces, most=1_000)
    for namespace, operations in spent:
        allowance.spend(namespace, operations)
    assert allowance.has_left(asks) is may


def test_a_share_of_more_than_a_first_turn_ends_when_three_bounds_are_spent() -> None:
    allowance = Allowance(namespaces=2, most=4_000)
    for namespace, operations in (("a", 1_500), ("b", 4_000), ("c", 4_000), ("d", 2_500)):
        allowance.spend(namespace, operations)
    assert not allowance.has_left("a")
    assert allowance.has_left("e")


@pytest.mark.parametrize(("is_shared", "is_put_off"), [(True, True), (False, False)])
def test_what_a_verdict_costs_grows_with_the_nodes_for_shares(is_shared: bool, is_put_off: bool) -> None:
    """Six classes cost some 1,300 operations on 300 nodes, those of shares about one more for each node and class."""
    numbers = range(10, 16)
    pods = [pod(f"p{n}", fraction=f"0.{n}") if is_shared else pod(f"p{n}", cpu=f"{n}00") for n in numbers]
    made = cluster(*(node(f"n{number}", 0) for number in range(300)), *pods)
    assert (made.decide(0, Limits(most=2_000, retold=0)).wake_at_ns == 0) is is_put_off
