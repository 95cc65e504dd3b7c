"""A pod that asks more than any node has in all fits nowhere, with all other pods gone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.nodes.ledger import Capacity
from tests.scheduler.core.nodes.test_nominated_usage import running
from tests.scheduler.core.objects import NANO, Fed, cluster, feed, node, pod, queue
from tests.scheduler.core.preemption.scenes import Scene, device, need_of, sharing, trial_of, waiting


def may_hold(made: Cluster, **asked: Any) -> bool:
    feed(made, pod("mine", **asked))
    ledger = made.refresh()
    return Capacity.of(ledger).may_hold(ledger, made.snapshot().pods.records["uid-mine"].cls)


@pytest.mark.parametrize(
    ("asked", "may"),
    [
        ({"gpus": 4}, True),
        ({"gpus": 5}, False),
        ({"cpu": "40"}, True),
        ({"cpu": "41"}, False),
        ({"gpus": 1, "cpu": "40"}, False),
        ({"fraction": "0.5", "devices": 8}, True),
        ({"fraction": "0.6", "devices": 4}, True),
        ({"fraction": "0.6", "devices": 5}, False),
        ({"gpus": 1, "extended": {"example.com/nic": "2"}}, True),
        ({"gpus": 1, "extended": {"example.com/nic": "3"}}, False),
        ({"gpus": 1, "extended": {"example.com/none": "1"}}, False),
        ({"cpu": "9" * 17}, False),
    ],
)
def test_one_node_has_to_have_all_that_is_asked_whoever_uses_it(asked: dict[str, Any], may: bool) -> None:
    made = cluster(node("n1", 4, cpu="32", extended={"example.com/nic": "2"}), node("n2", 0, cpu="40"))
    feed(made, running("v", 4))
    assert may_hold(made, **asked) is may


def test_devices_that_are_shared_count_though_their_node_reports_no_gpus() -> None:
    shares: list[Fed] = [device("g", "n1", x=NANO // 2), sharing("x", "", "n1", "g", NANO // 2)]
    assert may_hold(cluster(node("n1", 0), *shares), fraction="0.5")


def test_it_is_another_one_when_a_node_has_more_or_less_and_not_when_pods_come_and_go() -> None:
    made = cluster(node("n1", 4), queue("a"))
    known = Capacity.of(made.refresh())
    feed(made, running("v", 3), pod("w", gpus=9))
    made.remove_pod("uid-v")
    assert Capacity.of(made.refresh(), known) is known
    versions = [known.version]
    for changed in (node("n1", 3), node("n1", 4), node("n2", 1), node("n1", 4, extended={"example.com/nic": "1"})):
        feed(made, changed)
        known = Capacity.of(made.refresh(), known)
        versions.append(known.version)
    assert versions == [0, 1, 2, 3, 4]


@given(st.integers(0, 1 << 32), st.integers(1, 4))
def test_what_no_capacity_holds_the_placer_places_nowhere_though_all_have_gone(seed: int, gpus: int) -> None:
    made = Scene(seed).cluster()
    feed(made, queue("free"), waiting("large", "free", gpus=gpus))
    trial = trial_of(made)
    need, ledger = need_of(trial, "large"), made.refresh()
    trial.statement.evict(*(each for each in trial.pods.records.values() if each.node))
    may = Capacity.of(ledger).may_hold(ledger, need.pods[0].cls)
    # On nodes without rules the sums are exact for whole GPUs.
    assert (trial.paper.place(need) is not None) is may
