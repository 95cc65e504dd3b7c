"""One record of attempts a pod, found by pod and by node; nothing is left of it once the pod is bound or gone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.assumed.attempts import NONE_YET, AttemptTable, Flight, Setback, State
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Bind, Explain, Placement
from scheduler.core.model.records import BindRequestRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, NodeReason
from scheduler.core.nodes.node_usage import Charge
from tests.scheduler.core.footprint import sizes
from tests.scheduler.core.objects import NANO, bound, cluster, commit, feed, node, pod, reservation

SETTINGS = Settings(back_off_ns=10, longest_back_off_ns=100, exclusion_ns=1000, longest_exclusion_ns=5000)


@pytest.mark.parametrize(
    ("failures", "waits_ns", "excluded_ns"),
    [(1, 10, 1000), (2, 20, 2000), (3, 40, 4000), (4, 80, 5000), (99, 100, 5000)],
)
def test_each_failure_waits_twice_as_long_up_to_the_longest(failures: int, waits_ns: int, excluded_ns: int) -> None:
    setback = Setback()
    for _ in range(failures):
        setback.fail("n1", "why", now_ns=0, settings=SETTINGS)
    assert setback.until_ns == waits_ns
    assert setback.excluded_at(excluded_ns - 1) == ("n1",)
    assert setback.excluded_at(excluded_ns) == ()


def test_a_pod_whose_attempt_failed_waits_then_goes_elsewhere_and_in_the_end_may_come_back() -> None:
    made = cluster(node("n1"), node("n2"), pod(gpus=1), settings=SETTINGS)
    made.commits.failed("uid-p", "n1", "the device did not come", now_ns=0)
    waiting = made.decide(5)
    assert waiting.wake_at_ns == 10
    assert isinstance(waiting.entries[0], Explain)
    assert waiting.entries[0].verdict.code is Code.BACKING_OFF
    assert waiting.entries[0].verdict.detail == "the device did not come"
    elsewhere = made.decide(10)
    assert isinstance(elsewhere.entries[0], Bind)
    assert elsewhere.entries[0].placement.node == "n2"
    assert elsewhere.wake_at_ns == 1000
    back = made.decide(1000)
    assert isinstance(back.entries[0], Bind)
    assert back.entries[0].placement.node == "n1"
    assert back.wake_at_ns is None


def test_a_node_that_refused_pods_like_it_is_out_and_the_pod_does_not_wait() -> None:
    made = cluster(node("n1"), node("n2"), pod(gpus=1), settings=SETTINGS)
    made.commits.keep_off("uid-p", "n1", 2, now_ns=0)
    for now_ns, at in ((0, "n2"), (1999, "n2"), (2000, "n1")):
        (entry,) = made.decide(now_ns).entries
        assert isinstance(entry, Bind)
        assert entry.placement.node == at
    made.commits.keep_off("uid-gone", "n1", 1, now_ns=0)
    assert made.commits.setback("uid-gone") is None


def test_a_node_that_is_out_is_named_among_the_reasons() -> None:
    made = cluster(node("n1"), pod(gpus=1), settings=SETTINGS)
    made.commits.failed("uid-p", "n1", "", now_ns=0)
    entry = made.decide(10).entries[0]
    assert isinstance(entry, Explain)
    assert entry.verdict.node_reasons == (NodeReason("excluded", "", 1),)


def test_an_excluded_pod_does_not_condemn_its_class() -> None:
    made = cluster(node("n1"), pod("a", gpus=1), pod("b", gpus=1), settings=SETTINGS)
    made.commits.failed("uid-a", "n1", "", now_ns=0)
    plan = made.decide(10)
    assert [entry.placement.pod_uid for entry in plan.entries if isinstance(entry, Bind)] == ["uid-b"]


def test_a_failure_that_is_not_the_nodes_fault_excludes_nothing() -> None:
    made = cluster(node("n1"), pod(gpus=1), settings=SETTINGS)
    made.commits.failed("uid-p", "", "somebody changed the pod", now_ns=0)
    assert isinstance(made.decide(10).entries[0], Bind)


def test_a_pod_that_got_bound_after_all_has_no_history() -> None:
    waiting = pod(gpus=1)
    made = cluster(node("n1"), waiting, settings=SETTINGS)
    made.commits.failed("uid-p", "n1", "", now_ns=0)
    feed(made, bound(waiting, "n1"))
    made.commits.failed("uid-p", "n1", "", now_ns=0)
    assert made.setback("uid-p") is None


def test_a_pod_that_is_changed_too_often_to_be_bound_is_tried_again_at_once_only_a_few_times() -> None:
    made = cluster(node("n1"), pod(gpus=1), settings=SETTINGS)
    for _ in range(SETTINGS.free_overtakings):
        made.commits.overtaken("uid-p", "PodChanged: all the time", now_ns=0)
        assert isinstance(made.decide(0).entries[0], Bind)
    made.commits.overtaken("uid-p", "PodChanged: all the time", now_ns=0)
    waiting = made.decide(0)
    assert waiting.wake_at_ns == SETTINGS.back_off_ns
    assert isinstance(waiting.entries[0], Explain)
    assert waiting.entries[0].verdict.detail.startswith("PodChanged")
    assert isinstance(made.decide(SETTINGS.back_off_ns).entries[0], Bind)


_OF_ATTEMPTS = ("_attempts", "_flights", "hand_overs")
_PODS, _NODES = ("a", "b", "c"), ("n1", "n2", "")


def _own(uid: str, at: str) -> Flight:
    placement = Placement(pod_uid=uid, namespace="ns", name=uid, rv="1", node=at)
    charge = Charge(pod_uid=uid, node=at, demand=None, devices=())
    return Flight(placement=placement, state=State.DIRECT, charge=charge)


def _departed(uid: str, at: str) -> BindRequestRecord:
    return BindRequestRecord(namespace="ns", name=uid, uid="", pod_uid=uid, node=at, rv="1")


def _kept(made: Cluster) -> dict[str, int]:
    """How much is kept of attempts and hand-overs, by where."""
    found = sizes(made.commits)
    return {path: count for path, count in found.items() if path.split(".")[1] in _OF_ATTEMPTS and "_pods" not in path}


@given(st.lists(st.tuples(st.sampled_from(_PODS), st.sampled_from(_NODES), st.integers(0, 5)), max_size=30))
def test_whatever_is_changed_all_ways_to_a_record_agree(steps: list[tuple[str, str, int]]) -> None:
    table = AttemptTable()
    model: dict[str, dict[str, Any]] = {uid: {} for uid in _PODS}
    for uid, at, kind in steps:
        fields: dict[str, Any] = (
            {"own": _own(uid, at or "n3")},
            {"own": None},
            {"departed": _departed(uid, at)},
            {"departed": None},
            {"next_number": 3},
            {"next_number": 0, "opens": (), "awaits": ()},
        )[kind]
        table.change(uid, **fields)
        model[uid] |= fields
    own = [each for uid in _PODS if (each := model[uid].get("own")) is not None]
    departed = [each for uid in _PODS if (each := model[uid].get("departed")) is not None]
    assert table.own() == tuple(own)
    assert table.departed() == tuple(departed)
    for at in ("n1", "n2", "n3"):
        assert sorted(f.placement.pod_uid for f in table.own_at(at)) == [
            f.placement.pod_uid for f in own if f.placement.node == at
        ]
        assert sorted(r.pod_uid for r in table.departed_at(at)) == [r.pod_uid for r in departed if r.node == at]
    for uid in _PODS:
        record = table.of(uid)
        assert (record.own, record.departed) == (model[uid].get("own"), model[uid].get("departed"))
        assert record.next_number == model[uid].get("next_number", 0)
        assert (record is NONE_YET) == record.is_empty


@given(st.randoms(use_true_random=False))
def test_nothing_is_left_of_pods_that_are_bound_or_gone(rng: random.Random) -> None:
    """Whatever became of their attempts, as soon as no reservation may come for them."""
    made = cluster(node(), node("n2"))
    empty = _kept(made)
    pods = [pod(f"p{number}", fraction=rng.choice(["0.5", "0.3"])) for number in range(4)]
    feed(made, *pods)
    for _ in range(rng.randint(1, 3)):
        commit(made, made.decide(10**18))
        for each in pods:
            uid, flight = each.metadata.uid, made.commits.flight(each.metadata.uid)
            if flight is not None and rng.random() < 0.4:
                made.commits.failed(uid, "n1", "why", now_ns=0)
                made.commits.release(uid, attempt=flight.placement.number)
            elif flight is not None and rng.random() < 0.3:
                made.commits.break_off(flight.placement)
    for each in pods:
        if rng.random() < 0.5:
            feed(made, bound(each, "n1", ("g", 3 * NANO // 10)))
        else:
            made.remove_pod(each.metadata.uid)
            made.commits.forget_departed(each.metadata.uid)
    feed(made, reservation("g"))
    assert _kept(made) == empty
