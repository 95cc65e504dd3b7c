"""Nodes that owe an answer come last for shares that would wait for it, and nobody else notices anything."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.model.plan import Alone, Attempt, Explain, Gang, Hold, Withdraw
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import NodeReason
from tests.scheduler.core.objects import NANO, bound, changed, cluster, commit, feed, node, pod, pod_group, reservation
from tests.values import there
from wire import names
from wire.core import ContainerState, ContainerStatus, Pod

HALF = NANO // 2
LATE, GOOD = "a-late", "b-good"


def _where(made: Cluster) -> dict[str, str]:
    """Where the pods that wait go now: "kind node" by name."""
    placed = [entry for entry in made.decide(0).entries if isinstance(entry, Alone)]
    return {e.placement.name: f"{type(e).__name__} {e.placement.node}" for e in placed}


def _moved(made: Cluster) -> list[str]:
    return [entry.placement.name for entry in made.decide(0).entries if isinstance(entry, Withdraw)]


def _asked(group: str, **fields: Any) -> Pod:
    """A reservation on the late node that has not said yet which device it holds."""
    return reservation(group, LATE, uuid="", uid="asked", **fields)


def _answer(asked: Pod) -> Pod:
    return changed(asked, annotations={**(asked.metadata.annotations or {}), names.RESERVE_FOR_GPU_INDEX: "GPU-9"})


def _proof(free: int = 0) -> tuple[Pod, Pod]:
    """A device that is known on the good node, and its tenant: with ``free`` nano left."""
    tenant = pod("tenant", fraction="0.5", bound_to=GOOD)
    held = reservation("known", GOOD, book={"uid-tenant": NANO - free}, uuid="GPU-1", uid="r-known")
    return held, bound(tenant, GOOD, ("known", NANO - free), reservation="r-known", uuid="GPU-1")


def _waiting(*others: Any, gpus: int = 2, settings: Settings | None = None) -> tuple[Cluster, Pod]:
    """Two halves wait for a device of the late node: one is at the binder, one is held. And the reservation."""
    halves = (pod("p1", fraction="0.5"), pod("p2", fraction="0.5"))
    made = cluster(node(LATE, gpus=gpus), *halves, settings=settings)
    plan = made.decide(0)
    assert [type(entry) for entry in plan.entries] == [Attempt, Hold]
    commit(made, plan)
    flight = there(made.commits.flight("uid-p1"))
    asked = _asked(flight.placement.devices[0].group, book={"uid-p1": HALF})
    feed(made, *others, asked)
    return made, asked


# --- late --------------------------------------------------------------------------------------------------------
def test_who_waits_for_a_late_node_is_moved_to_where_nothing_is_owed() -> None:
    made, _ = _waiting(node(GOOD, gpus=2), *_proof())
    assert _moved(made) == []
    assert made.commits.late("asked")
    assert _moved(made) == ["p1", "p2"]


def test_those_whom_a_decision_has_nothing_left_to_look_for_stay_and_keep_nobody_busy() -> None:
    made = cluster(node(LATE), pod("p1", fraction="0.5"), pod("p2", fraction="0.4"))
    commit(made, made.decide(0))
    flight = there(made.commits.flight("uid-p1"))
    feed(made, node(GOOD, gpus=1), *_proof(), _asked(flight.placement.devices[0].group, book={"uid-p1": HALF}))
    made.commits.late("asked")
    assert made.doubts()
    assert made.decide(0, Limits(most=1)).wake_at_ns is None


def test_no_more_are_moved_than_there_is_room_for() -> None:
    made, _ = _waiting(node(GOOD, gpus=1), *_proof(free=HALF))
    made.commits.late("asked")
    assert _moved(made) == ["p1"]


def test_who_came_later_and_finds_room_has_it_before_those_who_are_moved() -> None:
    made, _ = _waiting(node(GOOD, gpus=1), *_proof(free=HALF))
    made.commits.late("asked")
    feed(made, pod("new", fraction="0.5"))
    assert _where(made) == {"new": f"Join {GOOD}"}
    assert _moved(made) == []


def test_nobody_is_late_where_all_are_slow_alike() -> None:
    made, _ = _waiting(node(GOOD, gpus=2))
    made.commits.late("asked")
    assert _moved(made) == []
    feed(made, pod("new", fraction="0.5"))
    assert _where(made) == {"new": f"Attempt {LATE}"}


@pytest.mark.parametrize("changes", [{"phase": "Failed"}, {"deleting": True}, {"uuid": "GPU-9"}], ids=str)
def test_a_reservation_that_owes_nothing_is_not_late(changes: dict[str, Any]) -> None:
    made = cluster(node(LATE), node(GOOD), *_proof())
    feed(made, reservation("g", LATE, **{"uuid": "", **changes}, uid="asked"))
    assert not made.commits.late("asked")
    assert made.doubts() == {}


def test_a_kubelet_that_pulls_the_image_is_at_work() -> None:
    made, asked = _waiting(node(GOOD, gpus=2), *_proof())
    waiting = ContainerState(waiting={"reason": "ContainerCreating"})
    pulling = msgspec.structs.replace(
        asked.status, phase="Pending", container_statuses=[ContainerStatus(name="main", state=waiting)]
    )
    feed(made, changed(msgspec.structs.replace(asked, status=pulling)))
    assert not made.commits.late("asked")
    assert _moved(made) == []


def test_nothing_is_late_any_more_when_it_answered() -> None:
    made, asked = _waiting(node(GOOD, gpus=2), *_proof())
    made.commits.late("asked")
    feed(made, _answer(asked))
    assert _moved(made) == []
    assert made.doubts() == {}


def test_a_late_node_comes_after_all_others_for_a_new_share() -> None:
    made, _ = _waiting(node(GOOD, gpus=2), *_proof())
    feed(made, pod("new", fraction="0.5"))
    assert _where(made)["new"] == f"Attempt {LATE}"
    made.commits.late("asked")
    assert _where(made)["new"] == f"Attempt {GOOD}"


def test_a_late_node_is_taken_where_there_is_no_other() -> None:
    made, _ = _waiting(node(GOOD, gpus=1), *_proof())
    made.commits.late("asked")
    feed(made, pod("new", fraction="0.5"))
    assert _where(made) == {"new": f"Attempt {LATE}"}
    assert _moved(made) == []


def test_known_devices_of_a_late_node_are_joined_as_ever() -> None:
    made, _ = _waiting(node(GOOD, gpus=2), *_proof())
    tenant = bound(pod("old", fraction="0.5", bound_to=LATE), LATE, ("here", HALF), reservation="r-here", uuid="GPU-2")
    feed(made, reservation("here", LATE, book={"uid-old": HALF}, uuid="GPU-2", uid="r-here"), tenant)
    made.commits.late("asked")
    feed(made, pod("new", fraction="0.5"))
    assert _where(made)["new"] == f"Join {LATE}"


def test_whole_gpus_ask_nothing_of_a_reservation() -> None:
    made, _ = _waiting(node(GOOD, gpus=8), *_proof())
    made.commits.late("asked")
    feed(made, pod("whole", gpus=1))
    assert _where(made)["whole"] == f"Bind {LATE}"


# --- being moved -------------------------------------------------------------------------------------------------
def _move_all(made: Cluster, now_ns: int = 0) -> list[str]:
    moved = [entry.placement for entry in made.decide(now_ns).entries if isinstance(entry, Withdraw)]
    for placement in moved:
        made.commits.move_on(placement, now_ns=now_ns)
    return [placement.name for placement in moved]


def test_one_that_was_held_is_placed_at_once_and_one_at_the_binder_when_it_is_withdrawn() -> None:
    made, _ = _waiting(node(GOOD, gpus=2), *_proof())
    made.commits.late("asked")
    assert _move_all(made) == ["p1", "p2"]
    assert _where(made) == {"p2": f"Attempt {GOOD}"}
    assert _moved(made) == []
    made.commits.release("uid-p1", attempt=0)
    assert set(_where(made)) == {"p1", "p2"}
    assert made.validate() == []


def test_a_pod_is_moved_only_so_often() -> None:
    settings = Settings(most_moves=0)
    made, _ = _waiting(node(GOOD, gpus=2), *_proof(), settings=settings)
    made.commits.late("asked")
    assert _moved(made) == []


def test_an_older_placement_is_not_taken_for_the_one_under_way() -> None:
    made, _ = _waiting(node(GOOD, gpus=2), *_proof())
    made.commits.late("asked")
    (first, _) = [entry.placement for entry in made.decide(0).entries if isinstance(entry, Withdraw)]
    made.commits.move_on(msgspec.structs.replace(first, number=7), now_ns=0)
    assert _moved(made) == ["p1", "p2"]


def test_one_that_may_not_go_where_there_is_room_does_not_keep_the_others() -> None:
    made, _ = _waiting(node(GOOD, gpus=2), *_proof())
    made.commits.late("asked")
    made.commits.failed("uid-p1", GOOD, "ReservationSilent", now_ns=0)
    assert _moved(made) == ["p2"]


# --- on probation ------------------------------------------------------------------------------------------------
def test_a_node_on_probation_is_tried_by_one_at_a_time_and_the_others_are_told() -> None:
    made = cluster(node(LATE, gpus=4), pod("p1", fraction="0.5"), pod("p2", fraction="0.5"))
    made.commits.probation.fail(LATE)
    plan = made.decide(0)
    assert _where(made) == {"p1": f"Attempt {LATE}"}
    (told,) = [entry for entry in plan.entries if isinstance(entry, Explain)]
    assert (told.pods, told.verdict.node_reasons) == (("uid-p2",), (NodeReason("probation", "", 1),))


def test_while_the_probe_is_under_way_nobody_else_is_sent_there() -> None:
    made = cluster(node(LATE, gpus=4), pod("p1", fraction="0.5"))
    made.commits.probation.fail(LATE)
    commit(made, made.decide(0))
    feed(made, pod("p2", fraction="0.5"))
    assert _where(made) == {}
    made.commits.release("uid-p1", attempt=0)
    assert _where(made) == {"p1": f"Attempt {LATE}"}


def test_the_probes_answer_ends_the_probation() -> None:
    made, asked = _waiting(gpus=4)
    made.commits.probation.fail(LATE)
    feed(made, pod("p3", fraction="0.5"), pod("p4", fraction="0.5"))
    assert _where(made) == {}
    feed(made, _answer(asked))
    assert _where(made) == {"p3": f"Attempt {LATE}", "p4": f"Hold {LATE}"}


def test_a_gang_that_needs_several_devices_of_the_node_is_one_probe() -> None:
    members = [pod(f"g{number}", fraction="0.7", group="gang") for number in range(3)]
    made = cluster(node(LATE, gpus=4), pod_group("gang", 3), *members, pod("p", fraction="0.7"))
    made.commits.probation.fail(LATE)
    entries = [entry for entry in made.decide(0).entries if isinstance(entry, (Gang, Attempt))]
    assert len(entries) == 1


def test_what_lacks_something_else_is_told_that() -> None:
    made = cluster(node(LATE, gpus=1), pod("p1", fraction="0.5"), pod("whole", fraction="0.9"))
    made.commits.probation.fail(LATE)
    (told,) = [entry for entry in made.decide(0).entries if isinstance(entry, Explain)]
    assert told.verdict.node_reasons == (NodeReason("insufficient", "gpu-share", 1),)


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_node_that_comes_back_is_trusted(is_removed: bool) -> None:
    made = cluster(node(LATE), node(GOOD), *_proof())
    made.commits.probation.fail(LATE)
    assert set(made.doubts()) == {LATE}
    if is_removed:
        made.remove_node(LATE)
    else:
        feed(made, node(LATE, ready=False))
        assert set(made.doubts()) == {LATE}
    feed(made, node(LATE))
    assert made.doubts() == {}


def test_an_answer_that_was_given_long_ago_proves_nothing() -> None:
    made = cluster(node(GOOD), *_proof())
    made.commits.probation.fail(GOOD)
    held, _ = _proof(free=HALF)
    feed(made, changed(held))
    assert set(made.doubts()) == {GOOD}


def test_with_doubts_a_decision_still_comes_out_the_same_twice() -> None:
    made, _ = _waiting(node(GOOD, gpus=2), *_proof())
    made.commits.late("asked")
    made.commits.probation.fail(GOOD)
    feed(made, pod("new", fraction="0.5"))
    first = made.decide(0)
    made.generation += 1
    assert made.decide(0) == first


def test_a_share_that_was_taken_back_stays_off_its_node_until_the_exclusion_is_over() -> None:
    made, asked = _waiting()
    flight = there(made.commits.flight("uid-p2"))
    made.commits.late(asked.metadata.uid)
    made.commits.move_on(flight.placement, now_ns=0)
    setback = there(made.setback("uid-p2"))
    assert (setback.moved, setback.failures, setback.excluded_at(1)) == (1, 0, (LATE,))
    assert made.commits.flight("uid-p2") is None


def test_a_node_that_answered_in_time_once_is_late_when_it_does_not_answer_again_and_another_does() -> None:
    """A node is late only beside one that is prompt; once its own time was over, it is none of those."""
    first, second = (reservation(name, LATE, uuid="", uid=name) for name in ("first", "second"))
    made = cluster(node(LATE), node(GOOD), first)
    feed(made, _answer(first), second)
    made.commits.late("second")
    assert made.doubts() == {}
    feed(made, reservation("known", GOOD, uuid="GPU-1", uid="r-known"))
    assert {name: doubt.name for name, doubt in made.doubts().items()} == {LATE: "LATE"}
    made.remove_node(LATE)
    assert made.doubts() == {}
