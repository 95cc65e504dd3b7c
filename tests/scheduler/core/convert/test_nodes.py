from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.nodes import node_record, offered_gpus
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord
from tests.scheduler.core.objects import node
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
