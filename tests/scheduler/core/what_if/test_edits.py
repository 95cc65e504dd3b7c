"""Amounts are found by halving, the extreme first."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import Family, NotPossible, largest, smallest, some
from scheduler.core.what_if.group_changes import CPU, FRACTION, GPUS, Asking, Members, fewer_members, smaller_requests
from tests.scheduler.core.objects import NANO, bound, node, pod, pod_group, reservation
from tests.scheduler.core.what_if.given import changes, edits, spelled, tries


def ended(search: Generator[int, bool, int | None], helps: Callable[[int], bool]) -> int | None:
    try:
        number = next(search)
        while True:
            number = search.send(helps(number))
    except StopIteration as done:
        found: int | None = done.value
        return found


@pytest.mark.parametrize(
    ("low", "high", "most", "found"), [(1, 9, 6, 6), (1, 9, 9, 9), (1, 9, 0, None), (5, 4, 9, None)]
)
def test_the_largest_number_that_helps_is_found(low: int, high: int, most: int, found: int | None) -> None:
    assert ended(largest(low, high, int), lambda number: number <= most) == found


@pytest.mark.parametrize(("low", "high", "least", "found"), [(1, 64, 3, 3), (1, 64, 1, 1), (1, 64, 65, None)])
def test_the_smallest_number_that_helps_is_found(low: int, high: int, least: int, found: int | None) -> None:
    assert ended(smallest(low, high, int), lambda number: number >= least) == found


def test_a_search_can_be_asked_one_question_at_a_time() -> None:
    search = largest(1, 9, str)
    assert next(search) == "1"
    assert [search.send(True), search.send(True), search.send(False)] == ["5", "7", "6"]
    with pytest.raises(StopIteration) as done:
        search.send(True)
    assert done.value.value == 6


def test_where_not_even_the_extreme_helps_nothing_else_is_tried() -> None:
    tried: list[int] = []

    def helps(number: int) -> bool:
        tried.append(number)
        return False

    assert ended(largest(1, 1_000, int), helps) is None
    assert tried == [1]


def test_a_message_names_eight_and_counts_the_others() -> None:
    assert some([str(number) for number in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert some(["a", "b"]) == "a, b"


# Edits are read as they are written, and refused with what is allowed.


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("gpu-fraction=0.3", Family.ASK_LESS),
        ("gpu-memory=8000", Family.ASK_LESS),
        ("gpus=2", Family.ASK_LESS),
        ("cpu=1500m", Family.ASK_LESS),
        ("memory=8192Mi", Family.ASK_LESS),
        ("members=6", Family.FEWER_MEMBERS),
        ("queue=team-b", Family.QUEUE),
        ("limit team-a gpu=16", Family.QUEUE),
        ("limit team-a gpu=-1", Family.QUEUE),
        ("quota team-a cpu=1.5", Family.QUEUE),
        ("quota team-a memory=8000000000", Family.QUEUE),
        ("weight team-a gpu=2", Family.QUEUE),
        ("weight team-a gpu=0.5", Family.QUEUE),
        ("without nodeSelector", Family.WITHOUT_CONSTRAINT),
        ("without nodeSelector zone", Family.WITHOUT_CONSTRAINT),
        ("without podAntiAffinity", Family.WITHOUT_CONSTRAINT),
        ("tolerate dedicated=ml:NoSchedule", Family.WITHOUT_CONSTRAINT),
        ("tolerate dedicated:NoExecute", Family.WITHOUT_CONSTRAINT),
        ("node +2 like n17", Family.MORE_NODES),
        ("drain n4", Family.ENDED),
        ("cordon n4", Family.ENDED),
        ("finish job-x", Family.ENDED),
        ("finish team/job-x", Family.ENDED),
    ],
)
def test_what_is_read_is_written_as_it_was(text: str, family: Family) -> None:
    edit = read_edit(text)
    assert (edit.spelled(), edit.family) == (text, family)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", "allowed: gpu-fraction=0.3"),
        ("gpu=2", "gpu=2 is no what-if; allowed: gpu-fraction=0.3"),
        ("more", "'more' is no what-if; allowed"),
        ("gpu-fraction=1.5", "allowed is a part of one GPU above 0 and up to 1"),
        ("gpu-fraction=0", "above 0 and up to 1"),
        ("gpu-fraction=x", "gpu-fraction=x: "),
        ("gpus=0", "allowed is a whole number from 1"),
        ("gpus=" + "9" * 300, "allowed is a whole number from 1"),
        ("cpu=-1", "cpu=-1: allowed is an amount above 0"),
        ("members=six", "members=six: allowed is a whole number from 1"),
        ("limit team-a", "allowed is limit QUEUE RESOURCE=AMOUNT with cpu, memory or gpu"),
        ("limit team-a tpu=1", "allowed is limit QUEUE RESOURCE=AMOUNT"),
        ("limit team-a gpu=-2", "allowed is -1 for no limit, or a number from 0"),
        ("weight team-a gpu=-1", "weight gpu=-1: allowed is a number from 0"),
        ("quota team-a gpu=many", "quota gpu=many: "),
        ("without", "allowed is without nodeSelector, nodeAffinity"),
        ("without nodeAffinity zone", "or without nodeSelector KEY"),
        ("tolerate x", "allowed is tolerate KEY"),
        ("finish", "allowed is finish"),
        ("finish team/", "allowed is finish"),
        ("node 2 like n1", "allowed is node"),
        ("node +2", "allowed is node"),
        ("drain", "allowed is drain NODE"),
        ("gpus=1" + " " * 500, "a what-if of 506 characters: allowed are 400"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_allowed(text: str, allowed: str) -> None:
    with pytest.raises(NotPossible) as refused:
        read_edit(text)
    assert allowed in str(refused.value)


# The largest request that fits, for each thing that is requested.

TENTH = NANO // 10
SHARED = (
    node(gpus=1, mem_mib=10_000),
    bound(pod("tenant"), "n1", ("g", 7 * TENTH)),
    reservation("g", "n1", book={"uid-tenant": 7 * TENTH}),
)


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ((*SHARED, pod("p", fraction="0.5")), ["gpu-fraction=0.3"]),
        ((*SHARED, pod("p", mem=5000)), ["gpu-memory=3000"]),
        ((node(gpus=3), pod("p", gpus=4)), ["gpus=3"]),
        ((node(cpu="8"), pod("p", cpu="10")), ["cpu=8"]),
        ((node(memory="8Gi"), pod("p", memory="10Gi")), ["memory=8160Mi"]),
        ((node(gpus=3), pod("p", gpus=4, cpu="100")), []),
        ((node(gpus=0), pod("p", gpus=4)), []),
        ((node(gpus=5), pod_group("g", 3), *(pod(name, gpus=2, group="g") for name in "pqr")), ["gpus=1"]),
    ],
)
def test_the_largest_amount_that_fits_is_found(objects: tuple[Any, ...], found: list[str]) -> None:
    assert spelled(edits(smaller_requests, tries(*objects))) == found


def test_all_pods_of_the_group_that_request_it_are_changed() -> None:
    tried = tries(
        node(), pod_group("g", 2), pod("p", gpus=2, group="g"), pod("q", gpus=4, group="g"), pod("r", group="g")
    )
    changed = changes(tried, Asking(GPUS, 1))
    assert sorted(uid for change in changed for uid in change.uids) == ["uid-p", "uid-q"]  # type: ignore[attr-defined] # AnotherAsk
    assert {change.cls.demand.gpus for change in changed} == {1}  # type: ignore[attr-defined] # as above


def test_what_is_not_requested_is_refused_with_what_is() -> None:
    tried = tries(node(), pod("p", gpus=1, cpu="1"))
    with pytest.raises(NotPossible, match=r"gpu-fraction: ns/p requests no amount of it; it requests cpu, gpus"):
        changes(tried, Asking(FRACTION, TENTH))
    assert Asking(CPU, 1_500).spelled() == "cpu=1500m"


# The largest minimum with which a gang starts.


@pytest.mark.parametrize(("gpus", "found"), [(5, ["members=2"]), (2, ["members=1"]), (1, [])])
def test_the_largest_minimum_that_fits_is_found(gpus: int, found: list[str]) -> None:
    gang = [pod(name, gpus=2, group="g") for name in "pqr"]
    assert spelled(edits(fewer_members, tries(node(gpus=gpus), pod_group("g", 3), *gang))) == found


def test_members_that_are_not_there_yet_may_be_done_without() -> None:
    assert spelled(
        edits(fewer_members, tries(node(), pod_group("g", 3), pod("p", group="g"), pod("q", group="g")))
    ) == ["members=2"]


def test_it_is_refused_for_a_pod_alone_and_below_one() -> None:
    alone = tries(node(), pod("p"))
    assert edits(fewer_members, alone) == []
    with pytest.raises(NotPossible, match="members: ns/p is a pod alone; allowed for a PodGroup"):
        changes(alone, Members(2))
    with pytest.raises(NotPossible, match="members=0: allowed: 1 or more"):
        changes(tries(node(), pod_group("g", 2), pod("p", group="g")), Members(0))
