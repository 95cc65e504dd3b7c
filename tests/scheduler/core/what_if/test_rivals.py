"""Who else waits, by form, and who of them would have a turn."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.convert.queues import queue_record
from scheduler.core.decide.changes import AnotherQueue
from scheduler.core.model.steps import ended
from scheduler.core.what_if.rivals import Rivals, rivals
from scheduler.core.what_if.trials import Trying
from tests.scheduler.core.objects import node, pod, pod_group, queue, reservation
from tests.scheduler.core.what_if.given import tries

OLD = "2025-01-01T00:00:00Z"


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
