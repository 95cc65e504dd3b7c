"""Slices of devices, as drivers publish them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.mig import Place, Profile
from scheduler.core.convert.devices import taint_rule_record
from scheduler.core.convert.nodes import mig_node
from scheduler.core.model.devices import Awaited, Capacity, DevicePlace, DeviceTaint, Policy, Value
from scheduler.core.model.mig import MigCard, MigLayoutAsked, MigSlice
from scheduler.core.model.pod_class import Requirement, Term
from tests.scheduler.core.device_objects import DRIVER, device, devices
from wire.core import ObjectMeta
from wire.crds.gpunode import (
    CardHealth,
    CardStatus,
    GpuNode,
    GpuNodeSpec,
    GpuNodeStatus,
    MigLayout,
    MigProfile,
    PartitioningStatus,
    SlicePlace,
    SliceStatus,
)
from wire.quantity import NANO
from wire.resource import DeviceTaintRule

_TERM = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}
_IN_RACK = (Term((Requirement("rack", "In", ("r1",)),), ()),)


def test_a_device_has_attributes_capacity_taints_and_counters() -> None:
    written = device(
        "gpu-0",
        attributes={"model": "H100", "index": 1, "nvlink": True, "driverVersion": "v1.2.3"},
        capacity={"memory": {"value": "80Gi"}},
        taints=[{"key": "ill", "value": "xid", "effect": "NoSchedule"}],
        consumesCounters=[{"counterSet": "card", "counters": {"slices": {"value": "3"}}}],
        allowMultipleAllocations=True,
    )
    record = devices("n1", written)
    (read,) = record.devices
    assert dict(read.kind.attributes) == {
        "model": Value("string", "H100"),
        "index": Value("int", 1),
        "nvlink": Value("bool", value=True),
        "driverVersion": Value("version", "1.2.3"),
    }
    assert read.kind.capacity == (("memory", Capacity(80 * 2**30 * NANO)),)
    assert (read.kind.driver, read.kind.is_shared) == (DRIVER, True)
    assert read.taints == (DeviceTaint("ill", "xid", "NoSchedule"),)
    assert read.draws == (("card", (("slices", 3 * NANO),)),)
    assert (record.key, record.pool_id, read.unsupported) == ("n1", (DRIVER, "n1"), "")


def test_a_number_and_a_truth_of_the_same_value_are_told_apart() -> None:
    one, true = devices("n1", device("a", attributes={"x": 1}), device("b", attributes={"x": True})).devices
    assert one.kind.attributes != true.kind.attributes


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ({"nodeName": "n1"}, DevicePlace(node="n1")),
        ({"nodeName": "n1", "allNodes": True}, DevicePlace(node="n1")),
        ({"allNodes": True, "nodeSelector": _TERM}, DevicePlace(is_everywhere=True)),
        ({"nodeSelector": _TERM}, DevicePlace(terms=_IN_RACK)),
        # Some way to select nodes that is not known: nowhere.
        ({"allNodes": False}, None),
    ],
)
def test_a_slice_says_from_where_its_devices_can_be_used(written: dict[str, Any], place: DevicePlace | None) -> None:
    assert devices("s", **written).place == place


def test_each_device_says_so_itself_where_the_slice_leaves_it_to_them() -> None:
    listed = [device("a", nodeName="n1"), device("b", allNodes=True), device("c", nodeSelector=_TERM), device("d")]
    own = devices("s", *listed, perDeviceNodeSelection=True)
    assert [each.place for each in own.devices] == [
        DevicePlace(node="n1"),
        DevicePlace(is_everywhere=True),
        DevicePlace(terms=_IN_RACK),
        None,
    ]
    assert [each.place for each in devices("s", *listed).devices] == [None] * 4


def test_what_pods_wait_for_is_read() -> None:
    (read,) = devices(
        "n1", device("a", bindingConditions=["up"], bindingFailureConditions=["bad"], bindsToNode=True)
    ).devices
    assert (read.awaited, read.binds_to_node, read.unsupported) == (Awaited(("up",), ("bad",)), True, "")


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("bindingConditions", ["a", "b", "c", "d", "e"], "more than 4 binding conditions"),
        ("nodeAllocatableResourceMappings", {"cpu": {}}, "nodeAllocatableResourceMappings"),
        ("capacity", {"memory": {"value": "much"}}, "quantity 'much'"),
        ("consumesCounters", [{"counterSet": "c", "counters": {"slices": {"value": "much"}}}], "quantity 'much'"),
    ],
)
def test_a_device_with_a_field_that_no_rule_reads_names_it(field: str, value: object, named: str) -> None:
    (read,) = devices("n1", {"name": "gpu-0", field: value}).devices
    assert read.unsupported.startswith(named)


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ({"sharedCounters": [{"name": "card", "counters": {"slices": {"value": "much"}}}]}, "spec.sharedCounters: "),
        ({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}, "nodeSelector: has several terms"),
        ({"count": -1}, "spec.pool.resourceSliceCount: -1"),
    ],
)
def test_a_slice_that_nobody_can_read_says_why(written: dict[str, Any], wrong: str) -> None:
    assert devices("s", **written).wrong.startswith(wrong)


def test_counters_of_a_slice_are_read() -> None:
    written = devices("s", sharedCounters=[{"name": "card", "counters": {"slices": {"value": "7"}}}])
    assert (written.counters, written.wrong) == ((("card", (("slices", 7 * NANO),)),), "")


def test_a_capacity_says_what_may_be_asked_of_it() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}}
    chosen = {"default": "1", "validValues": ["1", "2"]}
    written = {"memory": {"value": "8Gi", "requestPolicy": policy}, "links": {"value": "4", "requestPolicy": chosen}}
    (read,) = devices("n1", {"name": "gpu-0", "capacity": written}).devices
    gib = 2**30 * NANO
    assert dict(read.kind.capacity) == {
        "memory": Capacity(8 * gib, Policy(default_nano=gib, least_nano=gib, most_nano=8 * gib, step_nano=gib)),
        "links": Capacity(4 * NANO, Policy(default_nano=NANO, values_nano=(NANO, 2 * NANO))),
    }


# DeviceTaintRules as they are written.

_TAINT = {"key": "example.com/ill", "value": "xid", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("spec", "selected"),
    [
        ({"deviceSelector": {"driver": "d", "pool": "p", "device": "a"}}, ("d", "p", "a")),
        ({"deviceSelector": {"pool": "p"}}, (None, "p", None)),
        ({"deviceSelector": {}}, (None, None, None)),
        # As kube-scheduler 1.36.
        ({}, (None, None, None)),
    ],
)
def test_a_rule_selects_by_what_is_written(spec: dict[str, Any], selected: tuple[str | None, ...]) -> None:
    written = {"metadata": {"name": "r"}, "spec": {**spec, "taint": _TAINT}}
    record = taint_rule_record(msgspec.convert(written, DeviceTaintRule))
    assert (record.driver, record.pool, record.device) == selected
    assert (record.key, record.taint) == ("r", DeviceTaint("example.com/ill", "xid", "NoExecute"))


# GpuNodes are read with the GPUs that can be cut, and lists of anybody's making are bounded.

PROFILE = MigProfile(name="1g.10gb", size=1, starts=[1, 0], most=7)
SLICE = SliceStatus(profile="1g.10gb", start=1, size=1, uuid="MIG-x", in_use=True)


def read(*cards: CardStatus) -> tuple[MigCard, ...]:
    return mig_node(GpuNode(status=GpuNodeStatus(cards=list(cards)))).cards


def card(**fields: object) -> CardStatus:
    known: dict[str, object] = {"uuid": "GPU-a", "mig": True, "profiles": [PROFILE], "layout": [SLICE]}
    return CardStatus(**{**known, **fields})  # type: ignore[arg-type]  # fields of a table


def test_a_gpu_in_mig_mode_is_read_with_slices_and_profiles() -> None:
    (found,) = read(card(partitioning=PartitioningStatus(attempt="a", state="done")))
    assert found.is_ready
    assert found.profiles == {"1g.10gb": Profile((Place(0, 1), Place(1, 1)), 7)}
    assert found.slices == (MigSlice("1g.10gb", 1, 1, True),)
    assert (found.attempt, found.state) == ("a", "done")


def test_gpus_that_cannot_be_cut_are_not_ready_or_not_kept() -> None:
    assert read(card(mig=False)) == ()
    unready = (card(layout=None), card(profiles=None), card(health=CardHealth(state="ill")), card(layout=[SLICE] * 9))
    assert [one.is_ready for one in read(*unready)] == [False] * 4
    assert [one.is_ready for one in read(card(layout=[]), card(health=CardHealth(state="well")))] == [True, True]


def test_lists_are_bounded() -> None:
    many = MigProfile(name="1g.10gb", size=1, starts=list(range(1000)), most=7)
    (found,) = read(card(profiles=[MigProfile(name=f"p{number}") for number in range(1000)], layout=[SLICE] * 1000))
    assert (len(found.profiles), len(found.slices)) == (32, 8)
    (found,) = read(card(profiles=[many]))
    assert len(found.profiles["1g.10gb"].places) == 8


def test_what_is_asked_is_read() -> None:
    asked = MigLayout(uuid="GPU-a", layout=[SlicePlace(profile="1g.10gb", start=3)], attempt="a")
    found = mig_node(GpuNode(metadata=ObjectMeta(name="n1"), spec=GpuNodeSpec(mig=[asked])))
    assert found.asked_of("GPU-a") == MigLayoutAsked("GPU-a", "a", (("1g.10gb", 3),))
    assert (found.name, found.asked_of("GPU-b")) == ("n1", None)
