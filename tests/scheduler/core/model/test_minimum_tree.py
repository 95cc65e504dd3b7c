"""Trees of minimums, against a slow reference that tries all subsets of leaves."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.minimum_tree import NEVER, Contradiction, MinimumTree, Part, minimum_tree
from scheduler.core.model.verdict import Code

#: The largest minimum that the API takes, and how many subgroups admission lets through.
_MOST = 2**31 - 1
_MANY = 10_000


def tree_of(parts: Sequence[Part], least: int | None = None) -> MinimumTree:
    """A tree that means something."""
    made = minimum_tree(parts, least)
    assert isinstance(made, MinimumTree)
    return made


# --- the reference ---------------------------------------------------------------------------------------------------
class Case(NamedTuple):
    """A PodGroup and how many pods its subgroups have."""

    parts: list[Part]
    least: int | None
    counts: dict[str, int]

    def children(self, name: str) -> list[Part]:
        return [part for part in self.parts if part.parent == name]

    def leaves(self) -> list[Part]:
        return [part for part in self.parts if not self.children(part.name)]

    def satisfies(self, counts: Mapping[str, int], name: str = "", least: int | None = None) -> bool:
        """What kai-contract 2.2 says, word for word; children that need nothing are no help where others are there."""
        children = self.children(name)
        least = self.least if not name else least
        of_child = {
            child.name: self.satisfies(counts, child.name, child.min_parts)
            if self.children(child.name)
            else counts.get(child.name, 0) >= (child.min_pods or 0)
            for child in children
        }
        if least is None:
            return all(of_child.values())
        if least > len(children):
            return False
        needing = [child.name for child in children if self._needs_pods(child)]
        return sum(of_child[child] for child in needing) >= min(least, len(needing))

    def _needs_pods(self, part: Part) -> bool:
        if not self.children(part.name):
            return bool(part.min_pods)
        return not self.satisfies({}, part.name, part.min_parts)

    def fewest(self) -> int | None:
        """The fewest pods that help, of all sets of leaves that are filled up; None if none helps."""
        lacks = {leaf.name: max(0, (leaf.min_pods or 0) - self.counts[leaf.name]) for leaf in self.leaves()}
        sums = []
        for size in range(len(lacks) + 1):
            for chosen in itertools.combinations(lacks, size):
                filled = {name: self.counts[name] + (lacks[name] if name in chosen else 0) for name in lacks}
                if self.satisfies(filled):
                    sums.append(sum(lacks[name] for name in chosen))
        return min(sums, default=None)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Trees of up to 12 leaves and up to five levels."""
    parts: list[Part] = []
    inner = [""]
    for number in range(draw(st.integers(0, 4))):
        least = draw(st.none() | st.integers(0, 4))
        parts.append(Part(f"i{number}", draw(st.sampled_from(inner)), None, least))
        inner.append(f"i{number}")
    parts += [
        Part(f"l{number}", draw(st.sampled_from(inner)), draw(st.integers(0, 4)), None)
        for number in range(draw(st.integers(1, 8)))
    ]
    # Inner nodes without children are leaves.
    above = {part.parent for part in parts}
    parts = [part if part.name in above or part.min_parts is None else part._replace(min_parts=None) for part in parts]
    parts = draw(st.permutations(parts))
    case = Case(parts, draw(st.none() | st.integers(0, 4)), {})
    counts = {leaf.name: draw(st.integers(0, 5)) for leaf in case.leaves()}
    return case._replace(counts=counts)


@given(cases())
def test_a_tree_is_satisfied_by_what_satisfies_the_reference(case: Case) -> None:
    assert tree_of(case.parts, case.least).is_satisfied(Counter(case.counts)) == case.satisfies(case.counts)


@given(cases())
def test_what_is_lacking_is_the_least_of_all_that_suffices(case: Case) -> None:
    tree = tree_of(case.parts, case.least)
    lacks = tree.lacking(Counter(case.counts))
    costs = tree.costs(lacks)
    fewest = case.fewest()
    assert costs[0] == (NEVER if fewest is None else fewest)
    if fewest is None:
        return
    given_to = {tree.names[leaf]: lacks[leaf] for leaf in tree.chosen(costs) if lacks[leaf]}
    assert sum(given_to.values()) == fewest
    filled = Counter(case.counts) + Counter(given_to)
    assert case.satisfies(filled)
    for name in given_to:
        assert not case.satisfies(filled - Counter([name]))


@given(cases(), st.sets(st.integers(0, 7)))
def test_leaves_that_nobody_can_fill_are_left_out_and_all_others_are_still_tried(case: Case, closed: set[int]) -> None:
    tree = tree_of(case.parts, case.least)
    numbers = tree.numbers()
    able = tree.lacking(Counter(case.counts))
    for number in closed:
        leaf = numbers.get(f"l{number}")
        if leaf is not None and able[leaf]:
            able[leaf] = NEVER
    all_others = {tree.names[leaf]: tree.pods[leaf] for leaf in tree.leaves if able[leaf] < NEVER}
    can = case.satisfies(Counter(case.counts) | Counter(all_others))
    costs = tree.costs(able)
    assert (costs[0] < NEVER) == can
    if can:
        assert all(able[leaf] < NEVER for leaf in tree.chosen(costs))


