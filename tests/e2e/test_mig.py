"""MIG on demand: scheduler and node agent as processes on the real API server; driver and kubelet are played."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from nodeagent.kubeletapi.client import Devices, PodDevices
from tests.nodeagent.kubeletapi.kubelets import Registry, kubelet
from tests.nodeagent.kubeletapi.played import PlayedKubelet, listening
from tests.pauses import pause_s
from tools.cluster.deployment import Deployment, Options
from tools.cluster.nodeagent import NodeAgent
from tools.cluster.plane import ControlPlane
from tools.node.gpus import MACHINE
from tools.rest import Rest
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

T = TypeVar("T")
#: A GPU rests for a minute after an attempt that was refused.
PATIENCE_S = 180.0
NODE, TEAM = "mig-1", "team"
ONE, TWO, SEVEN = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-7g.80gb"
CARD = (
    "gpu GPU-a NVIDIA_H100_80GB_HBM3 81559 5\n"
    "profile GPU-a 0 1g.10gb 9856 1 7 0,1,2,3,4,5,6\n"
    "profile GPU-a 1 2g.20gb 19968 2 3 0,2,4\n"
    "profile GPU-a 4 7g.80gb 80896 8 1 0\n"
    "gi GPU-a 3 0 0\n"
    "ci GPU-a 3 0 MIG-x\n"
)
PODS = f"/api/v1/namespaces/{TEAM}/pods"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """One of its own, in which nobody judges a Node that sends no heartbeats."""
    with ControlPlane(node_lifecycle=False) as made:
        yield made


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    """A scheduler that has slices made."""
    with Deployment(plane, Options(arguments={"scheduler": ["--mig-on-demand"]})) as deployment:
        yield deployment
        deployment.check()


async def eventually(probe: Callable[[], T | None], what: str) -> T:
    began_at = time.monotonic()
    while (found := probe()) is None:
        waited_s = time.monotonic() - began_at
        assert waited_s < PATIENCE_S, f"waited {PATIENCE_S} s for {what}"
        await anyio.sleep(pause_s(waited_s))
    return found


class Kubelet:
    """Tells the API server what the plug-ins offer, and lists a pod that is bound with slices that it got."""

    def __init__(self, rest: Rest, played: PlayedKubelet, registry: Registry) -> None:
        self._rest = rest
        self._played = played
        self._registry = registry
        self._lists: dict[str, dict[str, bool]] = {}

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tell)
            while True:
                endpoint = await self._registry.next(within_s=None)
                tasks.start_soon(self._follow, endpoint)

    async def _follow(self, endpoint: Any) -> None:
        while True:
            self._lists[endpoint.resource] = await endpoint.healthy(within_s=None)

    async def _tell(self) -> None:
        shown: dict[str, Any] = {}
        while True:
            offered = {name: [id_ for id_, is_well in ids.items() if is_well] for name, ids in self._lists.items()}
            self._played.devices = [Devices(name, tuple(ids)) for name, ids in offered.items()]
            self._admit(offered)
            counts = {name: str(len(ids)) for name, ids in offered.items()}
            if counts != shown:
                await anyio.to_thread.run_sync(self._write, counts)
                shown = counts
            await anyio.sleep(0.2)

    def _admit(self, offered: dict[str, list[str]]) -> None:
        """Give bound pods their slices."""
        has = {pod.name: pod for pod in self._played.pods}
        given = {id_ for pod in has.values() for each in pod.devices for id_ in each.ids}
        for pod in self._rest.call("GET", PODS)["items"]:
            name, limits = pod["metadata"]["name"], pod["spec"]["containers"][0]["resources"]["limits"]
            if pod["spec"].get("nodeName") == NODE and name not in has:
                ((resource, _),) = limits.items()
                free = [id_ for id_ in offered.get(resource, ()) if id_ not in given]
                self._played.pods = [*self._played.pods, PodDevices(TEAM, name, (Devices(resource, (free[0],)),))]

    def _write(self, counts: dict[str, str]) -> None:
        body = {"status": {"allocatable": {**BASE, **counts}, "capacity": {**BASE, **counts}}}
        self._rest.call("PATCH", f"/api/v1/nodes/{NODE}/status", body)


BASE = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}


@pytest.fixture
async def node(plane: ControlPlane, moorage: Deployment, tmp_path: Path) -> AsyncIterator[NodeAgent]:
    """A node whose GPU is offered to be cut, with its agent."""
    del moorage
    rest = plane.rest()
    labels = {names.NODE_MIG: names.MIG_DYNAMIC, names.HOSTNAME_LABEL: NODE}
    rest.call("POST", "/api/v1/nodes", {"metadata": {"name": NODE, "labels": labels}})
    rest.call("POST", "/api/v1/namespaces", {"metadata": {"name": TEAM}})
    condition = {"type": "Ready", "status": "True", "reason": "Played", "message": ""}
    rest.call("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [condition], "allocatable": BASE}})
    (tmp_path / MACHINE).write_text(CARD)
    files, plugins = tmp_path / "files", tmp_path / "p"
    for folder in (files, plugins):
        folder.mkdir()
    (files / "default").write_text("version: v1\nflags: {migStrategy: mixed}\n")
    further: dict[str, str | Path] = {
        "device-plugin": "own",
        "device-plugin-sockets": plugins,
        "device-plugin-state": tmp_path / "run",
        "device-plugin-cdi": tmp_path / "cdi",
        "device-plugin-files": files,
        "mig-on-demand": "true",
    }
    socket, played = tmp_path / "kubelet.sock", PlayedKubelet()
    async with listening(played, socket), kubelet(plugins) as registry, anyio.create_task_group() as tasks:
        tasks.start_soon(Kubelet(rest, played, registry).run)
        agent = NodeAgent(plane, NODE, socket=socket, machine=tmp_path / MACHINE, further=further)
        await anyio.to_thread.run_sync(agent.__enter__)
        try:
            yield agent
            agent.check()
        finally:
            await anyio.to_thread.run_sync(agent.__exit__, None, None, None)
            tasks.cancel_scope.cancel()


def create(rest: Rest, name: str, resource: str) -> float:
    container = {"name": "main", "image": "cuda-app", "resources": {"limits": {resource: "1"}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}
    rest.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})
    return time.monotonic()


def bound(rest: Rest, name: str) -> bool | None:
    return rest.call("GET", f"{PODS}/{name}")["spec"].get("nodeName") == NODE or None


def told(rest: Rest, name: str, word: str) -> str | None:
    conditions = rest.call("GET", f"{PODS}/{name}").get("status", {}).get("conditions", ())
    return next((each["message"] for each in conditions if word in each.get("message", "")), None)


async def test_a_pod_gets_the_slice_that_it_waits_for_and_one_in_use_stays(
    plane: ControlPlane, node: NodeAgent
) -> None:
    rest = plane.rest()
    create(rest, "small", ONE)
    await eventually(lambda: bound(rest, "small"), "the pod on the slice that is there")
    began_s = create(rest, "middle", TWO)
    under_way = f"MIG slices are being made for it on {NODE}"
    # It says so for the seconds that it takes, which a look may miss.
    await eventually(lambda: told(rest, "middle", under_way) or bound(rest, "middle"), "what the pod says")
    await eventually(lambda: bound(rest, "middle"), "the pod on the slice that was made")
    print(f"from the pod to its binding: {time.monotonic() - began_s:.1f} s")
    create(rest, "large", SEVEN)
    message = await eventually(lambda: told(rest, "large", "No GPU can be cut"), "what the large pod says")
    assert f"1 {SEVEN}" in message

    def both_in_use() -> bool | None:
        found = rest.call("GET", f"/apis/moorage.dev/v1alpha1/gpunodes/{NODE}")["status"]["cards"][0]["layout"]
        return Counter(each["profile"] for each in found if each.get("inUse")) == {"1g.10gb": 1, "2g.20gb": 1} or None

    # The agent looks every five seconds at rest, and then writes.
    await eventually(both_in_use, "both slices to be shown in use")
    node.check()
