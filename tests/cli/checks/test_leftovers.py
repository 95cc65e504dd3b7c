from __future__ import annotations

from typing import Any

import pytest

from cli.checks.clean_nodes import judge, removal
from cli.checks.foreign import foreign_offers

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
