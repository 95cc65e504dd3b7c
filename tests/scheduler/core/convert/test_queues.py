"""PodDisruptionBudgets as values."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from scheduler.core.convert.pod_groups import is_preemptible, queue_of, queue_record
from scheduler.core.convert.selectors import budget_record
from scheduler.core.filters.pod_rule import takes
from scheduler.core.model.quota import NOTHING, UNLIMITED, WITHOUT_END, BadField, Resources
from wire import names
from wire.api_groups import PodDisruptionBudget
from wire.core import ObjectMeta
from wire.crds.queue import Queue, QueueResource, QueueResources, QueueSpec


def made(**spec: Any) -> Queue:
    return msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, Queue)


def test_amounts_are_read_in_the_smallest_units_as_they_are_written() -> None:
    record = queue_record(
        made(
            parentQueue="top",
            priority=7,
            resources={
                "cpu": {"quota": 1500, "limit": -1, "overQuotaWeight": 0.5},
                "memory": {"quota": 2.5, "limit": 10, "overQuotaWeight": 1},
                "gpu": {"quota": 0.1, "limit": 0.3, "overQuotaWeight": 3},
            },
        )
    )
    assert (record.name, record.parent, record.priority) == ("q", "top", 7)
    assert record.quota == Resources(1500, 2_500_000, 100_000_000)
    assert record.limit == Resources(UNLIMITED, 10_000_000, 300_000_000)
    assert record.weight == Resources(500_000, 1_000_000, 3_000_000)
    assert record.bad is None


@pytest.mark.parametrize("spec", [{}, {"resources": {}}, {"resources": {"gpu": {}}}], ids=["none", "empty", "no gpu"])
def test_what_is_absent_is_nothing_as_with_kai(spec: dict[str, Any]) -> None:
    record = queue_record(made(**spec))
    assert (record.quota, record.limit, record.weight, record.priority) == (NOTHING, NOTHING, NOTHING, 100)


def test_the_unlimited_queue_is_without_end_everywhere() -> None:
    free = {"quota": -1, "limit": -1}
    record = queue_record(made(resources={"cpu": free, "memory": free, "gpu": free}))
    assert (record.quota, record.limit) == (WITHOUT_END, WITHOUT_END)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quota", -2.0),
        ("quota", -0.5),
        ("limit", math.nan),
        ("limit", math.inf),
        ("quota", 1.2e9),
        ("over_quota_weight", -1.0),
        ("over_quota_weight", math.nan),
    ],
)
def test_a_value_without_meaning_closes_the_queue(field: str, value: float) -> None:
    resources = QueueResources(gpu=QueueResource(**{field: value}))
    record = queue_record(Queue(metadata=ObjectMeta(name="q"), spec=QueueSpec(resources=resources)))
    written = {"over_quota_weight": "overQuotaWeight"}.get(field, field)
    assert record.bad == BadField(f"resources.gpu.{written}", repr(value))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, "default-queue"),
        ({names.QUEUE_LABEL: "a"}, "a"),
        ({names.PROJECT_LABEL: "p"}, "p"),
        ({names.QUEUE_LABEL: "a", names.PROJECT_LABEL: "p"}, "a"),
        ({names.QUEUE_LABEL: ""}, "default-queue"),
    ],
)
def test_a_pod_is_charged_to_the_queue_of_its_labels(labels: dict[str, str], expected: str) -> None:
    assert queue_of(labels) == expected


@pytest.mark.parametrize(("labels", "expected"), [({}, "default-queue"), ({names.QUEUE_LABEL: "a"}, "a")])
def test_a_project_charges_no_queue_for_a_pod_that_waits_for_its_podgroup(
    labels: dict[str, str], expected: str
) -> None:
    assert queue_of({**labels, names.PROJECT_LABEL: "victim"}, is_of_group=True) == expected


@pytest.mark.parametrize(
    ("written", "expected"), [("preemptible", True), ("non-preemptible", False), (None, None), ("", None), ("x", None)]
)
def test_preemptibility_is_said_in_two_words(written: str | None, expected: bool | None) -> None:
    assert is_preemptible(written) is expected


@pytest.mark.parametrize(("written", "ns"), [(None, None), ("0", 0), ("1h30m", 5_400 * 10**9), ("-1s", -(10**9))])
def test_minimum_runtimes_are_read_as_go_writes_durations(written: str | None, ns: int | None) -> None:
    preempts = queue_record(Queue(metadata=ObjectMeta(name="q"), spec=QueueSpec(preempt_min_runtime=written)))
    reclaims = queue_record(Queue(metadata=ObjectMeta(name="q"), spec=QueueSpec(reclaim_min_runtime=written)))
    assert (preempts.preempt_min_runtime_ns, preempts.reclaim_min_runtime_ns, preempts.bad) == (ns, None, None)
    assert (reclaims.preempt_min_runtime_ns, reclaims.reclaim_min_runtime_ns, reclaims.bad) == (None, ns, None)


@pytest.mark.parametrize("written", ["", "5 minutes", "10"])
def test_a_minimum_runtime_that_is_no_duration_closes_the_queue(written: str) -> None:
    record = queue_record(Queue(metadata=ObjectMeta(name="q"), spec=QueueSpec(reclaim_min_runtime=written)))
    assert record.bad == BadField("reclaimMinRuntime", written)


@pytest.mark.parametrize(
    ("written", "ns"), [("10m", 600_000_000_000), ("-1s", -1_000_000_000), ("0s", 0), ("soon", None), (None, None)]
)
def test_patience_is_an_annotation_and_what_can_not_be_read_is_not_said(written: str | None, ns: int | None) -> None:
    annotations = None if written is None else {names.PATIENCE: written}
    record = queue_record(msgspec.structs.replace(made(), metadata=ObjectMeta(name="q", annotations=annotations)))
    assert (record.patience_ns, record.bad) == (ns, None)


def budget(spec: dict[str, Any], status: dict[str, Any], generation: int = 1) -> PodDisruptionBudget:
    meta = {"namespace": "team", "name": "b", "generation": generation}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, PodDisruptionBudget)


@pytest.mark.parametrize(
    ("spec", "selects"),
    [
        ({}, False),
        ({"selector": {}}, True),
        ({"selector": {"matchLabels": {"app": "a"}}}, True),
        ({"selector": {"matchLabels": {"app": "b"}}}, False),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}}, False),
    ],
)
def test_a_budget_is_for_the_pods_that_its_selector_takes(spec: dict[str, Any], selects: bool) -> None:
    record = budget_record(budget(spec, {}))
    assert takes(record.selector, {"app": "a"}) is selects
    assert record.key == ("team", "b")


@pytest.mark.parametrize(("values", "allowed", "takes_others"), [(999, 3, False), (1_000, 0, True)])
def test_a_budget_with_a_longer_selector_than_is_kept_lets_nobody_of_its_namespace_go(
    values: int, allowed: int, takes_others: bool
) -> None:
    asked = {"key": "app", "operator": "In", "values": [f"v{number}" for number in range(values)]}
    record = budget_record(
        budget({"selector": {"matchExpressions": [asked]}}, {"disruptionsAllowed": 3, "observedGeneration": 1})
    )
    assert record.allowed == allowed
    assert takes(record.selector, {"app": "other"}) is takes_others


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ({"disruptionsAllowed": 3, "observedGeneration": 2}, 3),
        ({"disruptionsAllowed": 3, "observedGeneration": 1}, 0),  # not counted since its last change
        ({"disruptionsAllowed": 3}, 0),
        ({"disruptionsAllowed": -1, "observedGeneration": 2}, 0),
        ({}, 0),
    ],
)
def test_a_budget_allows_what_its_controller_has_counted(status: dict[str, Any], allowed: int) -> None:
    assert budget_record(budget({"selector": {}}, status, generation=2)).allowed == allowed
