"""Checks of nodes: their agents, device plug-ins, enforcement, CDI, shares kept for vanished pods, foreign resources.

Kubelet keeps the resource of a device plug-in that has gone at 0, and refuses pods that request it
(docs/design/real-node.md). Moorage's placement ignores such resources; people, other schedulers and autoscalers are
misled. A node whose device plug-in offers each GPU several times gets no shares (gpu/node_resources.py). A word of
enforcement that no version knows would be a limit that nobody counts on. How components were started is read from the
pods that they bound last: they report it nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from cli.checks.reader import Finding, Level, Raw, Reader, some_of
from gpu import container_devices, reservation
from gpu.book import Entry
from gpu.dialects import aliyun, clearml, replicas
from gpu.dialects.settings import MetagpuSettings
from gpu.limits import AGENTS, WORDS, listed, named
from gpu.node_resources import ALLOWED, is_readable, multiplied
from gpu.node_use import Agent, State, agents, node_use, why_no_caps
from gpu.reservation import Reservation
from kube.client.api import field_is
from kube.client.clock import Clock
from kube.client.resources import CLUSTER_POLICIES, NODES, PODS
from scheduler.core.convert.nodes import offered_gpus
from sharing import node_liveness
from ui.inspect.use import age
from wire import names
from wire.api_groups import ClusterPolicy
from wire.core import Node, Pod
from wire.crds.gpunode import DEFINITION, PLUGIN_OFF, GpuNode
from wire.quantity import MalformedQuantity, parse_nano
from wire.rfc3339 import parse_ns

_CHECK: Final = "node resources"
_NAMES: Final = frozenset(
    {
        aliyun.MEMORY,
        aliyun.COUNT,
        MetagpuSettings().resource,
        names.HAMI_MEMORY,
        names.HAMI_MEMORY_PERCENTAGE,
        names.HAMI_CORES,
        replicas.SHARED,
        "nvidia.com/sharedgpu",
    }
)
#: All that begins so is of Volcano, Koordinator, or ClearML's cards by index.
_PREFIXES: Final = ("volcano.sh/vgpu-", "volcano.sh/gpu-", names.KOORDINATOR_GPU, clearml.INDEXED_PREFIX)


class Offer(msgspec.Struct, frozen=True):
    """One resource of a node as its status says it; None where it does not name it."""

    resource: str
    capacity: str | None
    allocatable: str | None

    @property
    def is_left_over(self) -> bool:
        """Whether nothing is offered, and there is nothing that could be."""
        return _is_zero(self.capacity) and _is_zero(self.allocatable)


def foreign_offers(node: Raw, *, also: Collection[str] = ()) -> list[Offer]:
    """Return the resources of other systems that a node names; ``also``: further names, of renamed ones."""
    status = node.get("status") or {}
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    found = sorted(name for name in {**capacity, **allocatable} if _is_foreign(name) or name in also)
    return [Offer(name, capacity.get(name), allocatable.get(name)) for name in found]


async def check_node_resources(reader: Reader) -> list[Finding]:
    """No node names resources of other systems."""
    left: dict[str, list[str]] = {}
    offered: dict[str, list[str]] = {}
    for node in await reader.items("/api/v1/nodes"):
        for offer in foreign_offers(node):
            kind = left if offer.is_left_over else offered
            kind.setdefault(offer.resource, []).append(node["metadata"]["name"])
    found = [_left(resource, nodes) for resource, nodes in sorted(left.items())]
    found += [_offered(resource, nodes) for resource, nodes in sorted(offered.items())]
    return found or [Finding(Level.OK, _CHECK, "no node names resources of other systems")]


def _left(resource: str, nodes: list[str]) -> Finding:
    said = f"{resource} is left at 0 on {some_of(nodes)} by a device plugin that has gone"
    return Finding(Level.WARNING, _CHECK, said, "see what moorage admin clean-nodes would remove")


def _offered(resource: str, nodes: list[str]) -> Finding:
    said = f"{resource} is offered on {some_of(nodes)} by another system, which may give away GPUs that we give, too"
    return Finding(Level.WARNING, _CHECK, said, "keep it and Moorage on nodes of their own")


def _is_foreign(resource: str) -> bool:
    return resource in _NAMES or resource.startswith(_PREFIXES)


def _is_zero(amount: str | None) -> bool:
    try:
        return amount is None or parse_nano(amount) == 0
    except MalformedQuantity:
        return False


_AGENTS_CHECK: Final = "node agents"
_AGENTS_PATH: Final = f"/apis/apps/v1/namespaces/{names.NODE_NAMESPACE}/daemonsets/{names.NODE_AGENT_SERVICE_ACCOUNT}"


async def check_agents(reader: Reader) -> list[Finding]:
    """Where node agents are installed, all of them are ready."""
    found = await reader.get(_AGENTS_PATH)
    if found is None:
        return [Finding(Level.OK, _AGENTS_CHECK, "not installed; the processes of reservations report their GPUs")]
    status = found.get("status") or {}
    wanted, ready = (int(status.get(key) or 0) for key in ("desiredNumberScheduled", "numberReady"))
    said = f"{ready} of {wanted} are ready"
    if ready >= wanted > 0:
        return [Finding(Level.OK, _AGENTS_CHECK, said)]
    if not wanted:
        do = "compare nodeAgent.nodeSelector with the labels of nodes with GPUs"
        return [Finding(Level.WARNING, _AGENTS_CHECK, "installed, and no node is selected for one", do)]
    do = f"look at the pods in namespace {names.NODE_NAMESPACE}; first shares on the other nodes are bound later"
    return [Finding(Level.WARNING, _AGENTS_CHECK, said, do)]


_PLUGINS_CHECK: Final = "device plug-ins"
_PLUGINS_PATH: Final = f"/apis/{names.MOORAGE_GROUP}/{DEFINITION.version}/{DEFINITION.plural}"


async def check_device_plugins(reader: Reader) -> list[Finding]:
    """Where the agent is a node's device plug-in, it serves all that its file says."""
    agents = {
        node["metadata"]["name"]: (node.get("status") or {}).get("agent") or {}
        for node in await reader.items(_PLUGINS_PATH, if_served=True)
    }
    counts = Counter(_mode(agent) for agent in agents.values())
    if set(counts) <= {PLUGIN_OFF}:
        return []
    said = ", ".join(f"{mode} on {count} node(s)" for mode, count in sorted(counts.items()))
    findings = [Finding(Level.OK, _PLUGINS_CHECK, said)]
    lacking = sorted(
        f"{name} ({', '.join(str(each.get('what', '')) for each in agent['missing'])})"
        for name, agent in agents.items()
        if _mode(agent) != PLUGIN_OFF and agent.get("missing")
    )
    if lacking:
        do = "kubectl get gpunode NODE -o yaml says why, in status.agent.missing"
        findings.append(Finding(Level.WARNING, _PLUGINS_CHECK, f"something is not served on {some_of(lacking)}", do))
    return findings


