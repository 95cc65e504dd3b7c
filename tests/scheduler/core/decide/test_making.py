"""Needs for which room is made: who is searched for, when, in which order, and what comes of what is found."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.owners import identity
from scheduler.core.decide.allowance import LIMITS, Allowance, Limits
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.charging import Charging
from scheduler.core.decide.preemption_needs import gang_need, pod_need
from scheduler.core.model.plan import Nominate, Plan, placements
from scheduler.core.model.preemption import (
    Action,
    Evicted,
    Found,
    Moves,
    Nomination,
    NoVictims,
    Place,
    PreemptionFacts,
    Unit,
)
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.search import find_victims
from scheduler.core.preemption.trial import Trial
from scheduler.core.queues.reserved_nodes import NodeReserve, NodeReserves
from scheduler.core.scheduling_queue.effects import Effects
from tests.scheduler.core.nodes.test_nominated_usage import nomination, place, running, share
from tests.scheduler.core.objects import NANO, Fed, bound, commit, feed, node, pod, pod_group, queue, reservation
from tests.scheduler.core.stepping import at_once
from tests.values import there
from wire import names
from wire.core import OwnerReference, Pod

S = 1_000_000_000
MS = 1_000_000
HALF = NANO // 2
NO: NoVictims = NoVictims()


def in_queue(name: str) -> dict[str, str]:
    return {names.QUEUE_LABEL: name}


@dataclass
class Searches:
    """A search by the plainest rule, and what it was asked: pods of ``may_go`` go in this order until the need fits.

    ``by``: the action that finds somebody. ``asked``: pods and actions, in order.
    """

    may_go: list[str] = field(default_factory=list)
    by: Action = Action.RECLAIM
    answer: NoVictims = NO
    asked: list[tuple[str, Action]] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    def __call__(self, need: Need, trial: Trial, actions: Sequence[Action]) -> Found | NoVictims:
        self.asked += ((need.pods[0].name, action) for action in actions)
        self.trials.append(trial)
        mark = trial.statement.checkpoint(), trial.accounts.checkpoint()
        try:
            return self._found(need, trial, actions[0])
        finally:
            trial.statement.rollback(mark[0])
            trial.accounts.rollback(mark[1])

    def _found(self, need: Need, trial: Trial, action: Action) -> Found | NoVictims:
        units: list[Unit] = []
        names_of = [name for name in self.may_go if f"uid-{name}" not in trial.taken] if action is self.by else []
        for name in ["", *names_of]:
            if name and (victim := trial.pods.records.get(f"uid-{name}")) is not None:
                trial.statement.evict(victim)
                units.append(Unit(group=("ns", name), queue="", priority=0, is_core=True, pods=(victim.uid,)))
            mark = trial.statement.checkpoint(), trial.accounts.checkpoint()
            places = trial.paper.place(need.first(1))
            if places is not None:
                return Found(action=action, units=tuple(units), places=places)
            trial.statement.rollback(mark[0])
            trial.accounts.rollback(mark[1])
        return self.answer

    @property
    def needs(self) -> list[str]:
        return [name for name, action in self.asked if action is Action.RECLAIM]


def making(search: Callable[[Need, Trial, Sequence[Action]], Found | NoVictims], *objects: Fed) -> Cluster:
    made = Cluster(Settings(), find_victims=at_once(search))
    feed(made, *objects)
    return made


def nominations(plan: Plan) -> list[Nomination]:
    return [entry.nomination for entry in plan.entries if isinstance(entry, Nominate)]


def take(made: Cluster, plan: Plan) -> list[Nomination]:
    """Charge what a plan decides, as the shell does."""
    commit(made, plan)
    found = nominations(plan)
    for each in found:
        made.commits.nominations.put(each)
    return found


def gone(each: Nomination) -> list[str]:
    return [victim.name for victim in each.victims]


# --- what comes of it --------------------------------------------------------------------------------------------
def test_a_pod_that_fits_nowhere_has_room_made_and_the_nomination_names_all() -> None:
    made = making(Searches(["v"]), node(gpus=4), running("v", 3), pod("h", gpus=2))
    (found,) = nominations(made.decide(0))
    assert (found.id, found.action, found.namespace, found.pod_group) == ("uid-h-0", Action.RECLAIM, "ns", "")
    assert found.places == (Place("uid-h", "n1"),)
    (victim,) = found.victims
    assert (victim.pod_uid, victim.namespace, victim.name, victim.node) == ("uid-v", "ns", "v", "n1")
    said = made.scheduling_queue.said.verdict("uid-h")
    assert said == Verdict(code=Code.WAITS_FOR_VICTIMS, required=1, detail="n1")


def test_evictions_are_counted_by_the_group_or_by_who_made_the_pod_or_by_the_pod() -> None:
    made = making(Searches(["v", "w", "m"]), node(gpus=3), pod_group("g", 1), pod("h", gpus=3))
    feed(made, running("v", 1), bound(pod("w", gpus=1, owner=("apps/v1", "ReplicaSet")), "n1"))
    feed(made, bound(pod("m", gpus=1, group="g"), "n1"))
    (found,) = nominations(made.decide(0))
    replica_set = identity("ns", OwnerReference("apps/v1", "ReplicaSet", "o", "o"))
    assert [victim.owner for victim in found.victims] == ["uid-v", replica_set, "pg-g"]


def test_without_the_setting_nobody_is_searched_for() -> None:
    search = Searches(["v"])
    made = Cluster(Settings(preemption=False), find_victims=at_once(search))
    feed(made, node(gpus=4), running("v", 3), pod("h", gpus=2))
    assert (nominations(made.decide(0)), search.asked) == ([], [])


def test_a_pod_that_fits_is_not_searched_for() -> None:
    search = Searches(["v"])
    made = making(search, node(gpus=4), running("v", 2), pod("h", gpus=2))
    assert (nominations(made.decide(0)), search.asked) == ([], [])


def test_pods_of_one_shape_get_a_nomination_each_and_no_victim_goes_twice() -> None:
    pods = [pod(f"h{at}", gpus=2) for at in range(3)]
    made = making(Searches(["v", "w"]), node(gpus=4), running("v", 2), running("w", 2), *pods)
    found = take(made, made.decide(0))
    assert [(each.id, gone(each)) for each in found] == [("uid-h0-0", ["v"]), ("uid-h1-0", ["w"])]
    assert made.validate() == []


def test_what_one_victim_leaves_beside_its_nominee_is_used_before_another_has_to_go() -> None:
    pods = [pod(f"h{at}", gpus=1) for at in range(3)]
    search = Searches(["v", "w"])
    made = making(search, node(gpus=4), running("v", 2), running("w", 2), *pods)
    found = nominations(made.decide(0))
    assert [(each.id, gone(each)) for each in found] == [("uid-h0-0", ["v"]), ("uid-h2-0", ["w"])]


def test_a_pod_that_is_terminating_is_waited_for_before_anybody_is_evicted() -> None:
    made = making(Searches(["v"]), node(gpus=4), running("v", 2), bound(pod("t", gpus=2, deleting=True), "n1"))
    feed(made, pod("h", gpus=2), pod("k", gpus=2))
    assert [gone(each) for each in nominations(made.decide(0))] == [["v"]]


def test_a_pod_that_does_not_end_is_not_waited_for_for_ever() -> None:
    made = making(Searches(["v"]), node(gpus=4), running("v", 2), bound(pod("t", gpus=2, deleting=True), "n1"))
    feed(made, pod("h", gpus=2))
    assert nominations(made.decide(0)) == []
    made.count_again("n1")
    assert nominations(made.decide(119 * S)) == []
    made.count_again("n1")
    assert [gone(each) for each in nominations(made.decide(121 * S))] == [["v"]]


def test_a_pod_that_no_empty_node_holds_is_searched_for_once_until_a_node_has_more() -> None:
    search = Searches(["v"])
    made = making(search, node(gpus=4), running("w", 4), pod("h", gpus=6))
    for second in range(0, 20, 2):
        feed(made, running(f"x{second}", 0))
        assert take(made, made.decide(second * S)) == []
    assert search.needs == ["h"]
    feed(made, node("n2", gpus=6), bound(pod("v", gpus=6), "n2"))
    assert [gone(each) for each in take(made, made.decide(30 * S))] == [["v"]]
    assert search.needs == ["h", "h"]


def test_a_pod_that_an_empty_node_holds_is_searched_for_whenever_something_changed() -> None:
    search = Searches()
    made = making(search, node(gpus=4), running("w", 4), pod("h", gpus=4))
    for second in range(0, 20, 2):
        feed(made, running(f"x{second}", 0))
        made.decide(second * S)
    assert search.needs == ["h"] * 10


def test_nominees_of_a_standing_nomination_are_not_searched_for_again() -> None:
    search = Searches(["v", "w"])
    made = making(search, node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=2))
    take(made, made.decide(0))
    assert nominations(made.decide(2 * S)) == []
    assert search.needs == ["h"]


def test_the_next_nomination_of_a_pod_has_another_name() -> None:
    made = making(Searches(["v", "w"]), node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=2))
    (first,) = take(made, made.decide(0))
    made.commits.nominations.drop(first.id)
    (second,) = nominations(made.decide(2 * S))
    assert (first.id, second.id, second.number) == ("uid-h-0", "uid-h-1", 1)


# --- equal needs -------------------------------------------------------------------------------------------------
@dataclass
class Counted:
    """The search itself. ``together``: how many equal needs it was asked for each time."""

    together: list[int] = field(default_factory=list)

    def __call__(self, need: Need, trial: Trial, actions: Sequence[Action]) -> Found | NoVictims:
        self.together.append(len(need.all))
        return find_victims(need, trial, actions)


def owed(search: Counted, *objects: Fed, waiting: int, quota: int = 8) -> Cluster:
    """So many pods of one GPU wait in ``a``, whose quota is so much; whatever runs in ``b`` is above its own."""
    pods = [pod(f"h{at}", gpus=1, labels=in_queue("a")) for at in range(waiting)]
    return making(search, queue("a", gpu=(quota, 0, -1)), queue("b", gpu=(0, 1, -1)), *objects, *pods)


def of_b(name: str, on: str, **asked: Any) -> Pod:
    return bound(pod(name, labels=in_queue("b"), **asked), on)


def test_equal_pods_are_searched_for_at_once_and_each_has_its_own_victim_on_its_node() -> None:
    search = Counted()
    nodes = [node(f"n{at}", 1) for at in range(6)]
    made = owed(search, *nodes, *(of_b(f"x{at}", f"n{at}", gpus=1) for at in range(6)), waiting=6, quota=4)
    found = take(made, made.decide(0))
    assert search.together == [6, 2, 2]  # as many as are owed; then neither action helps those that are left
    assert [each.id for each in found] == [f"uid-h{at}-0" for at in range(4)]
    assert all(
        victim.node == place.node for each in found for victim, place in zip(each.victims, each.places, strict=True)
    )
    assert len({victim.pod_uid for each in found for victim in each.victims}) == 4
    assert made.validate() == []


def test_of_equal_pods_those_who_fit_beside_another_nominee_need_no_nomination() -> None:
    nodes = [node(f"n{at}", 2) for at in range(2)]
    made = owed(Counted(), *nodes, *(of_b(f"x{at}", f"n{at}", gpus=2) for at in range(2)), waiting=3)
    found = take(made, made.decide(0))
    assert [(each.id, len(each.victims)) for each in found] == [("uid-h0-0", 1), ("uid-h2-0", 1)]


def test_a_gang_that_goes_for_several_equal_pods_is_the_victim_of_one_nomination_with_its_surplus_first() -> None:
    members = [of_b(f"x{at}", f"n{at}", gpus=1, group="g") for at in range(3)]
    made = owed(Counted(), pod_group("g", 2, queue="b"), *(node(f"n{at}", 1) for at in range(3)), *members, waiting=3)
    found = take(made, made.decide(0))
    assert [gone(each) for each in found] in ([["x2"], ["x0", "x1"]], [["x2", "x0", "x1"]])
    assert made.validate() == []


def test_equal_needs_are_as_many_at_once_as_the_work_of_a_decision_allows() -> None:
    search = Counted()
    nodes = [node(f"n{at}", 1) for at in range(8)]
    made = owed(search, *nodes, *(of_b(f"x{at}", f"n{at}", gpus=1) for at in range(8)), waiting=8)
    limits, found = Limits(searching=2_100 + 3 * 300), list[int]()
    while not found or found[-1]:
        plan = made.decide(len(found) * 200 * MS, limits)
        found.append(len(take(made, plan)))
    assert sum(found) == 8
    assert 1 < max(found) <= 5
    assert max(search.together) <= 3


def test_pods_of_another_priority_are_not_searched_for_together() -> None:
    search = Counted()
    made = owed(search, node("n0", 4), *(of_b(f"x{at}", "n0", gpus=1) for at in range(4)), waiting=2)
    feed(made, pod("urgent", gpus=1, labels=in_queue("a"), priority=60))
    assert len(nominations(made.decide(0))) == 3
    assert search.together == [1, 2]


# --- beside nodes that are kept ----------------------------------------------------------------------------------
def kept(*nodes: str, behind: str = "") -> NodeReserve:
    """Nodes that are kept in queue ``a`` for a group that comes before all others, or after this pod."""
    rank = Rank(0, 0, "2026-01-01T00:00:00Z", f"uid-{behind}+") if behind else Rank(-1_000, 0, "", "large")
    return NodeReserve(
        queue="a", rank=rank, namespace="ns", name="large", is_gang=False, since_s=1, begun_s=1, nodes=nodes, gpus=1
    )


def started(obj: Pod) -> Pod:
    status = msgspec.structs.replace(obj.status, phase="Running", start_time="2027-01-15T00:00:00Z")
    return msgspec.structs.replace(obj, status=status)


def beside(reserve: NodeReserve, *, nodes: int, waiting: int) -> list[Nomination]:
    """Room that is made while these nodes of one GPU are full of others' work, whose end is known."""
    ends = {"spec": {"activeDeadlineSeconds": 10**6}}
    full = [(node(f"n{at}", 1), started(of_b(f"x{at}", f"n{at}", gpus=1, **ends))) for at in range(nodes)]
    made = owed(Counted(), *(each for pair in full for each in pair), waiting=waiting)
    made.scheduling_queue.reserves = NodeReserves(of=(reserve,))
    return nominations(made.decide(0, wall_s=1_800_000_000))


