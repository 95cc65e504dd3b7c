"""Rows of upstream's test tables, the snapshots made of them, and how Moorage's answers to them differ.

A row is about one plug-in, and leaves out what an API server fills in: names, UIDs, containers, defaults. So nodes are
ready and, but for rows about amounts, large. Amounts of memory are small numbers of bytes in the rows, and are taken as
MiB here: Moorage counts in these, and no answer depends on the unit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from tools.kubeoracle.comparing import is_same
from tools.kubeoracle.ours import Ours, answer
from tools.kubeoracle.program import Reason
from wire import names

#: Answers by which a node is out.
REJECTED: Final = frozenset({"Unschedulable", "UnschedulableAndUnresolvable"})


class Placed(msgspec.Struct, frozen=True):
    """A node, and the pods on it."""

    node: dict[str, Any] | None
    pods: tuple[dict[str, Any], ...] | None = None


class Call(msgspec.Struct, frozen=True):
    """A line: what one method of a plug-in was asked, and said. ``names``: nodes that are left, or that are scored."""

    test: str
    row: int
    name: str
    method: str
    code: str
    options: dict[str, Any] = {}
    pod: dict[str, Any] = {}
    world: tuple[Placed, ...] = ()
    objects: dict[str, list[dict[str, Any]]] = {}
    on: Placed | None = None
    reasons: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    score: int | None = None
    scores: dict[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of upstream's. ``world``: all nodes. ``failed``: the plug-in said that it can't answer."""

    package: str
    test: str
    name: str
    pod: dict[str, Any]
    world: Sequence[Placed]
    objects: dict[str, list[dict[str, Any]]]
    options: dict[str, Any] = field(default_factory=dict)
    failed: bool = False

    @property
    def label(self) -> str:
        """``package/Test/name``, as the list of cases that are left out names it."""
        return f"{self.package}/{self.test}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Question):
    """A filtering question, with the answer of each node: None where the pod is let in."""

    wanted: Sequence[Reason | None]


def rows(folder: Path) -> list[Row]:
    """All filtering questions of the packages of a folder, in order."""
    return [row for path in sorted(folder.glob("*.jsonl")) for row in _rows_of(path)]


def _rows_of(path: Path) -> Iterator[Row]:
    lines = path.read_bytes().splitlines()
    calls = msgspec.json.Decoder(Call)
    for _, row in groupby(map(calls.decode, lines), key=lambda call: call.row):
        for asked in questions([call for call in row if call.method in {"PreFilter", "Filter"}], _begins):
            if made := _row(path.stem, asked):
                yield made


def _begins(first: Call, call: Call) -> bool:
    """A PreFilter begins a question; without one each Filter is a question."""
    return call.method == "PreFilter" or first.method == "Filter"


def questions(calls: Sequence[Call], begins: Callable[[Call, Call], bool]) -> Iterator[list[Call]]:
    """Split calls into questions. ``begins``: whether a call begins one, with the first call of the one before."""
    begun: list[Call] = []
    for call in calls:
        if begun and begins(begun[0], call):
            yield begun
            begun = []
        begun.append(call)
    if begun:
        yield begun


def _row(package: str, asked: Sequence[Call]) -> Row | None:
    """None where nothing is said of a node: tests of what a plug-in remembers between its methods."""
    first, filters = asked[0], [call for call in asked if call.method == "Filter"]
    world = [*first.world] or [call.on for call in filters if call.on is not None]
    judged = {_name(call.on): call for call in filters}
    wanted: list[Reason | None]
    if first.method == "PreFilter" and first.code in REJECTED:
        wanted = [_reason(package, first)] * max(1, len(world))
    elif first.method == "PreFilter" and first.code == "Skip":
        wanted = [None] * max(1, len(world))
    elif filters:
        names = {*first.names} if first.method == "PreFilter" else set()
        asked_of = [call.on for call in filters if call.on is not None]
        world = [place for place in world if _name(place) in judged or names] or asked_of
        wanted = [_said(package, judged.get(_name(place)), first) for place in world]
    elif first.code != "Error":
        return None
    else:
        wanted = []
    return Row(
        package=package,
        test=first.test,
        name=first.name,
        pod=first.pod,
        world=world,
        wanted=wanted,
        objects=first.objects,
        options=first.options,
        failed=any(call.code == "Error" for call in asked),
    )


def _said(package: str, call: Call | None, first: Call) -> Reason | None:
    """What is said of a node; of one that was not asked about, that PreFilter left it out."""
    if call is None or (first.names and _name(call.on) not in first.names):
        return Reason("PreFilter")
    return _reason(package, call) if call.code in REJECTED else None


def _reason(package: str, call: Call) -> Reason:
    return Reason(PLUGINS[package], call.reasons)


def _name(place: Placed | None) -> str:
    return "" if place is None or place.node is None else str(place.node["metadata"].get("name", ""))


#: Package -> the plug-in in it that filters.
PLUGINS: Final = {
    "interpodaffinity": "InterPodAffinity",
    "nodeaffinity": "NodeAffinity",
    "nodedeclaredfeatures": "NodeDeclaredFeatures",
    "nodename": "NodeName",
    "nodeports": "NodePorts",
    "noderesources": "NodeResourcesFit",
    "nodeunschedulable": "NodeUnschedulable",
    "nodevolumelimits": "NodeVolumeLimits",
    "podtopologyspread": "PodTopologySpread",
    "tainttoleration": "TaintToleration",
    "volumebinding": "VolumeBinding",
    "volumerestrictions": "VolumeRestrictions",
    "volumezone": "VolumeZone",
}


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


#: Reasons of other plug-ins than the row's, which may keep a node out beside what the row is about.
_BESIDE: Final = {"podtopologyspread": frozenset({"taint", "cordoned", "affinity", "selector"})}


def differences(row: Row, answering: Callable[[dict[str, Any]], Ours] = answer) -> Iterator[str]:
    """In what Moorage's answer differs from the row's, in words; nothing where they are the same."""
    ours = answering(question(row))
    if ours.blocker and any(wanted is None for wanted in row.wanted):
        yield f"ours waits: {ours.blocker}"
    if ours.blocker:
        return
    for name, wanted in zip(node_names(row), row.wanted, strict=True):
        why = ours.why.get(name, frozenset())
        if wanted is None and name not in ours.feasible and not (why and why <= _BESIDE.get(row.package, frozenset())):
            yield f"{name}: theirs lets it in, ours says {sorted(why)}"
        if wanted is not None and name in ours.feasible:
            yield f"{name}: theirs says {wanted.reasons}, ours lets it in"
        elif wanted is not None and not is_same(wanted, why) and not why & _BESIDE.get(row.package, frozenset()):
            yield f"{name}: theirs says {wanted.plugin} {wanted.reasons}, ours {sorted(why)}"
