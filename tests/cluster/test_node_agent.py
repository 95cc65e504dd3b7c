"""The agent of a node as a process, with its own rights on a real API server; kubelet is played."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest
import yaml

from admission.policies import policy_manifests
from nodeagent.kubeletapi.podresources import Devices, PodDevices
from tests.nodeagent.kubeletapi.played import PlayedKubelet, listening
from tools import manifests
from tools.cluster.nodeagent import NodeAgent
from tools.cluster.plane import ControlPlane
from tools.node.gpus import MACHINE, made_up, write_machine
from tools.rest import Rest
from wire import names

pytestmark = pytest.mark.cluster

T = TypeVar("T")
PATIENCE_S = 60.0
PODS = f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"
GPU_NODES = "/apis/moorage.dev/v1alpha1/gpunodes"


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """One of its own, with Moorage's rights and policies and without its components."""
    with ControlPlane(node_lifecycle=False) as plane:
        for text in manifests.foundation(teller="", leaders=()):
            plane.apply(text)
        plane.apply(yaml.safe_dump_all(policy_manifests()))
        yield plane


@pytest.fixture(scope="module")
def rest(control_plane: ControlPlane) -> Rest:
    return control_plane.rest()


async def eventually(probe: Callable[[], T | None], what: str) -> T:
    give_up_at = time.monotonic() + PATIENCE_S
    while (found := probe()) is None:
        assert time.monotonic() < give_up_at, f"waited {PATIENCE_S} s for {what}"
        await anyio.sleep(0.05)
    return found


def reserve(plane: ControlPlane, node: str) -> str:
    """A reservation pod of a node, made by the binder and not admitted yet; returns its name."""
    name = f"r-{uuid.uuid4().hex[:8]}"
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
    container["securityContext"] = {**restricted, "seccompProfile": {"type": "RuntimeDefault"}}
    body = {
        "metadata": {"name": name, "labels": {names.APP_LABEL: names.RESERVATION_APP}},
        "spec": {"nodeName": node, "containers": [container], "automountServiceAccountToken": False},
    }
    binder = plane.rest(plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-binder"))
    binder.call("POST", PODS, body)
    return name


def admit(rest: Rest, name: str) -> None:
    status = {"status": {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}}
    rest.call("PATCH", f"{PODS}/{name}/status", status)


def told(rest: Rest, name: str) -> dict[str, str] | None:
    annotations: dict[str, str] = rest.call("GET", f"{PODS}/{name}")["metadata"].get("annotations", {})
    return annotations if names.WITNESS in annotations else None


def given(name: str, *ids: str) -> PodDevices:
    return PodDevices(names.RESERVATION_NAMESPACE, name, (Devices(names.GPU_RESOURCE, ids),))


async def test_an_agent_tells_devices_says_what_its_node_has_and_rests(
    control_plane: ControlPlane, rest: Rest, tmp_path: Path
) -> None:
    node = f"node-{uuid.uuid4().hex[:8]}"
    rest.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    gpus = made_up(node, 2)
    write_machine(tmp_path, gpus)
    played = PlayedKubelet()
    socket = tmp_path / "kubelet.sock"
    async with listening(played, socket):
        agent = NodeAgent(control_plane, node, socket=socket, machine=tmp_path / MACHINE)
        await anyio.to_thread.run_sync(agent.__enter__)
        try:
            name = reserve(control_plane, node)
            played.pods = [given(name, gpus[1].uuid)]
            admit(rest, name)
            annotations = await eventually(lambda: told(rest, name), "the device to be told")
            assert annotations == {
                names.RESERVE_FOR_GPU_INDEX: gpus[1].uuid,
                names.DEVICE_INDEX: "1",
                names.DEVICE_MEMORY: "81559",
                names.WITNESS: names.WITNESS_KUBELET,
            }
            made: dict[str, Any] = await eventually(lambda: _status(rest, node), "the GpuNode")
            assert [card["uuid"] for card in made["cards"]] == [gpu.uuid for gpu in gpus]
            assert made["agent"]["pluginMode"] == "off"
            assert 'moorage_witnessed_total{outcome="told"} 1.0' in agent.metrics()
            agent.check()
            assert agent.stop() == 0
        finally:
            agent.__exit__(None, None, None)


def _status(rest: Rest, node: str) -> dict[str, Any] | None:
    code, _ = rest.send("GET", f"{GPU_NODES}/{node}")
    status = rest.call("GET", f"{GPU_NODES}/{node}").get("status", {}) if code == 200 else {}
    return status if status.get("cards") else None
