from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core import answers
from podgrouper.core.answers import Nothing, Why
from simulator.controllers.pods import Made
from simulator.controllers.registry import Member, Passed, Workload

TEMPLATE: dict[str, Any] = {"spec": {"template": {"spec": {"containers": []}}}}


def obj(kind: str, api_version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": api_version, **more}


@pytest.mark.parametrize(
    ("objects", "lines"),
    [
        ([], []),
        (
            [obj("Service"), obj("Ingress", "networking.k8s.io/v1"), obj("Service")],
            ["passed over, because they make no pods: 2 Service, 1 Ingress"],
        ),
        (
            [
                obj("JobSet", "jobset.x-k8s.io/v1alpha2", **TEMPLATE),
                obj("Job", "batch.volcano.sh/v1alpha1", **TEMPLATE),
            ],
            [
                "their pods are not made, because their controllers are not simulated: "
                "1 JobSet.jobset.x-k8s.io, 1 Job.batch.volcano.sh"
            ],
        ),
        (
            [obj(f"Kind{number}") for number in range(12)],
            [
                "passed over, because they make no pods: "
                + ", ".join(f"1 Kind{number}" for number in range(10))
                + ", objects of 2 more kinds"
            ],
        ),
    ],
)
def test_kinds_are_named_with_their_counts(objects: list[dict[str, Any]], lines: list[str]) -> None:
    passed = Passed()
    for each in objects:
        passed.note(each)
    assert list(passed.lines()) == lines


def test_workloads_whose_pods_are_made_are_counted_and_those_without_pod_group_are_named() -> None:
    passed = Passed()
    member = Member(Made({}), None)
    passed.note_made(obj("JobSet", "jobset.x-k8s.io/v1alpha2"), "JobSet team/a", Workload([], [member] * 3))
    passed.note_made(obj("JobSet", "jobset.x-k8s.io/v1alpha2"), "JobSet team/b", Workload([], [member], "a reason"))
    alone = answers.told(Nothing(Why.ALONE))
    passed.note_made(obj("Workflow", "argoproj.io/v1alpha1"), "Workflow team/c", Workload([], [], alone))
    assert list(passed.lines()) == [
        "pods made as the controllers would make them, with the PodGroups of 'translate --podgroup': "
        "2 JobSet.jobset.x-k8s.io (4 pods), 1 Workflow.argoproj.io (0 pods)",
        "no PodGroup for JobSet team/b: a reason",
    ]


def test_workloads_without_pod_group_are_named_up_to_ten() -> None:
    passed = Passed()
    for number in range(12):
        passed.note_made(obj("Job", "batch.volcano.sh/v1alpha1"), f"Job {number}", Workload([], [], "a reason"))
    _, *named, last = passed.lines()
    assert (len(named), last) == (10, "no PodGroup for 2 more workloads")


def test_long_names_of_kinds_are_shortened() -> None:
    passed = Passed()
    passed.note(obj("K" * 100_000, f"{'g' * 100_000}.example/v1"))
    assert len("".join(passed.lines())) < 300


@pytest.mark.parametrize(
    ("spec", "is_suspended"),
    [
        ({"suspend": True}, True),
        ({"runPolicy": {"suspend": True}}, True),
        ({"suspend": False}, False),
        ({"suspend": "true"}, False),
        ({"suspend": 1}, False),
        ({"runPolicy": "suspend"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_suspended_controllers_are_named(spec: object, *, is_suspended: bool) -> None:
    passed = Passed()
    passed.note_expanded(obj("Job", "batch/v1", spec=spec))
    assert list(passed.lines()) == ["without pods, because they are suspended: 1 Job"] * is_suspended