def _mode(agent: dict[str, Any]) -> str:
    return str(agent.get("pluginMode") or PLUGIN_OFF)


_NAME: Final = "enforcement"
_BEHIND: Final = f"/hard, /after, /soft, {' or '.join(f'={one}' for one in AGENTS)}"


async def check_enforcement(reader: Reader) -> list[Finding]:
    """Annotations of nodes are understood (gpu/limits.py, gpu/node_resources.py)."""
    nodes = await reader.items("/api/v1/nodes")
    return [*_unread_reserves(nodes), *_enforced(nodes)]


def _unread_reserves(nodes: Iterable[Raw]) -> list[Finding]:
    said = ((node["metadata"]["name"], node["metadata"].get("annotations") or {}) for node in nodes)
    reserves = {str(name): str(its.get(names.GPU_MEMORY_RESERVE, "")) for name, its in said}
    unread = [f"{name} ({text})" for name, text in sorted(reserves.items()) if text and not is_readable(text)]
    told = f"{names.GPU_MEMORY_RESERVE} can't be read on {some_of(unread)}: nothing is reserved there"
    return [Finding(Level.WARNING, _NAME, told, f"write {ALLOWED}")] if unread else []


def _enforced(nodes: Collection[Raw]) -> list[Finding]:
    said = {
        str(node["metadata"]["name"]): listed(text)
        for node in nodes
        if (text := (node["metadata"].get("annotations") or {}).get(names.NODE_ENFORCES)) is not None
    }
    unclear = sorted(name for name, listed in said.items() if listed.unknown)
    if unclear:
        words = some_of(sorted({word for listed in said.values() for word in listed.unknown}))
        told = f"{names.NODE_ENFORCES} says what nobody understands ({words}) on {some_of(unclear)}: it is not read"
        return [
            Finding(
                Level.WARNING,
                _NAME,
                told,
                f"use {', '.join(WORDS)}, joined by commas, and {_BEHIND} behind a cap",
            )
        ]
    return [Finding(Level.OK, _NAME, f"{len(said)} of {len(nodes)} nodes say what they enforce, in words that we know")]


