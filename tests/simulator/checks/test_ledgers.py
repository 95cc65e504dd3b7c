"""S12: a scheduler's ledger against a recount."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks.checker import BIND_REQUESTS, NODES
from simulator.checks.ledgers import Ledger, Row
from tests.simulator.made_up import NODE, Story, granted, node, pod, reservation, whole

MIB = 16 * 1024
GPU = "nvidia.com/gpu"


def occupied() -> Story:
    """A node with a half of one device, a whole one, and a pod of half a core that another scheduler placed."""
    story = Story().sees(node(), kind=NODES).sees(reservation("r", "g", {"uid-p": 500_000_000}))
    story.sees(granted("p", "g")).sees(whole("w"))
    half = {"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}}
    return story.sees(pod("other", scheduler="default-scheduler", containers=[half]), by_hand=True)


def row(**changed: Any) -> Row:
    right = {"cpu_milli": 3500, "mem_mib": MIB - 1, "pods": 6, "devices": {GPU: 1}, "shared_nano": {"g": 500_000_000}}
    return Row(**{**right, **changed})


def ledger(row: Row, *, is_busy: bool = False) -> Ledger:
    return Ledger("scheduler", is_busy, {NODE: row})


def test_a_ledger_that_equals_the_recount_holds() -> None:
    story = occupied()
    assert story.checker.ledger(ledger(row()), 0.0)
    assert story.broken() == set()


@pytest.mark.parametrize(
    "changed",
    [
        {"cpu_milli": 4000},
        {"mem_mib": MIB},
        {"pods": 7},
        {"devices": {GPU: 2}},
        {"devices": {GPU: 1, "nvidia.com/mig-1g.10gb": 1}},
        {"shared_nano": {"g": 500_000_001}},
        {"shared_nano": {}},
        {"shared_nano": {"g": 500_000_000, "gone": 1}},
    ],
    ids=["cpu", "memory", "pod slots", "GPUs", "slices", "a nano", "a device forgotten", "a device that is not there"],
)
def test_a_ledger_that_differs_breaks_s12(changed: dict[str, Any]) -> None:
    story = occupied()
    assert story.checker.ledger(ledger(row(**changed)), 0.0)
    assert story.broken() == {"S12"}


@pytest.mark.parametrize(("others", "free"), [([], 1), (["r2"], 1)], ids=["nobody's", "another reservation's"])
def test_a_device_that_is_used_and_not_held_by_its_reservation_is_one_more(others: list[str], free: int) -> None:
    story = Story().sees(node(gpus=3), kind=NODES).sees(granted("p", "g"))
    held = [reservation("r", "g", {"uid-p": 500_000_000}), *(reservation(name, "h") for name in others)]
    for raw, uuid in zip(held, ("GPU-b", "GPU-a"), strict=False):
        raw["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = uuid
        story.sees(raw)
    pods = 8 - len(others)
    assert story.checker.ledger(ledger(row(cpu_milli=4000, mem_mib=MIB, pods=pods, devices={GPU: free})), 0.0)
    assert story.broken() == set()


def test_a_node_that_the_ledger_does_not_know_breaks_s12() -> None:
    story = occupied().sees(node("node-1"), kind=NODES)
    assert story.checker.ledger(ledger(row()), 0.0)
    assert story.broken() == {"S12"}


def test_nothing_is_compared_while_something_is_under_way() -> None:
    story = occupied()
    assert not story.checker.ledger(ledger(row(devices={GPU: 2}), is_busy=True), 0.0)
    request = {"metadata": {"uid": "attempt", "name": "q"}, "spec": {"selectedNode": NODE}}
    story.sees(request, kind=BIND_REQUESTS)
    assert not story.checker.ledger(ledger(row(devices={GPU: 2})), 0.0)
    assert story.broken() == set()
    story.sees(request, kind=BIND_REQUESTS, event="DELETED")
    assert story.checker.ledger(ledger(row(devices={GPU: 2})), 0.0)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_holds_nothing(phase: str) -> None:
    story = occupied().sees({**whole("w"), "status": {"phase": phase}})
    assert story.checker.ledger(ledger(row(devices={GPU: 2}, pods=7)), 0.0)
    assert story.broken() == set()


def test_a_lost_reservation_keeps_its_device_and_a_slot_to_come_back() -> None:
    story = occupied().sees(reservation("r", "g", {"uid-p": 500_000_000}), event="DELETED")
    assert story.checker.ledger(ledger(row()), 0.0)
    assert story.broken() == set()
