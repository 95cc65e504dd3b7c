"""Random snapshots: few nodes, few values of labels, so that ties and edges are common.

The comparison knows by name what the pod asks and prefers, and holds that each rule let nodes in and kept nodes out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools.kubeoracle.drawing import amounts, rules
from tools.kubeoracle.drawing.preferences import add_preferences, prefer
from tools.kubeoracle.drawing.volumes import add_volumes
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
#: The part of snapshots with volumes: each takes the oracle caches of its own, which cost ten times as much as the
#: rest.
_WITH_VOLUMES: Final = 0.08


@dataclass(frozen=True, slots=True)
class Drawn:
    """A snapshot, and what its pod asks and prefers by name."""

    question: Mapping[str, Any]
    features: frozenset[str]
    preferences: frozenset[str] = frozenset()


def draw(seed: int) -> Drawn:
    """The snapshot of this number, always the same."""
    r = random.Random(seed)
    nodes = [_node(r, i) for i in range(r.randint(2, 8))]
    pods = [_running(r, i, nodes) for i in range(r.randint(0, 8))]
    pod, features = _waiting(r)
    is_easy = seed % _EASY == 0
    if is_easy:
        pod["spec"], features = {"schedulerName": names.SCHEDULER_NAME, **amounts.nothing()}, set(_ALWAYS)
    question: dict[str, Any] = {
        "nodes": nodes,
        "pods": pods,
        "namespaces": [{"metadata": {"name": n, "labels": {"team": team}}} for n, team in NAMESPACES.items()],
        "pod": pod,
    }
    if r.random() < _WITH_VOLUMES and not is_easy:
        features |= add_volumes(r, question)
    if r.random() < _ENFORCED:
        question["addedAffinity"] = rules.added_affinity(r)
        features.add("enforced affinity")
    features |= {name for each in pods for name in amounts.resizes(each)}
    preferences = add_preferences(_preferring(seed), question)
    return Drawn({**question, "scores": True}, frozenset(features), frozenset(preferences))


def _preferring(seed: int) -> random.Random:
    """Numbers of their own, so that what is drawn beside preferences is the same without them."""
    return random.Random(f"preferences of {seed}")


def draw_several(seed: int, count: int) -> tuple[Drawn, list[dict[str, Any]]]:
    """A snapshot, and pods that wait in it beside its own."""
    r = random.Random(seed)
    pods, preferring = [_waiting(r, f"new-{number}")[0] for number in range(count)], _preferring(seed)
    for pod in pods:
        prefer(preferring, pod)
    return draw(seed), pods


def _node(r: random.Random, number: int) -> dict[str, Any]:
    name = f"node-{number}"
    unschedulable = {"unschedulable": True} if r.random() < 0.1 else {}
    return {
        "metadata": {"name": name, "uid": f"u{number}", "labels": rules.node_labels(r, name)},
        "spec": {"taints": rules.taints(r), **unschedulable},
        "status": {
            "allocatable": amounts.allocatable(r),
            "conditions": [{"type": "Ready", "status": "True"}],
            "declaredFeatures": amounts.node_features(r),
        },
    }


def _pod(r: random.Random, name: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": r.choice(("n1", "n2")),
            "uid": name,
            "labels": rules.of_pod(r),
            "resourceVersion": "1",
        },
        "spec": {"schedulerName": names.SCHEDULER_NAME, **spec},
        "status": status,
    }


def _running(r: random.Random, number: int, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    spec = amounts.containers(r)
    if r.random() < 0.3:
        rules.anti_affinity(r, spec)
    if r.random() < 0.2:
        rules.host_ports(r, spec)
    if r.random() < 0.8:
        rules.disks(r, spec)
    pod = _pod(r, f"p{number}", spec, amounts.running_status(r, spec))
    pod["metadata"]["namespace"] = r.choice(tuple(NAMESPACES))
    pod["spec"]["nodeName"] = r.choice(nodes)["metadata"]["name"]
    if r.random() < 0.1:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if r.random() < 0.3:
        pod["spec"]["schedulerName"] = "default-scheduler"
    return pod


def _waiting(r: random.Random, name: str = "new") -> tuple[dict[str, Any], set[str]]:
    spec = amounts.containers(r)
    features = amounts.asked(spec) | _ALWAYS
    for kind in r.sample(sorted(rules.ASKS), r.randint(0, _MOST_ASKED)):
        features |= rules.ASKS[kind](r, spec)
    return _pod(r, name, spec, {"phase": "Pending"}), features
