"""One decision is bounded, and its bound is divided between namespaces."""

from __future__ import annotations

from scheduler.core.decide.allowance import Allowance


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
