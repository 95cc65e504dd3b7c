"""The largest minimum with which a gang starts."""

from __future__ import annotations

import pytest

from scheduler.core.what_if.edits import NotPossible
from scheduler.core.what_if.group_changes import Members, fewer_members
from tests.scheduler.core.objects import node, pod, pod_group
from tests.scheduler.core.what_if.given import changes, edits, spelled, tries


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
