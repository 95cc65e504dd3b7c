"""The least number of further nodes, of each kind that the group may use."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.decide.changes import AnotherNode
from scheduler.core.what_if.edit import NotPossible
from scheduler.core.what_if.more_nodes import MoreNodes, candidates
from tests.scheduler.core.objects import node, pod, pod_group
from tests.scheduler.core.what_if.given import changes, edits, spelled, tries

FULL = (node("n1", 2), node("n2", 2), node("big", 4), *(pod(f"t-{at}", gpus=2, bound_to=at) for at in ("n1", "n2")))


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ((*FULL, pod("b", gpus=4, bound_to="big"), pod("p", gpus=1)), ["node +1 like n1", "node +1 like big"]),
        ((*FULL, pod("b", gpus=4, bound_to="big"), pod("p", gpus=3)), ["node +1 like big"]),
        ((*FULL, pod("b", gpus=4, bound_to="big"), pod("p", gpus=5)), []),
        (
            (
                node("n1", 2),
                pod("there", gpus=2, bound_to="n1"),
                pod_group("g", 5),
                *(pod(name, gpus=1, group="g") for name in "pqrst"),
            ),
            ["node +3 like n1"],
        ),
        ((node("n1", 2, cordoned=True), pod("p", gpus=1)), ["node +1 like n1"]),
        ((node("n1", 2, labels={"zone": "a"}), pod("p", spec={"nodeSelector": {"zone": "b"}})), []),
    ],
)
def test_the_least_number_of_nodes_is_found(objects: tuple[Any, ...], found: list[str]) -> None:
    assert spelled(edits(candidates, tries(*objects))) == found


def test_there_are_as_many_as_those_before_it_take() -> None:
    older = [pod(f"o{at}", gpus=2, created="2025-01-01T00:00:00Z") for at in range(3)]
    tried = tries(node("n1", 2, cordoned=True), *older, pod("p", gpus=1))
    assert spelled(edits(candidates, tried)) == ["node +4 like n1"]


def test_further_nodes_have_names_of_their_own() -> None:
    tried = tries(node("n1"), node("n1-more-1"), pod("p"))
    found = [each.node.name for each in changes(tried, MoreNodes(2, "n1")) if isinstance(each, AnotherNode)]
    assert found == ["n1-more-2", "n1-more-3"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (MoreNodes(1, "x"), r"node \+1 like x: allowed are nodes: n1"),
        (MoreNodes(65, "n1"), r"node \+65 like n1: allowed are 1 to 64 nodes"),
        (MoreNodes(0, "n1"), "allowed are 1 to 64 nodes"),
    ],
)
def test_what_makes_no_sense_is_refused(edit: MoreNodes, message: str) -> None:
    with pytest.raises(NotPossible, match=message):
        changes(tries(node("n1"), pod("p")), edit)