@pytest.mark.parametrize(("is_kept", "other"), [("n0", "n1"), ("n1", "n0")])
def test_room_is_made_elsewhere_where_the_best_nodes_are_kept_for_others(is_kept: str, other: str) -> None:
    (found,) = beside(kept(is_kept), nodes=2, waiting=1)
    assert [place.node for place in found.places] == [other]


def test_of_equal_pods_those_who_come_before_nodes_that_are_kept_have_room_made_there_and_no_others() -> None:
    found = beside(kept("n0", "n1", behind="h0"), nodes=2, waiting=2)
    assert [each.id for each in found] == ["uid-h0-0"]


def test_equal_pods_that_have_no_room_together_beside_kept_nodes_have_it_one_by_one() -> None:
    found = beside(kept("n0"), nodes=3, waiting=3)
    assert sorted(place.node for each in found for place in each.places) == ["n1", "n2"]


# --- whom a queue holds back -------------------------------------------------------------------------------------
def at_its_limit(*waiting: Fed, limit: int = 2) -> Cluster:
    """Queue ``a`` may have two GPUs, and has two; two more are free."""
    low = [bound(pod(f"x{at}", gpus=1, labels=in_queue("a"), priority=10 + at), "n1") for at in range(2)]
    return making(Counted(), queue("a", gpu=(0, 1, limit)), node(gpus=4), *low, *waiting)


