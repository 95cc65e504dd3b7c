"""What pods prefer, drawn onto a snapshot that has everything else: nodes and reasons are compared as without."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from tools.kubeoracle.drawing.amounts import Spec
from tools.kubeoracle.drawing.rules import KEYS, REQUIRED, pod_term, preferred_node_term, spread_constraint

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SOFT_TAINTS: Final = (
    {"key": "p", "value": "", "effect": "PreferNoSchedule"},
    {"key": "q", "value": "1", "effect": "PreferNoSchedule"},
    {"key": "q", "value": "2", "effect": "PreferNoSchedule"},
)
_PREFER_TOLERATIONS: Final = (
    {"key": "p", "operator": "Exists", "effect": "PreferNoSchedule"},
    {"key": "q", "operator": "Equal", "value": "1", "effect": "PreferNoSchedule"},
    {"key": "q", "value": "2", "effect": "PreferNoSchedule"},
    {"operator": "Exists", "effect": "PreferNoSchedule"},
    {"key": "q", "operator": "Exists", "effect": "NoExecute"},
)
_IMAGES: Final = ("i", "registry:5000/a", "docker.io/b:1", "c@sha256:aa")
_MIB: Final = 1024 * 1024
#: Weights that are alike, and far apart.
_WEIGHTS: Final = (1, 2, 10, 50, 100)


def add_preferences(r: random.Random, question: Spec) -> set[str]:
    """Give nodes, running pods and the waiting pod what preferences read."""
    for node in question["nodes"]:
        _prefer_not(r, node)
        node["status"]["images"] = _there(r)
    for pod in question["pods"]:
        if r.random() < 0.4:
            _running_preferring(r, pod["spec"])
    return prefer(r, question["pod"])


def prefer(r: random.Random, pod: Spec) -> set[str]:
    """Give a pod that waits some preferences."""
    features: set[str] = set()
    for kind in r.sample(sorted(KINDS), r.choice((0, 1, 1, 2, 3))):
        KINDS[kind](r, pod["spec"])
        features.add(kind)
    return features


def _prefer_not(r: random.Random, node: Spec) -> None:
    hard = [each for each in node["spec"]["taints"] if each["effect"] != "PreferNoSchedule"]
    soft = {taint["key"]: dict(taint) for taint in _SOFT_TAINTS if r.random() < 0.2}  # a node has one of a key
    node["spec"]["taints"] = [*hard, *soft.values()]


def _there(r: random.Random) -> list[Spec]:
    found = [image for image in _IMAGES if r.random() < 0.4]
    listed = (image if "@" in image or image.rfind(":") > image.rfind("/") else f"{image}:latest" for image in found)
    return [{"names": [name, f"{name}-too"], "sizeBytes": r.randint(1, 3000) * _MIB // 2} for name in listed]


def _running_preferring(r: random.Random, spec: Spec) -> None:
    kinds = r.sample((_prefer_pods, _prefer_no_pods, _require_pods), r.randint(1, 2))
    for kind in kinds:
        kind(r, spec)


def _terms(r: random.Random) -> list[Spec]:
    terms = [{"weight": r.choice(_WEIGHTS), "podAffinityTerm": pod_term(r)} for _ in range(r.randint(1, 2))]
    return [*terms, dict(terms[0])] if r.random() < 0.1 else terms


def _prefer_pods(r: random.Random, spec: Spec) -> None:
    spec.setdefault("affinity", {}).setdefault("podAffinity", {})[_PREFERRED] = _terms(r)


def _prefer_no_pods(r: random.Random, spec: Spec) -> None:
    spec.setdefault("affinity", {}).setdefault("podAntiAffinity", {})[_PREFERRED] = _terms(r)


def _require_pods(r: random.Random, spec: Spec) -> None:
    spec.setdefault("affinity", {}).setdefault("podAffinity", {})[REQUIRED] = [pod_term(r)]


def _prefer_nodes(r: random.Random, spec: Spec) -> None:
    drawn = [{"weight": r.choice(_WEIGHTS), "preference": preferred_node_term(r)} for _ in range(r.randint(1, 3))]
    spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})[_PREFERRED] = drawn


def _tolerate(r: random.Random, spec: Spec) -> None:
    spec["tolerations"] = [*spec.get("tolerations", ()), *(dict(each) for each in r.sample(_PREFER_TOLERATIONS, 2))]


def _spread(r: random.Random, spec: Spec) -> None:
    keys = r.sample(KEYS, r.randint(1, 3))
    soft = [{**spread_constraint(r, key), "whenUnsatisfiable": "ScheduleAnyway"} for key in keys]
    for each in soft:
        each.pop("minDomains", None)
    hard = [each for each in spec.get("topologySpreadConstraints", ()) if each["whenUnsatisfiable"] == "DoNotSchedule"]
    spec["topologySpreadConstraints"] = [*hard, *soft]


def _name_images(r: random.Random, spec: Spec) -> None:
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["image"] = r.choice(_IMAGES)
    if r.random() < 0.3:
        volume = {"name": "image", "image": {"reference": r.choice(_IMAGES), "pullPolicy": "IfNotPresent"}}
        spec["volumes"] = [*spec.get("volumes", ()), volume]


#: Kinds of preferences of a waiting pod, each by its own function: it writes into the spec.
KINDS: Final[Mapping[str, Callable[[random.Random, Spec], None]]] = {
    "preferred node affinity": _prefer_nodes,
    "preferred pod affinity": _prefer_pods,
    "preferred pod anti-affinity": _prefer_no_pods,
    "soft spread": _spread,
    "tolerated PreferNoSchedule": _tolerate,
    "images": _name_images,
}
