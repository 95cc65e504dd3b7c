"""What helps comes cheapest first, at most eight; two changes together only where no single one helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.core.model.steps import ended
from scheduler.core.what_if import known_ends
from scheduler.core.what_if.edits import Edit, NotPossible
from scheduler.core.what_if.group_changes import Members, Tolerating, Without, dropped_constraints
from scheduler.core.what_if.known_ends import Wait, candidates
from scheduler.core.what_if.node_changes import Ended, NodeOut, ended_groups
from scheduler.core.what_if.suggestions import (
    MOST,
    MOST_PODS,
    hint_helps,
    hint_search,
    hint_trying,
    searching,
    suggestions,
    suggestions_within,
)
from scheduler.core.what_if.trials import Finding, Question, Trying, about, answered, first
from tests.scheduler.core.objects import NANO, bound, cluster, node, pod, pod_group, queue, reservation
from tests.scheduler.core.what_if.given import NO_ROOM, WALL_S, changes, edits, spelled, tries, trying
from wire.core import Taint


def said(tried: Trying) -> list[list[str]]:
    return [spelled(each.edits) for each in suggestions(tried)]


def test_they_come_in_the_order_of_what_they_cost_who_asks() -> None:
    gang = [pod(name, gpus=2, group="g") for name in "pqr"]
    tried = tries(node(gpus=4), pod("t", gpus=1, bound_to="n1"), pod_group("g", 3), *gang)
    assert said(tried) == [["gpus=1"], ["members=1"], ["node +1 like n1"]]


def test_there_are_no_more_than_eight() -> None:
    taints = [node(f"t{at}", taints=[(f"k{at}", "", "NoSchedule")]) for at in range(3)]
    queues = [queue(name) for name in ("default-queue", "b")]
    runs = [pod(f"r{at}", gpus=4, bound_to="n1") for at in range(2)]
    tried = tries(
        node(),
        *taints,
        *queues,
        *runs,
        pod("p", gpus=4, cpu="1", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}}),
    )
    assert 0 < len(said(tried)) <= MOST


def test_two_together_are_told_where_no_single_one_helps() -> None:
    gang = [pod(name, gpus=4, group="g") for name in "pq"]
    both = tries(node(gpus=1, pods=1), pod_group("g", 2), *gang)
    assert said(both) == [["members=1", "gpus=1"]]


def test_a_queue_and_nodes_together() -> None:
    labels = {"kai.scheduler/queue": "a"}
    runs = pod("t", gpus=2, bound_to="n1", labels=labels)
    tried = tries(node(gpus=2), queue("a", gpu=(0, 1, 2)), runs, pod("p", gpus=1, cpu="1", labels=labels, priority=0))
    assert said(tried) == [["finish t"]]
    mine = pod("mine", gpus=2, bound_to="n1")
    queues = queue("a", gpu=(0, 1, 0)), queue("default-queue")
    other = tries(node(gpus=2), *queues, mine, pod("p", gpus=1, labels=labels), settings=NO_ROOM)
    assert said(other) == [["limit a gpu=1", "node +1 like n1"]]


ZONE_Y = {"nodeSelector": {"zone": "y"}}
ZONE_X = {"zone": "x"}
TAINTED = [("dedicated", "ml", "NoSchedule")]


@pytest.mark.parametrize(
    ("there", "waits", "told"),
    [
        (
            (node(gpus=4, labels=ZONE_X),),
            {"gpus": 8, "spec": ZONE_Y},
            ["without nodeSelector zone", "gpus=4"],
        ),
        (
            (node(gpus=4, labels=ZONE_X, taints=TAINTED),),
            {"gpus": 4, "spec": ZONE_Y},
            ["without nodeSelector zone", "tolerate dedicated=ml:NoSchedule"],
        ),
        (
            (node(gpus=4, labels=ZONE_X), queue("default-queue"), queue("a", gpu=(0, 1, 0))),
            {"gpus": 4, "spec": ZONE_Y, "labels": {"kai.scheduler/queue": "a"}},
            ["without nodeSelector zone", "limit a gpu=4"],
        ),
    ],
    ids=["too-many-gpus", "a-taint", "a-limit"],
)
def test_a_constraint_and_another_obstacle_are_told_together(
    there: tuple[Any, ...], waits: dict[str, Any], told: list[str]
) -> None:
    tried = tries(*there, pod("p", **waits), settings=NO_ROOM)
    assert told in said(tried)


@pytest.mark.parametrize(("created", "is_told"), [("2026-06-01T00:00:00Z", False), ("2027-06-01T00:00:00Z", True)])
def test_a_pod_that_asks_something_else_is_a_new_pod_and_older_ones_have_their_turn_first(
    created: str, is_told: bool
) -> None:
    labels = {"kai.scheduler/queue": "a"}
    there = node(gpus=4, labels=ZONE_X), queue("default-queue"), queue("a", gpu=(0, 1, 0))
    other = pod("other", gpus=4, labels=labels, created=created)
    tried = tries(*there, other, pod("p", gpus=4, spec=ZONE_Y, labels=labels), settings=NO_ROOM)
    assert (["without nodeSelector zone", "limit a gpu=4"] in said(tried)) is is_told


def test_nothing_is_said_of_a_group_that_starts() -> None:
    assert said(tries(node(), pod("p", gpus=1))) == []


@pytest.mark.parametrize(("operations", "found", "is_whole"), [(0, 0, False), (3_000, 1, False), (None, 3, True)])
def test_no_try_is_begun_after_some_operations_and_it_is_said_so(
    operations: int | None, found: int, is_whole: bool
) -> None:
    gang = [pod(name, gpus=2, group="g") for name in "pqr"]
    tried = tries(node(gpus=4), pod("t", gpus=1, bound_to="n1"), pod_group("g", 3), *gang)
    some, ended = suggestions_within(tried, operations)
    assert (len(some), ended) == (found, is_whole)
    assert tuple(some) == tuple(suggestions(tried))[:found]


# A search for a condition asks one bounded question at a time, and says nothing that it did not ask.

STARTED_S = WALL_S - 3_600


def ends(name: str, deadline: int, **asked: Any) -> Any:
    made = pod(name, bound_to="n1", spec={"activeDeadlineSeconds": deadline}, **asked)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, start_time="2027-01-15T07:00:00Z"))


def searched(tried: Trying, answer: Callable[[Trying, Edit | None], bool] = hint_helps) -> tuple[Edit, ...]:
    """Search as a scheduler does that nothing interrupts."""
    found = known_ends.all_ends(tried.snapshot.pods.records.values())
    search = hint_search(tried.subject, sorted(found, key=lambda pair: pair[0].at_s), tried.wall_s)
    try:
        question = next(search)
        while True:
            question = search.send(answer(tried, question))
    except StopIteration as done:
        edits: tuple[Edit, ...] = done.value
        return edits


def hinting(*objects: Any, of_group: bool = False) -> Trying:
    tried = trying(cluster(*objects), "g" if of_group else "p", of_group=of_group)
    return hint_trying(tried.snapshot, tried.subject, 0, tried.wall_s)


def gang(count: int, **asked: Any) -> list[Any]:
    return [pod(f"p{at:03}", group="g", **asked) for at in range(count)]


def test_families_come_in_the_order_of_what_they_cost() -> None:
    tried = hinting(node(gpus=4), ends("t", 7_200, gpus=2), pod_group("g", 3), *gang(3, gpus=1, cpu="1"), of_group=True)
    found = searched(tried)
    assert [each.family.value for each in found] == ["wait", "fewer-members"]
    assert isinstance(found[0], known_ends.Wait)
    assert (found[0].until_s, spelled(found)[1]) == (STARTED_S + 7_200, "members=2")


def test_two_amounts_at_most_are_told() -> None:
    asked = pod("p", gpus=4, cpu="8", memory="64Gi")
    tried = hinting(node("a", gpus=2), node("b", gpus=8, cpu="1"), asked)
    assert spelled(searched(tried)) == ["gpus=2", "cpu=960m"]


def test_nothing_is_asked_further_where_the_group_starts_as_it_is() -> None:
    asked: list[Edit | None] = []

    def answer(tried: Trying, edit: Edit | None) -> bool:
        asked.append(edit)
        return hint_helps(tried, edit)

    assert searched(hinting(node(gpus=4), pod("p", gpus=1)), answer) == ()
    assert asked == [None]


@pytest.mark.parametrize(("count", "is_tried"), [(MOST_PODS, True), (MOST_PODS + 1, False)])
def test_groups_of_many_pods_are_left_out(count: int, is_tried: bool) -> None:
    asked: list[Edit | None] = []

    def answer(_: Trying, edit: Edit | None) -> bool:
        asked.append(edit)
        return False

    searched(hinting(node(), pod_group("g", count), *gang(count, gpus=1), of_group=True), answer)
    assert bool(asked) == is_tried


@pytest.mark.parametrize(("others", "is_told"), [(10, True), (64, False)])
def test_beside_many_others_nobody_is_told_when_it_starts(others: int, is_told: bool) -> None:
    crowd = [pod(f"other{at:02}", gpus=8, created="2027-01-15T07:30:00Z") for at in range(others)]
    tried = hinting(node(gpus=4), ends("t", 7_200, gpus=2), *crowd, pod("p", gpus=4))
    assert ("wait" in {each.family.value for each in searched(tried)}) == is_told


def test_others_who_come_first_take_what_comes_free() -> None:
    first = pod("first", gpus=4, created="2020-01-01T00:00:00Z")
    late = pod("p", gpus=4, created="2027-01-15T07:59:00Z")
    assert searched(hinting(node(gpus=4), ends("t", 7_200, gpus=4), first, late)) == ()


def test_a_time_that_is_over_helps_nobody() -> None:
    assert searched(hinting(node(gpus=4), ends("t", 60, gpus=4), pod("p", gpus=4))) == ()


def test_what_a_try_can_not_finish_is_not_said() -> None:
    """Of those that are put off to a decision that is not made nothing is known: they may come before it as well."""
    late = [pod(f"late{at}", gpus=1, cpu=f"{at}m", created="2027-01-15T07:59:00Z") for at in range(1, 20)]
    old = pod("p", gpus=4, created="2026-01-01T00:00:00Z")
    tried = hinting(node(gpus=4), ends("t", 7_200, gpus=4), old, *late)
    assert [each.family.value for each in searched(tried)] == ["wait"]
    tried.limits = msgspec.structs.replace(tried.limits, most=1)
    assert searched(tried) == ()


# Only ends that somebody has set are known, and the earliest that helps is found.

STARTED = "2027-01-15T07:00:00Z"


def runs(name: str, deadline: int = 0, runtime: str = "", **asked: Any) -> Any:
    spec = {"activeDeadlineSeconds": deadline} if deadline else {}
    made = pod(
        name, bound_to="n1", spec=spec, annotations={"moorage.dev/max-runtime": runtime} if runtime else {}, **asked
    )
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, start_time=STARTED))


def waits(*objects: Any) -> list[Wait]:
    return [edit for edit in edits(candidates, tries(*objects)) if isinstance(edit, Wait)]


@pytest.mark.parametrize(
    ("running", "gpus", "until", "last"),
    [
        ((runs("a", 7_200, gpus=1), runs("b", 36_000, gpus=1)), 1, 7_200, ("a", "deadline")),
        ((runs("a", 7_200, gpus=1), runs("b", 36_000, gpus=1)), 2, 36_000, ("b", "deadline")),
        ((runs("a", 7_200, "1h30m", gpus=2),), 2, 5_400, ("a", "max-runtime")),
        ((runs("a", gpus=2),), 1, None, None),
        ((runs("a", 7_200, gpus=1), runs("b", gpus=1)), 2, None, None),
    ],
)
def test_the_earliest_end_that_helps_is_found(
    running: tuple[Any, ...], gpus: int, until: int | None, last: tuple[str, str] | None
) -> None:
    found = waits(node(gpus=2), *running, pod("p", gpus=gpus))
    assert [wait.until_s for wait in found] == ([] if until is None else [STARTED_S + until])
    assert [(wait.ends[0].name, wait.ends[0].by) for wait in found] == ([] if last is None else [last])


def test_an_end_that_is_over_is_now() -> None:
    (wait,) = waits(node(gpus=1), runs("a", 60, gpus=1), pod("p", gpus=1))
    assert wait.until_s == WALL_S


def test_what_comes_free_may_be_another_s() -> None:
    older = pod("older", gpus=1, created="2025-01-01T00:00:00Z")
    assert edits(candidates, tries(node(gpus=1), runs("a", 7_200, gpus=1), older, pod("p", gpus=1))) == []


# What would have to end: the smallest first, of those that leave room where a pod of the group may be.

RUNS = (
    node(gpus=4),
    pod_group("job", 2),
    *(pod(f"j{at}", gpus=1, group="job", bound_to="n1") for at in range(2)),
    pod("small", gpus=1, bound_to="n1"),
    pod("big", gpus=1, cpu="60", bound_to="n1"),
)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"gpus": 1}, ["finish big", "finish small", "finish job"]),
        ({"gpus": 2}, ["finish job"]),
        ({"cpu": "50"}, ["finish big"]),
        ({"gpus": 3}, []),
    ],
)
def test_what_leaves_room_is_found(asked: dict[str, Any], found: list[str]) -> None:
    assert spelled(edits(ended_groups, tries(*RUNS, pod("p", **asked)))) == found


def test_tenants_of_a_device_leave_room_for_a_share() -> None:
    tenants = [bound(pod(name), "n1", ("g", 4 * NANO // 10)) for name in ("a", "b")]
    book = reservation("g", "n1", book={"uid-a": 4 * NANO // 10, "uid-b": 4 * NANO // 10})
    assert spelled(edits(ended_groups, tries(node(gpus=1), *tenants, book, pod("p", fraction="0.5")))) == [
        "finish a",
        "finish b",
    ]


def test_what_uses_the_queue_that_is_at_its_limit_is_found() -> None:
    labels = {"kai.scheduler/queue": "a"}
    runs = pod("runs", gpus=1, bound_to="n1", labels=labels), pod("other", gpus=1, bound_to="n1")
    tried = tries(node(), queue("a", gpu=(0, 1, 1)), queue("default-queue"), *runs, pod("p", gpus=1, labels=labels))
    assert spelled(edits(ended_groups, tried)) == ["finish runs"]


def test_who_comes_first_takes_the_room() -> None:
    older = pod("older", gpus=2, created="2025-01-01T00:00:00Z")
    assert edits(ended_groups, tries(*RUNS, older, pod("p", gpus=2))) == []


def test_what_does_not_run_is_refused_with_what_does() -> None:
    tried = tries(*RUNS, pod("p", gpus=1))
    with pytest.raises(
        NotPossible, match=r"finish ns/x: allowed are pods and PodGroups that run: ns/big, ns/job, ns/small"
    ):
        changes(tried, Ended("x"))
    with pytest.raises(NotPossible, match=r"drain n9: allowed are nodes: n1"):
        changes(tried, NodeOut("n9"))
    assert [NodeOut("n1").spelled(), NodeOut("n1", is_drained=False).spelled()] == ["drain n1", "cordon n1"]
    assert not tried.helps(*changes(tried, NodeOut("n1")), is_own=False)


# Constraints that keep a group off nodes are left out one at a time.

TERM = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}


def _affine(expression: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: terms}}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"nodeSelector": {"zone": "b"}}, ["without nodeSelector zone"]),
        ({"nodeSelector": {"zone": "b", "rack": "1"}}, ["without nodeSelector"]),
        ({"nodeSelector": {"zone": "a", "rack": "1"}}, ["without nodeSelector rack", "without nodeSelector"]),
        (_affine({"key": "zone", "operator": "In", "values": ["b"]}), ["without nodeAffinity"]),
        ({"affinity": {"podAffinity": {REQUIRED: [TERM]}}}, ["without podAffinity"]),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{**TERM, "labelSelector": {}}]}}}, ["without podAntiAffinity"]),
        ({"topologySpreadConstraints": [{**SPREAD, "topologyKey": "rack"}]}, ["without topologySpreadConstraints"]),
    ],
)
def test_what_keeps_a_pod_off_is_found(spec: dict[str, Any], found: list[str]) -> None:
    tried = tries(node(labels={"zone": "a"}), pod("there", bound_to="n1"), pod("p", spec=spec))
    assert spelled(edits(dropped_constraints, tried)) == found


def test_a_taint_of_a_node_with_room_is_found_and_others_are_not() -> None:
    tainted = node("n2", taints=[("dedicated", "ml", "NoSchedule")])
    full = node("n3", 0, taints=[("other", "", "NoSchedule")])
    assert spelled(edits(dropped_constraints, tries(node(gpus=0), tainted, full, pod("p", gpus=1)))) == [
        "tolerate dedicated=ml:NoSchedule"
    ]


def test_a_constraint_that_is_not_there_is_refused_with_those_that_are() -> None:
    tried = tries(node(), pod("p", spec={"nodeSelector": {"zone": "b"}}))
    with pytest.raises(NotPossible, match=r"has no such constraint; allowed: without nodeSelector zone"):
        changes(tried, Without("podAffinity"))
    with pytest.raises(NotPossible, match="it has no constraint that can be left out"):
        changes(tries(node(), pod("p")), Without("nodeSelector", "zone"))
    assert len(changes(tried, Tolerating(Taint(key="k", effect="NoSchedule")))) == 1


# A search asks one question at a time; its caller may go on from another state of the cluster in between.
GANG: tuple[Any, ...] = (pod_group("g", 3), *(pod(name, gpus=2, group="g") for name in "pqr"))


def three() -> Finding:
    for minimum in (1, 2, 3):
        if (yield Question()):
            yield Members(minimum)


def test_the_questions_are_passed_on_until_enough_is_found() -> None:
    search = first(1, three())
    next(search)
    search.send(False)
    with pytest.raises(StopIteration) as done:
        search.send(True)
    assert done.value.value == [Members(2)]


def test_each_edit_comes_before_the_next_question() -> None:
    tried = tries(node(gpus=4), pod("p", gpus=1))
    found = answered(tried, three())
    assert next(found) == Members(1)
    assert tried.tries == 1


def test_a_question_about_several_edits_is_the_groups_own_only_if_all_are() -> None:
    tried = tries(node(gpus=4), *GANG)
    assert about(tried, Members(1), Members(2)).is_own
    assert len(about(tried, Members(1), Members(2)).changes) == 2


def test_a_search_goes_on_from_another_state_of_the_cluster() -> None:
    made = cluster(node(gpus=4), *GANG)
    tried = trying(made)
    told = suggestions(trying(made))
    search, asked = searching(tried), 0
    with pytest.raises(StopIteration) as done:  # noqa: PT012 - it ends when nothing is left to ask
        question = next(search)
        while True:
            made.upsert_node(node(f"other{asked}", 0))  # every answer so far is of an older state
            asked += 1
            now = trying(made)
            tried.go_on_from(now.snapshot, now.subject, now_ns=0, wall_s=now.wall_s)
            question = search.send(ended(question.answering(tried)))
    assert [spelled(each.edits) for each in done.value.value] == [spelled(each.edits) for each in told]
    assert asked > 2
