"""What agents and wardens do, node by node: nodes without one, no or old reports, caps that nobody enforces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Reader
from cli.inspection.uses import age
from gpu import agentlimits, reservation
from gpu.enforcement import listed
from gpu.nodeuse import Agent, State, agents, node_use, why_no_caps
from kube.client.clock import Clock
from wire import names
from wire.core import Node, Pod
from wire.crds.gpunode import DEFINITION, GpuNode
from wire.rfc3339 import parse_ns

T = TypeVar("T", bound=msgspec.Struct)

_CHECK: Final = "node reports"
_REPORTS: Final = f"/apis/{names.MOORAGE_GROUP}/{DEFINITION.version}/{DEFINITION.plural}"
#: The label by which the chart chooses nodes for agents.
_HAS_GPUS: Final = "nvidia.com/gpu.present"
_COMPONENT: Final = "app.kubernetes.io/component"
_VERSION: Final = "app.kubernetes.io/version"
_WARDEN: Final = "warden"


def reports_check(clock: Clock) -> Callable[[Reader], Awaitable[list[Finding]]]:
    """Return the check. ``clock`` gives the time from which ages of reports are counted."""

    async def check_reports(reader: Reader) -> list[Finding]:
        """Agents and wardens do on each node what is expected of them."""
        reports = _read(await reader.items(_REPORTS, if_served=True), GpuNode)
        pods = _read(await reader.items(f"/api/v1/namespaces/{names.NODE_NAMESPACE}/pods", if_served=True), Pod)
        held = _read(await reader.items(f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"), Pod)
        by_node = {report.metadata.name: report for report in reports}
        known, wardens = agents(pods), _wardens(pods)
        uncapped = _uncapped(held, by_node, known)
        nodes = _read(await reader.items("/api/v1/nodes"), Node)
        unserved = _unserved(nodes, by_node, known)
        if not (by_node or known):
            return [*uncapped, *unserved]
        found = [*_without(nodes, known), *_silent(known, by_node), *_old(reports, known, clock.now_ns()), *uncapped]
        found += [*_versions(wardens, by_node), *unserved]
        if not found:
            said = f"agents: {len(known)}, wardens: {len(wardens)}; every report is current"
            found.append(Finding(Level.OK, _CHECK, said))
        return found

    return check_reports


def _without(nodes: Iterable[Node], known: Mapping[str, Agent]) -> list[Finding]:
    labelled = {node.metadata.name for node in nodes if (node.metadata.labels or {}).get(_HAS_GPUS) == "true"}
    without = sorted(labelled - known.keys())
    if not without:
        return []
    do = "compare nodeAgent.nodeSelector and .tolerations with labels and taints of these nodes"
    return [Finding(Level.WARNING, _CHECK, f"{_HAS_GPUS}=true, and no agent on {some_of(without)}", do)]


def _silent(known: Iterable[str], reports: Mapping[str, GpuNode]) -> list[Finding]:
    """Agents without a report: their CRD is absent, their writes are refused, or they do not start."""
    silent = sorted(set(known) - reports.keys())
    if not silent:
        return []
    do = f"look at the logs of these agents in namespace {names.NODE_NAMESPACE}"
    return [Finding(Level.WARNING, _CHECK, f"the agent has not reported on {some_of(silent)}", do)]


def _old(reports: Iterable[GpuNode], known: Mapping[str, Agent], now_ns: int) -> list[Finding]:
    """Reports of nodes whose agent is not ready: no use is shown from them."""
    seen = {report.metadata.name: node_use(report, known) for report in reports}
    old = sorted(f"{name}{_for(use.since, now_ns)}" for name, use in seen.items() if use.state is State.STALE)
    if not old:
        return []
    do = f"look at the agents in namespace {names.NODE_NAMESPACE}; a GpuNode of a node without one can be deleted"
    return [Finding(Level.WARNING, _CHECK, f"the agent does not work on {some_of(old)}; its report is old", do)]


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
    do = "enable nodeAgent.warden, or set --memory-caps=none at scheduler and binder"
    said = some_of([f"{name} ({text})" for name, text in why.items()])
    return [Finding(Level.WARNING, _CHECK, f"memory caps in books are enforced by nobody on {said}", do)]


def _unserved(nodes: Iterable[Node], reports: Mapping[str, GpuNode], known: Mapping[str, Agent]) -> list[Finding]:
    """Nodes that say that their agent limits tenants, where it does not: containers with limits do not start there."""
    without: list[str] = []
    for node in nodes:
        name, said = node.metadata.name, (node.metadata.annotations or {}).get(names.NODE_ENFORCES)
        agent, report = known.get(name), reports.get(name)
        works = agent is not None and agent.is_ready and report is not None
        serves = (report.status.agent.back_ends or []) if works and report is not None else []
        without += [f"{name} ({one})" for one in agentlimits.named(listed(said).known) if one not in serves]
    if not without:
        return []
    do = f"look at status.agent of these GpuNodes, or take the words out of {names.NODE_ENFORCES}"
    told = f"containers with limits do not start, as no agent serves what their node says on {some_of(sorted(without))}"
    return [Finding(Level.WARNING, _CHECK, told, do)]


def _has_caps(pod: Pod) -> bool:
    book = reservation.read(pod).book
    return book is not None and any(entry.cap_mib or entry.cap_nano for entry in book.entries.values())


def _wardens(pods: Iterable[Pod]) -> dict[str, str]:
    """The version of the warden of each node that has one."""
    return {
        pod.spec.node_name: labels.get(_VERSION, "")
        for pod in pods
        if (labels := pod.metadata.labels or {}).get(_COMPONENT) == _WARDEN and pod.spec.node_name
    }


def _versions(wardens: Mapping[str, str], reports: Mapping[str, GpuNode]) -> list[Finding]:
    """Wardens of another version than the agent beside them: what one sends the other may not read."""
    other = sorted(
        f"{name} ({version}, its agent {agent})"
        for name, version in wardens.items()
        if (agent := reports[name].status.agent.version if name in reports else "") and version and version != agent
    )
    if not other:
        return []
    do = f"wait for the roll-out of DaemonSet moorage-warden in {names.NODE_NAMESPACE}, or look why it does not end"
    return [Finding(Level.WARNING, _CHECK, f"wardens of another version than their agents on {some_of(other)}", do)]


def _read(items: Iterable[dict[str, Any]], of: type[T]) -> list[T]:
    """Objects that can be read; others are nobody's here."""
    found: list[T] = []
    for item in items:
        try:
            found.append(msgspec.convert(item, of))
        except msgspec.ValidationError:
            continue
    return found
