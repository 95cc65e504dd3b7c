"""One record of attempts a pod, found by pod and by node; nothing is left of it once the pod is bound or gone."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.assumed.attempts import NONE_YET, AttemptTable, Flight, State
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import BindRequestRecord
from scheduler.core.nodes.node_usage import Charge
from tests.scheduler.core.footprint import sizes
from tests.scheduler.core.objects import NANO, bound, cluster, commit, feed, node, pod, reservation

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
