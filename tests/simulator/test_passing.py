from __future__ import annotations

from typing import Any

import pytest

from simulator.passing import Passed

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


def test_long_names_of_kinds_are_shortened() -> None:
    passed = Passed()
    passed.note(obj("K" * 100_000, f"{'g' * 100_000}.example/v1"))
    assert len("".join(passed.lines())) < 300
