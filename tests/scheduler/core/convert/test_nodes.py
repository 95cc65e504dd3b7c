"""What is read of NodeResourceTopology objects, and what kubelets align of a pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.nodes import node_record, offered_gpus
from scheduler.core.convert.numa import numa_ask, numa_report
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord
from tests.scheduler.core.numa_objects import GPU, RESTRICTED, SINGLE, containers, report, resource, spec, topology
from tests.scheduler.core.objects import node, pod
from wire import names
from wire.core import Node


@pytest.mark.parametrize(
    ("of_node", "cards"),
    [
        ({"mem_mib": 46068}, (46068, 46068)),
        ({"labels": {names.NODE_GPU_MEMORY: str(46068 * 2**20)}}, (46068, 46068)),
        ({"labels": {names.NODE_GPU_MEMORY: "lots"}}, (0, 0)),
        ({"labels": {names.NODE_GPU_MEMORY: "-5"}}, (0, 0)),
        ({"labels": {names.NODE_GPU_MEMORY: "9" * 18}}, (0, 0)),
        ({}, (0, 0)),
        ({"annotations": {names.NODE_CARDS: "81920, 24576,81920"}}, (24576, 81920)),
        ({"annotations": {names.NODE_CARDS: "81920,many"}, "mem_mib": 24576}, (24576, 24576)),
        ({"annotations": {names.NODE_CARDS: "0,24576"}, "mem_mib": 81920}, (81920, 81920)),
        ({"annotations": {names.NODE_CARDS: "9" * 18}, "mem_mib": 81920}, (81920, 81920)),
    ],
)
def test_card_memory_comes_from_the_annotation_or_the_label(of_node: dict[str, Any], cards: tuple[int, int]) -> None:
    record = node_record(node(**of_node))
    assert (record.smallest_card_mib, record.largest_card_mib) == cards


@pytest.mark.parametrize(
    ("of_node", "is_mig"),
    [
        ({}, False),
        ({"labels": {names.NODE_MIG_STRATEGY: "single"}}, True),
        ({"labels": {names.NODE_MIG_STRATEGY: "mixed"}}, False),
        ({"extended": {"nvidia.com/mig-1g.5gb": 2}}, True),
        ({"extended": {"nvidia.com/mig-1g.5gb": 0}}, False),
        ({"extended": {"nvidia.com/mig-1g.5gb": 2}, "labels": {"node-role.kubernetes.io/mig-enabled": "false"}}, False),
        ({"labels": {"node-role.kubernetes.io/mig-enabled": "true"}}, True),
    ],
)
def test_a_node_with_slices_is_known_as_such(of_node: dict[str, Any], is_mig: bool) -> None:
    assert node_record(node(**of_node)).is_mig == is_mig


@pytest.mark.parametrize(
    ("strategy", "enabled", "profile"),
    [("single", "true", "1g.10gb"), ("mixed", "true", ""), ("", "true", ""), ("single", "false", "")],
)
def test_the_gpus_of_a_node_are_slices_only_under_the_strategy_single(
    strategy: str, enabled: str, profile: str
) -> None:
    labels = {
        names.NODE_MIG_STRATEGY: strategy,
        "node-role.kubernetes.io/mig-enabled": enabled,
        names.NODE_GPU_PRODUCT: "NVIDIA-H100-MIG-1g.10gb",
    }
    assert node_record(node(labels=labels)).single_profile == profile


def test_what_a_node_says_wrongly_counts_as_none() -> None:
    record = node_record(node(cpu="fast", extended={"example.com/nic": "two"}))
    assert (record.capacity.cpu_milli, record.capacity.extended) == (0, ())


def _heartbeats() -> tuple[NodeRecord, NodeRecord]:
    return node_record(node("n1")), node_record(node("n1"))


def test_a_heartbeat_reads_as_the_same_record() -> None:
    first, second = _heartbeats()
    assert first == second


def test_a_node_whose_device_plugin_has_registered_nothing_offers_no_gpu() -> None:
    said = node(gpus=0)
    assert offered_gpus(said) == 0
    nothing = msgspec.structs.replace(said.status, capacity=None, allocatable=None)
    assert offered_gpus(msgspec.structs.replace(said, status=nothing)) == 0


def test_what_nobody_has_written_counts_as_none() -> None:
    bare = msgspec.convert({"metadata": {"name": "n", "uid": "u"}, "status": {}}, Node)
    record = node_record(bare)
    assert (record.capacity, record.pods, record.uuids) == (Demand(), 0, ())
    assert (record.smallest_card_mib, record.largest_card_mib, record.is_ready) == (0, 0, False)


_BOTH = (("cpu", 4000), (GPU, 2))
_ALWAYS = {"restartPolicy": "Always"}


def test_numa_nodes_are_read_by_number_with_what_kubelets_align() -> None:
    found = report("n1", {GPU: (4, 3), "cpu": ("8", "7500m"), "memory": "64Gi"}, {GPU: 4, "hugepages-2Mi": "1Gi"})
    assert found.record is not None
    assert (found.key, found.record.is_single, found.record.by_pod) == ("n1", True, False)
    assert found.record.resources == ("cpu", GPU)
    assert [(zone.id, zone.allocatable, zone.available) for zone in found.record.zones] == [
        (0, (8000, 4), (7500, 3)),
        (1, (0, 4), (0, 4)),
    ]


def test_a_resource_of_which_no_numa_node_has_any_is_not_aligned() -> None:
    """Its devices may have no NUMA node: a pod that requests some would be kept off the node for ever."""
    found = report("n1", {GPU: 0, "cpu": 8}, {GPU: 0, "cpu": 8})
    assert found.record is not None
    assert found.record.resources == ("cpu",)


@pytest.mark.parametrize(
    ("policy", "scope", "words", "expected"),
    [
        (SINGLE, "container", None, (True, False)),
        (SINGLE, "pod", None, (True, True)),
        (RESTRICTED, "pod", None, (False, True)),
        ("best-effort", "pod", None, None),
        ("none", "container", None, None),
        ("", "", ["SingleNUMANodePodLevel"], (True, True)),
        ("", "", ["SingleNUMANodeContainerLevel"], (True, False)),
        ("", "", ["RestrictedPodLevel", "None"], (False, True)),
        ("", "", ["Restricted"], (False, False)),
        ("", "", ["BestEffortPodLevel"], None),
        # Attributes count before the old words.
        ("none", "", ["SingleNUMANodePodLevel"], None),
        ("", "", None, None),
    ],
)
def test_the_policy_is_that_of_the_attributes_or_of_the_old_words(
    policy: str, scope: str, words: list[str] | None, expected: tuple[bool, bool] | None
) -> None:
    made = msgspec.to_builtins(topology("n1", {GPU: 1}, topologyPolicies=words))
    values = {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    made["attributes"] = [{"name": name, "value": value} for name, value in values.items() if value]
    found = numa_report(msgspec.convert(made, type(topology("n1")))).record
    assert (None if found is None else (found.is_single, found.by_pod)) == expected


@pytest.mark.parametrize(
    "zones",
    [
        [],
        [{"name": "socket-0"}],
        [{"name": "node-0"}, {"name": "die-0"}],
        [{"name": f"node-{number}"} for number in range(9)],
        [{"name": "node-0", "resources": [resource(GPU, "many")]}],
    ],
    ids=["none", "sockets", "mixed", "nine", "malformed"],
)
def test_what_can_t_be_judged_says_nothing(zones: list[dict[str, Any]]) -> None:
    assert report("n1", zones=zones).record is None


@pytest.mark.parametrize(
    ("written", "parts", "whole"),
    [
        # Devices of all pods, whole CPUs of Guaranteed ones.
        (spec({GPU: "2", "cpu": "4"}), [(((GPU, 2),), False)], ((GPU, 2),)),
        (
            spec({GPU: "2", "cpu": "4"}, is_guaranteed=True),
            [((("cpu", 4000), (GPU, 2)), False)],
            (("cpu", 4000), (GPU, 2)),
        ),
        (spec({"cpu": "4"}, is_guaranteed=True), [((("cpu", 4000),), False)], (("cpu", 4000),)),
        (spec({"cpu": "1500m"}, is_guaranteed=True), None, ()),
        (spec({"cpu": "4"}), None, ()),
        (spec({"cpu": "2", GPU: "0"}), None, ()),
        (spec({"memory": "4Gi", "hugepages-2Mi": "4Mi"}), None, ()),
        # A container without limits makes all of the pod Burstable.
        (spec({"cpu": "4"}, is_guaranteed=True, init=[{"name": "i"}]), None, ()),
        # The most that is held at once.
        (spec({GPU: "1"}, {GPU: "2"}), [(((GPU, 1),), False), (((GPU, 2),), False)], ((GPU, 3),)),
        (spec({GPU: "1"}, init=containers({GPU: "4"})), [(((GPU, 4),), True), (((GPU, 1),), False)], ((GPU, 4),)),
        (
            spec({GPU: "1"}, init=[{**containers({GPU: "4"})[0], **_ALWAYS}]),
            [(((GPU, 4),), False), (((GPU, 1),), False)],
            ((GPU, 5),),
        ),
        # A sidecar goes on beside an init container that comes after it, and not beside one that came before.
        (
            spec({GPU: "1"}, init=[{**containers({GPU: "2"})[0], **_ALWAYS}, *containers({GPU: "3"})]),
            [(((GPU, 2),), False), (((GPU, 3),), True), (((GPU, 1),), False)],
            ((GPU, 5),),
        ),
        (
            spec({GPU: "1"}, init=[*containers({GPU: "3"}), {**containers({GPU: "2"})[0], **_ALWAYS}]),
            [(((GPU, 3),), True), (((GPU, 2),), False), (((GPU, 1),), False)],
            ((GPU, 3),),
        ),
        # What can't be read keeps the pod waiting for another reason.
        (spec({GPU: "many"}), None, ()),
    ],
)
def test_a_pod_gets_aligned_what_its_kubelet_has_hints_for(
    written: dict[str, Any], parts: list[tuple[Any, bool]] | None, whole: Any
) -> None:
    found = numa_ask(pod(spec=written))
    assert (None if found is None else [(each.amounts, each.is_brief) for each in found.containers]) == parts
    assert (() if found is None else found.whole) == whole


def test_a_pod_with_more_containers_than_are_looked_at_goes_by_its_sum() -> None:
    found = numa_ask(pod(spec=spec(*({GPU: "1"} for _ in range(65)))))
    assert found is not None
    assert [each.amounts for each in found.containers] == [((GPU, 65),)]


def test_pods_with_resources_of_their_own_get_no_cpus_aligned() -> None:
    written = {**spec({"cpu": "4"}, is_guaranteed=True), "resources": {"limits": {"cpu": "8", "memory": "8Gi"}}}
    assert numa_ask(pod(spec=written)) is None