def test_a_queue_at_its_limit_has_less_urgent_work_of_its_own_go() -> None:
    made = at_its_limit(pod("h", gpus=1, labels=in_queue("a"), priority=20))
    plan = made.decide(0)
    (found,) = take(made, plan)
    assert (found.id, found.action, gone(found)) == ("uid-h-0", Action.PREEMPT, ["x0"])
    made.remove_pod("uid-x0", has_ended=True)
    assert [placement.name for placement in placements(made.decide(S).entries)] == ["h"]


def test_a_gang_at_the_limit_of_its_queue_has_less_urgent_work_of_its_own_go() -> None:
    members = [pod(f"h{at}", gpus=1, group="g", priority=20) for at in range(2)]
    made = at_its_limit(pod_group("g", 2, queue="a"), *members)
    (found,) = take(made, made.decide(0))
    assert (found.pod_group, found.action, sorted(gone(found))) == ("g", Action.PREEMPT, ["x0", "x1"])


def test_whoever_sleeps_for_its_queue_is_searched_for_when_something_changes() -> None:
    made = at_its_limit(pod("h", gpus=1, labels=in_queue("a"), priority=10))
    assert nominations(made.decide(0)) == []
    feed(made, bound(pod("x2", gpus=1, labels=in_queue("a"), priority=5, created="2026-01-01T00:00:09Z"), "n1"))
    assert [gone(each) for each in nominations(made.decide(2 * S))] == []  # the limit is passed by one already
    made.remove_pod("uid-x0", has_ended=True)
    assert [gone(each) for each in nominations(made.decide(4 * S))] == [["x2"]]


