from __future__ import annotations

from typing import Any

import pytest

from gpu.bind_request import PlannedDevice
from scheduler.core.convert import pod_groups
from scheduler.core.convert.pod_groups import MOST_LEVELS, pod_group_record, topology_record
from scheduler.core.convert.pods import bind_request_record
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import BindRequestRecord, LevelConstraint, PlannedMember, TopologyLevel
from tests.scheduler.core.objects import NANO, bind_request, pod, pod_group, topology
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
        ({"subGroups": [{"name": "a", "minSubGroup": 1}, {"name": "b", "parent": "a", "minMember": 1}]}, 1, ""),
        ({"minimum": 1, "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}}, 1, ""),
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


@pytest.mark.parametrize(
    ("text", "planned"),
    [
        ('{"id":"x","members":{"u2":{"node":"n"},"u1":{"node":"n"}}}', ("u1", "u2")),
        ("not json", ()),
        ("[]", ()),
        ('{"id":"x","members":7}', ()),
        ('{"id":"x","members":{"u":{"node":7}}}', ()),
        ('{"id":"x","members":{"u":{"node":"n","devices":[{"group":"g","nano":-1}]}}}', ()),
        ('{"id":"x","members":{"u":{"node":"n","devices":[{"group":"g","nano":1000000001}]}}}', ()),
        ("", ()),
    ],
)
def test_a_plan_names_its_members(text: str, planned: tuple[str, ...]) -> None:
    assert tuple(pod_group_record(pod_group("g", 1, annotations={names.PLAN: text})).planned) == planned


def test_a_plan_is_read_as_it_was_written() -> None:
    devices = (PlannedDevice("g1", 5), PlannedDevice("g2", NANO, mem_mib=7))
    placement = Placement(pod_uid="u", namespace="ns", name="p", rv="1", node="n", devices=devices)
    text = pod_groups.render(pod_groups.make("x", [placement]))
    assert pod_groups.members(text) == {"u": PlannedMember("n", devices)}


def test_a_plan_that_is_nested_deep_names_nobody() -> None:
    assert pod_groups.members('{"id": "x", "members": {}, "y": ' + "[" * 50_000 + "]" * 50_000 + "}") == {}


# Topology objects as the core reads them.


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


def test_a_hand_over_names_its_pod_its_node_and_its_devices() -> None:
    of = pod("a")
    assert bind_request_record(bind_request(of, "n1", ("g", NANO // 2), rv="7")) == BindRequestRecord(
        namespace=of.metadata.namespace,
        name="a",
        uid="br-a",
        pod_uid=of.metadata.uid,
        node="n1",
        rv="7",
        devices=(PlannedDevice("g", NANO // 2),),
    )


def test_a_request_of_another_scheduler_is_none() -> None:
    assert bind_request_record(bind_request(pod("a"), "n1", handover=False)) is None
