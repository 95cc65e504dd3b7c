"""The pods of a DaemonSet: one for each node that its selector, node affinity and tolerations allow.

As Kubernetes' DaemonSet controller makes them: bound to their node by node affinity on ``metadata.name``, in place of
the terms of the template, and with tolerations for the conditions of a node (concepts/workloads/controllers/daemonset).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu import manifests
from scheduler.core.convert import constraints
from scheduler.core.convert.nodes import node_record
from scheduler.core.filters.registry import FILTERS, OK
from simulator import nodeobject
from simulator.podmaking import Made, Template, identity, make, owner_of
from simulator.shape import NodeShape
from wire.core import Node

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TOLERATED: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
#: Tolerated by pods in their node's network.
_NETWORK: Final = ("network-unavailable", "NoSchedule")


def nodes_for(template: Template, nodes: Sequence[NodeShape]) -> list[str]:
    """Return the names of the nodes that get a pod, in the order of the nodes."""
    pod, _ = manifests.read_pod({**template.raw, "spec": {**template.raw["spec"], **_added(template)}})
    if pod is None:
        return []
    judge = FILTERS.judging(constraints.constraints(pod))
    return [shape.name for shape in nodes if judge(_record(shape)) == OK]


def of_daemon_set(controller: Mapping[str, Any], template: Template, nodes: Sequence[str]) -> Iterator[Made]:
    """Yield the pods of a DaemonSet for these nodes."""
    name = controller["metadata"]["name"]
    owner = owner_of("apps/v1", "DaemonSet", name)
    labels = {"controller-revision-hash": identity(template.raw), "pod-template-generation": "1"}
    added = _added(template)
    for node in nodes:
        extra = {**added, "affinity": _on(node, template.raw["spec"].get("affinity") or {})}
        yield make(template, owner, generate_name=f"{name}-", labels=labels, extra=extra)


def _record(shape: NodeShape) -> Any:
    return node_record(msgspec.convert(nodeobject.node(shape, now=""), Node))


def _added(template: Template) -> dict[str, Any]:
    spec = template.raw["spec"]
    tolerated = (*_TOLERATED, _NETWORK) if spec.get("hostNetwork") else _TOLERATED
    more = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect} for key, effect in tolerated]
    return {"tolerations": [*(spec.get("tolerations") or ()), *more]}


def _on(node: str, affinity: Mapping[str, Any]) -> dict[str, Any]:
    """The affinity of a template, with one node in place of the required terms."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {**affinity, "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), _REQUIRED: required}}
