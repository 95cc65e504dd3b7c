"""Gangs with sub-groups in random mixes."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks.gangs import Minimums
from verification.hostile import workload
from verification.hostile.actions import Part

MANY = range(400)


def drawn(number: int, minimum: int = 3) -> tuple[workload.Tree, Minimums]:
    tree = workload.nested(f"g-{number}", minimum)
    parts = [part.manifest for part in tree.parts]
    return tree, Minimums({"subGroups": parts, "minSubGroup": tree.least})


def test_most_gangs_have_none_and_of_the_others_most_can_be_whole() -> None:
    trees = [drawn(number) for number in MANY]
    nested = [(tree, needs) for tree, needs in trees if tree.parts]
    assert 0.2 * len(MANY) < len(nested) < 0.6 * len(MANY)
    clear = [needs for _, needs in nested if needs.is_clear]
    assert len(clear) > len(nested) / 2
    assert {True, False} == {needs.is_clear for _, needs in nested}


@pytest.mark.parametrize(
    ("part", "manifest"),
    [
        (Part(name="a", pods=0), {"name": "a", "minMember": 0}),
        (Part(name="a", parent="b", parts=2), {"name": "a", "parent": "b", "minSubGroup": 2}),
        (Part(name="a"), {"name": "a"}),
    ],
)
def test_a_sub_group_is_written_with_what_is_said_of_it(part: Part, manifest: dict[str, Any]) -> None:
    assert part.manifest == manifest
