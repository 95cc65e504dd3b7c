from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cli.checks.nodes import check_vanished
from cli.checks.reader import Level, Reader
from gpu.book import Entry
from tests.cli.checks.told import Told
from wire import names

GONE = "/api/v1/namespaces/team/pods/gone"


def node(name: str, ready: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def reservation(on: str, *pods: str) -> dict[str, Any]:
    """A reservation whose book names these pods; their UIDs are their names."""
    book = {name: Entry(1, "attempt", "1", 0, f"team/{name}") for name in pods}
    meta = {
        "name": f"gpu-reservation-{on}",
        "namespace": names.RESERVATION_NAMESPACE,
        "labels": {"app": names.RESERVATION_APP, names.GPU_GROUP_LABEL: f"group-{on}"},
        "annotations": {names.TENANTS: msgspec.json.encode(book).decode()},
    }
    return {"metadata": meta, "spec": {"nodeName": on, "containers": []}}


def cluster(*nodes: dict[str, Any], **pods: Any) -> Told:
    """One reservation on node a, with tenants that run, that are gone, and that are not bound yet."""
    held = reservation("a", "runs", "gone", "unbound")
    answers: dict[str, Any] = {
        "/api/v1/nodes": {"items": list(nodes)},
        f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods": {"items": [held]},
        "/api/v1/pods": {"items": [{"metadata": {"name": "runs", "uid": "runs"}}]},
        "/api/v1/namespaces/team/pods/unbound": {"metadata": {"uid": "unbound"}},
    }
    return Told(answers | pods)


@pytest.mark.parametrize("nodes", [(), (node("a", "Unknown"),), (node("a", "False"),)])
@pytest.mark.parametrize("again", [{}, {GONE: {"metadata": {"uid": "another"}}}], ids=["gone", "made again"])
async def test_a_share_that_is_kept_for_a_pod_that_is_gone_is_named_with_its_node(
    nodes: tuple[dict[str, Any], ...], again: dict[str, Any]
) -> None:
    (found,) = await check_vanished(Reader(cluster(*nodes, **again)))
    assert (found.level, found.said) == (
        Level.WARNING,
        "node a is gone or not ready: shares are kept of team/gone",
    )
    assert "an hour" in found.do


async def test_pods_of_nodes_that_are_ready_are_not_read() -> None:
    told = cluster(node("a", "True"))
    (found,) = await check_vanished(Reader(told))
    assert found.level is Level.OK
    assert not [
        path for _, path, _ in told.asked if path == "/api/v1/pods" or path.startswith("/api/v1/namespaces/team")
    ]
