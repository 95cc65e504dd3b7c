from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.model.records import LevelConstraint
from tests.scheduler.core.objects import pod_group
from wire import names


@pytest.mark.parametrize(
    ("annotations", "unsupported"),
    [
        ({"kai.scheduler/batch-min-member": "3"}, "annotation kai.scheduler/batch-min-member above minMember"),
        ({"kai.scheduler/batch-min-member": "?"}, "annotation kai.scheduler/batch-min-member above minMember"),
        ({"kai.scheduler/batch-min-member": "2"}, ""),
        ({"kai.scheduler/segment-size": "2"}, "annotation kai.scheduler/segment-size"),
        (
            {"kai.scheduler/segment-topology-required-placement": "rack"},
            "annotation kai.scheduler/segment-topology-required-placement",
        ),
        ({"kai.scheduler/topology-required-placement": "rack"}, ""),
        ({"kai.scheduler/preemption-delay": "1m"}, ""),
        ({}, ""),
    ],
)
def test_annotations_of_a_pod_group_that_ask_for_another_structure_are_named(
    annotations: dict[str, str], unsupported: str
) -> None:
    assert pod_group_record(pod_group("g", 2, annotations=annotations)).unsupported == unsupported


@pytest.mark.parametrize(
    ("spec", "minimum", "unsupported"),
    [
        ({"minimum": 3}, 3, ""),
        ({}, 1, ""),
        ({"minimum": 0}, 0, ""),
        ({"subGroups": [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 1}]}, 3, ""),
        ({"minimum": 5, "subGroups": [{"name": "a", "minMember": 2}]}, 5, ""),
        ({"minSubGroup": 1, "subGroups": [{"name": "a", "minMember": 2}]}, 2, ""),
        (
            {"subGroups": [{"name": "a", "minSubGroup": 1}, {"name": "b", "parent": "a", "minMember": 1}]},
            1,
            "",
        ),
        (
            {"minimum": 1, "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}},
            1,
            "",
        ),
        ({"minimum": 1, "topologyConstraint": {"topology": "t", "preferredTopologyLevel": "rack"}}, 1, ""),
        (
            {
                "subGroups": [
                    {"name": "a", "minMember": 1},
                    {"name": "b", "minMember": 1, "topologyConstraint": {"requiredTopologyLevel": "rack"}},
                ]
            },
            2,
            "",
        ),
    ],
)
def test_a_pod_group_says_its_minimum_and_what_is_not_supported(
    spec: dict[str, Any], minimum: int, unsupported: str
) -> None:
    record = pod_group_record(pod_group("g", **spec))
    assert (record.minimum, record.unsupported) == (minimum, unsupported)


def test_what_a_pod_group_and_its_subgroups_ask_of_places_is_read() -> None:
    asked = {"topology": "t", "requiredTopologyLevel": "zone", "preferredTopologyLevel": "rack"}
    subgroups = [
        {"name": "a", "minMember": 1, "topologyConstraint": {"topology": "u", "requiredTopologyLevel": "host"}},
        {"name": "b", "minMember": 1, "topologyConstraint": {"topology": "u"}},
        {"name": "c", "minMember": 1},
    ]
    record = pod_group_record(pod_group("g", topologyConstraint=asked, subGroups=subgroups))
    assert record.levels == (("", LevelConstraint("t", "zone", "rack")), ("a", LevelConstraint("u", "host")))


def test_a_level_that_is_preferred_in_no_topology_is_left_out_and_one_that_is_required_is_kept() -> None:
    def levels(**asked: str) -> tuple[tuple[str, LevelConstraint], ...]:
        return pod_group_record(pod_group("g", topologyConstraint=asked)).levels

    assert levels(preferredTopologyLevel="rack") == ()
    assert levels(requiredTopologyLevel="rack") == (("", LevelConstraint("", "rack", "")),)


@pytest.mark.parametrize(("length", "kept"), [(5, 5), (64, 64), (65, 65), (4_000, 65)])
def test_of_a_time_as_much_is_kept_as_shows_that_it_is_none(length: int, kept: int) -> None:
    record = pod_group_record(pod_group("g", annotations={names.STALE_SINCE: "2" * length}))
    assert len(record.stale_since) == kept


@pytest.mark.parametrize(
    ("written", "ns"),
    [(None, 0), ("90s", 90 * 10**9), ("-1s", 0), ("soon", 0)],
    ids=["absent", "said", "below", "none"],
)
def test_how_long_a_gang_waits_before_others_are_evicted_for_it(written: str | None, ns: int) -> None:
    assert pod_group_record(pod_group("g", preemptionDelay=written)).delay_ns == ns
