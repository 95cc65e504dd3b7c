"""The rules for all kinds (kai-contract 3.1)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from podgrouper.core.answers import Group
from podgrouper.core.generic import Default, Defaults
from podgrouper.core.grouping import group
from tests.podgrouper.objects import chained, obj, pod
from wire.crds.podgroup import PodGroup

QUEUE, POOL, PREEMPTIBILITY = "kai.scheduler/queue", "kai.scheduler/node-pool", "kai.scheduler/preemptibility"
DELAY, STALE = "kai.scheduler/preemption-delay", "kai.scheduler/staleness-grace-period"


def made(owner: dict[str, Any], of: dict[str, Any], defaults: Defaults | None = None, **spec: Any) -> PodGroup:
    """The PodGroup of a Job with these labels and annotations, and of its pod."""
    containers = [{"name": "main", "image": "work"}]
    bottom = pod(spec={"containers": containers, **spec}, **of)
    found = group(*chained(bottom, obj("batch/v1", "Job", "job", **owner)), defaults or Defaults())
    assert isinstance(found, Group)
    return found.pod_group


@pytest.mark.parametrize(
    ("owner", "of", "queue"),
    [
        ({QUEUE: "a"}, {QUEUE: "b"}, "a"),
        ({}, {QUEUE: "b"}, "b"),
        ({"project": "p"}, {QUEUE: "b"}, "b"),
        ({"project": "p"}, {}, "p"),
        ({}, {"project": "p", POOL: "h100"}, "p-h100"),
        ({}, {}, "default-queue"),
    ],
)
def test_the_queue_is_that_of_the_owner_then_the_pod_then_the_project(owner: Any, of: Any, queue: str) -> None:
    assert made({"labels": owner}, {"labels": of}).spec.queue == queue


@pytest.mark.parametrize(
    ("owner", "of", "pool"),
    [({POOL: "a"}, {POOL: "b"}, "a"), ({}, {POOL: "b"}, "b"), ({POOL: ""}, {POOL: "b"}, "b"), ({}, {}, None)],
)
def test_the_group_has_the_node_pool_of_the_owner_then_of_the_pod(owner: Any, of: Any, pool: str | None) -> None:
    assert (made({"labels": owner}, {"labels": of}).metadata.labels or {}).get(POOL) == pool


def test_the_default_queue_is_a_setting() -> None:
    assert made({}, {}, Defaults(queue="everyone")).spec.queue == "everyone"


@pytest.mark.parametrize(
    ("owner", "of", "in_spec", "priority"),
    [
        ("a", "b", "c", "a"),
        ("", "b", "c", "b"),
        ("", "", "c", "c"),
        ("", "", "", "train"),
        ("gone", "b", "c", "b"),
        ("gone", "gone", "gone", "train"),
    ],
)
def test_the_priority_class_is_the_first_that_exists(owner: str, of: str, in_spec: str, priority: str) -> None:
    known = Defaults(priority_classes=frozenset("abc"))
    label = "priorityClassName"
    spec = made({"labels": {label: owner}}, {"labels": {label: of}}, known, priorityClassName=in_spec).spec
    assert spec.priority_class_name == priority


def test_an_administrator_sets_the_defaults_of_a_kind() -> None:
    defaults = Defaults(kinds={("batch", "Job"): Default(priority="night", preemptibility="preemptible")})
    spec = made({}, {}, defaults).spec
    assert (spec.priority_class_name, spec.preemptibility) == ("night", "preemptible")


@pytest.mark.parametrize(
    ("owner", "of", "expected"),
    [
        ("non-preemptible", "preemptible", "non-preemptible"),
        ("", "preemptible", "preemptible"),
        ("perhaps", "", None),
        ("", "", None),
    ],
)
def test_preemptibility_is_that_of_the_owner_then_the_pod(owner: str, of: str, expected: str | None) -> None:
    spec = made({"labels": {PREEMPTIBILITY: owner}}, {"labels": {PREEMPTIBILITY: of}}).spec
    assert spec.preemptibility == expected


@pytest.mark.parametrize(("text", "expected"), [("90s", "90s"), ("-1s", "-1s"), ("soon", None), ("9" * 99, None)])
def test_durations_that_cannot_be_read_are_left_out(text: str, expected: str | None) -> None:
    spec = made({"annotations": {DELAY: text}}, {"annotations": {STALE: text}}).spec
    assert (spec.preemption_delay, spec.staleness_grace_period) == (expected, expected)


def test_a_topology_is_asked_for_by_annotations_of_the_owner() -> None:
    written = {"kai.scheduler/topology": "racks", "kai.scheduler/topology-required-placement": "rack"}
    constraint = made({"annotations": written}, {}).spec.topology_constraint
    assert constraint is not None
    assert (constraint.topology, constraint.required_topology_level) == ("racks", "rack")


def test_a_pod_group_has_the_metadata_of_its_owner() -> None:
    owner = {
        "labels": {"app": "a", "user": "ann"},
        "annotations": {"note": "n", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    meta = made(owner, {}).metadata
    assert meta.labels == {"app": "a", "user": "ann"}
    written = dict(meta.annotations or {})
    said = yaml.safe_load(written.pop("kai.scheduler/top-owner-metadata"))
    assert said == {"name": "job", "uid": "job-job", "group": "batch", "version": "v1", "kind": "Job"}
    assert written == {"note": "n", "user": "ann"}
    assert [(each.kind, each.name, each.uid) for each in meta.owner_references or ()] == [("Job", "job", "job-job")]


def test_names_that_look_like_numbers_stay_text() -> None:
    found = group(*chained(pod(), obj("batch/v1", "Job", "123")))
    assert isinstance(found, Group)
    said = yaml.safe_load((found.pod_group.metadata.annotations or {})["kai.scheduler/top-owner-metadata"])
    assert said["name"] == "123"


def test_a_skipped_owner_lends_its_labels_where_the_one_below_has_none() -> None:
    cron = obj("batch/v1", "CronJob", "c", labels={QUEUE: "of-cron", "project": "p"}, annotations={"a": "1"})
    found = group(*chained(pod(), obj("batch/v1", "Job", "j", labels={QUEUE: "of-job"}), cron))
    assert isinstance(found, Group)
    assert found.pod_group.spec.queue == "of-job"
    assert found.pod_group.metadata.labels == {QUEUE: "of-job", "project": "p"}
    assert (found.pod_group.metadata.annotations or {})["a"] == "1"
