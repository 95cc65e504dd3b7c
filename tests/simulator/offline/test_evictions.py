"""What preemption reads changes with evictions."""

from __future__ import annotations

from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_class import Requirement
from scheduler.core.model.preemption import Budget, Evicted, RoomFacts
from scheduler.core.model.records import PodRecord
from simulator.offline.shell import Evictions
from tests.scheduler.core.objects import cluster, node, pod

SELECTOR = (Requirement("app", "In", ("web",)),)


def with_budget(allowed: int) -> Cluster:
    made = cluster(node("n1"), pod("p", labels={"app": "web"}, bound_to="n1"), pod("q", labels={"app": "web"}))
    budget = Budget(namespace="ns", name="b", selector=SELECTOR, allowed=allowed)
    made.note_room_facts(RoomFacts(version=7, budgets=(budget,), labels={"uid-p": {"app": "web"}}))
    return made


def record(made: Cluster, uid: str) -> PodRecord:
    found = made.pod(uid)
    assert found is not None
    return found


def allowed(made: Cluster) -> int:
    return made.snapshot().room_facts.budgets[0].allowed


def test_a_budget_has_one_less_until_the_successor_runs() -> None:
    made = with_budget(1)
    known = Evictions(made)
    assert known.is_allowed(record(made, "uid-p"))
    known.evicted(record(made, "uid-p"), "owner", wall_s=100, successor="uid-q")
    known.gone("uid-p")
    known.note()
    facts = made.snapshot().room_facts
    assert (allowed(made), dict(facts.evicted), dict(facts.labels)) == (0, {"owner": Evicted(1, 100)}, {})
    assert not known.is_allowed(record(made, "uid-q"))
    known.started(record(made, "uid-q"))
    known.note()
    facts = made.snapshot().room_facts
    assert (allowed(made), dict(facts.labels)) == (1, {"uid-q": {"app": "web"}})
    assert facts.version > 7


def test_a_pod_that_nothing_makes_again_disturbs_its_budget_for_good() -> None:
    made = with_budget(2)
    known = Evictions(made)
    known.evicted(record(made, "uid-p"), "owner", wall_s=100, successor="")
    known.note()
    assert allowed(made) == 1


def test_nothing_is_told_where_nothing_has_changed() -> None:
    made = with_budget(1)
    known = Evictions(made)
    known.note()
    before = made.generation
    known.note()
    assert made.generation == before