def test_nothing_is_looked_at_again_for_one_that_its_queue_would_not_take_with_all_others_gone() -> None:
    made = at_its_limit(pod("h", gpus=1, labels=in_queue("a"), priority=10))
    made.decide(0)
    assert made.scheduling_queue.preemption.refused
    feed(made, queue("a", gpu=(0, 1, 0)))
    made.decide(2 * S)
    assert made.decide(4 * S).wake_at_ns is None


def kept_off_by_their_queue(count: int) -> Cluster:
    """Pods that can't be preempted were refused room, and sleep for a node; then their queue's quota was taken away."""
    waiting = (pod(f"h{at}", gpus=1, labels=in_queue("a"), priority=100) for at in range(count))
    made = making(Searches(), queue("a", gpu=(1, 1, -1)), node(gpus=4), running("v", 4), *waiting)
    made.decide(0)
    assert len(made.scheduling_queue.preemption.refused) == 1
    feed(made, queue("a", gpu=(0, 1, -1)))
    return made


def test_one_decision_is_made_for_pods_that_sleep_for_a_node_and_that_their_queue_takes_no_more() -> None:
    made, at_ns, decisions = kept_off_by_their_queue(1), 2 * S, 0
    while at_ns < 100 * S and decisions < 10:
        decisions += 1
        at_ns = made.decide(at_ns).wake_at_ns or 100 * S
    assert decisions == 1
    feed(made, queue("a", gpu=(1, 1, -1)))
    made.decide(100 * S)
    assert [refused.at_ns for refused in made.scheduling_queue.preemption.refused.values()] == [100 * S]


