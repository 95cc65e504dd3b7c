"""In which order members beyond the minimum are decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.groups.quorum import Missing, Quorum, Surplus, quorum
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import bound, pod, pod_group

#: The largest minimum that the API takes.
_MOST = 2**31 - 1


def _record(name: str, subgroup: str) -> PodRecord:
    record = pod_record(pod(name, group="g", subgroup=subgroup), Settings())
    assert record is not None
    return record


def _order(
    parts: Mapping[str, int], active: Mapping[str, int], waiting: str, *, minimum: int | None = None, fits: int = 99
) -> str:
    """Subgroups in the order in which their members are taken; the first ``fits`` are placed."""
    subgroups = [{"name": name, "minMember": least} for name, least in parts.items()]
    group = pod_group_record(pod_group("g", minimum, subGroups=subgroups or None))
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


def _tree_order(
    parts: list[dict[str, Any]], active: Mapping[str, int], waiting: list[str], least: int | None = None
) -> list[str]:
    group = pod_group_record(pod_group("g", subGroups=parts, **({} if least is None else _least(least))))
    surplus = Surplus(group, active, [_record(f"m{i:05}", name) for i, name in enumerate(waiting)])
    found = []
    while (taken := surplus.take()) is not None:
        found.append(taken.subgroup)
        surplus.placed()
    return found


def _least(number: int) -> dict[str, Any]:
    return {"minSubGroup": number}


def _part(name: str, parent: str = "", **least: int) -> dict[str, Any]:
    return {"name": name, **({"parent": parent} if parent else {}), **least}


_X = [_part("x", minSubGroup=1), _part("a", "x", minMember=2), _part("b", "x", minMember=2), _part("y", minMember=2)]


@pytest.mark.parametrize(
    ("active", "waiting", "order"),
    [
        pytest.param({"a": 2}, "aay", "yaa", id="what is not whole comes before what is"),
        pytest.param({"a": 2}, "bby", "ybb", id="at the top whole ones count and not the pods below"),
        pytest.param({"a": 2, "y": 2}, "aabbb", "bbaba", id="below, the child that has less of its minimum"),
        pytest.param({"a": 2, "y": 2}, "bbbyyy", "bbyyby", id="what becomes whole counts above it"),
        pytest.param({"a": 9, "y": 2}, "ayy", "ayy", id="pods of a whole one count no more above it"),
        pytest.param({"a": 2, "b": 2, "y": 2}, "aby", "yab", id="two of one that are needed is twice its minimum"),
    ],
)
def test_in_a_tree_each_level_asks_for_the_child_with_the_least_of_its_minimum(
    active: dict[str, int], waiting: str, order: str
) -> None:
    assert "".join(_tree_order(_X, active, list(waiting))) == order


def test_ten_thousand_levels_with_a_leaf_each_take_no_longer_than_ten_thousand_leaves() -> None:
    many = 10_000
    chain = [_part(f"s{i}", f"s{i - 1}" if i else "", minSubGroup=1) for i in range(many // 2)]
    leaves = [_part(f"l{i}", f"s{i}", minMember=1) for i in range(many // 2)]
    names = [leaf["name"] for leaf in leaves]
    assert sorted(_tree_order([*chain, *leaves], {}, names)) == sorted(names)


# When a gang runs below its minimum, which is what gets the rest of it evicted.


def _quorum(*, minimum: int, running: int, waiting: int = 0, on_their_way: bool = False) -> Quorum:
    pods = [bound(pod(f"r{number}", group="g"), "n1") for number in range(running)]
    pods += [pod(f"w{number}", group="g") for number in range(waiting)]
    records = [record for each in pods if (record := pod_record(each, Settings())) is not None]
    return quorum(pod_group_record(pod_group("g", minimum)), records, lambda _: on_their_way)


@pytest.mark.parametrize(
    ("minimum", "running", "waiting", "is_broken"),
    [
        (3, 0, 0, False),
        (3, 0, 3, False),
        (3, 1, 0, True),
        (3, 2, 5, True),
        (3, 3, 0, False),
        (3, 4, 1, False),
        (1, 1, 0, False),
        (0, 0, 0, False),
    ],
)
def test_a_gang_is_broken_while_some_members_run_and_fewer_than_its_minimum(
    minimum: int, running: int, waiting: int, is_broken: bool
) -> None:
    assert _quorum(minimum=minimum, running=running, waiting=waiting).is_broken is is_broken


@pytest.mark.parametrize(("running", "above"), [(0, 0), (2, 0), (3, 1), (4, 2), (9, 2)])
def test_a_gang_comes_later_once_its_minimum_runs_and_later_still_above_it(running: int, above: int) -> None:
    assert _quorum(minimum=3, running=running).above == above


@pytest.mark.parametrize(
    ("running", "waiting", "gated", "expected"),
    [
        (0, "abcd", "", "abc"),
        (0, "abcd", "a", "bcd"),
        (2, "abc", "", "a"),
        (3, "ab", "", "a"),  # one more beyond the minimum
        (0, "ab", "ab", "a"),  # none may be placed yet: the first stands for them
        (0, "", "", ""),
    ],
)
def test_what_comes_next_is_the_missing_minimum_or_one_more(
    running: int, waiting: str, gated: str, expected: str
) -> None:
    pods = [pod(name, group="g", gated=name in gated) for name in waiting]
    records = [record for each in pods if (record := pod_record(each, Settings())) is not None]
    found = _quorum(minimum=3, running=running).next_up(records)
    assert "".join(each.name for each in found) == expected


@pytest.mark.parametrize(("running", "on_their_way", "above"), [(0, 0, 0), (0, 3, 1), (3, 0, 1), (4, 1, 2)])
def test_a_minimum_on_its_way_has_the_turn_of_one_that_runs(running: int, on_their_way: int, above: int) -> None:
    assert _quorum(minimum=3, running=running, waiting=on_their_way, on_their_way=True).above_in_turn == above


class _Counted(dict[str, int]):
    """Counts how often all of its values are read."""

    reads = 0

    @override
    def values(self) -> Any:
        self.reads += 1
        return super().values()


def test_members_are_counted_without_a_look_at_all_subgroups_for_each() -> None:
    subgroups = _Counted({f"s{number}": 1 for number in range(100)})
    missing = Missing(300, subgroups)
    records = [pod_record(pod(f"m{i}", group="g", subgroup=f"s{i}"), Settings()) for i in range(400)]
    for record in records:
        assert record is not None
        if missing.wants(record):
            missing.take(record)
    assert (missing.total, missing.is_reached, sum(subgroups.values())) == (0, True, 0)
    assert subgroups.reads <= 2
