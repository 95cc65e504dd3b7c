"""The pods that controllers of Kubernetes make, with the names, labels and owners that they give (no controller runs).

Deployment, ReplicaSet, ReplicationController and StatefulSet make all their replicas; a Job as many pods as it runs at
once and those that follow them, and a CronJob the pods of one Job. Replacements are not made. Facts are those of
Kubernetes 1.28 and newer: docs of each workload, KEP-2214 (indexed Jobs), KEP-4017 (labels of the index).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu import manifests
from gpu.translation import shown
from kube.client.resources import PERSISTENT_VOLUME_CLAIMS
from scheduler.core.convert import constraints
from scheduler.core.convert.nodes import node_record
from scheduler.core.filters.registry import FILTERS, OK
from scheduler.core.model.records import NodeRecord
from simulator.controllers import jobs
from simulator.controllers.pods import (
    MOST_PODS,
    Made,
    Malformed,
    Template,
    child,
    count_of,
    identity,
    later_count_of,
    make,
    owner_of,
    read_template,
)
from simulator.nodes import node_object
from simulator.nodes.shape import NodeShape
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


def nodes_for(template: Template, nodes: Sequence[NodeShape | Node]) -> list[str]:
    """Return the names of the nodes that get a pod, in the order of the nodes."""
    pod, _ = manifests.read_pod({**template.raw, "spec": {**template.raw["spec"], **_added(template)}})
    if pod is None:
        return []
    judge = FILTERS.judging(constraints.constraints(pod))
    records = map(_record, nodes)
    return [record.name for record in records if judge(record) == OK]


def of_daemon_set(controller: Mapping[str, Any], template: Template, nodes: Sequence[str]) -> Iterator[Made]:
    """Yield the pods of a DaemonSet for these nodes.

    Each has node affinity on ``metadata.name`` in place of the terms of the template, and tolerations for the
    conditions of a node.
    """
    name = controller["metadata"]["name"]
    owner = owner_of("apps/v1", "DaemonSet", name)
    labels = {"controller-revision-hash": identity(template.raw), "pod-template-generation": "1"}
    added = _added(template)
    for node in nodes:
        extra = {**added, "affinity": _on(node, template.raw["spec"].get("affinity") or {})}
        yield make(template, owner, generate_name=f"{name}-", labels=labels, extra=extra)


def _record(node: NodeShape | Node) -> NodeRecord:
    return node_record(node if isinstance(node, Node) else msgspec.convert(node_object.node(node, now=""), Node))


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


#: Most bytes that the pods of all controllers have as JSON: a limit before work, as MOST_PODS.
MOST_BYTES: Final = 64 * 2**20

DAEMON_SET: Final = "DaemonSet"

_Expand = Callable[[Mapping[str, Any], Template], Iterator[Made]]


class Expander:
    """Expands controllers, within one limit for all of them. ``nodes``: where DaemonSets have their pods."""

    def __init__(self, nodes: Sequence[NodeShape | Node] = ()) -> None:
        self._nodes = nodes
        self._pods_left = MOST_PODS
        self._bytes_left = MOST_BYTES
        self._unnamed = 0

    def expand(self, controller: Mapping[str, Any]) -> list[Made]:
        """Return the pods that a controller makes, and before them the Job to which they belong, if to one.

        Raises Malformed with the field, its value and what is allowed.
        """
        controller = self.named(controller)
        kind, spec = controller["kind"], controller.get("spec")
        if kind == DAEMON_SET:
            return self._daemons(controller)
        count, field = count_of(kind, spec if isinstance(spec, Mapping) else {})
        later = later_count_of(kind, spec) if count else 0
        field = field.replace("parallelism", "completions") if later else field
        template = _template(controller)
        self.charge(count + later, field, template)
        return list(_EXPANDED[kind](controller, template)) if count or kind == "Job" else []

    def _daemons(self, controller: Mapping[str, Any]) -> list[Made]:
        template = _template(controller)
        nodes = nodes_for(template, self._nodes)
        self.charge(len(nodes), "the number of nodes", template)
        return list(of_daemon_set(controller, template, nodes))

    def named(self, controller: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the controller with a name; the end of a generated one follows from the order of files."""
        metadata = controller["metadata"]
        for field in ("name", "generateName"):
            if not isinstance(metadata.get(field, ""), str):
                raise Malformed(f"metadata.{field} is {shown(str(metadata[field]))}; allowed: text")
        if metadata.get("name"):
            return controller
        self._unnamed += 1
        name = f"{metadata['generateName']}{identity(self._unnamed)[-5:]}"
        rest = {key: value for key, value in metadata.items() if key != "generateName"}
        return {**controller, "metadata": {**rest, "name": name}}

    def charge(self, count: int, field: str, template: Template) -> None:
        """Take pods, and a template even without pods, from what is left. Raises Malformed."""
        if count > self._pods_left:
            left = "" if self._pods_left == MOST_PODS else f", {self._pods_left} are left"
            raise Malformed(
                f"{field} is {shown(str(count))}; all controllers together make {MOST_PODS} pods at most{left}"
            )
        size = template.size * max(count, 1)
        if size > self._bytes_left:
            raise Malformed(
                f"{field} is {count} with a template of {template.size} bytes; all pods of controllers together have "
                f"{MOST_BYTES} bytes at most, {self._bytes_left} are left"
            )
        self._pods_left -= count
        self._bytes_left -= size