def test_of_pods_of_a_shape_that_their_queue_takes_no_more_one_is_looked_at() -> None:
    """Looks at pods are counted, not time."""
    looks = Counter[int]()
    for count in (1, 100):
        made = kept_off_by_their_queue(count)

        def counted(frame: FrameType, event: str, _argument: object, count: int = count) -> None:
            looks[count] += event == "call" and frame.f_code is pod_need.__code__

        sys.setprofile(counted)
        try:
            made.decide(2 * S)
        finally:
            sys.setprofile(None)
    assert looks == {1: 1, 100: 1}


def test_of_those_who_would_use_the_same_each_has_its_search_though_the_first_can_not_be_helped() -> None:
    nowhere = pod("h", gpus=1, labels=in_queue("a"), priority=30, spec={"nodeSelector": {"zone": "none"}})
    made = at_its_limit(nowhere, pod("k", gpus=1, labels=in_queue("a"), priority=20))
    found = nominations(made.decide(0))
    made.count_again("n1")
    feed(made, node("n2", 1))
    found += nominations(made.decide(2 * S))
    assert [each.id for each in found] == ["uid-k-0"]


def test_work_that_can_not_be_preempted_makes_no_room_at_a_quota_that_such_work_has_used_up() -> None:
    search = Counted()
    fixed = bound(pod("x", gpus=2, labels=in_queue("a"), priority=100), "n1")
    made = making(search, queue("a", gpu=(2, 1, -1)), node(gpus=4), fixed)
    feed(made, pod("h", gpus=1, labels=in_queue("a"), priority=200))
    assert (nominations(made.decide(0)), search.together) == ([], [])


# --- members beyond a minimum ------------------------------------------------------------------------------------
def elastic(*, minimum: int = 1, waiting: int = 2) -> Cluster:
    """A gang of ``a`` has its minimum and waits for more; ``b`` holds what ``a`` is owed."""
    members = [
        bound(pod("m0", gpus=1, group="g"), "n0"),
        *(pod(f"m{at + 1}", gpus=1, group="g") for at in range(waiting)),
    ]
    gang: list[Fed] = [pod_group("g", minimum, queue="a"), *members]
    nodes = [node(f"n{at}", 1) for at in range(4)]
    return owed(Counted(), *gang, *nodes, *(of_b(f"x{at}", f"n{at}", gpus=1) for at in (1, 2, 3)), waiting=0, quota=2)


def test_members_beyond_a_minimum_reclaim_what_their_queue_is_owed_one_by_one() -> None:
    made = elastic()
    (first,) = take(made, made.decide(0))
    assert (first.id, first.pod_group, first.action, len(first.victims)) == ("uid-m1-0", "g", Action.RECLAIM, 1)
    assert take(made, made.decide(S)) == []  # the next one would be above the share
    made.remove_pod(first.victims[0].pod_uid, has_ended=True)
    assert [placement.name for placement in placements(made.decide(2 * S).entries)] == ["m1"]


def test_the_next_member_is_searched_for_in_the_next_look() -> None:
    made = elastic()
    feed(made, queue("a", gpu=(4, 0, -1)))
    plan = made.decide(0)
    (first,) = take(made, plan)
    assert plan.wake_at_ns == 200 * MS
    (second,) = take(made, made.decide(200 * MS))
    assert [each.id for each in (first, second)] == ["uid-m1-0", "uid-m2-0"]
    assert {*gone(first)}.isdisjoint(gone(second))
    assert made.validate() == []


def test_members_beyond_a_minimum_do_not_take_from_their_own_gang() -> None:
    of_a = [bound(pod(f"m{at}", gpus=1, group="g", priority=10), f"n{at}") for at in range(2)]
    made = making(Counted(), queue("a", gpu=(2, 1, 2)), node("n0", 1), node("n1", 1), pod_group("g", 1, queue="a"))
    feed(made, *of_a, pod("urgent", gpus=1, group="g", priority=90))
    assert nominations(made.decide(0)) == []


# --- gangs and shares --------------------------------------------------------------------------------------------
def test_a_gang_has_room_made_for_its_minimum_and_no_more() -> None:
    members = [pod(f"m{at}", gpus=2, group="g") for at in range(3)]
    made = making(Searches(["v", "w"]), node(gpus=4), running("v", 2), running("w", 2), pod_group("g", 2), *members)
    (found,) = nominations(made.decide(0))
    assert (found.pod_group, len(found.places), gone(found)) == ("g", 2, ["v", "w"])
    assert found.id == "uid-m0-0"
    assert made.scheduling_queue.said.verdict("uid-m0") == Verdict(code=Code.WAITS_FOR_VICTIMS, required=2, detail="n1")


