"""Needs that are placed on paper: as a decision places them, and without a trace."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Allowance
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.preemption_trial import room_trial
from scheduler.core.model.preemption import Place
from scheduler.core.model.priority_order import order_members
from scheduler.core.nodes.table import GPUS
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from scheduler.core.scheduling_queue.effects import Notes
from tests.scheduler.core.objects import cluster, node, pod, pod_group, queue, reservation
from wire import names

_LABELS = {names.QUEUE_LABEL: "a"}


def _trial(made: Cluster) -> Trial:
    snapshot = made.snapshot()
    allowance = Allowance(namespaces=1, most=LIMITS.most)
    return room_trial(Attempts(snapshot, 0, LIMITS, allowance, Notes(snapshot.backlog)), wall_s=0)


def _gang(trial: Trial, name: str = "g") -> Need:
    group = trial.pod_groups["ns", name]
    pods = order_members(pod for pod in trial.pods.members("ns", name) if not pod.node)
    return Need(pods=tuple(pods), group=group, quorum=trial.quorum(group), queue="a", priority=0)


def _on(places: Sequence[Place] | None) -> list[str] | None:
    return None if places is None else [place.node for place in places]


@pytest.mark.parametrize(("minimum", "nodes"), [(2, ["n1", "n1"]), (3, ["n1", "n1", "n2"]), (5, None)])
def test_of_a_gang_as_many_members_are_placed_as_its_minimum_needs(minimum: int, nodes: list[str] | None) -> None:
    members = [pod(f"p{at}", gpus=1, group="g", labels=_LABELS) for at in range(5)]
    trial = _trial(cluster(node("n1", 2), node("n2", 2), pod_group("g", minimum, queue="a"), *members, queue("a")))
    assert _on(trial.paper.place(_gang(trial))) == nodes


@pytest.mark.parametrize(("limit", "nodes"), [(2, ["n1", "n1"]), (1, None)])
def test_a_queue_that_takes_no_more_keeps_a_need_out(limit: int, nodes: list[str] | None) -> None:
    members = [pod(f"p{at}", gpus=1, group="g", labels=_LABELS) for at in range(2)]
    made = cluster(node("n1", 2), pod_group("g", 2, queue="a"), *members, queue("a", gpu=(0, 1, limit)))
    trial = _trial(made)
    assert _on(trial.paper.place(_gang(trial))) == nodes


@pytest.mark.parametrize(("fails", "starts"), ["xy", "yx"])
def test_a_subgroup_that_fits_in_part_uses_nothing_of_the_queue_when_another_one_is_placed(
    fails: str, starts: str
) -> None:
    sizes = {fails: 4, starts: 1}
    members = [
        pod(f"{name}{at}", gpus=gpus, group="g", subgroup=name, labels=_LABELS)
        for name, gpus in sizes.items()
        for at in range(2)
    ]
    group = pod_group("g", None, queue="a", subGroups=[{"name": name, "minMember": 2} for name in "xy"], minSubGroup=1)
    trial = _trial(cluster(node("n1", 5), group, *members, queue("a", gpu=(0, 1, 5))))
    places = trial.paper.place(_gang(trial))
    assert places is not None
    assert [place.pod_uid for place in places] == [f"uid-{starts}0", f"uid-{starts}1"]
    assert trial.accounts.of[0].held.gpu_nano == 2 * 10**9


def test_a_whole_gpu_may_be_one_that_an_idle_reservation_gives_back() -> None:
    made = cluster(node("n1", 1), reservation("x", "n1", book={}), pod("p", gpus=1, labels=_LABELS), queue("a"))
    trial = _trial(made)
    waiting = trial.pods.records["uid-p"]
    before, mark = trial.statement.table.free[GPUS].tolist(), trial.statement.checkpoint()
    assert trial.paper.place(Need(pods=(waiting,), queue="a", priority=0)) == (Place("uid-p", "n1"),)
    assert trial.accounts.of[0].held.gpu_nano == 10**9
    trial.statement.rollback(mark)
    assert trial.statement.table.free[GPUS].tolist() == before


def test_what_is_placed_on_paper_teaches_the_decision_nothing() -> None:
    made = cluster(node("n1", 1), pod("p", gpus=2, labels=_LABELS), queue("a"))
    snapshot = made.snapshot()
    attempts = Attempts(snapshot, 0, LIMITS, Allowance(namespaces=1, most=LIMITS.most), Notes(snapshot.backlog))
    trial = room_trial(attempts, wall_s=0)
    need = Need(pods=(trial.pods.records["uid-p"],), queue="a", priority=0)
    assert trial.paper.place(need) is None
    assert (
        attempts.classes.hopeless,
        attempts.classes.roomless,
        attempts.classes.fitting,
        list(attempts.notes.taken),
    ) == ({}, {}, set(), [])
