"""What upstream's rows leave out and an API server would have filled in: names, UIDs, containers, defaults.

A row is about one plug-in. So nodes are ready and, but for rows about amounts, large. Amounts of memory are small
numbers of bytes in the rows, and are taken as MiB here: Moorage counts in these, and no answer depends on the unit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tools.kubeoracle.harvest.rows import Placed, Row
from wire import names

Object = dict[str, Any]
NAMESPACE: Final = "default"
_LARGE: Final = {"cpu": "1000", "memory": "1Ti", "pods": "1000"}
_IN_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")
#: A pod of a row may have no name; this is no name that a row has.
WAITING: Final = "waiting-pod"
_AMOUNTS: Final = "noderesources"


def question(row: Row) -> Object:
    """The snapshot of a row, as the oracle and ``ours.answer`` read it."""
    return question_of(row.package, row.pod, row.world, row.objects)


def question_of(
    package: str, given: Mapping[str, Any], world: Sequence[Placed], objects: Mapping[str, Sequence[Object]]
) -> Object:
    """The same of the parts of a row: the package it is of, its pod, nodes with their pods, objects by kind."""
    are_amounts = package == _AMOUNTS
    nodes: list[Object] = []
    pods: list[Object] = []
    for number, place in enumerate(world or [Placed(None)]):
        node = _node(place.node or {}, number, are_amounts=are_amounts)
        nodes.append(node)
        for each in place.pods or ():
            pods.append(_running(each, node["metadata"]["name"], len(pods), are_amounts=are_amounts))
    pod = _pod(given, WAITING, are_amounts=are_amounts)
    pod["spec"].pop("nodeName", None)
    pod["status"] = {"phase": names.PENDING}
    made = {kind: [_object(each, kind, n) for n, each in enumerate(listed)] for kind, listed in objects.items()}
    made["namespaces"] = _namespaces(made.get("namespaces", []), [*pods, pod])
    if package == "volumerestrictions":
        _bind(made.get("claims", []), made)
    return {**made, "nodes": nodes, "pods": pods, "pod": pod}


def node_names(row: Row) -> list[str]:
    """Names of the nodes of a row, in its order."""
    return [node["metadata"]["name"] for node in question(row)["nodes"]]


def _node(given: Mapping[str, Any], number: int, *, are_amounts: bool) -> Object:
    node = copy.deepcopy(dict(given))
    meta, status = node.setdefault("metadata", {}), node.setdefault("status", {})
    meta["name"] = meta.get("name") or f"node-{number}"
    meta["uid"] = f"node-{number}"
    has = status.get("allocatable") or {}
    status["allocatable"] = _in_mib(has) if are_amounts else {**has, **_LARGE}
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    status.pop("capacity", None)
    return node


def _running(given: Mapping[str, Any], node: str, number: int, *, are_amounts: bool) -> Object:
    pod = _pod(given, f"running-{number}", are_amounts=are_amounts)
    pod["spec"]["nodeName"] = node
    pod["status"]["phase"] = pod["status"].get("phase") or names.RUNNING
    return pod


def _pod(given: Mapping[str, Any], name: str, *, are_amounts: bool) -> Object:
    pod = copy.deepcopy(dict(given))
    meta, spec = pod.setdefault("metadata", {}), pod.setdefault("spec", {})
    meta.update(namespace=meta.get("namespace") or NAMESPACE, resourceVersion="1")
    if not any("ephemeral" in volume for volume in spec.get("volumes") or ()):
        # Without such volumes names and UIDs of pods mean nothing, and they are not always different.
        meta.update(name=name, uid=name)
    meta["name"], meta["uid"] = meta.get("name") or name, meta.get("uid") or name
    spec["schedulerName"] = names.SCHEDULER_NAME
    pod.setdefault("status", {})
    spec["containers"] = spec.get("containers") or [{}]
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(kind) or ()):
            _fill_container(container, f"{kind.lower()}-{number}", are_amounts=are_amounts)
    for term in _pod_terms(spec.get("affinity") or {}):
        if term.get("namespaces"):
            term["namespaces"] = [each or NAMESPACE for each in term["namespaces"]]
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
    if are_amounts:
        for amounts in (spec.get("overhead"), *(spec.get("resources") or {}).values()):
            if isinstance(amounts, dict):
                amounts.update(_in_mib(amounts))
    return pod


def _pod_terms(affinity: Mapping[str, Any]) -> Iterator[Object]:
    for kind in ("podAffinity", "podAntiAffinity"):
        of_kind = affinity.get(kind) or {}
        yield from of_kind.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in of_kind.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted["podAffinityTerm"]


def _fill_container(container: Object, name: str, *, are_amounts: bool) -> None:
    container.setdefault("image", "image")
    container["name"] = container.get("name") or name
    for port in container.get("ports") or ():
        port["protocol"] = port.get("protocol") or "TCP"
        port["containerPort"] = port.get("containerPort") or port.get("hostPort") or 1
    if are_amounts:
        for amounts in (container.get("resources") or {}).values():
            if isinstance(amounts, dict):
                amounts.update(_in_mib(amounts))


def _in_mib(amounts: Mapping[str, str]) -> dict[str, str]:
    return {
        name: f"{each}Mi" if name.startswith(_IN_BYTES) and each.isdigit() else each for name, each in amounts.items()
    }


def _object(given: Mapping[str, Any], kind: str, number: int) -> Object:
    made = copy.deepcopy(dict(given))
    meta = made.setdefault("metadata", {})
    if kind == "namespaces":
        meta["name"] = meta.get("name") or NAMESPACE
    if kind == "claims":
        meta["namespace"] = meta.get("namespace") or NAMESPACE
        if made.get("spec", {}).get("volumeName"):
            meta["annotations"] = {**(meta.get("annotations") or {}), names.BIND_COMPLETED: "yes"}
    meta.setdefault("uid", f"{kind}-{number}")
    return made


def _bind(claims: Sequence[Object], made: Object) -> None:
    """The plug-in of the row looks at claims, and not at volumes."""
    for number, claim in enumerate(claims):
        claim["metadata"]["annotations"] = {names.BIND_COMPLETED: "yes"}
        claim["spec"]["volumeName"] = f"volume-{number}"
        made.setdefault("volumes", []).append({"metadata": {"name": f"volume-{number}"}, "spec": {}})


def _namespaces(listed: Sequence[Object], pods: Sequence[Object]) -> list[Object]:
    known = {each["metadata"]["name"]: each for each in listed}
    for pod in pods:
        name = pod["metadata"]["namespace"]
        known.setdefault(name, {"metadata": {"name": name}})
    return list(known.values())
