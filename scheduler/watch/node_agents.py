"""What agents of nodes report, and whether they work: followed for what people are told. No decision reads it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import anyio
from anyio.abc import TaskStatus

from gpu.node_use import Agent, NodeUse, agents, is_agent, node_use
from kube.client.api import Api
from kube.client.resources import GPU_NODES, PODS
from kube.watch.reflector import Reflector
from kube.watch.signal import Signal
from wire import names
from wire.core import Pod
from wire.crds.gpunode import GpuNode


class NodeUses:
    """Reports by node. Followed as reflectors are (kube/lead/replica.py), and waited for by nobody.

    ``is_fed``: somebody else watches GpuNodes, and feeds ``sink``.
    """

    def __init__(self, api: Api, *, rng: random.Random, is_fed: bool = False) -> None:
        self.changed = Signal()
        self.reports: dict[str, GpuNode] = {}
        self._agents: dict[str, Pod] = {}
        self._known: dict[str, Agent] | None = None
        pods = Reflector(api, PODS, _Agents(self), namespace=names.NODE_NAMESPACE, rng=rng)
        #: Takes GpuNodes.
        self.sink = _Reports(self)
        reports = [] if is_fed else [Reflector(api, GPU_NODES, self.sink, rng=rng)]
        self._reflectors: list[Reflector[Pod] | Reflector[GpuNode]] = [*reports, pods]
        self._agents_read = pods.synced

    def use_on(self, node: str) -> NodeUse | None:
        """What tenants use there; None: no agent has reported, or nothing has been read yet."""
        report = self.reports.get(node)
        if report is None or not self._agents_read.is_set():
            return None
        if self._known is None:
            self._known = agents(self._agents.values())
        return node_use(report, self._known)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled. Started at once."""
        async with anyio.create_task_group() as tasks:
            for each in self._reflectors:
                tasks.start_soon(each.run)
            task_status.started()

    async def catch_up(self) -> None:
        """Nothing rests on it, so nobody waits for it."""

    def put_agent(self, pod: Pod) -> None:
        """Take an agent's pod as it is now."""
        self._agents[pod.metadata.uid] = pod
        self._known = None
        self.changed.set()

    def drop_agent(self, uid: str) -> None:
        """An agent's pod is gone."""
        if self._agents.pop(uid, None) is not None:
            self._known = None
            self.changed.set()

    def replace_agents(self, pods: Sequence[Pod]) -> None:
        """Take all pods of agents."""
        self._agents = {pod.metadata.uid: pod for pod in pods}
        self._known = None
        self.changed.set()


class _Agents:
    def __init__(self, uses: NodeUses) -> None:
        self._uses = uses

    def keep(self, obj: Pod) -> Pod | None:
        return obj if is_agent(obj) else None

    async def replace(self, kept: Sequence[Pod | None]) -> None:
        self._uses.replace_agents([pod for pod in kept if pod is not None])

    def upsert(self, obj: Pod) -> None:
        if is_agent(obj):
            self._uses.put_agent(obj)

    def delete(self, obj: Pod) -> None:
        self._uses.drop_agent(obj.metadata.uid)


class _Reports:
    def __init__(self, uses: NodeUses) -> None:
        self._uses = uses

    def keep(self, obj: GpuNode) -> GpuNode:
        return obj

    async def replace(self, kept: Sequence[GpuNode]) -> None:
        self._uses.reports.clear()
        for report in kept:
            self.upsert(report)

    def upsert(self, obj: GpuNode) -> None:
        self._uses.reports[obj.metadata.name] = obj
        self._uses.changed.set()

    def delete(self, obj: GpuNode) -> None:
        self._uses.reports.pop(obj.metadata.name, None)
        self._uses.changed.set()
