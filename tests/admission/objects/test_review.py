"""Reviews of Queues: what the API server sends, and the answer it gets."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from admission.envelope import MalformedReview
from admission.objects.queue import Others
from admission.objects.review import ObjectAdmission
from tests.admission.objects.queues import Raw, beside, gpus, group_review, queue, queue_review, raw, raw_group


def answer(review: Raw, *stored: Any) -> dict[str, Any]:
    response: dict[str, Any] = ObjectAdmission().of_queue(review, beside(*stored))["response"]
    assert response.pop("uid") == review["request"]["uid"]
    return response


def test_a_queue_without_fault_is_allowed() -> None:
    assert answer(queue_review(raw("a"))) == {"allowed": True}


def test_a_refusal_has_kais_status_and_one_line_for_each_field() -> None:
    refused = answer(queue_review(raw("a", resources=gpus(-2, -3))))
    assert refused["allowed"] is False
    assert (refused["status"]["code"], refused["status"]["reason"]) == (403, "Forbidden")
    assert [line.split(" is not")[0] for line in refused["status"]["message"].splitlines()] == [
        "the gpu quota",
        "the gpu limit",
    ]


def test_warnings_are_passed_on_and_cut_to_what_the_api_server_passes_on() -> None:
    (warning,) = answer(queue_review(raw("a", "p" * 200)))["warnings"]
    assert warning.startswith("failed to get parent queue pppp")
    assert len(warning) == 256


def test_a_queue_is_not_counted_beside_itself_when_it_is_changed() -> None:
    before, after = raw("a", "team", resources=gpus(4)), raw("a", "team", resources=gpus(8))
    stored = (queue("team", resources=gpus(8)), queue("a", "team", resources=gpus(4)))
    assert answer(queue_review(after, operation="UPDATE", old=before), *stored) == {"allowed": True}


def test_a_queue_of_the_wrong_types_is_refused() -> None:
    refused = answer(queue_review(raw("a", resources={"gpu": {"quota": "many"}})))
    assert "spec.resources.gpu.quota has the wrong type" in refused["status"]["message"]


def test_a_stored_queue_that_cannot_be_read_can_be_replaced() -> None:
    old = raw("a", resources={"gpu": {"quota": "many"}})
    assert answer(queue_review(raw("a"), operation="UPDATE", old=old)) == {"allowed": True}


@pytest.mark.parametrize(
    ("stored", "allowed"), [((), True), ((queue("b", "a"),), False)], ids=["no children", "a child"]
)
def test_a_queue_is_deleted_unless_it_has_children(stored: tuple[Any, ...], allowed: bool) -> None:
    assert answer(queue_review(None, operation="DELETE", old=raw("a")), *stored)["allowed"] is allowed


@pytest.mark.parametrize(
    "review",
    [
        queue_review(None),
        queue_review(None, operation="DELETE"),
        queue_review(None, operation="DELETE", old={"metadata": {"name": 3}}),
        {"kind": "Letter"},
    ],
)
def test_what_is_no_review_of_a_queue_is_malformed(review: Raw) -> None:
    with pytest.raises(MalformedReview):
        ObjectAdmission().of_queue(review, beside())


def test_a_refusal_is_logged_with_the_rule(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="admission.objects.review"):
        refused = answer(queue_review(raw("a", "a")))
    (record,) = caplog.records
    assert record.message == refused["status"]["message"]
    said = (record.__dict__["event"], record.__dict__["fields"])
    assert said == ("object.refused", {"kind": "Queue", "name": "a", "rule": "parent-cycle"})


async def test_a_review_knows_the_queues_that_were_read_for_it() -> None:
    async def stored() -> Others | None:
        return beside(queue("b", "a"))

    judge = await ObjectAdmission(stored).knowing_queues()
    assert judge(queue_review(raw("a", "b")))["response"]["allowed"] is False


async def test_without_a_reader_nothing_is_known_of_others() -> None:
    judge = await ObjectAdmission().knowing_queues()
    response = judge(queue_review(raw("a", "b")))["response"]
    assert response["allowed"]
    assert response["warnings"][0].startswith("the other queues could not be read")


def of_group(review: Raw) -> dict[str, Any]:
    response: dict[str, Any] = ObjectAdmission().of_group(review)["response"]
    return response


def test_a_group_is_refused_and_its_namespace_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="admission.objects.review"):
        refused = of_group(group_review(raw_group({"name": "a"})))
    assert refused["status"]["message"].startswith("subgroup a: minMember is required (spec.subGroups[0].minMember")
    assert caplog.records[0].__dict__["fields"]["name"] == "team-a/g"


def test_a_group_with_warnings_is_allowed() -> None:
    allowed = of_group(group_review(raw_group({"name": "a", "minMember": 1}, minSubGroup=2)))
    assert allowed["allowed"]
    assert allowed["warnings"] == ["minSubGroup (2) exceeds the number of direct child SubGroups (1)"]


def test_a_group_that_is_stored_with_another_type_counts_as_stored() -> None:
    parts = ({"name": "mid", "minMember": 1}, {"name": "leaf", "parent": "mid", "minMember": 1})
    assert not of_group(group_review(raw_group(*parts)))["allowed"]
    old = raw_group(minMember="many")
    assert of_group(group_review(raw_group(*parts), operation="UPDATE", old=old))["allowed"]


def test_a_group_of_the_wrong_types_is_refused() -> None:
    refused = of_group(group_review(raw_group({})))
    assert refused["status"]["message"] == (
        'spec.subGroups[0].name has the wrong type (spec.subGroups[0].name is ""; allowed: a value)'
    )


def test_the_deletion_of_a_group_is_none_of_our_business() -> None:
    assert of_group(group_review(None, operation="DELETE", old=raw_group(minMember="many"))) == {
        "uid": "7f0c1a52-0000-4000-8000-000000000001",
        "allowed": True,
    }


def test_what_is_no_review_of_a_group_is_malformed() -> None:
    with pytest.raises(MalformedReview):
        ObjectAdmission().of_group(group_review(None))


def _with(number: int) -> Raw:
    return raw_group(*({"name": f"p{each}"} for each in range(number)))


def test_a_group_of_too_many_subgroups_is_refused_before_it_is_read() -> None:
    refused = of_group(group_review(_with(10_001)))
    assert refused["status"]["message"] == (
        'the PodGroup has too many subgroups (spec.subGroups is "10001 subgroups"; allowed: 10000 subgroups)'
    )
    assert "minMember is required" in of_group(group_review(_with(10_000)))["status"]["message"]


@pytest.mark.parametrize(("before", "allowed"), [(10_002, True), (10_003, True), (10_001, False), (0, False)])
def test_a_group_that_came_before_the_bound_may_be_changed_but_not_grow(before: int, allowed: bool) -> None:
    review = group_review(_with(10_002), operation="UPDATE", old=_with(before))
    assert of_group(review)["allowed"] is allowed


@pytest.mark.parametrize("spec", [None, "text", {}, {"subGroups": None}, {"subGroups": "text"}])
def test_a_group_without_a_list_of_subgroups_has_not_too_many(spec: Any) -> None:
    said = str(of_group(group_review({"metadata": {"name": "g"}, "spec": spec})))
    assert "too many" not in said