def api_version_of(kind: object) -> str:
    """Return the apiVersion of a kind that is expanded; "" for other kinds."""
    return _API_VERSIONS.get(kind, "") if isinstance(kind, str) else ""


def _template(controller: Mapping[str, Any]) -> Template:
    path = "spec.jobTemplate.spec.template" if controller["kind"] == "CronJob" else "spec.template"
    raw = next((raw for place, raw in manifests.templates(controller) if place == path), None)
    return read_template(raw, path)


def with_claims(controller: Mapping[str, Any], template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a template with the volumes that its controller adds: those of a StatefulSet's claims."""
    if controller["kind"] != "StatefulSet":
        return template
    spec = template["spec"]
    return {**template, "spec": {**spec, **_volumes(controller["spec"], spec, "pod")}}


def _deployment(controller: Mapping[str, Any], template: Template) -> Iterator[Made]:
    made_hash = identity(template.raw)
    labels = {"pod-template-hash": made_hash}
    name = f"{controller['metadata']['name']}-{made_hash}"
    replicas = count_of("Deployment", controller["spec"])[0]
    yield from _copies(owner_of("apps/v1", "ReplicaSet", name), template, replicas, labels)


def _replicas(controller: Mapping[str, Any], template: Template) -> Iterator[Made]:
    kind = controller["kind"]
    owner = owner_of(_API_VERSIONS[kind], kind, controller["metadata"]["name"])
    yield from _copies(owner, template, count_of(kind, controller["spec"])[0], {})


def _copies(owner: Mapping[str, Any], template: Template, replicas: int, labels: Mapping[str, str]) -> Iterator[Made]:
    for _ in range(replicas):
        yield make(template, owner, generate_name=f"{owner['name']}-", labels=labels)


def _stateful_set(controller: Mapping[str, Any], template: Template) -> Iterator[Made]:
    """Pods of a StatefulSet: at once with podManagementPolicy Parallel, else each once the one before is ready."""
    spec, set_name = controller["spec"], controller["metadata"]["name"]
    owner = owner_of("apps/v1", "StatefulSet", set_name)
    start = _start(spec)
    revision = f"{set_name}-{identity(template.raw)}"
    policy, before = spec.get("podManagementPolicy") or _ORDERED, ""
    if policy not in _MANAGEMENT:
        raise Malformed(f"spec.podManagementPolicy is {shown(repr(policy))}; {' and '.join(_MANAGEMENT)} are allowed")
    for ordinal in range(start, start + count_of("StatefulSet", spec)[0]):
        name = f"{set_name}-{ordinal}"
        labels = {
            "apps.kubernetes.io/pod-index": str(ordinal),
            "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": name,
        }
        extra = {
            "hostname": name,
            "subdomain": spec.get("serviceName") or "",
            **_volumes(spec, template.raw["spec"], name),
        }
        yield from (Made(each, PERSISTENT_VOLUME_CLAIMS) for each in _claims(spec, name))
        pod = make(template, owner, name=name, labels=labels, extra=extra)
        yield msgspec.structs.replace(pod, after=before)
        before = name if policy == _ORDERED else ""


_ORDERED: Final = "OrderedReady"
_MANAGEMENT: Final = (_ORDERED, "Parallel")


def _start(spec: Mapping[str, Any]) -> int:
    ordinals = spec.get("ordinals")
    start = ordinals.get("start") if isinstance(ordinals, Mapping) else None
    if start is not None and (type(start) is not int or start < 0):
        raise Malformed(f"spec.ordinals.start is {shown(repr(start))}; a number of 0 or more is allowed")
    return start or 0


def _volumes(spec: Mapping[str, Any], of_pod: Mapping[str, Any], pod_name: str) -> dict[str, Any]:
    """The volumes of a pod, with those of volumeClaimTemplates in place of those of the same names."""
    wanted = spec.get("volumeClaimTemplates") or ()
    if not wanted:
        return {}
    names = [child(child(each, "metadata"), "name") for each in wanted] if isinstance(wanted, list) else [None]
    if not all(isinstance(name, str) and name for name in names):
        raise Malformed("spec.volumeClaimTemplates has to be a list of claims with metadata.name")
    own = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}} for name in names]
    there = of_pod.get("volumes") or ()
    return {"volumes": [*own, *(each for each in there if child(each, "name") not in names)]}


def _claims(spec: Mapping[str, Any], pod_name: str) -> Iterator[Mapping[str, Any]]:
    """The claims of a StatefulSet for one of its pods, which stay when the pod goes."""
    for each in spec.get("volumeClaimTemplates") or ():
        written = each["metadata"]
        meta = {field: written[field] for field in ("labels", "annotations") if written.get(field)}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**meta, "name": f"{written['name']}-{pod_name}"},
            "spec": each.get("spec") or {},
        }


_EXPANDED: Final[Mapping[str, _Expand]] = {
    "Deployment": _deployment,
    "ReplicaSet": _replicas,
    "ReplicationController": _replicas,
    "StatefulSet": _stateful_set,
    "Job": jobs.of_job,
    "CronJob": jobs.of_cron_job,
}
_API_VERSIONS: Final[Mapping[str, str]] = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "StatefulSet": "apps/v1",
    DAEMON_SET: "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}