def test_a_gang_takes_as_its_most_urgent_member_may_and_one_beyond_the_minimum_as_its_least_urgent() -> None:
    """So a member that is made more urgent than its gang takes from nobody that the gang would not take from."""
    members = [pod(f"m{at}", gpus=1, group="g", priority=priority) for at, priority in enumerate((10, 90, 50))]
    made = making(Searches(), node(gpus=1), running("v", 1), pod_group("g", 2), *members)
    assert need_of_gang(made).priority == 90
    feed(made, node("n2", 2), *(bound(each, "n2") for each in members[:2]))
    beyond = need_of_gang(made)
    assert ([each.name for each in beyond.pods], beyond.priority) == (["m2"], 10)


def attempts_of(made: Cluster) -> Attempts:
    snapshot = made.snapshot()
    return Attempts(snapshot, 0, LIMITS, Allowance(namespaces=1, most=LIMITS.most), Effects(snapshot.scheduling_queue))


def need_of_gang(made: Cluster) -> Need:
    return there(gang_need(("ns", "g"), attempts_of(made)))


def test_gangs_that_ask_the_same_are_searched_for_one_by_one_until_one_is_refused() -> None:
    groups: list[Fed] = []
    for name in ("g0", "g1", "g2", "g3"):
        groups += [pod_group(name, 2), *(pod(f"{name}-{at}", gpus=1, group=name) for at in range(2))]
    search = Searches(["v"])
    made = making(search, node(gpus=4), running("v", 2), running("w", 2), *groups)
    found = nominations(made.decide(0))
    assert [each.pod_group for each in found] == ["g0"]
    again = Searches(["v"])
    made = making(again, node(gpus=4), running("v", 2), running("w", 2), *groups)
    take(made, made.decide(0))
    made.decide(2 * S)
    assert again.needs.count("g0-0") == 1


@pytest.mark.parametrize("group", [pod_group("g", 3), pod_group("g", 2, minSubGroup=1)])
def test_a_gang_that_waits_for_others_or_can_not_be_read_is_not_searched_for(group: Fed) -> None:
    search = Searches(["v"])
    made = making(search, node(gpus=4), running("v", 4), group, *(pod(f"m{at}", gpus=2, group="g") for at in range(2)))
    made.decide(0)
    assert search.asked == []


def test_a_fraction_gets_a_part_of_the_device_that_a_fraction_has_to_leave() -> None:
    made = making(Searches(["v"]), node(gpus=1), reservation("g", book={"uid-v": HALF, "uid-o": HALF}))
    feed(made, share("v", HALF), share("o", HALF), pod("h", fraction="0.5"))
    (found,) = nominations(made.decide(0))
    assert [(device.group, device.nano) for device in found.places[0].devices] == [("g", HALF)]


def test_a_whole_gpu_names_the_device_that_all_its_tenants_have_to_leave() -> None:
    made = making(Searches(["v", "o"]), node(gpus=1), reservation("g", book={"uid-v": HALF, "uid-o": HALF}))
    feed(made, share("v", HALF), share("o", HALF), pod("h", gpus=1))
    (found,) = take(made, made.decide(0))
    assert found.places == (Place("uid-h", "n1", emptied=("g",)),)
    assert gone(found) == ["v", "o"]


# --- who is searched for, and when -------------------------------------------------------------------------------
def test_whoever_is_held_back_by_a_queue_is_not_searched_for() -> None:
    search = Searches(["v"])
    made = making(search, queue("a", gpu=(0, 1, 1)), node(gpus=4), running("v", 4))
    feed(made, pod("h", gpus=2, labels=in_queue("a")))
    made.decide(0)
    assert search.asked == []


def test_whoever_backs_off_is_not_searched_for_until_that_is_over() -> None:
    search = Searches(["v"])
    made = making(search, node(gpus=4), running("v", 4), pod("h", gpus=2))
    made.commits.failed("uid-h", "", "no answer", now_ns=0)
    plan = made.decide(0)
    assert (search.asked, plan.wake_at_ns) == ([], S)
    assert [gone(each) for each in nominations(made.decide(S))] == [["v"]]


def test_a_need_that_was_refused_is_searched_for_again_only_when_something_has_changed_and_a_second_later() -> None:
    search = Searches()
    made = making(search, node(gpus=4), running("v", 4), pod("h", gpus=2))
    assert made.decide(0).wake_at_ns is None
    assert search.needs == ["h"]
    made.count_again("n1")
    assert made.decide(5 * S).wake_at_ns is None
    assert search.needs == ["h"]
    feed(made, node("n2", 1))
    assert made.decide(6 * S).wake_at_ns is None
    assert search.needs == ["h", "h"]
    feed(made, node("n3", 1))
    plan = made.decide(6 * S + 300 * MS)
    assert (search.needs, plan.wake_at_ns) == (["h", "h"], 7 * S)
    assert made.decide(7 * S).wake_at_ns is None
    assert search.needs == ["h", "h", "h"]


