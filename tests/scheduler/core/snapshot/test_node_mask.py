"""Masks of nodes, and what is left when two are joined."""

from __future__ import annotations

import pytest

from scheduler.core.snapshot.node_mask import NodeMask, all_but, both, only

_POSITIONS = {"a": 0, "b": 1, "c": 2}


def _names(mask: NodeMask) -> str:
    return "abc" if mask is None else "".join(name for name, at in _POSITIONS.items() if mask[at])


@pytest.mark.parametrize(
    ("out", "left"), [((), "abc"), (("a", "c"), "b"), (("gone",), "abc"), (("gone", "b"), "ac"), (("a", "b", "c"), "")]
)
def test_nodes_are_left_out_by_name(out: tuple[str, ...], left: str) -> None:
    assert _names(all_but(out, _POSITIONS)) == left


@pytest.mark.parametrize(("one", "other", "left"), [("", "", "abc"), ("a", "", "bc"), ("", "b", "ac"), ("a", "b", "c")])
def test_of_two_masks_only_nodes_are_left_that_both_let_through(one: str, other: str, left: str) -> None:
    first, second = all_but(one, _POSITIONS), all_but(other, _POSITIONS)
    assert _names(both(first, second)) == left
    assert (_names(first), _names(second)) == (_names(all_but(one, _POSITIONS)), _names(all_but(other, _POSITIONS)))


def test_only_nodes_that_are_there_are_let_through() -> None:
    assert only(["b", "gone"], {"a": 0, "b": 1, "c": 2}).tolist() == [False, True, False]
    assert only([], {"a": 0}).tolist() == [False]
