"""Reads what an inspection needs, and no more than that: the user may have few rights."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Final, TypeVar

import msgspec

from gpu import reservation
from gpu.node_use import Agent, NodeUse, agents, is_agent, node_use
from kube.client.api import Api, field_is
from kube.client.errors import Forbidden, NotFound
from kube.client.listing import Listing
from kube.client.resources import BIND_REQUESTS, GPU_NODES, NODES, POD_GROUPS, PODS, Resource
from runtime.text import BadInput
from ui.inspect.survey import Beside, Found, group_of, matters, summed, taken_beside
from ui.inspect.use import use_view
from ui.inspect.values import Inspection
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.gpunode import GpuNode
from wire.crds.podgroup import PodGroup
from wire.rfc3339 import rfc3339

T = TypeVar("T", bound=msgspec.Struct)
#: Pods of up to this many nodes are read node by node, which takes fewer rights; of more nodes by one list of all.
_MOST_ONE_BY_ONE: Final = 16


async def read_cluster(api: Api, *, labels: str = "") -> Found:
    """Read all nodes, or those with labels, and the pods that matter there or wait.

    Raises ApiError where nodes or pods can't be read.
    """
    unread: list[str] = []
    requests: list[BindRequest] = []
    nodes = (await api.list(NODES, label_selector=labels, skip_undecodable=True)).items
    pods, beside = await _all_pods(api, {node.metadata.name for node in nodes}, unread)
    await read_requests(api, requests, unread)
    if labels:
        here = {node.metadata.name for node in nodes}
        pods = [pod for pod in pods if not pod.spec.node_name or pod.spec.node_name in here]
        requests = [request for request in requests if request.spec.selected_node in here]
    return Found(nodes=nodes, pods=pods, requests=requests, beside=beside, unread=tuple(unread))


async def read_nodes(api: Api, wanted: Sequence[str]) -> Found:
    """Read these nodes and what is on them. Raises BadInput for one that is not there, ApiError."""
    unread: list[str] = []
    requests: list[BindRequest] = []
    nodes = [await one(api, NODES, name) for name in dict.fromkeys(wanted)]
    here: list[Pod] = []
    for node in nodes:
        here += await _pods(api, unread, field_selector=field_is("spec.nodeName", node.metadata.name))
    await read_requests(api, requests, unread)
    for request in requests:
        if request.spec.selected_node in wanted:
            await _add(api, PODS, request.metadata.name, here, namespace=request.metadata.namespace)
    await _add_tenants(api, here)
    pods = {pod.metadata.uid: pod for pod in here}
    return Found(nodes=nodes, pods=list(pods.values()), requests=requests, unread=tuple(unread))


async def read_pods(api: Api, wanted: Sequence[str], *, namespaces: Sequence[str] = (), labels: str = "") -> Found:
    """Read these pods, or all of some namespaces (() for all) or with labels, and what is known of their devices.

    What one may not read is left out and named. Raises BadInput for a pod that is not there, ApiError where pods
    can't be read.
    """
    unread: list[str] = []
    if wanted:
        pods = [await one(api, PODS, name, namespace=namespaces[0]) for name in dict.fromkeys(wanted)]
    else:
        listed = [await _pods(api, unread, namespace=each, label_selector=labels) for each in namespaces or ("",)]
        pods = [pod for those in listed for pod in those]
    requests: list[BindRequest] = []
    nodes = await _nodes_of(api, pods, unread)
    held: list[Pod] = []

    async def read_held() -> None:
        listing = await api.digest(PODS, _if(reservation.is_reservation), namespace=names.RESERVATION_NAMESPACE)
        held.extend(pod for pod in listing.items if pod is not None)

    await allowed(read_held, f"reservations (pods of namespace {names.RESERVATION_NAMESPACE})", unread)
    for namespace in namespaces or ("",):
        await read_requests(api, requests, unread, namespace=namespace)
    known = {pod.metadata.uid: pod for pod in (*held, *pods)}
    return Found(
        nodes=nodes,
        pods=list(known.values()),
        requests=requests,
        asked_for=frozenset(wanted),
        are_all_pods=False,
        unread=tuple(dict.fromkeys(unread)),
    )


async def read_groups(api: Api, wanted: Sequence[str], *, namespaces: Sequence[str] = (), labels: str = "") -> Found:
    """Read these PodGroups, or all of some namespaces (() for all) or with labels, and their pods.

    Raises BadInput for one that is not there, ApiError where PodGroups or pods can't be read.
    """
    unread: list[str] = []
    groups: list[PodGroup] = []
    requests: list[BindRequest] = []
    if wanted:
        groups = [await one(api, POD_GROUPS, name, namespace=namespaces[0]) for name in dict.fromkeys(wanted)]
    else:
        for namespace in namespaces or ("",):
            groups += await _listed(api, namespace, labels, unread)
    there = {(group.metadata.namespace, group.metadata.name) for group in groups}
    pods: list[Pod] = []
    for namespace in namespaces or ("",) if groups else ():
        listing: Listing[Pod | None] = await api.digest(PODS, _of(there), namespace=namespace)
        unread += [f"pod {each.key}: {each.error}" for each in listing.undecoded]
        pods += [pod for pod in listing.items if pod is not None]
        await read_requests(api, requests, unread, namespace=namespace)
    return Found(
        groups=groups,
        pods=pods,
        requests=requests,
        asked_for=frozenset(wanted),
        unread=tuple(dict.fromkeys(unread)),
    )


async def _listed(api: Api, namespace: str, labels: str, unread: list[str]) -> Sequence[PodGroup]:
    try:
        listing = await api.list(POD_GROUPS, namespace=namespace, label_selector=labels, skip_undecodable=True)
    except NotFound:
        unread.append(f"podgroups: the cluster does not know the kind {POD_GROUPS.kind}")
        return ()
    unread += [f"podgroup {each.key}: {each.error}" for each in listing.undecoded]
    return listing.items


def _of(groups: set[tuple[str, str]]) -> Callable[[Pod], Pod | None]:
    return lambda pod: pod if group_of(pod) in groups else None


async def _nodes_of(api: Api, pods: Sequence[Pod], unread: list[str]) -> list[Node]:
    """Read the nodes that these pods are on, as far as one may."""
    named = {pod.spec.node_name for pod in pods if pod.spec.node_name}
    nodes: list[Node] = []
    if len(named) <= _MOST_ONE_BY_ONE:
        for name in sorted(named):
            await allowed(functools.partial(_add, api, NODES, name, nodes), f"node {name}", unread)
        return nodes

    async def read_all() -> None:
        listed = (await api.list(NODES, skip_undecodable=True)).items
        nodes.extend(node for node in listed if node.metadata.name in named)

    await allowed(read_all, f"nodes ({len(named)} that pods are on)", unread)
    return nodes


async def _add(api: Api, resource: Resource[T], name: str, found: list[T], *, namespace: str = "") -> None:
    """Read one more object; one that is gone meanwhile is not missed."""
    try:
        found.append(await api.get(resource, name, namespace=namespace))
    except NotFound:
        return


async def _add_tenants(api: Api, here: list[Pod]) -> None:
    """Read the tenants of the reservations that are on no node and have no request, to tell them from those gone."""
    known = {pod.metadata.uid for pod in here}
    books = [reservation.read(pod).book for pod in here if reservation.is_reservation(pod)]
    for uid, entry in [item for book in books if book is not None for item in book.entries.items()]:
        namespace, _, name = entry.pod.partition("/")
        if uid not in known and namespace and name:
            found: list[Pod] = []
            await _add(api, PODS, name, found, namespace=namespace)
            here += [pod for pod in found if pod.metadata.uid == uid]


async def one(api: Api, resource: Resource[T], name: str, *, namespace: str = "") -> T:
    """Read an object. Raises BadInput for one that is not there, ApiError."""
    try:
        return await api.get(resource, name, namespace=namespace)
    except NotFound as error:
        where = f" in namespace {namespace}" if namespace else ""
        raise BadInput(f"there is no {resource.kind.lower()} {name}{where}") from error


async def _pods(
    api: Api, unread: list[str], *, namespace: str = "", field_selector: str = "", label_selector: str = ""
) -> list[Pod]:
    listing: Listing[Pod | None] = await api.digest(
        PODS, _if(matters), namespace=namespace, field_selector=field_selector, label_selector=label_selector
    )
    unread += [f"pod {one.key}: {one.error}" for one in listing.undecoded]
    return [pod for pod in listing.items if pod is not None]


async def _all_pods(api: Api, nodes: Set[str], unread: list[str]) -> tuple[list[Pod], dict[str, Beside]]:
    """Read the pods that matter, and of all others what they take of these nodes, by node."""

    def keep(pod: Pod) -> Pod | tuple[str, Beside] | None:
        return pod if matters(pod) else taken_beside(pod, nodes)

    listing: Listing[Pod | tuple[str, Beside] | None] = await api.digest(PODS, keep)
    unread += [f"pod {each.key}: {each.error}" for each in listing.undecoded]
    pods = [item for item in listing.items if isinstance(item, Pod)]
    return pods, summed(item for item in listing.items if item is not None and not isinstance(item, Pod))


async def read_requests(api: Api, requests: list[BindRequest], unread: list[str], *, namespace: str = "") -> None:
    """Read what is under way. Where the kind is unknown, nothing is."""

    async def read() -> None:
        try:
            requests.extend((await api.list(BIND_REQUESTS, namespace=namespace, skip_undecodable=True)).items)
        except NotFound:
            return

    await allowed(read, "bindrequests (what is on its way to a node)", unread)


async def allowed(read: Callable[[], Awaitable[None]], what: str, unread: list[str]) -> bool:
    """Read something that can be done without, and note where one may not; return whether one may."""
    try:
        await read()
    except Forbidden:
        unread.append(f"{what}: you may not read this")
        return False
    return True


def _if(keep: Callable[[Pod], bool]) -> Callable[[Pod], Pod | None]:
    return lambda pod: pod if keep(pod) else None


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
