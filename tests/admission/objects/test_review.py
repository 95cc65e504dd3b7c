"""Reviews of Queues: what the API server sends, and the answer it gets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.envelope import MalformedReview
from admission.objects.findings import Allowed, Finding, read, told
from admission.objects.podgroup import judge_group
from admission.objects.queue import NOTHING, Amount, Others, amount, quota
from admission.objects.review import ObjectAdmission
from podgrouper.core.answers import Group
from podgrouper.core.grouping import group
from tests.admission.objects.queues import Raw, beside, gpus, group_review, queue, queue_review, raw, raw_group
from tests.admission.test_every_cost import STEEP
from tests.calls import calls
from tests.podgrouper.core.test_kinds import ROWS, grove
from tests.podgrouper.objects import chained
from tests.values import of_kind
from wire.crds.queue import Queue


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


# What a review costs grows with the bytes of the object and the number of queues, not faster.

TIMES, MORE = 100, 4


def _labels(times: int) -> tuple[Raw, Others]:
    made = raw("a")
    made["metadata"]["labels"] = {f"l{number}": "x" for number in range(times)}
    return made, beside()


def _children(times: int) -> tuple[Raw, Others]:
    return raw("a", resources=gpus(1)), beside(*(queue(f"c{n}", "a", resources=gpus(2)) for n in range(times)))


def _siblings(times: int) -> tuple[Raw, Others]:
    siblings = (queue(f"c{n}", "top", resources=gpus(0.1)) for n in range(times))
    return raw("a", "top", resources=gpus(1)), beside(queue("top", resources=gpus(5)), *siblings)


def _deep(times: int) -> tuple[Raw, Others]:
    return raw("a", "q0"), beside(*(queue(f"q{n}", f"q{n + 1}") for n in range(times)))


def _ring_above(times: int) -> tuple[Raw, Others]:
    return raw("a", "q0"), beside(*(queue(f"q{n}", f"q{(n + 1) % times}") for n in range(times)))


GROWN = (_labels, _children, _siblings, _deep, _ring_above)


@pytest.mark.parametrize("grown", GROWN, ids=lambda each: each.__name__)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_reviews_of_queues_cost_no_more_than_in_proportion(
    grown: Callable[[int], tuple[Raw, Others]], operation: str
) -> None:
    small, large = (_cost(*grown(times), operation) for times in (TIMES, TIMES * MORE))
    assert large <= STEEP * small


def test_a_queue_of_the_wrong_types_costs_no_more_than_in_proportion() -> None:
    small, large = (
        _cost(raw("a", resources={"gpu": ["x"] * times}), beside(), "CREATE") for times in (TIMES, TIMES * MORE)
    )
    assert large <= STEEP * small


def _cost(made: Raw, others: Others, operation: str) -> int:
    new, old = (None if operation == "DELETE" else made), (None if operation == "CREATE" else made)
    review, admission = queue_review(new, operation=operation, old=old), ObjectAdmission()
    return calls(lambda: admission.of_queue(review, others))


def _leaves(times: int) -> Raw:
    return raw_group(*({"name": f"l{number}"} for number in range(times)))


def _chain(times: int) -> Raw:
    named = ({"name": f"l{number}", "parent": f"l{number + 1}"} for number in range(times))
    return raw_group(*named, {"name": f"l{times}"})


def _ring(times: int) -> Raw:
    return raw_group(*({"name": f"l{number}", "parent": f"l{(number + 1) % times}"} for number in range(times)))


def _one_parent(times: int) -> Raw:
    return raw_group({"name": "top"}, *({"name": f"l{n}", "parent": "top", "minMember": 1} for n in range(times)))


@pytest.mark.parametrize("grown", [_leaves, _chain, _ring, _one_parent], ids=lambda each: each.__name__)
def test_reviews_of_groups_cost_no_more_than_in_proportion(grown: Callable[[int], Raw]) -> None:
    admission = ObjectAdmission()
    small, large = (group_review(grown(times)) for times in (TIMES, TIMES * MORE))
    assert calls(lambda: admission.of_group(large)) <= STEEP * calls(lambda: admission.of_group(small))


# PodGroups that are made of workloads pass the checks that PodGroups of users pass.


@pytest.mark.parametrize(("bottom", "owners"), [row[1:3] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_group_of_each_kind_is_allowed_in_silence(bottom: dict[str, Any], owners: list[dict[str, Any]]) -> None:
    made = of_kind(Group, group(*chained(bottom, *owners)))
    assert judge_group(made.pod_group, old=None) == Allowed()


def test_a_group_of_grove_is_allowed_in_silence() -> None:
    bottom, gang, read = grove()
    made = group(bottom, msgspec.structs.replace(read, named={("scheduler.grove.io", "PodGang", "gang"): gang}))
    assert isinstance(made, Group)
    assert judge_group(made.pod_group, old=None) == Allowed()


# Sums of what stands below a queue, whether the judged queue is among the stored ones or not.

_NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
_QUOTAS = st.sampled_from([0.0, 0.1, 0.2, 1.5, -1.0, -7.0])
_QUEUES = st.lists(
    st.builds(
        lambda name, parent, held, is_leaving: queue(name, parent, resources=gpus(held), is_leaving=is_leaving),
        _NAMES,
        st.one_of(st.just(""), _NAMES),
        _QUOTAS,
        st.booleans(),
    ),
    unique_by=lambda each: each.metadata.name,
)


@given(_QUEUES, _NAMES, _NAMES)
def test_a_sum_is_that_of_the_children_without_the_one_that_is_left_out(
    queues: list[Queue], parent: str, besides: str
) -> None:
    expected = NOTHING
    for each in queues:
        is_child = each.spec.parent_queue == parent and not each.metadata.deletion_timestamp
        if is_child and each.metadata.name != besides:
            expected += quota(each, "gpu")
    others = Others(queues)
    assert others.quota_below(parent, "gpu", besides=besides) == expected
    assert others.quota_below(parent, "gpu", besides=besides) == expected, "asked again"


def test_children_are_told_by_name_without_those_that_are_being_deleted() -> None:
    others = Others([queue("c", "top"), queue("b", "top", is_leaving=True), queue("a", "top"), queue("top", "top")])
    assert [each.metadata.name for each in others.below("top")] == ["a", "c"]
    assert others.below("a") == others.below("") == []


def test_amounts_are_the_decimals_that_they_print_as() -> None:
    assert not (amount(0.1) + amount(0.2)).exceeds(amount(0.3))
    assert amount(0.30000001).exceeds(amount(0.3))
    assert [amount(value).text() for value in (None, 8.0, 0.25, 1e30, -1.0, -2.0)] == [
        "0",
        "8",
        "0.25",
        "1" + "0" * 30,
        "unlimited",
        "0",
    ]


def test_nothing_exceeds_what_is_unlimited_and_it_exceeds_all_else() -> None:
    unlimited = amount(-1)
    assert not unlimited.exceeds(unlimited)
    assert not amount(1e300).exceeds(unlimited)
    assert unlimited.exceeds(amount(1e300))
    assert (unlimited + amount(1) - unlimited) == Amount(amount(1).finite)


# Objects whose fields have the wrong type.

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "text for a number": (
        {"spec": {"resources": {"gpu": {"quota": "8"}}}},
        'spec.resources.gpu.quota has the wrong type (spec.resources.gpu.quota is "\\"8\\""; allowed: a number)',
    ),
    "a number for text": (
        {"spec": {"parentQueue": 3}},
        'spec.parentQueue has the wrong type (spec.parentQueue is "3"; allowed: a string)',
    ),
    "half a priority": (
        {"spec": {"priority": 0.5}},
        'spec.priority has the wrong type (spec.priority is "0.5"; allowed: a whole number)',
    ),
    "a list for a map": (
        {"spec": {"resources": []}},
        'spec.resources has the wrong type (spec.resources is "[]"; allowed: a map)',
    ),
    "more digits than a number has": (
        {"spec": {"resources": {"gpu": {"limit": 10**400}}}},
        f'spec.resources.gpu.limit has the wrong type (spec.resources.gpu.limit is "1{"0" * 47}... (401 characters)"; '
        "allowed: a number of at most 64 bits)",
    ),
    "a number for a label": (
        {"metadata": {"labels": {"team": 3}}},
        'metadata.labels[...] has the wrong type (metadata.labels[...] is "{\\"team\\":3}"; allowed: a string)',
    ),
    "text for the whole spec": (
        {"spec": "resources"},
        'spec has the wrong type (spec is "\\"resources\\""; allowed: a map)',
    ),
}


@pytest.mark.parametrize(("raw", "said"), WRONG.values(), ids=WRONG)
def test_the_field_of_the_wrong_type_is_named(raw: dict[str, Any], said: str) -> None:
    found = of_kind(Finding, read(raw, Queue))
    assert told(found) == said


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"status": "broken"}, {"spec": {"unknown": 1}}])
def test_what_rules_do_not_read_does_not_matter(raw: dict[str, Any]) -> None:
    assert read(raw, Queue) == Queue()