@given(cases())
def test_all_that_has_to_start_and_all_choices_are_what_is_lacking(case: Case) -> None:
    tree = tree_of(case.parts, case.least)
    costs = tree.costs(tree.lacking(Counter(case.counts)))
    if costs[0] >= NEVER:
        return
    leaves, choices = tree.fixed(costs, 0)
    total = sum(costs[leaf] for leaf in leaves)
    for needed, nodes in choices:
        assert 0 < needed < len(nodes)
        total += sum(costs[node] for node in nodes[:needed])
    assert total == costs[0]


def test_the_nearest_is_chosen_and_of_equals_the_first_that_is_declared() -> None:
    parts = [Part("z", "", 3, None), Part("y", "", 3, None), Part("x", "", 3, None)]
    tree = tree_of(parts, 1)

    def chosen(**counts: int) -> list[str]:
        return [tree.names[leaf] for leaf in tree.chosen(tree.costs(tree.lacking(Counter(counts))))]

    assert chosen() == ["z"]
    assert chosen(x=1) == ["x"]
    assert chosen(x=1, y=2) == ["y"]


def test_children_that_need_nothing_do_not_stand_in_for_those_that_do() -> None:
    # As the segments of an elastic PyTorchJob: two of four have a minimum.
    parts = [Part(f"w-{i}", "w", size, None) for i, size in enumerate((2, 2, 0, 0))]
    tree = tree_of([Part("w", "", None, 2), *parts])
    assert tree.fewest == 4
    assert not tree.is_satisfied(Counter({"w-0": 2, "w-2": 9}))
    assert tree.is_satisfied(Counter({"w-0": 2, "w-1": 2}))


@pytest.mark.parametrize(
    ("counts", "needed"), [({"a": 2}, 2), ({"b": 5}, 5), ({"a": 2, "b": 5}, 5), ({"a": 1, "b": 4}, 0), ({"a": 9}, 2)]
)
def test_who_has_what_the_largest_of_its_whole_subgroups_need_has_no_surplus(
    counts: dict[str, int], needed: int
) -> None:
    tree = tree_of([Part("a", "", 2, None), Part("b", "", 5, None)], 1)
    assert tree.needed_at_most(tree.costs(tree.lacking(Counter(counts)))) == needed


@pytest.mark.parametrize(
    ("parts", "least", "found"),
    [
        ([Part("a", "b", None, None), Part("b", "a", None, None)], None, Contradiction(Code.GROUP_CYCLE, "a")),
        ([Part("t", "", 1, None), Part("a", "a", 1, None)], None, Contradiction(Code.GROUP_CYCLE, "a")),
        ([Part("a", "b", 1, None)], None, Contradiction(Code.GROUP_PARENT_NOT_FOUND, "a")),
        ([Part("a", "", 1, 1), Part("b", "a", 1, None)], None, Contradiction(Code.GROUP_TWO_MINIMUMS, "a")),
        ([Part("a", "", 1, None), Part("a", "", 1, None)], None, Contradiction(Code.GROUP_NAME_TWICE, "a")),
        ([Part("", "", 1, None)], None, Contradiction(Code.GROUP_NAME_TWICE, "")),
        ([Part("a", "", None, 1)], None, Contradiction(Code.GROUP_NO_CHILDREN, "a")),
    ],
)
def test_what_contradicts_itself_is_named(parts: list[Part], least: int | None, found: Contradiction) -> None:
    assert minimum_tree(parts, least) == found


@pytest.mark.parametrize(
    ("parts", "least"),
    [([], 1), ([Part("a", "", 1, None)], 2), ([Part("a", "", None, 3), Part("b", "a", 1, None)], None)],
)
def test_more_children_than_there_are_is_no_contradiction_and_is_never_satisfied(parts: list[Part], least: int) -> None:
    tree = tree_of(parts, least)
    assert tree.costs(tree.lacking(Counter({"a": 9, "b": 9})))[0] == NEVER


def test_a_minimum_of_pods_above_other_subgroups_is_not_read() -> None:
    tree = tree_of([Part("a", "", 9, None), Part("b", "a", 1, None)])
    assert tree.is_satisfied(Counter({"b": 1}))


def test_ten_thousand_levels_are_no_more_than_ten_thousand_siblings() -> None:
    deep = [Part(f"s{i}", f"s{i - 1}" if i else "", None, 1) for i in range(_MANY - 1)]
    deep.append(Part("leaf", f"s{_MANY - 2}", _MOST, None))
    tree = tree_of(deep)
    assert tree.fewest == _MOST
    assert [tree.names[leaf] for leaf in tree.chosen(tree.costs(tree.lacking(Counter())))] == ["leaf"]
    assert tree.fixed(tree.costs(tree.lacking(Counter())), 0) == ([_MANY], [])
    wide = tree_of([Part(f"s{i}", "", _MOST, None) for i in range(_MANY)], _MANY // 2)
    assert wide.fewest == _MOST * _MANY // 2
    assert wide.chosen(wide.costs(wide.lacking(Counter()))) == list(range(1, _MANY // 2 + 1))
