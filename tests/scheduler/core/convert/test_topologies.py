"""Topology objects as the core reads them."""

from __future__ import annotations

import pytest

from scheduler.core.convert.pod_groups import MOST_LEVELS, topology_record
from scheduler.core.model.records import TopologyLevel
from tests.scheduler.core.objects import topology


def test_levels_are_read_from_coarse_to_fine_with_their_aliases() -> None:
    record = topology_record(topology("t", "example.com/zone", "example.com/rack", aliases=["", "rack"]))
    assert (record.key, record.labels) == ("t", ("example.com/zone", "example.com/rack"))
    assert record.levels[1] == TopologyLevel("example.com/rack", "rack")


@pytest.mark.parametrize(
    ("level", "depth"), [("example.com/zone", 1), ("example.com/rack", 2), ("rack", 2), ("example.com/host", None)]
)
def test_a_level_is_named_by_its_label_or_its_alias(level: str, depth: int | None) -> None:
    record = topology_record(topology("t", "example.com/zone", "example.com/rack", aliases=["", "rack"]))
    assert record.depth_of(level) == depth


def test_no_level_has_the_empty_name() -> None:
    assert topology_record(topology("t", "zone")).depth_of("") is None


def test_more_levels_than_the_definition_admits_are_not_looked_at() -> None:
    record = topology_record(topology("t", *(f"level-{number}" for number in range(MOST_LEVELS + 5))))
    assert len(record.levels) == MOST_LEVELS
