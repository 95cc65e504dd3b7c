"""The checks' own count of what a PodGroup needs to be whole."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.minimum_tree import NEVER, MinimumTree, Part, minimum_tree
from simulator.checks.gangs import Minimums

A2, B2, C0 = {"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}, {"name": "c", "minMember": 0}
X1 = {"name": "x", "minSubGroup": 1}


def below(part: Mapping[str, Any], parent: str) -> dict[str, Any]:
    return {**part, "parent": parent}


@pytest.mark.parametrize(
    ("spec", "there", "lacks"),
    [
        ({}, {}, 0),
        ({"minMember": 3}, {"": 1, "z": 1}, 1),
        ({"subGroups": [A2, B2]}, {"a": 2}, 2),
        ({"minMember": 6, "subGroups": [A2, B2]}, {"a": 2, "b": 2}, 2),
        ({"minSubGroup": 1, "subGroups": [A2, B2]}, {"b": 1}, 1),
        ({"minSubGroup": 1, "subGroups": [A2, B2]}, {"a": 1, "b": 1}, 1),
        ({"minSubGroup": 2, "subGroups": [A2, B2, C0]}, {"a": 2}, 2),
        ({"minSubGroup": 3, "subGroups": [A2, B2, C0]}, {"a": 2}, 2),
        ({"minSubGroup": 4, "subGroups": [A2, B2, C0]}, {"a": 2, "b": 2}, None),
        ({"minSubGroup": 1}, {}, None),
        ({"subGroups": [X1, below(A2, "x"), below(B2, "x")]}, {}, 2),
        ({"subGroups": [{"name": "x"}, below(A2, "x"), below(B2, "x")]}, {"a": 1}, 3),
    ],
)
def test_a_group_lacks_the_fewest_pods_that_make_it_whole(
    spec: dict[str, Any], there: dict[str, int], lacks: int | None
) -> None:
    needs = Minimums(spec)
    assert needs.is_clear
    assert needs.lacks(there) == lacks
    assert needs.is_whole(there) == (lacks == 0)


@pytest.mark.parametrize(("waiting", "lacks"), [({"a": 2}, 2), ({"a": 1, "b": 3}, 3), ({"a": 1, "b": 2}, None)])
def test_it_lacks_no_more_than_wait(waiting: dict[str, int], lacks: int | None) -> None:
    spec = {"minSubGroup": 1, "subGroups": [A2, {"name": "b", "minMember": 3}]}
    assert Minimums(spec).lacks({}, waiting) == lacks


@pytest.mark.parametrize(
    "spec",
    [
        {"minMember": 1, "minSubGroup": 1, "subGroups": [A2]},
        {"subGroups": [A2, A2]},
        {"subGroups": [below(A2, "b")]},
        {"subGroups": [below(A2, "b"), below(B2, "a")]},
        {"subGroups": [X1]},
        {"subGroups": [{"name": "a", "minMember": 1, "minSubGroup": 1}]},
    ],
)
def test_what_contradicts_itself_is_not_counted(spec: dict[str, Any]) -> None:
    assert not Minimums(spec).is_clear


def test_a_level_says_how_many_of_its_sub_groups_are_complete() -> None:
    needs = Minimums({"minSubGroup": 2, "subGroups": [A2, B2, C0]})
    assert needs.complete("", {"a": 2, "b": 1}) == (2, 1)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Trees with up to 6 leaves."""
    parts: list[dict[str, Any]] = []
    above = [""]
    for number in range(draw(st.integers(0, 3))):
        part: dict[str, Any] = {"name": f"i{number}", "minSubGroup": draw(st.none() | st.integers(0, 3))}
        parts += [part, {"name": f"k{number}", "parent": part["name"], "minMember": draw(st.integers(0, 2))}]
        part["parent"] = draw(st.sampled_from(above)) or None
        above.append(part["name"])
    for number in range(draw(st.integers(1, 3))):
        parent = draw(st.sampled_from(above)) or None
        parts.append({"name": f"l{number}", "parent": parent, "minMember": draw(st.integers(0, 3))})
    return {"minSubGroup": draw(st.none() | st.integers(0, 3)), "subGroups": parts}


@given(specs())
def test_two_counts_that_share_no_code_agree(spec: dict[str, Any]) -> None:
    listed = [
        Part(each["name"], each["parent"] or "", each.get("minMember"), each.get("minSubGroup"))
        for each in spec["subGroups"]
    ]
    tree, needs = minimum_tree(listed, spec["minSubGroup"]), Minimums(spec)
    assert isinstance(tree, MinimumTree)
    names = [each["name"] for each in spec["subGroups"] if each["name"][0] != "i"]
    for counts in itertools.islice(itertools.product((0, 1, 3), repeat=len(names)), 30):
        there = dict(zip(names, counts, strict=True))
        lacks = needs.lacks(there)
        assert tree.costs(tree.lacking(Counter(there)))[0] == (NEVER if lacks is None else lacks)