def test_a_need_is_searched_for_again_when_time_alone_changes_the_answer() -> None:
    search = Searches(answer=NoVictims(until_s=1_010))
    made = making(search, node(gpus=4), running("v", 4), pod("h", gpus=2))
    plan = made.decide(3 * S, wall_s=1_000)
    assert plan.wake_at_ns == 13 * S
    search.may_go.append("v")
    assert [gone(each) for each in nominations(made.decide(13 * S, wall_s=1_010))] == [["v"]]
    assert [trial.wall_s for trial in search.trials] == [1_000, 1_000, 1_010]


def test_one_that_its_queue_takes_no_more_is_not_looked_at_again_for_the_time_of_an_earlier_refusal() -> None:
    search = Searches(answer=NoVictims(until_s=1_010))
    held = pod("h", gpus=1, labels=in_queue("a"))
    made = making(search, queue("a", gpu=(2, 1, 2)), node(gpus=2), running("v", 2), held)
    made.decide(3 * S, wall_s=1_000)
    made.remove_pod("uid-v", has_ended=True)
    feed(made, bound(pod("x", gpus=2, labels=in_queue("a"), priority=100), "n1"))
    wake_at_ns = made.decide(13 * S, wall_s=1_010).wake_at_ns
    assert wake_at_ns is None or wake_at_ns > 60 * S
    assert search.needs == ["h"]


def test_a_need_is_searched_for_again_when_the_pods_that_were_on_their_way_are_bound() -> None:
    made = making(Counted(), queue("a", gpu=(1, 0, -1)), queue("b", gpu=(0, 1, -1)), node(gpus=1))
    first = pod("v", gpus=1, labels=in_queue("b"))
    feed(made, first)
    commit(made, made.decide(0))
    feed(made, pod("h", gpus=1, labels=in_queue("a")))
    assert nominations(made.decide(S)) == []  # nobody is evicted who is on the way
    feed(made, bound(first, "n1"))
    assert [gone(each) for each in nominations(made.decide(2 * S))] == [["v"]]


def test_what_the_shell_learns_of_evictions_is_read_and_has_needs_searched_for_again() -> None:
    search = Searches()
    made = making(search, node(gpus=4), running("v", 4), pod("h", gpus=2))
    made.decide(0)
    made.note_preemption_facts(PreemptionFacts(version=1, refused=frozenset({"uid-v"}), evicted={"o": Evicted(1, 2)}))
    made.decide(2 * S)
    assert [len(trial.refused) for trial in search.trials] == [0, 0, 1, 1]
    assert search.trials[-1].evicted == {"o": Evicted(1, 2)}


def test_refusals_are_forgotten_when_nothing_waits_any_more_though_no_look_follows() -> None:
    made = making(Searches(), node(gpus=4), running("v", 4), pod("h", gpus=2))
    made.decide(0)
    assert made.scheduling_queue.preemption.refused
    made.remove_pod("uid-h")
    made.decide(50 * MS)
    assert not made.scheduling_queue.preemption.refused


def test_a_refusal_keeps_no_tree_of_queues() -> None:
    made = making(Searches(), queue("a"), node(gpus=4), running("v", 4), pod("h", gpus=2, labels=in_queue("a")))
    made.decide(0)
    (refused,) = made.scheduling_queue.preemption.refused.values()
    assert all(isinstance(each, int) for each in refused.stamp)
    feed(made, queue("a", gpu=(1, 1, -1)))
    made.decide(2 * S)
    (again,) = made.scheduling_queue.preemption.refused.values()
    assert again.at_ns == 2 * S  # another tree, another stamp


def test_room_is_looked_for_five_times_a_second_at_most() -> None:
    search = Searches()
    made = making(search, node(gpus=4), running("v", 4), pod("h", gpus=2))
    made.decide(0)
    feed(made, pod("k", gpus=3))
    plan = made.decide(50 * MS)
    assert (search.needs, plan.wake_at_ns) == (["h"], 200 * MS)
    made.decide(200 * MS)
    assert search.needs == ["h", "k"]


def test_nothing_is_looked_for_while_nothing_changes() -> None:
    search = Searches()
    made = making(search, node(gpus=4), running("v", 4), pod("h", gpus=2))
    made.decide(0)
    assert made.decide(100 * S).wake_at_ns is None
    made.count_again("n1")
    made.decide(200 * S)
    assert search.needs == ["h"]


def test_reclaim_comes_before_preempt_for_all() -> None:
    search = Searches(["v"], by=Action.PREEMPT)
    made = making(search, node(gpus=4), running("v", 4), pod("h", gpus=2, priority=9), pod("k", gpus=3))
    found = nominations(made.decide(0))
    order = [("h", Action.RECLAIM), ("k", Action.RECLAIM), ("h", Action.PREEMPT), ("k", Action.PREEMPT)]
    assert (search.asked, [each.action for each in found]) == (order, [Action.PREEMPT])


