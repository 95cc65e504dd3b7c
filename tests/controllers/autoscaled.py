"""Nodes that a real Karpenter adds, each with a simulated kubelet and its devices.

Karpenter's kwok provider makes Node objects only. On a cloud the machine would boot now: kubelet would say that it is
ready, and the device plugin that it has GPUs.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskStatus

from kube.client import config
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.http import HttpTransport
from kube.client.retry import Retry
from simulator.nodes import node_object
from simulator.nodes.api_access import PodTokens
from simulator.nodes.node_set import NodeSet
from simulator.nodes.shape import NodeShape
from tests.e2e.cluster import PATIENCE_S, QUICK, Pod, Scene, eventually, scene
from tools.cluster.plane import ControlPlane
from wire import names

Json = dict[str, Any]

_POOLS: Final = ("karpenter.sh", "v1", "nodepools")
_CLAIMS: Final = ("karpenter.sh", "v1", "nodeclaims")
_NODE_CLASSES: Final = ("karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses")
_OF_POOL: Final = "karpenter.sh/nodepool"
_REGISTERED: Final = "karpenter.sh/registered=true"
_CARD_MIB: Final = 80 * 1024
_LOOK_S: Final = 0.2


class Autoscaled:
    """A scene without nodes, and a NodePool of one instance type (tools/controllers/karpenter) that brings them."""

    def __init__(self, on: Scene, plane: ControlPlane) -> None:
        self.on = on
        self._plane = plane

    @property
    def pool(self) -> str:
        """The name of the NodePool."""
        return self.on.namespace

    async def create_pool(self, instance_type: str) -> None:
        """Have Karpenter add nodes of one type for pods of the scene. None is taken away before ``shrink``."""
        wanted = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [instance_type]}
        template = {
            "metadata": {"labels": {"scene": self.on.namespace, node_object.SIMULATED: "true"}},
            "spec": {
                "nodeClassRef": {"group": _NODE_CLASSES[0], "kind": "KWOKNodeClass", "name": self.pool},
                "requirements": [wanted],
                "expireAfter": "Never",
            },
        }
        spec = {"template": template, "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}}
        for collection, kind, more in ((_NODE_CLASSES, "KWOKNodeClass", {}), (_POOLS, "NodePool", {"spec": spec})):
            group, version, _ = collection
            body = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": self.pool}, **more}
            await self.on.custom.create_cluster_custom_object(*collection, body)

    async def shrink(self) -> None:
        """Have Karpenter take away nodes without pods."""
        patch = {"spec": {"disruption": {"consolidateAfter": "1s"}}}
        await self.on.custom.patch_cluster_custom_object(
            *_POOLS, self.pool, patch, _content_type="application/merge-patch+json"
        )

    async def remove_pool(self) -> None:
        """Delete the NodePool; Karpenter takes its nodes away."""
        for collection in (_POOLS, _NODE_CLASSES):
            await self.on.custom.delete_cluster_custom_object(*collection, self.pool)
        await self.without_nodes()

    async def without_nodes(self) -> None:
        """Wait until no node of the pool is left, and none is on its way."""

        async def gone() -> bool | None:
            return (not await self.nodes() and not await self.claims()) or None

        await eventually(gone, f"the nodes of {self.pool} to go", within_s=PATIENCE_S)

    async def claims(self) -> list[Json]:
        """The NodeClaims of the pool: nodes that Karpenter has asked for, also those that are on their way."""
        listed = await self.on.custom.list_cluster_custom_object(*_CLAIMS, label_selector=f"{_OF_POOL}={self.pool}")
        found: list[Json] = listed["items"]
        return found

    async def nodes(self) -> dict[str, Json]:
        """The nodes of the pool."""
        listed = await self.on.core.list_node(label_selector=f"{_OF_POOL}={self.pool}", _preload_content=False)
        return {each["metadata"]["name"]: each for each in json.loads(await listed.read())["items"]}

    async def scaling_pods(self) -> dict[str, Pod]:
        """Scaling pods for pods of the scene."""
        selector = f"{names.APP_LABEL}={names.SCALING_APP},{names.SCALING_SOURCE_NAMESPACE_LABEL}={self.on.namespace}"
        listed = await self.on.core.list_namespaced_pod(
            names.SCALE_ADJUST_NAMESPACE, label_selector=selector, _preload_content=False
        )
        return {each["metadata"]["name"]: each for each in json.loads(await listed.read())["items"]}

    async def without_scaling_pods(self) -> None:
        """Wait until no scaling pod is left for pods of the scene."""

        async def gone() -> bool | None:
            return not await self.scaling_pods() or None

        await eventually(gone, f"scaling pods for {self.on.namespace} to go", within_s=PATIENCE_S)

    async def refused(self, namespace: str) -> set[str]:
        """The pods of a namespace of which Karpenter says that no node of any type would hold them."""
        listed = await self.on.core.list_namespaced_event(namespace, _preload_content=False)
        events = json.loads(await listed.read())["items"]
        return {
            each["involvedObject"]["name"]
            for each in events
            if (each["source"].get("component"), each["reason"]) == ("karpenter", "FailedScheduling")
        }

    async def play_kubelets(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Give each node that is registered a kubelet and its devices, until cancelled; end those of nodes that go."""
        ca_file = self._plane.folder / "e2e-ca.pem"
        token = self._plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-simulator")
        url = self._plane.url
        kubelet = HttpTransport(config.plain(url, ca_file=str(ca_file), token=token), user_agent="moorage-nodes")
        inside = HttpTransport(config.plain(url, ca_file=str(ca_file)), user_agent="moorage-reservation")
        running: dict[str, anyio.CancelScope] = {}
        async with kubelet, inside, anyio.create_task_group() as tasks:
            task_status.started()
            while True:
                nodes = await self._registered()
                for name in running.keys() - nodes.keys():
                    running.pop(name).cancel()
                for name in nodes.keys() - running.keys():
                    running[name] = anyio.CancelScope()
                    tasks.start_soon(_run, self._machine(nodes[name], kubelet, inside), running[name])
                await anyio.sleep(_LOOK_S)

    async def _registered(self) -> dict[str, Json]:
        selector = f"{_OF_POOL}={self.pool},{_REGISTERED}"
        listed = await self.on.core.list_node(label_selector=selector, _preload_content=False)
        return {each["metadata"]["name"]: each for each in json.loads(await listed.read())["items"]}

    def _machine(self, node: Json, kubelet: HttpTransport, inside: HttpTransport) -> NodeSet:
        tokens = PodTokens(api=Api(kubelet, retry=Retry(random.Random(1))), under=inside.under)
        return NodeSet(
            kubelet,
            [_shape(node)],
            clock=SystemClock(),
            seed=1,
            ground_truth=self.on.ground_truth,
            reservation_identity=tokens,
            settings=msgspec.structs.replace(QUICK, lease_period_s=10.0),
        )


async def _run(machine: NodeSet, scope: anyio.CancelScope) -> None:
    with scope:
        await machine.run()


def _shape(node: Json) -> NodeShape:
    """The machine of a Node that Karpenter has made."""
    amounts: Mapping[str, str] = node["status"]["allocatable"]
    labels = node["metadata"]["labels"]
    return NodeShape(
        name=node["metadata"]["name"], cards_mib=(_CARD_MIB,) * int(amounts[names.GPU_RESOURCE]), labels=labels
    )


@asynccontextmanager
async def autoscaled(plane: ControlPlane, namespace: str, instance_type: str) -> AsyncIterator[Autoscaled]:
    """Set a scene in which Karpenter adds nodes of one type; at its end nothing of it may be left."""
    async with scene(plane, namespace, []) as on, anyio.create_task_group() as tasks:
        at = Autoscaled(on, plane)
        await tasks.start(at.play_kubelets)
        await at.create_pool(instance_type)
        yield at
        await on.empty()
        await at.remove_pool()
        await at.without_scaling_pods()
        tasks.cancel_scope.cancel()
