from __future__ import annotations

from typing import Any

import pytest

from cli.checks.nodes import check_node_resources, foreign_offers
from cli.checks.reader import Finding, Level, Reader
from cli.clean_nodes import judge, removal
from tests.cli.checks.told import Told

MEMORY = "aliyun.com/gpu-mem"


def node(amount: str = "0") -> dict[str, Any]:
    told = {"cpu": "2", MEMORY: amount}
    return {"metadata": {"name": "n", "uid": "N"}, "status": {"capacity": told, "allocatable": told}}


def pod(*, phase: str = "Running", kind: str = "containers", where: str = "limits", name: str = MEMORY) -> Any:
    spec: dict[str, Any] = {"containers": [{}], kind: [{"resources": {where: {name: "1"}}}]}
    return {"metadata": {"namespace": "team", "name": "p"}, "spec": spec, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("found", "pods", "stays"),
    [
        (node(), [], ""),
        (node("8"), [], "it is offered (capacity 8, allocatable 8)"),
        (node(), [pod()], "asked for by team/p"),
        (node(), [pod(where="requests")], "asked for by team/p"),
        (node(), [pod(kind="initContainers", phase="Pending")], "asked for by team/p"),
        (node(), [pod(phase="Succeeded"), pod(phase="Failed")], ""),
        (node(), [pod(name="nvidia.com/gpu")], ""),
    ],
)
def test_what_is_offered_or_asked_for_stays(found: dict[str, Any], pods: list[Any], stays: str) -> None:
    assert [verdict.stays for verdict in judge(found, pods)] == [stays]


def test_a_removal_holds_for_the_node_and_the_amounts_that_were_read_only() -> None:
    found = node()
    found["status"]["allocatable"] = {}
    path = "/status/capacity/aliyun.com~1gpu-mem"
    assert removal(found, foreign_offers(found)) == [
        {"op": "test", "path": "/metadata/uid", "value": "N"},
        {"op": "test", "path": path, "value": "0"},
        {"op": "remove", "path": path},
    ]


def foreign_node(
    name: str = "n", *, capacity: dict[str, str], allocatable: dict[str, str] | None = None
) -> dict[str, Any]:
    status = {"capacity": capacity, "allocatable": capacity if allocatable is None else allocatable}
    return {"metadata": {"name": name}, "status": status}


@pytest.mark.parametrize(
    "resource",
    [
        "aliyun.com/gpu-mem",
        "aliyun.com/gpu-count",
        "cnvrg.io/metagpu",
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
        "nvidia.com/gpu.shared",
        "nvidia.com/sharedgpu",
        "nvidia.com/gpu-0",
        "volcano.sh/vgpu-number",
        "volcano.sh/vgpu-memory",
        "volcano.sh/gpu-memory",
        "koordinator.sh/gpu",
        "koordinator.sh/gpu-memory-ratio",
        "koordinator.sh/gpu.shared",
    ],
)
def test_what_other_systems_advertise_is_known(resource: str) -> None:
    assert [offer.resource for offer in foreign_offers(foreign_node(capacity={resource: "0", "cpu": "2"}))] == [
        resource
    ]


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "cpu", "rdma/hca", "koordinator.sh/rdma"]
)
def test_what_is_not_theirs_is_left_alone(resource: str) -> None:
    assert foreign_offers(foreign_node(capacity={resource: "0"})) == []


def test_a_renamed_resource_is_found_when_it_is_named() -> None:
    (offer,) = foreign_offers(foreign_node(capacity={"example.com/shared": "0"}), also=["example.com/shared"])
    assert offer.is_left_over


@pytest.mark.parametrize(
    ("capacity", "allocatable", "is_left_over"),
    [
        ("0", "0", True),
        ("0", None, True),
        (None, "0", True),
        ("0k", "0", True),
        # Its plugin has ended a moment ago, or all its devices are ill.
        ("8", "0", False),
        ("8", "8", False),
        ("?", "0", False),
    ],
)
def test_a_resource_is_left_over_when_nothing_could_be_offered(
    capacity: str | None, allocatable: str | None, is_left_over: bool
) -> None:
    told = [{} if amount is None else {"aliyun.com/gpu-mem": amount} for amount in (capacity, allocatable)]
    (offer,) = foreign_offers(foreign_node(capacity=told[0], allocatable=told[1]))
    assert offer.is_left_over is is_left_over


async def looked_at(*nodes: dict[str, Any]) -> list[Finding]:
    return await check_node_resources(Reader(Told({"/api/v1/nodes": {"items": list(nodes)}})))


async def test_leftovers_are_named_with_their_nodes_and_so_is_what_another_system_offers() -> None:
    found = await looked_at(
        foreign_node("a", capacity={"aliyun.com/gpu-mem": "0"}),
        foreign_node("b", capacity={"aliyun.com/gpu-mem": "0", "volcano.sh/vgpu-number": "10"}),
        foreign_node("c", capacity={"cpu": "2"}),
    )
    assert [finding.level for finding in found] == [Level.WARNING, Level.WARNING]
    assert found[0].said == "aliyun.com/gpu-mem is left at 0 on a, b by a device plugin that has gone"
    assert found[1].said.startswith("volcano.sh/vgpu-number is offered on b by another system")


async def test_nodes_without_other_systems_are_fine() -> None:
    (found,) = await looked_at(foreign_node("a", capacity={"nvidia.com/gpu": "8"}), {"metadata": {"name": "new"}})
    assert found.level is Level.OK
