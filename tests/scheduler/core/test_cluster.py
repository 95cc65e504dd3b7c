"""Pods that are gone are known to be gone for as long as anything may still speak of them, and then forgotten."""

from __future__ import annotations

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain
from tests.scheduler.core.footprint import sizes
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import (
    NANO,
    bind_request,
    changed,
    cluster,
    ended,
    feed,
    free_gpus,
    node,
    pod,
    pod_group,
    reservation,
)

WAITS = pod("w", gpus=2)
RUNS = pod("r", gpus=2, bound_to="n1")
UID = "uid-r"


def _periods_end(made: Cluster, count: int) -> None:
    for _ in range(count):
        made.forget_gone()


@pytest.mark.parametrize("ends", range(3))
def test_an_answer_that_comes_after_the_deletion_brings_nothing_back_for_two_periods(ends: int) -> None:
    made = cluster(node(), RUNS)
    made.remove_pod(UID)
    _periods_end(made, ends)
    feed(made, changed(RUNS))
    assert free_gpus(made) == 8


@pytest.mark.parametrize("how", ["deleted", "ended", "reserved"])
def test_after_a_third_period_nothing_is_left_of_it(how: str) -> None:
    held = reservation("g", "n1")
    made = cluster(node(), RUNS, held)
    if how == "ended":
        feed(made, ended(RUNS))
    else:
        made.remove_pod(UID if how == "deleted" else held.metadata.uid)
    assert len(made._pods.gone) == 1
    _periods_end(made, 3)
    assert len(made._pods.gone) == 0


def test_of_pods_that_were_never_known_nothing_is_kept() -> None:
    made = cluster(node(), *(ended(pod(f"job-{i}", gpus=1, bound_to="n1")) for i in range(50)))
    for i in range(50):
        made.remove_pod(f"uid-other-{i}")
    assert len(made._pods.gone) == 0


@pytest.mark.parametrize("is_known_first", [True, False])
def test_of_a_pod_that_is_gone_only_its_hand_over_tells_as_long_as_it_is_there(*, is_known_first: bool) -> None:
    request = bind_request(WAITS, "n1", ("g", NANO // 2))
    made = cluster(node(), *([WAITS] if is_known_first else []), request)
    if is_known_first:
        made.remove_pod("uid-w")
    else:
        feed(made, ended(WAITS))
    _periods_end(made, 20)
    assert (free_gpus(made), len(made._pods.gone)) == (7, 0)
    made.remove_bind_request("ns", "w")
    made.commits.forget_departed("uid-w")
    assert free_gpus(made) == 8


def test_a_pod_that_finds_no_room_says_so_of_the_nodes_that_are_still_there() -> None:
    made = cluster(node("n1", gpus=1), node("n2", gpus=1), WAITS)
    assert _nodes_told(made) == 2
    made.remove_node("n2")
    assert _nodes_told(made) == 1


def test_nothing_is_kept_of_the_devices_of_nodes_that_are_gone() -> None:
    """A cluster that is autoscaled has nodes of ever new names, and most of them have no devices."""
    made = cluster(node("n1"), offered("n1"), GPU, claimed("o", on=("n1", "d0")), claimed("c"), claiming("p", "c"))
    made.decide(0)
    inventory = made.claims.inventory
    before = sizes(inventory)
    for number in range(5):
        feed(made, node(f"passing-{number}"))
        made.decide(number)
        assert sizes(inventory) != before
        made.remove_node(f"passing-{number}")
    assert sizes(inventory) == before


def _nodes_told(made: Cluster) -> int:
    (told,) = made.decide(0).entries
    assert isinstance(told, Explain)
    return sum(reason.nodes for reason in told.verdict.node_reasons)


def test_a_list_of_pod_groups_brings_those_on_it_and_takes_all_others() -> None:
    made = cluster(pod_group("old", 2))
    made.replace_pod_groups([pod_group("new", 3)])
    new = made.pod_group("ns", "new")
    assert new is not None
    assert new.minimum == 3
    assert made.pod_group("ns", "old") is None


def test_it_is_decided_when_another_decision_would_do_nothing() -> None:
    made = cluster(node(gpus=1), pod("w", gpus=2))
    assert not made.is_decided(0)
    made.decide(0)
    assert made.is_decided(0)
    feed(made, pod("v", gpus=1))
    assert not made.is_decided(0)
    assert made.decide(0).entries
    assert not made.is_decided(0)  # what was placed is not charged yet