def test_queues_have_their_turn_by_fairness() -> None:
    queues = [queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 1, -1))]
    made = making(Searches(["v"]), *queues, node(gpus=4), bound(pod("v", gpus=2, labels=in_queue("a")), "n1"))
    feed(made, bound(pod("x", gpus=2, labels=in_queue("a")), "n1"))
    feed(made, pod("h", gpus=2, labels=in_queue("a"), priority=9), pod("k", gpus=2, labels=in_queue("b")))
    assert [each.id for each in nominations(made.decide(0))] == ["uid-k-0"]


def _many(count: int, namespace: str) -> list[Fed]:
    """Pods of which each is of a class of its own."""
    return [pod(f"{namespace}{at}", namespace=namespace, gpus=2, cpu=f"{at + 1}m", priority=9) for at in range(count)]


def test_the_work_of_a_decision_is_bounded_and_the_rest_comes_first_the_next_time() -> None:
    search = Searches()
    made = making(search, node(gpus=4), running("v", 4), *_many(8, "x"))
    limits = Limits(searching=3 * 2_000)
    plan = made.decide(0, limits)
    assert (search.needs, plan.wake_at_ns) == (["x0", "x1", "x2"], 200 * MS)
    for at in range(1, 4):
        plan = made.decide(at * 200 * MS, limits)
    assert (sorted(search.needs), plan.wake_at_ns) == ([f"x{at}" for at in range(8)], None)


def test_one_namespace_with_many_needs_does_not_keep_another_from_its_search() -> None:
    search = Searches()
    made = making(search, node(gpus=4), running("v", 4), *_many(20, "x"), pod("late", namespace="y", gpus=3))
    made.decide(0, Limits(searching=4 * 2_000))
    assert "late" in search.needs
    assert len(search.needs) <= 6


def test_needs_that_were_refused_longest_ago_are_searched_for_first() -> None:
    search, limits = Searches(), Limits(searching=2 * 2_000)
    made = making(search, node(gpus=4), running("v", 4), *_many(14, "x"))
    for at in range(21):
        feed(made, node(f"new{at}", 1))
        made.decide(at * 200 * MS, limits)
    all_of_them = sorted(f"x{n}" for n in range(14))
    assert [sorted(search.needs[at : at + 14]) for at in (0, 14, 28)] == [all_of_them] * 3


@pytest.mark.parametrize(("nominee_gpus", "elsewhere"), [(4, "n3"), (5, "n2")], ids=["no place for v", "none for h"])
def test_moves_that_can_not_be_made_any_more_leave_nothing_behind(nominee_gpus: int, elsewhere: str) -> None:
    moved = bound(pod("v", gpus=1, owner=("apps/v1", "ReplicaSet"), labels=in_queue("a")), "n1")
    nodes = [node("n1", 4), node("n2", 1), node("n3", 1)]
    nominee = pod("h", gpus=nominee_gpus, labels=in_queue("a"))
    made = making(Searches(), queue("a"), *nodes, moved, bound(pod("w", gpus=1), "n3"), nominee)
    attempts = attempts_of(made)
    statement, accounts = attempts.placer.statement, attempts.accounts
    before = statement.table.free.tolist(), [account.held for account in accounts.of]
    need = there(pod_need(attempts.snapshot.pods.records["uid-h"], attempts))
    unit = Unit(group=("ns", "uid-v"), queue="a", priority=0, is_core=True, pods=("uid-v",))
    moves = Moves(units=(unit,), places=(Place("uid-h", "n1"),), moved=(Place("uid-v", elsewhere),))
    charging = Charging(attempts, [], set())
    assert not charging.take_moves(need, moves)
    assert (charging.entries, charging.taken) == ([], set())
    assert (statement.table.free.tolist(), [account.held for account in accounts.of]) == before


def test_a_found_set_with_a_victim_of_another_nomination_is_not_taken() -> None:
    def careless(need: Need, trial: Trial, actions: Sequence[Action]) -> Found | NoVictims:
        unit = Unit(group=("ns", "v"), queue="", priority=0, is_core=True, pods=("uid-v",))
        assert "uid-v" in trial.taken
        return Found(action=actions[0], units=(unit,), places=(Place(need.pods[0].uid, "n1"),))

    made = making(careless, node(gpus=4), running("v", 4), pod("h", gpus=3), pod("k", gpus=4))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    assert nominations(made.decide(0)) == []


def test_deciding_twice_on_the_same_gives_the_same() -> None:
    found = [
        nominations(
            making(Searches(["v", "w"]), node(gpus=4), running("v", 2), running("w", 2), *_many(4, "x")).decide(0)
        )
        for _ in range(2)
    ]
    assert found[0] == found[1] != []
