"""What kind of GPU pod a pod is."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_kind import Kind, asked_kind, kind_of, usual
from scheduler.core.model.records import PodRecord
from tests.scheduler.core.objects import bound, cluster, pod

_CPU: dict[str, Any] = {"cpu": "2", "memory": "4Gi"}
_MIG = {"nvidia.com/mig-1g.5gb": "1"}


def _record(made: Cluster, name: str) -> PodRecord:
    record = made.pod(f"uid-{name}")
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (pod("a", gpus=2, **_CPU), Kind(2, 1_000, 2_000, 4_096)),
        (pod("a", fraction="0.333333333", **_CPU), Kind(1, 333, 2_000, 4_096)),
        (pod("a", fraction="0.0001"), Kind(1, 1, 0, 0)),
        (pod("a", fraction="0.5", devices=2), Kind(2, 500, 0, 0)),
        (pod("a", mem=6_000, devices=2, **_CPU), Kind(2, 0, 2_000, 4_096, 6_000)),
        (pod("a", **_CPU), None),
        (pod("a", extended=_MIG), None),
    ],
    ids=["whole", "share", "hardly any", "two shares", "memory", "no GPU", "a MIG slice"],
)
def test_a_pod_that_waits_is_of_the_kind_that_it_asks_for(waiting: Any, expected: Kind | None) -> None:
    assert asked_kind(_record(cluster(waiting), "a").cls) == expected


def test_a_pod_on_a_node_is_of_the_kind_that_it_was_given() -> None:
    made = cluster(bound(pod("a", mem=6_000, **_CPU), "n1", ("g", 250_000_000)), pod("b", gpus=1, bound_to="n1"))
    assert kind_of(_record(made, "a")) == Kind(1, 250, 2_000, 4_096)
    assert kind_of(_record(made, "b")) == Kind(1, 1_000, 0, 0)


def test_usual_kinds_are_the_most_frequent_that_make_up_95_percent() -> None:
    often, seldom, rare = Kind(1, 500, 0, 0), Kind(1, 1_000, 0, 0), Kind(8, 1_000, 0, 0)
    assert usual({rare: 5, often: 60, seldom: 35}) == [(often, 60), (seldom, 35)]
    assert usual({rare: 6, often: 60, seldom: 34}) == [(often, 60), (seldom, 34), (rare, 6)]
    assert usual({}) == []
