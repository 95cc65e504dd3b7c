from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from scheduler.core.decide.domain_search import StartParts, shares_of_leaves
from tests.scheduler.core.objects import cluster, pod, pod_group

_TWO: list[Mapping[str, Any]] = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]
_NESTED: list[Mapping[str, Any]] = [{"name": "top"}, {"name": "a", "parent": "top"}, {"name": "b", "minMember": 1}]


def _parts(
    minimum: int | None, subgroups: list[Mapping[str, Any]], members: Mapping[str, int], **spec: Any
) -> tuple[StartParts, tuple[str, ...]]:
    pods = [pod(f"{of}{n}", group="g", subgroup=of) for of, count in members.items() for n in range(count)]
    made = cluster(pod_group("g", minimum, subGroups=subgroups, **spec), *pods)
    snapshot = made.snapshot()
    group = snapshot.pod_group("ns", "g")
    assert group is not None
    state, ready = snapshot.quorum(group), snapshot.waiting_members("ns", "g", 0)
    return StartParts(state, ready, {}, shares_of_leaves(state, ready)), group.tree.names


@pytest.mark.parametrize(
    ("minimum", "subgroups", "members", "spec", "shares"),
    [
        pytest.param(2, _TWO, {"a": 3, "b": 3}, {}, {}, id="the minimums of subgroups are all"),
        pytest.param(4, _TWO, {"a": 3, "b": 3}, {}, {"a": 3}, id="the first members in their order"),
        pytest.param(5, _TWO, {"a": 3, "b": 3}, {}, {"a": 3, "b": 2}, id="as many as the gang needs"),
        pytest.param(3, _NESTED, {"a": 2, "b": 1}, {}, {"a": 2}, id="of one that needs none itself"),
        pytest.param(None, _TWO, {"a": 3, "b": 3}, {"minSubGroup": 1}, {}, id="none where there is a choice"),
    ],
)
def test_subgroups_provide_what_the_minimum_asks_in_all(
    minimum: int | None,
    subgroups: list[Mapping[str, Any]],
    members: Mapping[str, int],
    spec: Mapping[str, Any],
    shares: Mapping[str, int],
) -> None:
    parts, names = _parts(minimum, subgroups, members, **spec)
    assert {names[leaf]: count for leaf, count in parts.shares.items()} == shares


def test_a_subgroup_that_needs_nobody_itself_is_part_of_a_start_to_which_it_provides_members() -> None:
    parts, names = _parts(3, _NESTED, {"a": 2, "b": 1})
    assert sorted(names[leaf] for leaf in parts.of(0).leaves) == ["a", "b"]
    top = names.index("top")
    assert [each.name for each in parts.needed(top)] == ["a0", "a1"]
    assert [each.name for each in parts.under(top)] == ["a0", "a1"]


def test_a_subgroup_is_compared_with_others_unless_it_has_subgroups_or_one_of_its_members_is_like_no_other() -> None:
    two: list[Mapping[str, Any]] = [{"name": "top"}, {"name": "a", "parent": "top", "minMember": 2}]
    parts, names = _parts(None, [*two, {"name": "b", "minMember": 2}], {"a": 2, "b": 2})
    of_a, *others = parts.ready
    parts = StartParts(parts.state, [msgspec.structs.replace(of_a, alone=("claim",)), *others], {})
    assert [parts.is_like_no_other(names.index(name)) for name in ("top", "a", "b")] == [True, True, False]


def test_a_subgroup_that_provides_nobody_is_no_part_of_a_start() -> None:
    parts, names = _parts(1, _NESTED, {"a": 2, "b": 1})
    assert [names[leaf] for leaf in parts.of(0).leaves] == ["b"]
