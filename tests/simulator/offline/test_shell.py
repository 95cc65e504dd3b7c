"""Plans are carried out at once, and what was under way arrives."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core.model.plan import Evict, Plan, Retire
from scheduler.core.model.preemption import Action, Nomination, Place, Victim
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import bind_request, bound, ended, node, pod, pod_group, reservation
from tests.simulator.offline.given import JOB, places, shell, tenants

HALF = 10**9 // 2


def victim(name: str, owner: str = "o") -> Victim:
    return Victim(pod_uid=f"uid-{name}", namespace="ns", name=name, node="n1", owner=owner)


def test_a_pod_on_its_way_arrives_and_one_that_is_terminating_ends() -> None:
    p = pod("p", fraction="0.5")
    made = shell(
        node("n1", 2), p, bind_request(p, "n1", ("g", HALF)), pod("q", gpus=1, bound_to="n1", deleting=True, owner=JOB)
    )
    made.finish_what_is_under_way()
    assert places(made) == {"p": "n1"}
    assert made.cluster.commits.are_settled
    assert made.cluster.validate() == []


def test_victims_of_a_decision_that_stands_go_and_come_again() -> None:
    made = shell(
        node("n1", 2),
        pod("v", gpus=2, bound_to="n1", owner=JOB),
        pod("p", gpus=2, priority=5),
        settings=Settings(),
    )
    nomination = Nomination(
        id="i", action=Action.PREEMPT, namespace="ns", places=(Place("uid-p", "n1"),), victims=(victim("v"),)
    )
    made.cluster.commits.nominations.put(nomination)
    made.finish_what_is_under_way()
    assert (places(made), made.evictions) == ({"p": "", "v": ""}, 1)
    assert made.current["uid-v"] == "uid-v~1"
    assert made.cluster.snapshot().room_facts.evicted["o"].times == 1
    made.carry_out(made.cluster.decide(10**9, wall_s=made.wall_s))
    assert places(made)["p"] == "n1"


def test_a_retired_reservation_is_gone() -> None:
    made = shell(node("n1", 1), reservation("g"), pod("p", gpus=1))
    assert made.carry_out(Plan(entries=(Retire("r-g", "uid-p"),)))
    assert tenants(made) == {}


def evict(*names: str) -> Plan:
    entry = Evict(pod_group=("ns", "g"), pod_group_uid="pg-g", pods=tuple(map(victim, names)), minimum=2, short=None)
    return Plan(entries=(entry,))


GANG = (pod_group("g", 2), pod("a", gpus=1, group="g", bound_to="n1", owner=JOB))


@pytest.mark.parametrize(
    ("objects", "does"),
    [
        (GANG, True),
        # A gang of which a pod has succeeded is at its end.
        ((*GANG, ended(pod("b", gpus=1, group="g", bound_to="n1"))), False),
    ],
)
def test_what_is_left_of_a_gang_is_evicted_unless_it_is_at_its_end(objects: tuple[object, ...], does: bool) -> None:
    made = shell(node("n1", 2), *objects)
    assert made.carry_out(evict("a")) is does
    assert places(made)["a"] == ("" if does else "n1")


def test_a_pod_has_what_its_placement_says_and_leaves_it_when_it_is_drained() -> None:
    there = bound(pod("q", fraction="0.5", owner=JOB), "n1", ("g", HALF), reservation="r-g", uuid="GPU-1")
    made = shell(node("n1", 1), node("n2", 1), reservation("g", book={"uid-q": HALF}), there, pod("p", fraction="0.5"))
    made.carry_out(made.cluster.decide(10**9))
    assert places(made) == {"p": "n1", "q": "n1"}
    assert tenants(made) == {"r-g": ["uid-p", "uid-q"]}
    record = made.cluster.pod("uid-p")
    assert record is not None
    assert [(held.group, held.nano, held.reservation) for held in record.held] == [("g", HALF, "r-g")]
    made.drain("n1")
    assert places(made) == {"q": ""}  # nothing makes p again
    assert (tenants(made), made.current["uid-p"], made.others_gone) == ({}, None, 0)
    assert made.cluster.validate() == []


def test_a_drain_leaves_daemons_and_takes_pods_of_other_schedulers() -> None:
    made = shell(
        node("n1", 2),
        pod("d", bound_to="n1", owner=("apps/v1", "DaemonSet")),
        pod("o", bound_to="n1", owner=JOB, scheduler="default-scheduler"),
    )
    made.drain("n1")
    assert (places(made), made.others_gone) == ({"d": "n1"}, 1)


def test_a_node_that_is_put_is_there_beside_the_others() -> None:
    made = shell(node("n1", 1), node("n2", 1))
    known = made.cluster.node("n1")
    assert known is not None
    made.put_node(msgspec.structs.replace(known, name="n3", uid="uid-n3"))
    assert made.cluster.node_names() == ["n1", "n2", "n3"]
