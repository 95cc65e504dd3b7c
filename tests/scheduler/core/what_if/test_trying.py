"""A change helps if the same decision places the group then, beside others that wait where they may come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import queue_record
from scheduler.core.decide.changes import AnotherNode, AnotherQueue, Change, WithoutPods
from scheduler.core.model.plan import placements
from scheduler.core.model.preemption import Action, NoVictims
from scheduler.core.model.settings import Settings
from scheduler.core.model.steps import ended
from scheduler.core.model.verdict import Code
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from scheduler.core.what_if.node_changes import MoreNodes
from scheduler.core.what_if.trials import Rivals, Trying, rivals
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import bound, cluster, node, pod, pod_group, queue, reservation
from tests.scheduler.core.stepping import at_once
from tests.scheduler.core.what_if.given import NO_ROOM, changes, tries, trying

OLD = "2025-01-01T00:00:00Z"
A = {"kai.scheduler/queue": "a"}


def more(gpus: int) -> Change:
    return AnotherNode(node_record(node("n2", gpus)))


@pytest.mark.parametrize(
    ("others", "gpus", "helps"),
    [
        ((), 2, True),
        ((), 1, False),
        ((pod("older", gpus=2, created=OLD),), 2, False),
        ((pod("older", gpus=2, created=OLD),), 4, True),
        ((pod("younger", gpus=2, created="2027-01-01T00:00:00Z"),), 2, True),
        ((pod_group("g", 2), *(pod(f"m{at}", gpus=1, group="g", priority=50) for at in range(2))), 2, False),
    ],
)
def test_what_is_added_helps_if_nobody_takes_it_first(others: tuple[Any, ...], gpus: int, helps: bool) -> None:
    tried = tries(node(gpus=0), pod("p", gpus=2), *others)
    assert tried.helps(more(gpus), is_own=False) is helps


def test_of_many_that_request_the_same_those_left_out_might_come_first_so_nothing_is_promised() -> None:
    crowd = [pod(f"o{at}", gpus=1, created=OLD) for at in range(65)]
    tried = tries(node(gpus=0), pod("p", gpus=2), *crowd)
    assert not tried.helps(more(66), is_own=False)
    assert tried.helps(more(64 + 2), is_own=False) is False
    assert tries(node(gpus=0), pod("p", gpus=2), *crowd[:64]).helps(more(66), is_own=False)


def test_where_others_would_be_placed_now_a_change_of_the_group_is_tried_beside_them() -> None:
    tried = tries(node(gpus=2), pod("older", gpus=2, created=OLD), pod("p", gpus=2))
    assert not tried.is_quiet
    assert tried.outcome().starts
    assert not tried.helps(is_own=True)


def test_room_is_searched_for_beside_others_only_for_a_group_that_needs_it_alone() -> None:
    searched: list[Need] = []

    def no_room(need: Need, trial: Trial, actions: Sequence[Action]) -> NoVictims:
        del trial, actions
        searched.append(need)
        return NoVictims()

    takes = Settings(preemption=True)
    tried = tries(node(gpus=0), pod("p", gpus=2), pod("older", gpus=2, created=OLD), settings=takes)
    tried.snapshot = replace(tried.snapshot, find_victims=at_once(no_room))
    assert not tried.beside_others(more(2), preemption=True).starts
    assert searched
    searched.clear()
    assert not tried.helps(more(2), is_own=False)
    assert not searched


def equal_pods() -> list[Any]:
    """Of queue ``a``, which is owed nothing, while queue ``b`` uses both GPUs."""
    labels = {"kai.scheduler/queue": "a"}
    runs = [pod(f"r{at}", gpus=1, bound_to="n1", labels={"kai.scheduler/queue": "b"}) for at in range(2)]
    waits = [pod(f"p{at}", gpus=1, labels=labels, created=f"2026-01-01T00:00:0{at}Z") for at in range(3)]
    return [node(gpus=2), queue("a", gpu=(0, 0, -1)), queue("b", gpu=(0, 1, -1)), *runs, *waits]


@pytest.mark.parametrize(("name", "told"), [("p0", True), ("p1", False), ("p2", False)])
def test_a_quota_for_one_is_told_to_the_first_of_equal_pods_alone(name: str, told: bool) -> None:
    tried = trying(cluster(*equal_pods(), settings=Settings(preemption=True)), name)
    quota = AnotherQueue(queue_record(queue("a", gpu=(1, 0, -1))))
    assert tried.outcome(quota).preemption is not None
    assert tried.helps(quota, is_own=False) is told


@pytest.mark.parametrize(
    "waits",
    [
        (pod("p", labels=A, gpus=1),),
        (pod("p", labels=A, fraction="0.6"),),
        (offered("n1"), GPU, claimed("o", on=("n1", "d0")), claimed(), claiming("p", "c", labels=A, gpus=1)),
    ],
    ids=["whole", "share", "claim"],
)
def test_a_node_where_the_pod_is_evicted_at_once_for_a_gang_does_not_help(waits: tuple[Any, ...]) -> None:
    """The gang finds no two GPUs free, so it sleeps on while the pod starts, and then reclaims both."""
    gang: tuple[Any, ...] = (
        pod_group("g", 2, queue="b"),
        *(pod(f"g{at}", gpus=1, group="g", labels={"kai.scheduler/queue": "b"}) for at in range(2)),
    )
    queues = queue("a", gpu=(0, 1, -1)), queue("b", gpu=(2, 1, -1))
    there: tuple[Any, ...] = (node(gpus=1), *queues, pod("r", gpus=1, bound_to="n1", labels=A), *waits)
    beside = trying(cluster(*there, *gang, settings=Settings(preemption=True)))
    added = changes(beside, MoreNodes(1, "n1"))
    assert [each.node for each in beside.beside_others(*added, preemption=False).placed] == ["n1-more-1"]
    assert not beside.helps(*added, is_own=False)
    assert trying(cluster(*there, *gang, settings=NO_ROOM)).helps(*added, is_own=False)
    assert trying(cluster(*there, settings=Settings(preemption=True))).helps(*added, is_own=False)


def test_an_idle_reservation_that_goes_for_a_pod_lets_it_start() -> None:
    tried = tries(node(gpus=1), reservation("g", "n1"), pod("p", gpus=1))
    assert tried.outcome().frees_device
    assert tried.helps(is_own=False)


def test_pods_that_are_evicted_for_it_let_it_start_and_are_named() -> None:
    labels = {"kai.scheduler/queue": "team"}
    made = cluster(
        queue("team", gpu=(0, 1, -1)),
        node(gpus=1),
        pod("low", gpus=1, bound_to="n1", labels=labels, priority=10),
        pod("p", gpus=1, labels=labels, priority=50),
        settings=Settings(),
    )
    room = trying(made).outcome().preemption
    assert room is not None
    assert [victim.name for victim in room.victims] == ["low"]


def test_nodes_are_counted_by_reason_for_the_group_alone_as_things_are() -> None:
    tried = tries(node(gpus=1), pod("p", gpus=2), pod("q", gpus=3, created=OLD))
    as_it_is = tried.outcome().verdict
    assert as_it_is is not None
    assert as_it_is.node_reasons
    others = [tried.beside_others(preemption=False), tried.outcome(WithoutPods(("uid-q",)))]
    assert [each.verdict and (each.verdict.code, each.verdict.node_reasons) for each in others] == [
        (Code.NO_NODE_FITS, ())
    ] * 2


def test_trying_changes_nothing_and_counts_its_decisions() -> None:
    made = cluster(node(gpus=1), bound(pod("tenant", gpus=1), "n1"), pod("p", gpus=1), pod("q", gpus=1, created=OLD))
    made.prepared(0)
    before = footprint(made)
    tried = trying(made)
    assert not tried.helps(WithoutPods(("uid-tenant",)), is_own=False)
    assert tried.tries == 3  # alone, as things are, and beside the others
    assert tried.outcome().verdict == tried.outcome().verdict
    assert tried.tries == 4
    assert footprint(made) == before


# Who else waits, by form, and who of them would have a turn.


def found(*objects: Any) -> tuple[Trying, Rivals]:
    tried = tries(*objects, pod("p", gpus=1))
    return tried, rivals(tried.snapshot, tried.subject)


def test_pods_that_request_the_same_are_one_form_and_gangs_likewise() -> None:
    gangs = [
        each
        for name in ("g", "h")
        for each in (pod_group(name, 2), *(pod(f"{name}{at}", group=name) for at in range(2)))
    ]
    _, others = found(node(), pod("a", gpus=1), pod("b", gpus=1), pod("c", gpus=2), *gangs, pod("gated", gated=True))
    assert sorted(sorted(form.uids) for form in others.forms) == [
        ["uid-a", "uid-b"],
        ["uid-c"],
        ["uid-g0", "uid-g1", "uid-h0", "uid-h1"],
    ]


def test_of_many_only_the_first_are_tried_and_they_have_to_be_enough() -> None:
    crowd = [pod(f"o{at:03}", gpus=1, created=f"2025-01-01T00:{at // 60:02}:{at % 60:02}Z") for at in range(70)]
    _, others = found(node(), *reversed(crowd))
    assert others.uids == {f"uid-o{at:03}" for at in range(64)}
    assert not others.are_enough(set(others.uids))
    assert others.are_enough(set(others.uids) - {"uid-o063"})


@pytest.mark.parametrize(
    ("other", "is_awake"),
    [
        ({"gpus": 1}, True),
        ({"gpus": 5}, False),
        ({"gpus": 1, "labels": {"kai.scheduler/queue": "full"}}, False),
        ({"gpus": 1, "labels": {"kai.scheduler/queue": "missing"}}, False),
    ],
)
def test_who_is_kept_by_its_queue_or_fits_nowhere_has_no_turn(other: dict[str, Any], is_awake: bool) -> None:
    queues = queue("default-queue"), queue("full", gpu=(0, 1, 0))
    tried, others = found(node(gpus=4), *queues, pod("other", **other))
    assert ended(others.finding_awake(tried.snapshot, tried.snapshot, 0)) == (
        {"uid-other"} if is_awake else frozenset()
    )


def test_a_gang_whose_queue_has_no_room_for_its_minimum_does_not_come_before_others_of_its_queue() -> None:
    """It would make its queue the last one of all, if it had a turn."""
    gang = pod_group("g", 2, queue="a"), *(pod(f"g{at}", gpus=2, group="g") for at in range(2))
    first = pod("first", gpus=1, created=OLD, labels={"kai.scheduler/queue": "a"})
    other = pod("p", gpus=1, labels={"kai.scheduler/queue": "b"})
    tried = tries(node(gpus=1), queue("a", gpu=(1, 1, 1)), queue("b", gpu=(0, 1, -1)), *gang, first, other)
    assert not tried.helps(is_own=False)


def test_who_waits_for_an_idle_reservation_has_a_turn() -> None:
    tried, others = found(node(gpus=1), reservation("g", "n1"), pod("whole", gpus=1, cpu="1"))
    assert ended(others.finding_awake(tried.snapshot, tried.snapshot, 0)) == {"uid-whole"}


def test_after_another_queue_all_have_a_turn_that_their_queues_keep() -> None:
    labels = {"kai.scheduler/queue": "full"}
    queues = queue("default-queue"), queue("full", gpu=(0, 1, 0))
    tried, others = found(node(gpus=4), *queues, pod("kept", gpus=1, labels=labels), pod("large", gpus=9))
    changed = tried.snapshot.with_(AnotherQueue(queue_record(queue("other"))))
    assert ended(others.finding_awake(tried.snapshot, tried.snapshot, 0)) == frozenset()
    assert ended(others.finding_awake(tried.snapshot, changed, 0)) == {"uid-kept"}


def test_beside_too_many_forms_nothing_is_promised_of_what_comes_free() -> None:
    crowd = [pod(f"o{at}", cpu=f"{at + 1}m") for at in range(1_025)]
    tried = tries(node(cpu="0"), *crowd, pod("p", gpus=1))
    assert tried.rivals.are_too_many
    assert not tried.helps(AnotherQueue(queue_record(queue("default-queue"))), is_own=False)
    assert tried.helps(is_own=True)


def test_of_many_forms_fewer_of_each_are_tried() -> None:
    _, others = found(node(), *(pod(f"o{at}-{number}", cpu=f"{at + 1}m") for at in range(200) for number in range(4)))
    assert {len(form.uids) for form in others.forms} == {2}


# After a change of nodes those have a turn that the scheduling queue would wake.

TEAMS: tuple[Any, ...] = queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 1, -1))


def gang(name: str, minimum: int, **asked: Any) -> tuple[Any, ...]:
    return pod_group(name, minimum), *(pod(f"{name}{at}", group=name, **asked) for at in range(minimum))


@pytest.mark.parametrize(
    ("others", "awake"),
    [
        ((pod("o", gpus=1),), {"o"}),
        ((pod("o", gpus=2),), set()),
        # a node with one GPU more, of which two members need one each
        (gang("o", 2, gpus=1), set()),
        # two of three find a place already
        ((node("n2", gpus=2), *gang("o", 3, gpus=1)), {"o0", "o1", "o2"}),
        # nobody tells by sums of nodes how many of these fit
        (gang("o", 2, gpus=0, fraction="0.9"), {"o0", "o1"}),
    ],
    ids=["fits", "too-large", "two-of-which-one-fits", "the-last-of-three", "shares"],
)
def test_those_have_a_turn_that_pass_the_sums_of_nodes_that_got_something(
    others: tuple[Any, ...], awake: set[str]
) -> None:
    made = cluster(node(gpus=1), bound(pod("tenant", gpus=1), "n1"), pod("p", gpus=1), *others, settings=NO_ROOM)
    assert _awake(made, WithoutPods(("uid-tenant",))) == {f"uid-{name}" for name in awake}


def test_who_fits_on_a_node_that_got_nothing_sleeps_on() -> None:
    other = gang("o", 2, gpus=1)
    made = cluster(node(gpus=1), node("n2", gpus=1, cordoned=True), pod("p", gpus=2), *other, settings=NO_ROOM)
    assert _awake(made, AnotherNode(_record("n3", gpus=0))) == set()
    assert _awake(made, AnotherNode(_record("n3", gpus=1))) == {"uid-o0", "uid-o1"}


def test_a_gang_that_fits_only_in_part_does_not_make_its_queue_the_last_one() -> None:
    """It is first in its queue and would use most. So it decides who is next only where the scheduler wakes it."""
    a, b = {"kai.scheduler/queue": "a"}, {"kai.scheduler/queue": "b"}
    large: tuple[Any, ...] = (
        pod_group("g", 3, queue="a", created=OLD),
        *(pod(f"g{at}", gpus=1, group="g", created=OLD) for at in range(3)),
    )
    used: tuple[Any, ...] = bound(pod("used", gpus=2, labels=b), "n1"), bound(pod("ends", gpus=1, labels=b), "n1")
    made = cluster(
        node(gpus=3), *TEAMS, *used, *large, pod("p", gpus=1, labels=a), pod("o", gpus=1, labels=b), settings=NO_ROOM
    )
    tried = trying(made)
    assert tried.helps(WithoutPods(("uid-ends",)), is_own=False)
    made.decide(0)
    made.remove_pod("uid-ends")
    assert [placed.name for placed in placements(made.decide(1).entries)] == ["p"]


def _record(name: str, **has: Any) -> Any:
    made = cluster(node(name, **has))
    return made.snapshot().ledger.nodes[0]


def _awake(made: Any, change: Change) -> set[str]:
    tried = trying(made)
    changed = tried.snapshot.with_(change)
    others = rivals(tried.snapshot, tried.subject)
    return set(ended(others.finding_awake(tried.snapshot, changed, 0, is_quiet=True)))
