"""The priority of a gang is its PodGroup's class: in order, preemption, preemptibility, and until its pods end."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import Code
from tests.scheduler.core.objects import (
    bound,
    cluster,
    feed,
    node,
    pod,
    pod_group,
    priority_class,
    queue,
)
from tests.scheduler.core.stories.test_preemption import Shell, running, waiting
from wire.core import Pod, PriorityClass

CALM, URGENT, BUILD = priority_class("calm", 20), priority_class("urgent", 60), priority_class("build", 100)
MEMBERS = [pod(f"m{number}", gpus=1, group="g") for number in range(2)]


def group(of: str = "urgent", **spec: Any) -> Any:
    return pod_group("g", 2, priorityClassName=of, queue="a", **spec)


def codes(made: Cluster) -> set[Code]:
    return {entry.verdict.code for entry in made.decide(0).entries if isinstance(entry, Explain)}


def test_a_gang_whose_group_is_urgent_takes_the_place_of_lesser_work_of_its_queue() -> None:
    shell = (
        Shell().feed(URGENT, node(gpus=2), queue("a"), running("slow", "a", 1, priority=20), group(), *MEMBERS).run()
    )
    assert shell.asked == ["slow"]
    assert {"m0", "m1"} <= shell.placed.keys()


@pytest.mark.parametrize("order", [0, 1, 2], ids=["class first", "class second", "class last"])
def test_in_whatever_order_class_group_and_pods_are_seen(order: int) -> None:
    made = cluster(node("n1", 8))
    seen: list[Any] = [group(), *MEMBERS]
    seen.insert(order * 2 if order < 2 else len(seen), URGENT)
    feed(made, *seen)
    assert {each.priority for each in made.members("ns", "g")} == {60}


@pytest.mark.parametrize(
    ("named", "expected"), [("", 7), ("gone", 7), ("calm", 20)], ids=["no class", "a class that does not exist", "one"]
)
def test_pods_have_their_own_priority_where_no_class_says_another(named: str, expected: int) -> None:
    made = cluster(CALM, node("n1", 8), group(named), pod("m", gpus=1, group="g", priority=7))
    assert [each.priority for each in made.members("ns", "g")] == [expected]


@pytest.mark.parametrize(("value", "expected"), [(1_000_000_000, 1_000_000_000), (2_000_001_000, 7)])
def test_a_class_of_the_system_gives_a_gang_no_priority(value: int, expected: int) -> None:
    made = cluster(priority_class("c", value), node("n1", 8), group("c"), pod("m", gpus=1, group="g", priority=7))
    assert [each.priority for each in made.members("ns", "g")] == [expected]


def test_waiting_pods_follow_their_group_and_its_class() -> None:
    made = cluster(CALM, URGENT, node("n1", 8), group("calm"), pod("m", gpus=1, group="g", priority=7))

    def priority() -> int:
        (found,) = made.members("ns", "g")
        return found.priority

    seen = [priority()]
    feed(made, group("urgent"))
    seen.append(priority())
    made.priorities.classes.drop(made.priorities.classes.get("urgent"))  # type: ignore[arg-type]
    seen.append(priority())
    feed(made, priority_class("urgent", 80))
    seen.append(priority())
    made.remove_pod_group("ns", "g")
    seen.append(priority())
    assert seen == [20, 60, 7, 80, 7]


def test_what_runs_keeps_the_priority_that_it_was_placed_for() -> None:
    shell = Shell().feed(CALM, URGENT, node(gpus=2), queue("a"), group("calm"), *MEMBERS).run()
    shell.feed(group("urgent"))
    assert {each.priority for each in shell.cluster.members("ns", "g")} == {20}
    shell.restart()
    assert {each.priority for each in shell.cluster.members("ns", "g")} == {20}


def test_a_class_of_a_hundred_and_more_keeps_a_gang_within_its_quota() -> None:
    made = cluster(BUILD, node("n1", 8), queue("a", gpu=(1, 1, -1)), group("build"), *MEMBERS)
    assert codes(made) == {Code.OVER_QUOTA}


def test_a_gang_waits_while_its_class_may_exist_and_was_not_read() -> None:
    made = cluster(node("n1", 8), queue("a"))
    made.priorities.classes.expect()
    feed(made, group(), *MEMBERS)
    assert codes(made) == {Code.NOT_READ}
    made.priorities.classes.note_in_step(True)
    assert codes(made) == set()


NEVER = PriorityClass(CALM.metadata, 60, preemption_policy="Never")


@pytest.mark.parametrize(
    "asking",
    [
        [waiting("polite", "a", 1, priority=60, spec={"preemptionPolicy": "Never"})],
        [NEVER, group("calm"), *MEMBERS],
        [URGENT, group(), *MEMBERS[:1], pod("m1", gpus=1, group="g", spec={"preemptionPolicy": "Never"})],
    ],
    ids=["a pod alone", "the class of a group", "one pod of a gang whose class evicts"],
)
def test_who_may_evict_nobody_waits_its_turn(asking: list[Any]) -> None:
    low = running("low", "a", 2, priority=10)
    shell = Shell().feed(node(gpus=2), queue("a"), low, *asking).run()
    evicts = any(isinstance(each, PriorityClass) and each.preemption_policy is None for each in asking)
    assert bool(shell.asked) is evicts
    if not evicts:
        shell.gone("low")
        shell.run()
        assert shell.placed


def test_a_bound_pod_without_a_charge_counts_with_the_priority_of_its_group() -> None:
    """Placed by hand: nothing says what it was placed for."""
    placed: Pod = bound(pod("m", gpus=1, group="g", priority=7), "n1")
    made = cluster(URGENT, node("n1", 8), group(), placed)
    (found,) = made.members("ns", "g")
    assert found.priority == 60


def surplus(name: str, priority: int, **spec: Any) -> Pod:
    return pod(name, gpus=1, group="g", priority=priority, spec=spec)


def test_a_member_beyond_the_minimum_evicts_also_before_one_that_evicts_nobody() -> None:
    first = bound(pod("m0", gpus=1, group="g", priority=60), "n1")
    seen: list[Any] = [node(gpus=2), queue("a"), running("low", "a", 1, priority=10)]
    seen += [pod_group("g", 1, queue="a"), first, surplus("m1", 60), surplus("m2", 50, preemptionPolicy="Never")]
    shell = Shell().feed(*seen).run()
    assert shell.asked == ["low"]


def test_a_nomination_takes_no_other_victim_once_its_class_evicts_nobody() -> None:
    first = bound(pod("m0", gpus=1, group="g", priority=60), "n1")
    lows = [running(name, "a", 1, priority=10) for name in ("low1", "low2")]
    group = pod_group("g", 1, priorityClassName="calm", queue="a")
    calm = PriorityClass(CALM.metadata, 60)
    shell = Shell(late=True).feed(calm, node(gpus=3), queue("a"), *lows, group, first, surplus("m1", 0)).run(2)
    assert len(shell.asked) == 1
    shell.feed(NEVER).run(95)
    assert len(shell.asked) == 1


def test_a_charge_repeats_no_priority_that_is_the_pods_own() -> None:
    shell = Shell().feed(NEVER, node(gpus=2), queue("a"), group("calm"), *MEMBERS[:1], surplus("m1", 60)).run()
    assert {each.uid: each.charged and each.charged.priority for each in shell.cluster.members("ns", "g")} == {
        "uid-m0": 60,
        "uid-m1": None,
    }
