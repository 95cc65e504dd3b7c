"""Counts in verdicts are brought up to date once a second, the oldest first."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import placements
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code
from scheduler.core.scheduling_queue.queue import NO_RECOUNTS, due_recounts, next_recount_ns
from tests.scheduler.core.filters.beside import HOST, anti_affinity, running, term, waiting
from tests.scheduler.core.objects import bound, cluster, feed, node, pod, pod_group, queue
from tests.values import there
from wire import names

_SECOND_NS = 1_000_000_000
Q = {names.QUEUE_LABEL: "q"}
A, B = {names.QUEUE_LABEL: "a"}, {names.QUEUE_LABEL: "b"}
LATER = "2026-05-01T00:00:00Z"


def _two_that_sleep() -> Cluster:
    made = cluster(node(), pod("a", cpu="100"), pod("b", cpu="101"))
    made.decide(0)
    return made


def test_nothing_is_due_while_no_node_has_changed() -> None:
    made = _two_that_sleep()
    assert due_recounts(made.scheduling_queue, 0, 20) == NO_RECOUNTS
    assert next_recount_ns(made.scheduling_queue, 0, 20) is None


def test_classes_are_due_after_a_change_that_helps_nobody_and_then_once_a_second() -> None:
    made = _two_that_sleep()
    feed(made, node("n2", cpu="1"))
    made.refresh()
    assert len(due_recounts(made.scheduling_queue, 0, 1).classes) == 1
    assert due_recounts(made.scheduling_queue, _SECOND_NS - 1, 1) == NO_RECOUNTS
    assert len(due_recounts(made.scheduling_queue, _SECOND_NS, 20).classes) == 2
    assert next_recount_ns(made.scheduling_queue, _SECOND_NS, 20) == 2 * _SECOND_NS


def test_a_class_of_which_no_pod_waits_any_more_is_not_counted() -> None:
    made = _two_that_sleep()
    made.remove_pod("uid-a", has_ended=True)
    feed(made, node("n2", cpu="1"))
    made.refresh()
    (cls,) = due_recounts(made.scheduling_queue, 0, 20).classes
    assert cls.demand.cpu_milli == 101_000


def test_of_a_class_that_nobody_waits_with_any_more_no_time_is_set() -> None:
    made = _two_that_sleep()
    made.remove_pod("uid-a", has_ended=True)
    feed(made, node("n2", cpu="1"))
    plan = made.decide(2 * _SECOND_NS)
    assert plan.wake_at_ns is None


def test_a_pod_of_a_class_that_nobody_waited_with_is_told_of_nodes_as_they_are() -> None:
    made = cluster(node(cordoned=True), pod("a"))
    made.decide(0)
    made.remove_pod("uid-a", has_ended=True)
    feed(made, node(taints=[("x", "", "NoSchedule")]))
    made.decide(2 * _SECOND_NS)
    feed(made, pod("b"))
    made.decide(3 * _SECOND_NS)
    verdict = there(made.scheduling_queue.said.verdict("uid-b"))
    assert [reason.kind for reason in verdict.node_reasons] == ["taint"]


def test_a_pod_with_rules_is_told_of_labels_of_pods_as_they_are() -> None:
    made = cluster(node(cpu="2"), running("r", "n1", app="b", cpu="2"), waiting(anti_affinity(term(HOST))))
    made.decide(0)
    feed(made, running("r", "n1", app="a", cpu="2"))
    made.decide(2 * _SECOND_NS)
    verdict = there(made.scheduling_queue.said.verdict("uid-w"))
    assert [reason.kind for reason in verdict.node_reasons] == ["pod-anti-affinity"]
    assert next_recount_ns(made.scheduling_queue, 2 * _SECOND_NS, 20) is None


def test_the_counts_in_the_verdict_of_a_gang_are_brought_up_to_date() -> None:
    members = [pod(name, gpus=9, group="g") for name in ("a", "b")]
    made = cluster(node("n1"), node("n2"), pod_group("g", 2), *members)
    made.decide(0)
    feed(made, node("n2", cordoned=True))
    made.decide(2 * _SECOND_NS)
    verdict = there(made.scheduling_queue.said.verdict("uid-a"))
    assert {(reason.kind, reason.nodes) for reason in verdict.node_reasons} == {("cordoned", 1), ("insufficient", 1)}


def test_a_class_that_queues_hold_back_is_not_counted_until_one_takes_it() -> None:
    """Its pod says what the queue has, and nothing of nodes; once the queue takes it, it counts the nodes of then."""
    made = cluster(node(), queue("q"), pod("a", cpu="100", labels=Q))
    made.decide(0)
    feed(made, queue("q", cpu=(-1, 1, 1000)))
    made.decide(_SECOND_NS)
    feed(made, node("n2", cpu="1"))
    assert made.decide(2 * _SECOND_NS).wake_at_ns is None
    feed(made, queue("q"))
    made.decide(3 * _SECOND_NS)
    verdict = there(made.scheduling_queue.said.verdict("uid-a"))
    assert [reason.nodes for reason in verdict.node_reasons] == [2]


def test_a_pod_that_its_queue_holds_back_says_so_though_others_of_its_class_are_counted_again() -> None:
    """A verdict on nodes would stay when the other pod, which is counted first, has got its place."""
    first_of_b = pod("large", gpus=3, labels=B)
    made = cluster(node(gpus=1), queue("a", gpu=(0, 1, 0), priority=200), queue("b", gpu=(2, 1, 2)), first_of_b)
    feed(made, pod("p", gpus=2, labels=A), pod("q", gpus=2, labels=B, created=LATER))
    made.decide(0)
    feed(made, node("n2", gpus=1))
    made.decide(2 * _SECOND_NS)
    held_back, counted = there(made.scheduling_queue.said.verdict("uid-p")), made.scheduling_queue.said.verdict("uid-q")
    assert held_back.code is Code.OVER_LIMIT
    assert counted is not None
    assert [reason.nodes for reason in counted.node_reasons] == [2]


@pytest.mark.parametrize("gang", [False, True])
def test_the_amounts_that_a_queue_has_are_brought_up_to_date_while_it_holds_pods_back(gang: bool) -> None:
    """Four GPUs are asked of a queue that may have three; one of them was in use."""
    four = pod("a", gpus=4, labels=Q, group="g" if gang else "")
    made = cluster(node(), queue("q", gpu=(0, 1, 3)), pod_group("g", 1, queue="q"), four)
    feed(made, pod("b", gpus=1, labels=Q, bound_to="n1", phase="Running"))
    made.decide(0)
    made.remove_pod("uid-b", has_ended=True)
    assert made.decide(0).wake_at_ns is None
    verdict = there(made.scheduling_queue.said.verdict("uid-a"))
    assert verdict.queue is not None
    assert verdict.queue.held == 0


def test_constraints_that_no_pod_has_any_more_are_forgotten() -> None:
    made = cluster(node())
    for number in range(300):
        feed(made, pod(f"p{number}", spec={"nodeSelector": {"only": str(number)}}))
        made.decide(number)
        made.remove_pod(f"uid-p{number}", has_ended=True)
    made.decide(300)
    assert made.ledger.constraints < 70
    assert made.scheduling_queue.unschedulable.size < 70


def test_classes_that_nobody_waits_with_do_not_keep_others_from_being_counted() -> None:
    dead = [pod(f"p{number:02}", cpu=str(200 + number)) for number in range(30)]
    made = cluster(node("n1"), *dead, pod("z", gpus=9))
    made.decide(0)
    for each in dead:
        made.remove_pod(each.metadata.uid, has_ended=True)
    feed(made, node("n2"))
    for second in range(2, 8, 2):
        made.decide(second * _SECOND_NS)
    verdict = there(made.scheduling_queue.said.verdict("uid-z"))
    assert [reason.nodes for reason in verdict.node_reasons] == [2]


@pytest.mark.parametrize(("back_off_ms", "wakes_at_ms"), [(200, 1_700), (5_000, 2_500)])
def test_the_next_decision_is_at_the_first_of_the_times_that_are_set(back_off_ms: int, wakes_at_ms: int) -> None:
    """One pod backs off, and the counts of another are to be brought up to date."""
    settings = Settings(back_off_ns=back_off_ms * 1_000_000, preemption=False)
    made = cluster(node(), pod("a", gpus=9), pod("b", gpus=1), settings=settings)
    feed(made, pod("b", gpus=1, gated=True))
    made.decide(0)
    feed(made, node("n2", cordoned=True))
    made.decide(1_500_000_000)
    feed(made, node("n3", cordoned=True), pod("b", gpus=1))
    made.commits.failed("uid-b", "", "Refused", now_ns=1_500_000_000)
    assert made.decide(1_500_000_000).wake_at_ns == wakes_at_ms * 1_000_000


def _comes_to_rest(made: Cluster) -> bool:
    """Whether some seconds after a node has changed nothing is decided any more."""
    made.decide(0)
    feed(made, node("n2", cpu="1"))
    now_ns = 0
    for _ in range(5):
        wake_at_ns = made.decide(now_ns).wake_at_ns
        if wake_at_ns is None:
            return True
        now_ns = wake_at_ns
    return False


@pytest.mark.parametrize("minimums", [(1,), (1, 1), (1, 2)], ids=["alone in its line", "two in a line", "two lines"])
def test_once_gangs_are_counted_nothing_is_decided(minimums: tuple[int, ...]) -> None:
    made = cluster(node())
    for i, minimum in enumerate(minimums):
        feed(made, pod_group(f"g{i}", minimum), *(pod(f"m{i}-{at}", cpu="100", group=f"g{i}") for at in range(minimum)))
    assert _comes_to_rest(made)


def test_a_gang_one_of_whose_members_fits_before_another_is_judged_is_counted() -> None:
    made = cluster(node(cpu="10"), pod_group("g", 2))
    feed(made, pod("a", cpu="6", group="g"), pod("b", cpu="7", group="g"))
    assert _comes_to_rest(made)


@pytest.mark.parametrize("group", ["", "g"], ids=["alone", "in a gang"])
def test_once_all_pods_of_a_class_are_held_back_by_their_queue_nothing_is_decided(group: str) -> None:
    made = cluster(node(), queue("default-queue"), pod_group("g", 1), pod("a", cpu="100", group=group))
    made.decide(0)
    feed(made, queue("default-queue", cpu=(0, 1, 0)))
    assert _comes_to_rest(made)
    feed(made, queue("default-queue"))
    assert _comes_to_rest(made)
    said = there(made.scheduling_queue.said.verdict("uid-a"))
    assert sum(reason.nodes for reason in said.node_reasons) == 2, "a verdict of before the second node came"


def test_a_gang_whose_members_lack_room_and_quota_is_no_reason_to_decide_again_and_again() -> None:
    """It stays awake, as no one thing would help all its members; then its counts are those of each decision."""
    bound_member = bound(pod("a", gpus=1, group="g", labels=Q), "n1")
    members = [pod("b", gpus=1, group="g", labels=Q), pod("c", cpu="100", group="g", labels=Q)]
    made = cluster(node("n1", gpus=1), queue("q", gpu=(0, 1, -1)), pod_group("g", 1, queue="q"), bound_member, *members)
    made.decide(0)
    feed(made, queue("q", gpu=(0, 1, 1)), node("n2", cordoned=True))
    now_ns, decided = 2 * _SECOND_NS, 0
    while (wake_at_ns := made.decide(now_ns).wake_at_ns) is not None:
        now_ns, decided = wake_at_ns, decided + 1
        assert decided < 5
    verdict = there(made.scheduling_queue.said.verdict("uid-c"))
    assert {(reason.kind, reason.nodes) for reason in verdict.node_reasons} == {("cordoned", 1), ("insufficient", 1)}


def _beside_a_large_one(*large: Any) -> Cluster:
    """Four GPUs in use: one by team a, which asks a large group before a small pod, and three by team b."""
    running_there = [bound(pod(f"b{at}", gpus=1, labels=B), "n1") for at in range(3)]
    waiting_there = pod("small", gpus=1, labels=A, created=LATER), pod("other", gpus=1, labels=B, created=LATER)
    teams = queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 1, -1))
    used = bound(pod("a0", gpus=1, labels=A), "n1")
    return cluster(node(gpus=4), *teams, used, *running_there, *large, *waiting_there)


@pytest.mark.parametrize(
    "large",
    [
        (pod("large", gpus=4, labels=A),),
        (pod_group("g", 2, queue="a"), *(pod(f"g{at}", gpus=2, group="g") for at in range(2))),
    ],
    ids=["pod", "gang"],
)
@pytest.mark.parametrize("at_ns", [_SECOND_NS // 2, 2 * _SECOND_NS])
def test_what_is_counted_again_changes_nobodys_turn(large: tuple[Any, ...], at_ns: int) -> None:
    made = _beside_a_large_one(*large)
    made.decide(0)
    feed(made, node(gpus=4, labels={"any": "change"}))
    made.decide(1)
    made.remove_pod("uid-b0", has_ended=True)
    assert [placed.name for placed in placements(made.decide(at_ns).entries)] == ["small"]


def test_a_gang_that_is_awake_is_not_counted_again_since_that_would_make_it_the_last_one() -> None:
    members = bound(pod("m0", gpus=1, group="g"), "n1"), pod("m1", gpus=1, group="g")
    made = cluster(node(gpus=1), pod_group("g", 1), *members)
    made.decide(0)
    feed(made, node(gpus=2))
    snapshot = made.prepared(2 * _SECOND_NS)
    assert [gang.key for gang in made.scheduling_queue.awake_gangs()] == [("ns", "g")]
    assert snapshot.recounts.gangs == ()
