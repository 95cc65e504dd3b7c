"""Turns: what a decision may spend, whose turn it is, and when a need is looked at again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Allowance, Limits
from scheduler.core.decide.decide import decide
from scheduler.core.decide.preemption import MovesOfLook
from scheduler.core.decide.preemption_needs import Looks, pause_ns
from scheduler.core.model.plan import placements
from scheduler.core.model.preemption import NoMoves, NoVictims
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.trial import Trial
from scheduler.core.scheduling_queue.effects import AlikeFailed
from scheduler.core.scheduling_queue.signatures import Passed, Refused, Stamp
from tests.scheduler.core.objects import bound, cluster, feed, node, pod, pod_group, queue
from tests.scheduler.core.preemption.scenes import need_of, running, trial_of, waiting
from tests.scheduler.core.preemption.test_moving import preempting_cluster
from wire import names

# One decision is bounded, and its bound is divided between namespaces.


def test_a_namespace_goes_on_within_its_share_once_the_bound_is_spent() -> None:
    allowance = Allowance(namespaces=4, most=1_000)
    allowance.spend("busy", 1_000)
    assert not allowance.has_left("busy")
    assert allowance.has_left("other")
    allowance.spend("other", 251)
    assert not allowance.has_left("other")


def test_one_pod_that_costs_many_times_the_bound_leaves_others_their_turn() -> None:
    allowance = Allowance(namespaces=2, most=1_000)
    allowance.spend("busy", 90_000)
    assert not allowance.has_left("busy")
    assert allowance.has_left("other")


def test_behind_many_such_pods_some_namespaces_still_have_a_first_turn_each() -> None:
    allowance = Allowance(namespaces=100, most=1_000)
    for number in range(3):
        allowance.spend(f"busy-{number}", 90_000)
    served = 0
    while allowance.has_left(f"late-{served}"):
        allowance.spend(f"late-{served}", 20)
        assert allowance.has_left(f"late-{served}"), "a comparison alone is no turn"
        allowance.spend(f"late-{served}", 90_000)
        assert not allowance.has_left(f"late-{served}")
        served += 1
    assert served == 16
    assert not allowance.has_left("busy-0")


def test_first_turns_are_counted_as_soon_as_all_is_spent_that_namespaces_may_exceed() -> None:
    allowance = Allowance(namespaces=100, most=1_000)
    for number in range(3):
        allowance.spend(f"busy-{number}", 1_000)
    served = 0
    while allowance.has_left(f"late-{served}"):
        allowance.spend(f"late-{served}", 1_000)
        served += 1
    assert served == 16


@pytest.mark.parametrize(
    ("namespaces", "spent", "asks", "may"),
    [
        # Below the bound all go on; at it, each until it has spent its share.
        (4, [("a", 999)], "a", True),
        (4, [("a", 750), ("b", 250)], "b", True),
        (4, [("a", 749), ("b", 251)], "b", False),
        (1, [("a", 1_000)], "a", True),
        (1, [("a", 1_001)], "a", False),
        # Three bounds are spent: only those have a turn that have had none.
        (1, [("a", 900), ("b", 3_000), ("c", 3_000), ("d", 3_000)], "a", True),
        (1, [("a", 1_000), ("b", 3_000), ("c", 3_000), ("d", 3_000)], "a", False),
    ],
)
def test_a_namespace_goes_on_until_it_has_spent_what_it_may(
    namespaces: int, spent: list[tuple[str, int]], asks: str, may: bool
) -> None:
    allowance = Allowance(namespaces=namespaces, most=1_000)
    for namespace, operations in spent:
        allowance.spend(namespace, operations)
    assert allowance.has_left(asks) is may


def test_a_share_of_more_than_a_first_turn_ends_when_three_bounds_are_spent() -> None:
    allowance = Allowance(namespaces=2, most=4_000)
    for namespace, operations in (("a", 1_500), ("b", 4_000), ("c", 4_000), ("d", 2_500)):
        allowance.spend(namespace, operations)
    assert not allowance.has_left("a")
    assert allowance.has_left("e")


@pytest.mark.parametrize(("is_shared", "is_put_off"), [(True, True), (False, False)])
def test_what_a_verdict_costs_grows_with_the_nodes_for_shares(is_shared: bool, is_put_off: bool) -> None:
    """Six classes cost some 1,300 operations on 300 nodes, those of shares about one more for each node and class."""
    numbers = range(10, 16)
    pods = [pod(f"p{n}", fraction=f"0.{n}") if is_shared else pod(f"p{n}", cpu=f"{n}00") for n in numbers]
    made = cluster(*(node(f"n{number}", 0) for number in range(300)), *pods)
    assert (made.decide(0, Limits(most=2_000, retold=0)).wake_at_ns == 0) is is_put_off


# The turns of gangs that ask the same: as long as they start, the next one follows; the first that can't ends them.

_TEAMS = ("a", "b", "c")


def _waiting(gangs: int, *, quota: float = 0, limit: float = -1) -> Cluster:
    """So many gangs of two for each team, and no node yet."""
    teams = (queue(team, "dept", gpu=(quota, 1, limit)) for team in _TEAMS)
    made = Cluster(Settings(preemption=False))
    feed(made, node("n0", 0), queue("dept", gpu=(-1, 1, -1)), *teams)
    for team in _TEAMS:
        for i in range(gangs):
            name = f"{team}{i:03}"
            feed(made, pod_group(name, 2, queue=team))
            feed(made, *(pod(f"{name}-{at}", gpus=1, group=name) for at in range(2)))
    made.decide(0)
    return made


def _placed(made: Cluster) -> list[str]:
    return [placement.name for placement in placements(made.decide(0).entries)]


def test_as_many_start_as_fit_the_oldest_of_each_team_and_all_teams_alike() -> None:
    made = _waiting(20)
    feed(made, node("n1", 14))
    placed = _placed(made)
    assert Counter(name[0] for name in placed) == {"a": 6, "b": 4, "c": 4}
    assert {name[:4] for name in placed} == {"a000", "a001", "a002", "b000", "b001", "c000", "c001"}


def test_the_first_that_fits_nowhere_speaks_for_all_teams() -> None:
    made = _waiting(100)
    feed(made, node("n1", 2))
    decision = decide(made.prepared(0), 0)
    assert len(list(placements(decision.entries))) == 2
    assert sum(isinstance(note, AlikeFailed) for note in decision.effects) == 1
    assert len(decision.effects) < 12


def test_a_team_at_its_limit_does_not_end_the_turns_of_others() -> None:
    made = _waiting(5, limit=2)
    feed(made, node("n1", 100))
    assert Counter(name[0] for name in _placed(made)) == {"a": 2, "b": 2, "c": 2}


def test_gangs_at_the_limit_of_their_queue_are_looked_at_over_several_decisions() -> None:
    made = _waiting(100, limit=2)
    for team in _TEAMS:
        feed(made, bound(pod(f"{team}-old", gpus=2, labels={names.QUEUE_LABEL: team}), "n1"))
    feed(made, node("n1", 100))
    limits = Limits(most=7_000, retold=0)
    looked_at = []
    for now_ns in range(1, 5):
        made.decide(now_ns, limits)
        looked_at.append(len(made.scheduling_queue.over_quota))
    assert looked_at == [102, 203, 300, 300], "as many as a decision may, and the one at which each line ends"
    assert made.decide(5, limits).wake_at_ns is None


# When a need is looked at again: after a change and a pause, or when time alone may change the answer.

S = 1_000_000_000
_THEN: Stamp = (1,)
_NOW: Stamp = (2,)


def refused(stamp: Stamp, at_s: int, *, again_s: int | None = None, placed: int = 0) -> Refused:
    return Refused(stamp, at_s * S, NoVictims(placed=placed), None if again_s is None else again_s * S)


@pytest.mark.parametrize(
    ("before", "is_due"),
    [
        (None, True),
        (refused(_THEN, 9), True),
        (refused(_THEN, 10), False),  # a change, and no pause yet
        (refused(_THEN, 5, placed=2_000), False),  # what costs much is not searched for again soon
        (refused(_NOW, 1), False),
        (refused(_NOW, 1, again_s=10), True),
        (refused(_NOW, 1, again_s=11), False),
        (refused(_NOW, 11), True),  # the clock went back
    ],
)
def test_a_need_is_due_when_its_answer_may_be_another_one(before: Refused | None, is_due: bool) -> None:
    looks = Looks(10 * S, (_NOW,), {"k": before} if before else {})
    assert looks.is_due("k") is is_due
    assert looks.has_news("k") is is_due


def test_one_that_needed_no_room_is_due_and_is_news_once_something_has_changed() -> None:
    for stamp, has_news in ((_NOW, False), (_THEN, True)):
        looks = Looks(10 * S, (_NOW,), passed={"k": Passed(stamp, 3 * S)})
        assert (looks.is_due("k"), looks.has_news("k"), looks.at_ns("k")) == (True, has_news, 3 * S)


def test_the_last_look_counts_whatever_came_of_it() -> None:
    looks = Looks(10 * S, (_NOW,), {"k": refused(_NOW, 4)}, {"k": Passed(_NOW, 6 * S)})
    assert (looks.at_ns("k"), looks.at_ns("other")) == (6 * S, -1)


def test_without_a_stamp_everything_is_due() -> None:
    assert Looks(refused={"k": refused(_NOW, 1)}).is_due("k")


def test_the_pause_is_a_second_or_grows_with_what_the_search_placed() -> None:
    assert [pause_ns(refused(_NOW, 1, placed=placed)) for placed in (0, 100, 1_000)] == [S, S, 5 * S]


# What is known of moving within one look.

_NOWHERE: frozenset[str] = frozenset()


def _trial(*objects: Any, **b: Any) -> Trial:
    queues = (queue("a"), queue("b", **b))
    full = [each for name in ("n1", "n2") for each in (node(name, 4), running(f"on-{name}", "a", name, gpus=3))]
    # One that takes nobody, so that all that is asked is within fair shares.
    spare = node("n3", 4, cordoned=True)
    return trial_of(preempting_cluster(*queues, *full, spare, waiting("mine", "a", gpus=2), *objects))


def _searched(trial: Trial) -> MovesOfLook:
    known = MovesOfLook()
    assert not known.is_known(need_of(trial, "mine"), trial, _NOWHERE)
    assert isinstance(known.find(need_of(trial, "mine"), trial, _NOWHERE), NoMoves)
    return known


def test_one_search_says_no_to_all_that_ask_the_same_until_something_is_charged() -> None:
    trial = _trial(waiting("other", "b", gpus=2))
    known = _searched(trial)
    assert known.is_known(need_of(trial, "other"), trial, _NOWHERE)
    known.has_charged()
    assert not known.is_known(need_of(trial, "other"), trial, _NOWHERE)


@pytest.mark.parametrize(
    ("other", "b", "off"),
    [
        pytest.param({"gpus": 1}, {}, _NOWHERE, id="asks something else"),
        pytest.param({"gpus": 2}, {"gpu": (0, 1, 4)}, _NOWHERE, id="its queue has a limit"),
        pytest.param({"gpus": 2}, {}, frozenset({"n1"}), id="is kept off other nodes"),
        pytest.param({"gpus": 5}, {}, _NOWHERE, id="would come above its share"),
        pytest.param({"gpus": 2, "spec": {"nodeSelector": {"zone": "x"}}}, {}, _NOWHERE, id="asks for other nodes"),
        pytest.param({"gpus": 2, "priority": 60}, {}, _NOWHERE, id="has another priority"),
    ],
)
def test_it_says_nothing_of_others(other: dict[str, Any], b: dict[str, Any], off: frozenset[str]) -> None:
    trial = _trial(waiting("other", "b", **other), **b)
    assert not _searched(trial).is_known(need_of(trial, "other"), trial, off)
