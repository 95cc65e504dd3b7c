"""Which gangs below their minimum go, and when: decided on the tree of minimums, as a value of the plan."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.changes import AnotherMinimum
from scheduler.core.decide.decide import decide_as_if
from scheduler.core.model.plan import Bind, Evict, Nominate, Plan
from scheduler.core.model.preemption import Action
from scheduler.core.model.stale import Stale
from scheduler.core.model.verdict import SubgroupShort
from tests.scheduler.core.decide.test_gang_search import members, parts
from tests.scheduler.core.decide.test_making import Searches, making
from tests.scheduler.core.nodes.test_nominated_usage import running
from tests.scheduler.core.objects import bound, changed, cluster, commit, feed, node, pod, pod_group, reservation

S = 1_000_000_000
G = ("ns", "g")


def broken(*more: Any, minimum: int = 3, **spec: Any) -> Cluster:
    """A gang that has lost a member just now."""
    made = cluster(node("n1", 8), pod_group("g", minimum, **spec), *members("a2+"), *more)
    made.note_stale(G, Stale(since_ns=0))
    return made


def going(plan: Plan) -> list[str]:
    """Names of pods that go."""
    return [victim.name for entry in plan.entries if isinstance(entry, Evict) for victim in entry.pods]


# --- when ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("period", "at_s"), [(None, 60), ("10s", 10), ("0s", 0), ("2h", 7_200), ("nonsense", 60), ("-1s", None)]
)
def test_what_is_left_goes_after_the_grace_time_and_the_plan_says_when_that_is(
    period: str | None, at_s: int | None
) -> None:
    made = broken(stalenessGracePeriod=period)
    if at_s is None:
        plan = made.decide(0)
        assert (going(plan), plan.wake_at_ns) == ([], None)
        assert going(made.decide(1 << 60)) == []
        return
    if at_s:
        plan = made.decide(0)
        assert (going(plan), plan.wake_at_ns) == ([], at_s * S)
        assert going(made.decide(at_s * S - 1)) == []
    assert going(made.decide(at_s * S)) == ["a-00", "a-01"]


def test_a_grace_time_that_is_edited_counts_from_then_on() -> None:
    made = broken()
    assert made.decide(0).wake_at_ns == 60 * S
    feed(made, pod_group("g", 3, stalenessGracePeriod="5s"))
    assert made.decide(S).wake_at_ns == 5 * S
    feed(made, pod_group("g", 3, stalenessGracePeriod="-1s"))
    plan = made.decide(90 * S)
    assert (going(plan), plan.wake_at_ns) == ([], None)


def test_a_gang_that_was_refused_is_judged_again_when_its_time_has_come() -> None:
    made = broken()
    made.note_stale(G, Stale(since_ns=0, again_ns=120 * S))
    plan = made.decide(70 * S)
    assert (going(plan), plan.wake_at_ns) == ([], 120 * S)
    assert going(made.decide(120 * S)) == ["a-00", "a-01"]


def test_a_gang_whose_time_is_over_just_after_a_look_is_judged_in_the_next_one() -> None:
    """Looks are a tenth of the grace time apart."""
    late = [bound(pod(f"h{number}", gpus=1, group="h"), "n1") for number in range(2)]
    made = broken(pod_group("h", 3), *late)
    made.note_stale(("ns", "h"), Stale(since_ns=S // 4))
    assert going(made.decide(60 * S)) == ["a-00", "a-01"]
    plan = made.decide(60 * S + S // 2)
    assert (going(plan), plan.wake_at_ns) == ([], 66 * S)
    assert going(made.decide(66 * S - 1)) == []
    assert going(made.decide(66 * S))[-2:] == ["h0", "h1"]


def test_a_gang_that_is_going_is_not_decided_on_again() -> None:
    made = broken()
    made.note_stale(G, Stale(since_ns=0, is_going=True))
    plan = made.decide(70 * S)
    assert (going(plan), plan.wake_at_ns) == ([], None)


def test_a_gang_of_which_nobody_knows_is_left_alone() -> None:
    made = broken()
    assert made.note_stale(G, None)
    assert going(made.decide(70 * S)) == []


# --- what the entry says --------------------------------------------------------------------------------------------
def test_the_entry_names_those_who_are_bound_and_stay_and_what_the_gang_lacks() -> None:
    leaving = changed(bound(pod("z", group="g", gpus=1), "n1"), deletion_timestamp="2026-01-01T00:00:00Z")
    made = broken(pod("w", group="g", gpus=9), leaving, minimum=4)
    (entry,) = (entry for entry in made.decide(60 * S).entries if isinstance(entry, Evict))
    assert (entry.pod_group, entry.pod_group_uid, entry.minimum) == (G, "pg-g", 4)
    assert [(victim.pod_uid, victim.node, victim.owner) for victim in entry.pods] == [
        ("uid-a-00", "n1", "pg-g"),
        ("uid-a-01", "n1", "pg-g"),
    ]


@pytest.mark.parametrize(("there", "goes"), [("a2+ b1+", False), ("a1+ b2+", False), ("a1+ b1+", True), ("b1+", True)])
def test_the_tree_of_minimums_says_who_is_below_it(there: str, goes: bool) -> None:
    """One of two subgroups, of two pods each, is enough."""
    group = pod_group("g", minSubGroup=1, subGroups=parts("a=2 b=2"))
    made = cluster(node("n1", 8), group, *members(there))
    made.note_stale(G, Stale(since_ns=0))
    found = [entry for entry in made.decide(60 * S).entries if isinstance(entry, Evict)]
    assert [entry.short for entry in found] == [SubgroupShort("", 1, 0, is_of_subgroups=True)] * goes
    assert len(going(made.decide(60 * S))) == goes * there.count("1+")


def test_a_changed_snapshot_says_what_would_be() -> None:
    made = broken()
    assert any(isinstance(entry, Evict) for entry in made.decide(60 * S).entries)
    would = decide_as_if(made.prepared(60 * S), AnotherMinimum("ns", "g", 2), now_ns=60 * S)
    assert not any(isinstance(entry, Evict) for entry in would.entries)
    lower = decide_as_if(made.prepared(60 * S), AnotherMinimum("ns", "g", 4), now_ns=60 * S)
    assert any(isinstance(entry, Evict) for entry in lower.entries)


# --- who stays ------------------------------------------------------------------------------------------------------
def test_a_gang_that_is_whole_again_stays_though_the_shell_has_not_heard_of_it() -> None:
    made = broken(bound(pod("b", group="g", gpus=1), "n1"))
    assert going(made.decide(60 * S)) == []


def test_a_gang_whose_group_contradicts_itself_stays() -> None:
    made = broken(subGroups=parts("a<b b<a"))
    assert going(made.decide(60 * S)) == []


def test_a_gang_that_this_decision_completes_stays_and_goes_on() -> None:
    made = broken(pod("late", group="g", gpus=1))
    plan = made.decide(60 * S)
    assert going(plan) == []
    assert plan.entries
    commit(made, plan)
    assert going(made.decide(80 * S)) == []  # it is on its way


def test_a_member_on_its_way_is_waited_for_and_gives_no_second_time() -> None:
    made = broken(pod("late", group="g", gpus=1))
    commit(made, made.decide(0))
    plan = made.decide(60 * S)
    assert (going(plan), plan.wake_at_ns) == ([], 66 * S)
    made.remove_pod("uid-late")
    assert going(made.decide(61 * S)) == []  # judged a tenth of the grace time later
    assert going(made.decide(66 * S)) == ["a-00", "a-01"]


def test_a_gang_for_which_room_is_made_stays() -> None:
    search = Searches(["v"], by=Action.PREEMPT)
    made = making(search, node("n1", 4), running("v", 2), pod_group("g", 3), *members("a2+"))
    feed(made, pod("late", group="g", gpus=2))
    made.note_stale(G, Stale(since_ns=0))
    plan = made.decide(60 * S)
    (nomination,) = (entry.nomination for entry in plan.entries if isinstance(entry, Nominate))
    assert (nomination.pod_group, going(plan)) == ("g", [])
    made.commits.nominations.put(nomination)
    assert going(made.decide(90 * S)) == []  # as long as the nomination stands
    made.commits.nominations.drop(nomination.id)
    search.may_go.clear()
    assert going(made.decide(200 * S)) == ["a-00", "a-01"]


def test_gangs_cost_nothing_while_nothing_about_them_changes() -> None:
    made = broken()
    assert made.decide(0).wake_at_ns == 60 * S
    memo = made.scheduling_queue.stale
    feed(made, pod("other", gpus=1))
    made.decide(S)
    assert made.scheduling_queue.stale is memo


def test_pods_of_others_are_placed_in_the_same_decision() -> None:
    made = broken(pod("other", gpus=1))
    plan = made.decide(60 * S)
    assert going(plan) == ["a-00", "a-01"]
    assert [entry.placement.name for entry in plan.entries if isinstance(entry, Bind)] == ["other"]


def test_a_gang_that_waiting_members_could_complete_has_half_a_minute_more() -> None:
    """The GPU for the last one is held by a reservation that nobody uses any more, and that is slow to go."""
    made = cluster(node("n1", 3), reservation("idle", "n1", uuid="GPU-idle"), pod_group("g", 3), *members("a2+"))
    feed(made, pod("late", group="g", gpus=1))
    made.note_stale(G, Stale(since_ns=0))
    for at_s, goes in [(60, 0), (66, 0), (88, 0), (94, 2)]:
        assert len(going(made.decide(at_s * S))) == goes