_MULTIPLIED_CHECK: Final = "node GPUs"
_MULTIPLIED_DO: Final = (
    "no share is placed there, and who asks for a whole GPU may get a part of one: give the device plugin a "
    "configuration without sharing, or keep Moorage's pods off by a taint (docs/migrating)"
)


async def check_multiplied(reader: Reader) -> list[Finding]:
    """Every node offers each of its GPUs once."""
    nodes = await reader.items("/api/v1/nodes")
    found: dict[str, list[str]] = {}
    for node in nodes:
        if said := _multiplied(node):
            found.setdefault(said, []).append(str(node["metadata"]["name"]))
    if not found:
        return [Finding(Level.OK, _MULTIPLIED_CHECK, "no node offers a GPU several times")]
    return [
        Finding(
            Level.WARNING,
            _MULTIPLIED_CHECK,
            f"{some_of(names)}: each GPU is offered several times ({said})",
            _MULTIPLIED_DO,
        )
        for said, names in sorted(found.items())
    ]


def _multiplied(raw: Raw) -> str:
    node = msgspec.convert(raw, Node)
    return multiplied(node.metadata.labels or {}, node.metadata.annotations or {}, offered_gpus(node))


_CDI_NAME: Final = "cdi"


async def check_cdi(reader: Reader) -> list[Finding]:
    """What the ClusterPolicy says is served, is what the last pod with a share was told, and names what nodes give."""
    said = await _policy(reader)
    if isinstance(said, Finding):
        return [said]
    told = _last_told(await reader.items(PODS.path()))
    by_cdi = container_devices.is_on(said) if told is None else names.CDI_DEVICE_PREFIX in told[1]
    return [_form(said, told), *([] if by_cdi else _without_names(await reader.items(NODES.path(), if_served=True)))]


def _form(said: ClusterPolicy | None, last: tuple[str, str] | None) -> Finding:
    """``last``: the youngest pod with a share, and what it was told."""
    if container_devices.has_nri_plugin(said):
        told = "NVIDIA's operator hands devices over by its NRI plugin: containers with shares see none"
        return Finding(Level.WARNING, _CDI_NAME, told, "set spec.cdi.nriPluginEnabled of the ClusterPolicy to false")
    form = "CDI names" if container_devices.is_on(said) else "UUIDs"
    why = "there is no ClusterPolicy" if said is None else f"the ClusterPolicy {said.metadata.name}"
    if last is not None and (names.CDI_DEVICE_PREFIX in last[1]) is not container_devices.is_on(said):
        told = f"pod {last[0]} was told devices in another form than by {form}, as is right here: {why}"
        do = "right if your nodes are set up so; else give scheduler and binder --cdi-enabled=auto"
        return Finding(Level.WARNING, _CDI_NAME, told, f"{do}, and delete such pods")
    return Finding(Level.OK, _CDI_NAME, f"containers are told devices by {form}: {why}")


