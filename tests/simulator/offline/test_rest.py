"""A cluster is decided on until nothing changes, in bounded time."""

from __future__ import annotations

from simulator.offline.shell import LONGEST_S, Rest, settle
from tests.scheduler.core.objects import node, pod, pod_group
from tests.simulator.offline.given import JOB, WALL_S, places, shell


def test_while_all_fits_the_clock_stands() -> None:
    made = shell(node("n1", 4), *(pod(f"p{at}", gpus=1) for at in range(4)))
    seen: list[int] = []
    rest = settle(made, told=seen.append)
    assert (rest.is_at_rest, rest.passed_s, made.wall_s) == (True, 0, WALL_S)
    assert set(places(made).values()) == {"n1"}
    assert seen == [*range(1, rest.rounds + 1)]


def test_what_does_not_fit_waits_at_rest() -> None:
    made = shell(node("n1", 4), *(pod(f"p{at}", gpus=1) for at in range(5)))
    assert settle(made).is_at_rest
    assert sorted(places(made).values()) == ["", "n1", "n1", "n1", "n1"]


def test_the_number_of_decisions_is_bounded() -> None:
    made = shell(node("n1", 4), pod("p", gpus=1))
    assert settle(made, most_rounds=1) == Rest(is_at_rest=False, rounds=1, passed_s=0)


def test_a_gang_below_its_minimum_goes_after_its_grace_time() -> None:
    gang = [pod(name, gpus=1, group="g", bound_to="n1", owner=JOB) for name in ("a", "b")]
    made = shell(node("n1", 4), pod_group("g", 3), *gang)
    rest = settle(made)
    assert places(made) == {"a": "", "b": ""}
    assert (rest.is_at_rest, made.evictions) == (True, 2)
    assert 60 <= rest.passed_s <= LONGEST_S
    assert made.wall_s == WALL_S + rest.passed_s


def test_a_gang_that_is_completed_in_time_stays() -> None:
    gang = [pod("a", gpus=1, group="g", bound_to="n1", owner=JOB), pod("b", gpus=1, group="g")]
    made = shell(node("n1", 4), pod_group("g", 2), *gang)
    assert settle(made).is_at_rest
    assert (places(made), made.evictions) == ({"a": "n1", "b": "n1"}, 0)
