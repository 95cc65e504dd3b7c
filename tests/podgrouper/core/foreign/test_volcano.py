from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core.answers import Code
from tests.podgrouper.core.foreign.objects import BY_VOLCANO, VOLCANO, made, pod_group, refused
from tests.podgrouper.objects import pod

TASK = "volcano.sh/task-spec"


def of_task(task: str, **labels: str) -> dict[str, Any]:
    return pod(annotations={**BY_VOLCANO["annotations"], TASK: task}, labels=labels)


def test_minimum_queue_and_priority_class_are_those_of_the_pod_group() -> None:
    group = pod_group(VOLCANO, minMember=3, queue="research", priorityClassName="high", minResources={"cpu": "1"})
    spec = made(pod(**BY_VOLCANO), group).pod_group.spec
    assert (spec.min_member, spec.queue, spec.priority_class_name) == (3, "research", "high")


@pytest.mark.parametrize(
    ("queue", "label", "expected"),
    [
        ("research", "", "research"),
        # A label of ours is more to the point.
        ("research", "mine", "mine"),
        # What Volcano's CRD fills in.
        ("default", "", "default-queue"),
        ("", "", "default-queue"),
    ],
)
def test_the_queue_is_that_of_our_label_then_the_pod_groups_then_the_default(
    queue: str, label: str, expected: str
) -> None:
    labels = {"kai.scheduler/queue": label} if label else {}
    answer = made(pod(labels=labels, **BY_VOLCANO), pod_group(VOLCANO, queue=queue))
    assert answer.pod_group.spec.queue == expected


@pytest.mark.parametrize(
    ("bottom", "part"),
    [
        (of_task("worker"), "worker"),
        (pod(labels={TASK: "ps"}, **BY_VOLCANO), "ps"),
        # A task without a minimum: its pods count for that of the group.
        (of_task("other"), ""),
        (pod(**BY_VOLCANO), ""),
    ],
)
def test_each_task_with_a_minimum_is_a_part(bottom: dict[str, Any], part: str) -> None:
    answer = made(bottom, pod_group(VOLCANO, minMember=4, minTaskMember={"worker": 2, "ps": 1}))
    parts = [(each.name, each.min_member) for each in answer.pod_group.spec.sub_groups or ()]
    assert (answer.pod_group.spec.min_member, parts, answer.part) == (4, [("ps", 1), ("worker", 2)], part)


def test_a_soft_topology_keeps_no_pod_waiting() -> None:
    answer = made(pod(**BY_VOLCANO), pod_group(VOLCANO, minMember=2, networkTopology={"mode": "soft"}))
    assert answer.pod_group.spec.min_member == 2


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        ({"networkTopology": {"mode": "hard"}}, Code.NOT_CARRIED_OUT, "spec.networkTopology.mode"),
        ({"networkTopology": {"highestTierAllowed": 1}}, Code.NOT_CARRIED_OUT, "spec.networkTopology.mode"),
        ({"subGroupPolicy": [{"name": "a", "subGroupSize": 2}]}, Code.NOT_CARRIED_OUT, "spec.subGroupPolicy"),
        ({"minMember": -1}, Code.MALFORMED, "spec.minMember"),
        ({"minTaskMember": {"worker": "2"}}, Code.MALFORMED, "spec.minTaskMember.worker"),
        ({"minTaskMember": {"Worker": 2}}, Code.MALFORMED, "subGroups.name"),
        ({"minTaskMember": 2}, Code.MALFORMED, "spec.minTaskMember"),
        ({"minTaskMember": {f"t{n}": 1 for n in range(10_001)}}, Code.TOO_MANY_PARTS, "subGroups"),
    ],
)
def test_what_has_no_counterpart_is_refused(spec: dict[str, Any], code: Code, field: str) -> None:
    refusal = refused(pod(**BY_VOLCANO), pod_group(VOLCANO, **spec))
    assert (refusal.code, refusal.about, refusal.field) == (code, "PodGroup llm", field)
