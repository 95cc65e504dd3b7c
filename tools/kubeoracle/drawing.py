"""Random snapshots: few nodes, few values of labels, so that ties and edges are common.

Each part of a pod is drawn by a function that says by name what it asks (``features``): the comparison then knows
which rules were asked, and holds that each of them let nodes in and kept nodes out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools.kubeoracle import (
    drawing_amounts,
    drawing_disks,
    drawing_features,
    drawing_labels,
    drawing_preferences,
    drawing_volumes,
)
from wire import names

NAMESPACES: Final = {"n1": "x", "n2": "y", "n3": "x"}
#: The most kinds of things that the waiting pod asks, so that some nodes are left.
_MOST_ASKED: Final = 2
#: The part of snapshots with node affinity that all pods ask: each takes plug-ins of its own, as those with volumes.
_ENFORCED: Final = 0.03
#: One of this many pods asks nothing, so that it prefers some of many nodes.
_EASY: Final = 4
#: What is asked of each pod.
_ALWAYS: Final = frozenset({"others' anti-affinity", "cordon", "taints"})


@dataclass(frozen=True, slots=True)
class Drawn:
    """A snapshot, and what its pod asks and prefers by name."""

    question: Mapping[str, Any]
    features: frozenset[str]
    preferences: frozenset[str] = frozenset()


#: What a waiting pod may ask, each by its own function: it writes into the spec and returns names of features.
ASKS: Final[Mapping[str, Callable[[random.Random, dict[str, Any]], set[str]]]] = {
    "tolerations": drawing_labels.tolerations,
    "selector": drawing_labels.selector,
    "node affinity": drawing_labels.node_affinity,
    "pod affinity": drawing_labels.pod_affinity,
    "pod anti-affinity": drawing_labels.anti_affinity,
    "spread": drawing_labels.spread,
    "host ports": drawing_labels.host_ports,
    "disks": drawing_disks.disks,
    "features": drawing_features.features,
}


def draw(seed: int) -> Drawn:
    """The snapshot of this number, always the same."""
    r = random.Random(seed)  # noqa: S311 - nothing here is secret
    nodes = [_node(r, i) for i in range(r.randint(2, 8))]
    pods = [_running(r, i, nodes) for i in range(r.randint(0, 8))]
    pod, features = _waiting(r)
    is_easy = seed % _EASY == 0
    if is_easy:
        pod["spec"], features = {"schedulerName": names.SCHEDULER_NAME, **drawing_amounts.nothing()}, set(_ALWAYS)
    question: dict[str, Any] = {
        "nodes": nodes,
        "pods": pods,
        "namespaces": [{"metadata": {"name": n, "labels": {"team": team}}} for n, team in NAMESPACES.items()],
        "pod": pod,
    }
    if r.random() < drawing_volumes.SHARE and not is_easy:
        features |= drawing_volumes.add(r, question)
    if r.random() < _ENFORCED:
        question["addedAffinity"] = drawing_labels.added_affinity(r)
        features.add("enforced affinity")
    features |= {name for each in pods for name in drawing_amounts.resizes(each)}
    preferences = drawing_preferences.add(_preferring(seed), question)
    return Drawn({**question, "scores": True}, frozenset(features), frozenset(preferences))


def _preferring(seed: int) -> random.Random:
    """Numbers of their own, so that what is drawn beside preferences is the same without them."""
    return random.Random(f"preferences of {seed}")  # noqa: S311 - nothing here is secret


def draw_several(seed: int, count: int) -> tuple[Drawn, list[dict[str, Any]]]:
    """A snapshot, and pods that wait in it beside its own."""
    r = random.Random(seed)  # noqa: S311 - nothing here is secret
    pods, preferring = [_waiting(r, f"new-{number}")[0] for number in range(count)], _preferring(seed)
    for pod in pods:
        drawing_preferences.waiting(preferring, pod)
    return draw(seed), pods


def _node(r: random.Random, number: int) -> dict[str, Any]:
    name = f"node-{number}"
    unschedulable = {"unschedulable": True} if r.random() < 0.1 else {}
    return {
        "metadata": {"name": name, "uid": f"u{number}", "labels": drawing_labels.of_node(r, name)},
        "spec": {"taints": drawing_labels.taints(r), **unschedulable},
        "status": {
            "allocatable": drawing_amounts.allocatable(r),
            "conditions": [{"type": "Ready", "status": "True"}],
            "declaredFeatures": drawing_features.of_node(r),
        },
    }


def _pod(r: random.Random, name: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": r.choice(("n1", "n2")),
            "uid": name,
            "labels": drawing_labels.of_pod(r),
            "resourceVersion": "1",
        },
        "spec": {"schedulerName": names.SCHEDULER_NAME, **spec},
        "status": status,
    }


def _running(r: random.Random, number: int, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    spec = drawing_amounts.containers(r)
    if r.random() < 0.3:
        drawing_labels.anti_affinity(r, spec)
    if r.random() < 0.2:
        drawing_labels.host_ports(r, spec)
    if r.random() < 0.8:
        drawing_disks.disks(r, spec)
    pod = _pod(r, f"p{number}", spec, drawing_amounts.running_status(r, spec))
    pod["metadata"]["namespace"] = r.choice(tuple(NAMESPACES))
    pod["spec"]["nodeName"] = r.choice(nodes)["metadata"]["name"]
    if r.random() < 0.1:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if r.random() < 0.3:
        pod["spec"]["schedulerName"] = "default-scheduler"
    return pod


def _waiting(r: random.Random, name: str = "new") -> tuple[dict[str, Any], set[str]]:
    spec = drawing_amounts.containers(r)
    features = drawing_amounts.asked(spec) | _ALWAYS
    for kind in r.sample(sorted(ASKS), r.randint(0, _MOST_ASKED)):
        features |= ASKS[kind](r, spec)
    return _pod(r, name, spec, {"phase": "Pending"}), features
