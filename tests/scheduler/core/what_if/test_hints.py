"""A search for a condition asks one bounded question at a time, and says nothing that it did not ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.core.what_if import known_ends
from scheduler.core.what_if.edits import Edit
from scheduler.core.what_if.suggestions import MOST_PODS, hint_helps, hint_search, hint_trying
from scheduler.core.what_if.trials import Trying
from tests.scheduler.core.objects import cluster, node, pod, pod_group
from tests.scheduler.core.what_if.given import WALL_S, spelled, trying

STARTED_S = WALL_S - 3_600


def ends(name: str, deadline: int, **asked: Any) -> Any:
    made = pod(name, bound_to="n1", spec={"activeDeadlineSeconds": deadline}, **asked)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, start_time="2027-01-15T07:00:00Z"))


def searched(tried: Trying, answer: Callable[[Trying, Edit | None], bool] = hint_helps) -> tuple[Edit, ...]:
    """Search as a scheduler does that nothing interrupts."""
    found = known_ends.all_ends(tried.snapshot.pods.records.values())
    search = hint_search(tried.subject, sorted(found, key=lambda pair: pair[0].at_s), tried.wall_s)
    try:
        question = next(search)
        while True:
            question = search.send(answer(tried, question))
    except StopIteration as done:
        edits: tuple[Edit, ...] = done.value
        return edits


def hinting(*objects: Any, of_group: bool = False) -> Trying:
    tried = trying(cluster(*objects), "g" if of_group else "p", of_group=of_group)
    return hint_trying(tried.snapshot, tried.subject, 0, tried.wall_s)


def gang(count: int, **asked: Any) -> list[Any]:
    return [pod(f"p{at:03}", group="g", **asked) for at in range(count)]


def test_families_come_in_the_order_of_what_they_cost() -> None:
    tried = hinting(node(gpus=4), ends("t", 7_200, gpus=2), pod_group("g", 3), *gang(3, gpus=1, cpu="1"), of_group=True)
    found = searched(tried)
    assert [each.family.value for each in found] == ["wait", "fewer-members"]
    assert isinstance(found[0], known_ends.Wait)
    assert (found[0].until_s, spelled(found)[1]) == (STARTED_S + 7_200, "members=2")


def test_two_amounts_at_most_are_told() -> None:
    asked = pod("p", gpus=4, cpu="8", memory="64Gi")
    tried = hinting(node("a", gpus=2), node("b", gpus=8, cpu="1"), asked)
    assert spelled(searched(tried)) == ["gpus=2", "cpu=960m"]


def test_nothing_is_asked_further_where_the_group_starts_as_it_is() -> None:
    asked: list[Edit | None] = []

    def answer(tried: Trying, edit: Edit | None) -> bool:
        asked.append(edit)
        return hint_helps(tried, edit)

    assert searched(hinting(node(gpus=4), pod("p", gpus=1)), answer) == ()
    assert asked == [None]


@pytest.mark.parametrize(("count", "is_tried"), [(MOST_PODS, True), (MOST_PODS + 1, False)])
def test_groups_of_many_pods_are_left_out(count: int, is_tried: bool) -> None:
    asked: list[Edit | None] = []

    def answer(_: Trying, edit: Edit | None) -> bool:
        asked.append(edit)
        return False

    searched(hinting(node(), pod_group("g", count), *gang(count, gpus=1), of_group=True), answer)
    assert bool(asked) == is_tried


@pytest.mark.parametrize(("others", "is_told"), [(10, True), (64, False)])
def test_beside_many_others_nobody_is_told_when_it_starts(others: int, is_told: bool) -> None:
    crowd = [pod(f"other{at:02}", gpus=8, created="2027-01-15T07:30:00Z") for at in range(others)]
    tried = hinting(node(gpus=4), ends("t", 7_200, gpus=2), *crowd, pod("p", gpus=4))
    assert ("wait" in {each.family.value for each in searched(tried)}) == is_told


def test_others_who_come_first_take_what_comes_free() -> None:
    first = pod("first", gpus=4, created="2020-01-01T00:00:00Z")
    late = pod("p", gpus=4, created="2027-01-15T07:59:00Z")
    assert searched(hinting(node(gpus=4), ends("t", 7_200, gpus=4), first, late)) == ()


def test_a_time_that_is_over_helps_nobody() -> None:
    assert searched(hinting(node(gpus=4), ends("t", 60, gpus=4), pod("p", gpus=4))) == ()


def test_what_a_try_can_not_finish_is_not_said() -> None:
    """Of those that are put off to a decision that is not made nothing is known: they may come before it as well."""
    late = [pod(f"late{at}", gpus=1, cpu=f"{at}m", created="2027-01-15T07:59:00Z") for at in range(1, 20)]
    old = pod("p", gpus=4, created="2026-01-01T00:00:00Z")
    tried = hinting(node(gpus=4), ends("t", 7_200, gpus=4), old, *late)
    assert [each.family.value for each in searched(tried)] == ["wait"]
    tried.limits = msgspec.structs.replace(tried.limits, most=1)
    assert searched(tried) == ()
