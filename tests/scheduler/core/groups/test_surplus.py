"""In which order members beyond the minimum are decided."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from scheduler.core.convert import objects
from scheduler.core.groups.surplus import Surplus
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import pod, pod_group

#: The largest minimum that the API takes.
_MOST = 2**31 - 1


def _record(name: str, subgroup: str) -> PodRecord:
    record = objects.pod_record(pod(name, group="g", subgroup=subgroup), Settings())
    assert record is not None
    return record


def _order(
    parts: Mapping[str, int], active: Mapping[str, int], waiting: str, *, minimum: int | None = None, fits: int = 99
) -> str:
    """Subgroups in the order in which their members are taken; the first ``fits`` are placed."""
    subgroups = [{"name": name, "minMember": least} for name, least in parts.items()]
    group = objects.pod_group_record(pod_group("g", minimum, subGroups=subgroups or None))
    surplus = Surplus(group, active, [_record(f"m{i:02}", "" if c == "-" else c) for i, c in enumerate(waiting)])
    found = []
    while (taken := surplus.take()) is not None:
        found.append(taken.subgroup or "-")
        if len(found) <= fits:
            surplus.placed()
    return "".join(found)


@pytest.mark.parametrize(
    ("parts", "active", "waiting", "order"),
    [
        pytest.param({}, {"": 3}, "---", "---", id="no subgroups"),
        pytest.param({"a": 1, "b": 1}, {"a": 1, "b": 1}, "aaabbb", "ababab", id="by turns, the first member first"),
        pytest.param({"a": 1, "b": 1}, {"a": 1, "b": 1}, "bbbaaa", "bababa", id="whose member comes first"),
        pytest.param({"a": 1, "b": 3}, {"a": 1, "b": 3}, "aaabbbb", "abbbaba", id="in proportion to the minimum"),
        pytest.param({"a": 1, "b": 1}, {"a": 5, "b": 1}, "aabbb", "bbbaa", id="the one that has less of its minimum"),
        pytest.param({"a": 1, "b": 0}, {"a": 9, "b": 0}, "bba", "abb", id="no minimum comes last"),
        pytest.param({"a": 2}, {"a": 2}, "xxaa", "aaxx", id="of a subgroup that is not named"),
        pytest.param({"a": _MOST, "b": _MOST - 1}, {"a": _MOST + 1, "b": _MOST}, "ba", "ab", id="by one in billions"),
    ],
)
def test_the_subgroup_with_the_lowest_ratio_of_active_members_to_its_minimum_comes_first(
    parts: Mapping[str, int], active: Mapping[str, int], waiting: str, order: str
) -> None:
    assert _order(parts, active, waiting) == order


def test_what_the_minimum_asks_beyond_those_of_subgroups_is_of_the_others() -> None:
    assert _order({"a": 1}, {"a": 1, "": 3}, "aaa---", minimum=4) == "a---aa"


def test_a_member_that_is_not_placed_leaves_the_ratio_as_it_was() -> None:
    assert _order({"a": 1, "b": 1}, {"a": 1, "b": 2}, "aaab", fits=0) == "aaab"


def test_all_are_taken_once() -> None:
    assert sorted(_order({"a": 3, "b": 7}, {"a": 3, "b": 7}, "ab-x" * 50)) == sorted("ab-x" * 50)
