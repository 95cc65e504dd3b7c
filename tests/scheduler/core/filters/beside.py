"""Pods beside others, for the tests of rules about other pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.core.cluster import Cluster
from scheduler.core.convert.selectors import NamespaceRecord
from scheduler.core.model.plan import Bind, Explain, Plan
from tests.scheduler.core.objects import cluster, node, pod
from wire import names
from wire.core import Node, Pod

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
APP_A = {"matchLabels": {"app": "a"}}
#: Two nodes in zone x, one in y, and one in none.
NODES = tuple(
    node(name, labels={ZONE: zone} if zone else {}) for name, zone in zip("pqrs", ("x", "x", "y", ""), strict=True)
)


def term(key: str = ZONE, selector: Any = APP_A, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": selector, **more}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {_REQUIRED: list(terms)}}}


def anti_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {_REQUIRED: list(terms)}}}


def running(name: str, on: str, app: str = "a", **more: Any) -> Pod:
    return pod(name, bound_to=on, labels={"app": app}, **more)


def waiting(spec: Mapping[str, Any], name: str = "w", app: str = "w", **more: Any) -> Pod:
    return pod(name, cpu="1", labels={"app": app}, spec=spec, **more)


def made(*pods: Pod, nodes: tuple[Node, ...] = NODES, teams: Mapping[str, str] | None = None) -> Cluster:
    """A cluster of these; ``teams``: namespaces and their label."""
    found = cluster(*nodes, *pods)
    found.others.namespaces.replace(NamespaceRecord(name, {"team": team}) for name, team in (teams or {}).items())
    return found


def reasons(of: Cluster, uid: str = "uid-w") -> dict[str, int]:
    """Why a pod waits, by kind; nothing if it does not."""
    told = (entry.verdict for entry in of.decide(0).entries if isinstance(entry, Explain) and uid in entry.pods)
    return {reason.kind: reason.nodes for verdict in told for reason in verdict.node_reasons}


def places(plan: Plan) -> dict[str, str]:
    return {entry.placement.name: entry.placement.node for entry in plan.entries if isinstance(entry, Bind)}


def allowed(*pods: Pod, spec: Mapping[str, Any], nodes: tuple[Node, ...] = NODES, **more: Any) -> str:
    """Names of the nodes that a pod of this spec may be on: it is asked with each node's name."""
    teams = more.pop("teams", None)
    found = []
    for each in nodes:
        here = {**spec, "nodeSelector": {HOST: each.metadata.name}}
        if places(made(*pods, waiting(here, **more), nodes=nodes, teams=teams).decide(0)):
            found.append(each.metadata.name)
    return "".join(found)