def _without_names(nodes: list[Raw]) -> list[Finding]:
    """Name nodes whose annotations promise containers what CDI alone can give, where containers get UUIDs."""
    said = {str(meta["name"]): meta.get("annotations") or {} for meta in (node["metadata"] for node in nodes)}
    shows = sorted(name for name, its in said.items() if its.get(names.NODE_TENANT_VIEW) == "true")
    limits = sorted(name for name, its in said.items() if named(listed(its.get(names.NODE_ENFORCES)).known))
    wanting = {
        f"{names.NODE_TENANT_VIEW}=true, but devices are told by UUIDs: containers get no view on": shows,
        f"{names.NODE_ENFORCES} has limits by the agent, but devices are told by UUIDs: containers start without them "
        "on": limits,
    }
    do = "tell devices by CDI names (docs/cdi.md), or take the annotation away"
    return [Finding(Level.WARNING, _CDI_NAME, f"{text} {some_of(on)}", do) for text, on in wanting.items() if on]


async def _policy(reader: Reader) -> ClusterPolicy | Finding | None:
    """The first ClusterPolicy, None if there is none, or that nobody can read it."""
    raw = await reader.get(CLUSTER_POLICIES.path())
    first = next(iter((raw or {}).get("items") or ()), None)
    try:
        return None if first is None else msgspec.convert(first, ClusterPolicy)
    except msgspec.ValidationError as error:
        told = f"the ClusterPolicy can't be read: {error}"
        return Finding(Level.WARNING, _CDI_NAME, told, "mend it: until then devices are told by UUIDs")


def _last_told(pods: list[Raw]) -> tuple[str, str] | None:
    """The youngest bound pod with a share, and what its containers were told."""
    told = [
        (str(meta.get("creationTimestamp", "")), f"{meta['namespace']}/{meta['name']}", text)
        for meta in (pod["metadata"] for pod in pods)
        for key, text in (meta.get("annotations") or {}).items()
        if key.startswith(names.VISIBLE_DEVICES_PREFIX) and names.GRANT in meta["annotations"]
    ]
    return max(told)[1:] if told else None


T = TypeVar("T", bound=msgspec.Struct)

_REPORTS_CHECK: Final = "node reports"
_REPORTS: Final = f"/apis/{names.MOORAGE_GROUP}/{DEFINITION.version}/{DEFINITION.plural}"
#: The label by which the chart chooses nodes for agents.
_HAS_GPUS: Final = "nvidia.com/gpu.present"
_COMPONENT: Final = "app.kubernetes.io/component"
_VERSION: Final = "app.kubernetes.io/version"
_ENFORCER: Final = "memory-enforcer"


