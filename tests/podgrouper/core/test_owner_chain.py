"""The rules for all kinds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from podgrouper.core import answers
from podgrouper.core.answers import Code, Group, Nothing, Refusal, Why
from podgrouper.core.generic import Default, Defaults
from podgrouper.core.grouping import group
from podgrouper.core.owner_chain import Absent
from tests.podgrouper.objects import chained, obj, pod, read, reference
from wire import names
from wire.crds.podgroup import PodGroup

SKIP: dict[str, Any] = {"annotations": {"kai.scheduler/skip-podgrouper": "true"}}
JOB = obj("batch/v1", "Job", "job")


def test_an_owner_that_was_not_read_is_asked_for_with_its_reference() -> None:
    bottom, read = chained(pod(), JOB, obj("example.com/v1", "Batch", "b"))
    assert isinstance(group(bottom, read), Group)
    known = {uid: each for uid, each in read.owners.items() if uid != "batch-b"}
    made = group(bottom, msgspec.structs.replace(read, owners=known))
    assert isinstance(made, Refusal)
    assert made.code is Code.NOT_READ
    assert made.needed is not None
    assert (made.needed.api_version, made.needed.kind, made.needed.name) == ("example.com/v1", "Batch", "b")
    assert answers.told(made) == "Batch b was not read yet"


def test_a_forbidden_owner_ends_the_walk_below_it() -> None:
    bottom, read = chained(pod(), JOB, obj("example.com/v1", "Batch", "b"))
    made = group(bottom, msgspec.structs.replace(read, owners={**read.owners, "batch-b": Absent.FORBIDDEN}))
    assert isinstance(made, Group)
    assert made.pod_group.metadata.name == "pg-job-job-job"
    none = group(bottom, msgspec.structs.replace(read, owners={"job-job": Absent.FORBIDDEN}))
    assert none == Nothing(Why.ALONE)


def test_an_owner_that_is_gone_is_a_refusal() -> None:
    bottom, read = chained(pod(), JOB)
    made = group(bottom, msgspec.structs.replace(read, owners={"job-job": Absent.NOT_FOUND}))
    assert isinstance(made, Refusal)
    assert (made.code, answers.told(made)) == (Code.NOT_FOUND, "Job job does not exist")


def test_several_owners_are_a_refusal() -> None:
    other = obj("batch/v1", "Job", "other")
    made = group(pod(JOB, other), read(JOB, other))
    assert isinstance(made, Refusal)
    assert (made.code, made.value) == (Code.SEVERAL_OWNERS, "Job job, Job other")
    expected = "Pod p has several owners: metadata.ownerReferences is Job job, Job other; allowed: one owner"
    assert answers.told(made) == expected


def test_owners_in_a_cycle_are_a_refusal() -> None:
    first = obj("example.com/v1", "First", "a")
    second = obj("example.com/v1", "Second", "b", first)
    first["metadata"]["ownerReferences"] = [reference(second)]
    made = group(pod(first), read(first, second))
    assert isinstance(made, Refusal)
    assert made.code is Code.CYCLE


def test_a_long_chain_of_owners_costs_no_more_than_its_limit() -> None:
    made = group(*chained(pod(), *[obj("example.com/v1", "Link", str(level)) for level in range(1000)]))
    assert isinstance(made, Refusal)
    assert made.code is Code.CYCLE


@pytest.mark.parametrize(
    ("bottom", "owners"),
    [
        (pod(**SKIP), [JOB]),
        (pod(), [obj("batch/v1", "Job", "job", **SKIP)]),
        (pod(), [JOB, obj("x/v1", "X", "x", **SKIP)]),
    ],
)
def test_the_annotation_keeps_a_pod_from_being_grouped(bottom: dict[str, Any], owners: list[dict[str, Any]]) -> None:
    assert group(*chained(bottom, *owners)) == Nothing(Why.SKIPPED)


def test_a_pod_without_owner_that_names_its_pod_group_is_left_alone() -> None:
    named = pod(annotations={"pod-group-name": "mine"})
    assert group(named, read()) == Nothing(Why.GROUPED_BY_HAND)
    assert isinstance(group(*chained(named, JOB)), Group)


@pytest.mark.parametrize("written", ["x", [1], [{"name": 3}], [{"uid": []}]])
def test_owner_references_of_another_form_are_refused(written: Any) -> None:
    bottom = pod()
    bottom["metadata"]["ownerReferences"] = written
    assert isinstance(group(bottom, read()), Refusal)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("name", "../../team/jobs/quiet", "a name other than . and .., without / and %"),
        ("name", "../../../../../../api/v1/pods", "a name other than . and .., without / and %"),
        ("name", "..", "a name other than . and .., without / and %"),
        ("name", "%2e%2e", "a name other than . and .., without / and %"),
        ("name", "", "1 to 253 characters"),
        ("name", "j" * 254, "1 to 253 characters"),
        ("apiVersion", "../v1", "GROUP/VERSION, or VERSION"),
        ("apiVersion", "batch/..", "GROUP/VERSION, or VERSION"),
        ("apiVersion", "a/b/v1", "GROUP/VERSION, or VERSION"),
        ("apiVersion", "", "GROUP/VERSION, or VERSION"),
        ("apiVersion", "g" * 400 + "/v1", "1 to 317 characters"),
        ("kind", "", "1 to 63 characters"),
        ("kind", "K" * 100_000, "1 to 63 characters"),
        ("uid", "", "1 to 128 characters"),
        ("uid", "u" * 100_000, "1 to 128 characters"),
    ],
)
@pytest.mark.parametrize("is_direct", [True, False], ids=["of the pod", "of its owner"])
def test_a_reference_that_no_object_has_is_refused_with_its_field_and_never_asked_for(
    field: str, value: str, allowed: str, *, is_direct: bool
) -> None:
    forged = {**reference(JOB), field: value}
    if is_direct:
        made = group(pod(ownerReferences=[forged]), read())
    else:
        middle = obj("example.com/v1", "Batch", "b", ownerReferences=[forged])
        made = group(pod(middle), read(middle))
    assert isinstance(made, Refusal)
    assert (made.code, made.needed) == (Code.MALFORMED, None)
    assert (made.field, made.allowed) == (f"metadata.ownerReferences[0].{field}", allowed)
    assert len(answers.told(made)) < 500


@pytest.mark.parametrize("name", ["a?watch=true", "a#b", "two words", "a&limit=1", "..."])
def test_a_name_that_can_be_one_segment_of_a_path_is_asked_for_as_it_is(name: str) -> None:
    made = group(pod(ownerReferences=[{**reference(JOB), "name": name}]), read())
    assert isinstance(made, Refusal)
    assert made.needed is not None
    assert (made.code, made.needed.name) == (Code.NOT_READ, name)


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


@pytest.mark.parametrize(
    "written", ["moorage.dev/plan", "moorage.dev/kept-minimum", "moorage.dev/foreign-gang", names.STALE_SINCE]
)
def test_a_workload_says_nothing_in_the_annotations_that_moorage_writes_on_pod_groups(written: str) -> None:
    meta = made({"annotations": {written: "x", "note": "n"}}, {}).metadata
    assert sorted(meta.annotations or {}) == ["kai.scheduler/top-owner-metadata", "note"]


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
