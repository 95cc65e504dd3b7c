from __future__ import annotations

from typing import Any

from cli.checks.nodes import check_multiplied
from cli.checks.reader import Level, Reader
from tests.cli.checks.told import Told


def node(name: str, gpus: str, **labels: str) -> dict[str, Any]:
    own = {f"nvidia.com/gpu.{key}": text for key, text in labels.items()}
    amounts = {"nvidia.com/gpu": gpus}
    return {"metadata": {"name": name, "labels": own}, "status": {"capacity": amounts, "allocatable": amounts}}


async def test_nodes_that_offer_each_gpu_several_times_are_named_with_what_tells_it() -> None:
    nodes = [
        node("a", "8", count="2"),
        node("b", "8", count="2"),
        node("c", "8", count="8"),
        node("d", "4", replicas="4"),
    ]
    found = await check_multiplied(Reader(Told({"/api/v1/nodes": {"items": nodes}})))
    assert [(each.level, each.said) for each in found] == [
        (
            Level.WARNING,
            "a, b: each GPU is offered several times (8 nvidia.com/gpu of 2 by label nvidia.com/gpu.count)",
        ),
        (Level.WARNING, "d: each GPU is offered several times (label nvidia.com/gpu.replicas=4)"),
    ]
    assert all("without sharing" in each.do for each in found)


async def test_nodes_that_offer_each_gpu_once_are_well() -> None:
    nodes = [node("a", "8", count="8"), {"metadata": {"name": "no-gpu"}}]
    (found,) = await check_multiplied(Reader(Told({"/api/v1/nodes": {"items": nodes}})))
    assert found.level is Level.OK