def reports_check(clock: Clock) -> Callable[[Reader], Awaitable[list[Finding]]]:
    """Return the check. ``clock`` gives the time from which ages of reports are counted."""

    async def check_reports(reader: Reader) -> list[Finding]:
        """Agents and memory enforcers do on each node what is expected of them."""
        reports = _read(await reader.items(_REPORTS, if_served=True), GpuNode)
        pods = _read(await reader.items(f"/api/v1/namespaces/{names.NODE_NAMESPACE}/pods", if_served=True), Pod)
        held = _read(await reader.items(f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"), Pod)
        by_node = {report.metadata.name: report for report in reports}
        known, enforcers = agents(pods), _enforcers(pods)
        uncapped = _uncapped(held, by_node, known)
        nodes = _read(await reader.items("/api/v1/nodes"), Node)
        unserved = _unserved(nodes, by_node, known)
        if not (by_node or known):
            return [*uncapped, *unserved]
        found = [
            *_without(nodes, known),
            *_silent_agents(known, by_node),
            *_old(reports, known, clock.now_ns()),
            *uncapped,
        ]
        found += [*_versions(enforcers, by_node), *unserved]
        if not found:
            said = f"agents: {len(known)}, memory enforcers: {len(enforcers)}; every report is current"
            found.append(Finding(Level.OK, _REPORTS_CHECK, said))
        return found

    return check_reports


def _without(nodes: Iterable[Node], known: Mapping[str, Agent]) -> list[Finding]:
    labelled = {node.metadata.name for node in nodes if (node.metadata.labels or {}).get(_HAS_GPUS) == "true"}
    without = sorted(labelled - known.keys())
    if not without:
        return []
    do = "compare nodeAgent.nodeSelector and .tolerations with labels and taints of these nodes"
    return [Finding(Level.WARNING, _REPORTS_CHECK, f"{_HAS_GPUS}=true, and no agent on {some_of(without)}", do)]


def _silent_agents(known: Iterable[str], reports: Mapping[str, GpuNode]) -> list[Finding]:
    """Agents without a report: their CRD is absent, their writes are refused, or they do not start."""
    silent = sorted(set(known) - reports.keys())
    if not silent:
        return []
    do = f"look at the logs of these agents in namespace {names.NODE_NAMESPACE}"
    return [Finding(Level.WARNING, _REPORTS_CHECK, f"the agent has not reported on {some_of(silent)}", do)]


def _old(reports: Iterable[GpuNode], known: Mapping[str, Agent], now_ns: int) -> list[Finding]:
    """Reports of nodes whose agent is not ready: no use is shown from them."""
    seen = {report.metadata.name: node_use(report, known) for report in reports}
    old = sorted(f"{name}{_for(use.since, now_ns)}" for name, use in seen.items() if use.state is State.STALE)
    if not old:
        return []
    do = f"look at the agents in namespace {names.NODE_NAMESPACE}; a GpuNode of a node without one can be deleted"
    return [Finding(Level.WARNING, _REPORTS_CHECK, f"the agent does not work on {some_of(old)}; its report is old", do)]


def _for(since: str, now_ns: int) -> str:
    since_ns = parse_ns(since)
    return "" if since_ns is None else f" (for {age(max(0, now_ns - since_ns))})"


def _uncapped(held: Iterable[Pod], reports: Mapping[str, GpuNode], known: Mapping[str, Agent]) -> list[Finding]:
    """Nodes with memory caps in their books, where nothing says that it enforces them."""
    capped = {pod.spec.node_name for pod in held if reservation.is_reservation(pod) and _has_caps(pod)}
    why: dict[str, str] = {}
    for name in sorted(capped):
        report, agent = reports.get(name), known.get(name)
        if report is None or agent is None or not agent.is_ready:
            why[name] = "no agent works there"
        elif not report.status.agent.back_ends:
            why[name] = why_no_caps(report)
    if not why:
        return []
    do = "enable nodeAgent.memoryEnforcer, or set --memory-caps=none at scheduler and binder"
    said = some_of([f"{name} ({text})" for name, text in why.items()])
    return [Finding(Level.WARNING, _REPORTS_CHECK, f"memory caps in books are enforced by nobody on {said}", do)]


def _unserved(nodes: Iterable[Node], reports: Mapping[str, GpuNode], known: Mapping[str, Agent]) -> list[Finding]:
    """Nodes that say that their agent limits tenants, where it does not: containers with limits do not start there."""
    without: list[str] = []
    for node in nodes:
        name, said = node.metadata.name, (node.metadata.annotations or {}).get(names.NODE_ENFORCES)
        agent, report = known.get(name), reports.get(name)
        works = agent is not None and agent.is_ready and report is not None
        serves = (report.status.agent.back_ends or []) if works and report is not None else []
        without += [f"{name} ({one})" for one in named(listed(said).known) if one not in serves]
    if not without:
        return []
    do = f"look at status.agent of these GpuNodes, or take the words out of {names.NODE_ENFORCES}"
    told = f"containers with limits do not start, as no agent serves what their node says on {some_of(sorted(without))}"
    return [Finding(Level.WARNING, _REPORTS_CHECK, told, do)]


def _has_caps(pod: Pod) -> bool:
    book = reservation.read(pod).book
    return book is not None and any(entry.cap_mib or entry.cap_nano for entry in book.entries.values())


def _enforcers(pods: Iterable[Pod]) -> dict[str, str]:
    """The version of the memory enforcer of each node that has one."""
    return {
        pod.spec.node_name: labels.get(_VERSION, "")
        for pod in pods
        if (labels := pod.metadata.labels or {}).get(_COMPONENT) == _ENFORCER and pod.spec.node_name
    }


def _versions(enforcers: Mapping[str, str], reports: Mapping[str, GpuNode]) -> list[Finding]:
    """Memory enforcers of another version than the agent beside them: what one sends the other may not read."""
    other = sorted(
        f"{name} ({version}, its agent {agent})"
        for name, version in enforcers.items()
        if (agent := reports[name].status.agent.version if name in reports else "") and version and version != agent
    )
    if not other:
        return []
    do = f"wait for the roll-out of DaemonSet moorage-memory-enforcer in {names.NODE_NAMESPACE}"
    return [
        Finding(
            Level.WARNING,
            _REPORTS_CHECK,
            f"memory enforcers of another version than their agents on {some_of(other)}",
            do,
        )
    ]


def _read(items: Iterable[dict[str, Any]], of: type[T]) -> list[T]:
    """Objects that can be read; others are nobody's here."""
    found: list[T] = []
    for item in items:
        try:
            found.append(msgspec.convert(item, of))
        except msgspec.ValidationError:
            continue
    return found


_VANISHED_CHECK: Final = "kept shares"
_VANISHED_DO: Final = (
    "nothing where the node comes back: the pods' grace periods begin when it is ready; their shares are given back "
    "an hour after that at the latest (docs/operate.md, a machine that is away)"
)


async def check_vanished(reader: Reader) -> list[Finding]:
    """No share waits for a node that is gone or not ready. Reads pods of such nodes only."""
    silent = await _silent_nodes(reader)
    kept: dict[str, list[str]] = {}
    for node, held in silent.items():
        here = {
            str(raw["metadata"]["uid"])
            for raw in await reader.items("/api/v1/pods", fields=field_is("spec.nodeName", node))
        }
        for one in held:
            for uid, entry in (one.book.entries if one.book is not None else {}).items():
                if uid not in here and await _is_gone(reader, uid, entry):
                    kept.setdefault(node, []).append(entry.pod)
    if not kept:
        return [Finding(Level.OK, _VANISHED_CHECK, "no share waits for a node that is gone or not ready")]
    return [
        Finding(
            Level.WARNING,
            _VANISHED_CHECK,
            f"node {node} is gone or not ready: shares are kept of {some_of(sorted(set(pods)))}",
            _VANISHED_DO,
        )
        for node, pods in sorted(kept.items())
    ]


async def _silent_nodes(reader: Reader) -> dict[str, list[Reservation]]:
    """Reservations by node, of the nodes that are gone or not ready."""
    nodes = [msgspec.convert(raw, Node) for raw in await reader.items("/api/v1/nodes")]
    heard = {node.metadata.name for node in nodes if node_liveness.registration(node) is not None}
    found: dict[str, list[Reservation]] = {}
    for raw in await reader.items(f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"):
        pod = msgspec.convert(raw, Pod)
        if reservation.is_reservation(pod) and pod.spec.node_name not in heard:
            found.setdefault(pod.spec.node_name or "", []).append(reservation.read(pod))
    found.pop("", None)
    return found


async def _is_gone(reader: Reader, uid: str, entry: Entry) -> bool:
    """Whether no pod of this UID is there. One that is not bound yet is not among the pods of the node."""
    namespace, _, name = entry.pod.partition("/")
    if not namespace or not name:
        return False
    raw = await reader.get(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}")
    return raw is None or (raw.get("metadata") or {}).get("uid") != uid
