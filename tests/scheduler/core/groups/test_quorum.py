"""When a gang runs below its minimum, which is what gets the rest of it evicted."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.groups.quorum import Missing, Quorum, quorum
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import bound, pod, pod_group


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
