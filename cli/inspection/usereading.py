"""Reading what agents report of use, for an inspection that asks for it: as far as the user may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from cli.inspection.reading import allowed
from cli.inspection.useviews import use_view
from cli.inspection.values import Inspection
from gpu.nodeuse import Agent, NodeUse, agents, is_agent, node_use
from kube.client.api import Api
from kube.client.errors import NotFound
from kube.client.resources import GPU_NODES, PODS
from wire import names
from wire.core import Pod
from wire.crds.gpunode import GpuNode
from wire.rfc3339 import rfc3339

#: Reports of up to this many nodes are read one by one; of more nodes by one list of all.
_MOST_ONE_BY_ONE: Final = 16


async def with_use(api: Api, seen: Inspection) -> Inspection:
    """Add what pods that are shown use of their shares. Raises ApiError; what may not be read is named."""
    unread: list[str] = []
    nodes = sorted({node.name for node in seen.nodes} | {pod.node for pod in seen.pods if pod.node})
    reports = await _reports(api, nodes, unread)
    known = await _agents(api, unread) if reports else {}
    read: Mapping[str, NodeUse] = {name: node_use(report, known) for name, report in reports.items()}
    use = use_view(seen, read, at=rfc3339(api.clock.now_ns()))
    return msgspec.structs.replace(seen, use=use, unread=(*seen.unread, *unread))


async def _reports(api: Api, nodes: Sequence[str], unread: list[str]) -> dict[str, GpuNode]:
    """The reports of these nodes. Where there is none of a node, or no such kind, there is none here."""
    found: dict[str, GpuNode] = {}

    async def read() -> None:
        try:
            if len(nodes) > _MOST_ONE_BY_ONE:
                listed = await api.list(GPU_NODES, skip_undecodable=True)
                found.update({one.metadata.name: one for one in listed.items if one.metadata.name in wanted})
                return
            for name in nodes:
                if (one := await _one(api, name)) is not None:
                    found[name] = one
        except NotFound:
            return

    wanted = set(nodes)
    await allowed(read, "gpunodes (what pods use)", unread)
    return found


async def _one(api: Api, name: str) -> GpuNode | None:
    try:
        return await api.get(GPU_NODES, name)
    except NotFound:
        return None


async def _agents(api: Api, unread: list[str]) -> Mapping[str, Agent] | None:
    """Whether the agents work; None: that can't be read."""
    found: list[dict[str, Agent]] = []

    def keep(pod: Pod) -> Pod | None:
        return pod if is_agent(pod) else None

    async def read() -> None:
        listing = await api.digest(PODS, keep, namespace=names.NODE_NAMESPACE)
        found.append(agents(pod for pod in listing.items if pod is not None))

    await allowed(read, f"pods of namespace {names.NODE_NAMESPACE} (whether agents work)", unread)
    return found[0] if found else None
