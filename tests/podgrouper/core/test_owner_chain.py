from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podgrouper.core import answers
from podgrouper.core.answers import Code, Group, Nothing, Refusal, Why
from podgrouper.core.grouping import group
from podgrouper.core.owner_chain import Absent
from tests.podgrouper.objects import chained, obj, pod, read, reference

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
