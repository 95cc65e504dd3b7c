"""Several pods in one decision: each is held against the oracle as if those before it were bound.

So counts of pods are compared while a decision goes on: what it has placed counts at once, and what it has taken back,
as of a gang that does not fit, does not.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import placements
from tools.kubeoracle.comparing import better_than, differences
from tools.kubeoracle.drawing.snapshot import Drawn, draw_several
from tools.kubeoracle.ours import answer_of, cluster_of
from tools.kubeoracle.program import Oracle
from wire import names
from wire.core import Pod
from wire.crds.podgroup import PodGroup

_GANG = "gang"


@dataclass(slots=True)
class Sequence:
    """``placed``: how many pods. ``differences``: in what the answers differ."""

    placed: int = 0
    differences: list[str] = field(default_factory=list)


def run_sequence(oracle: Oracle, seed: int, *, count: int, is_gang: bool) -> Sequence:
    """Decide on some pods at once, alone or as a gang; hold each against the oracle, in the order of placing."""
    drawn, pods = draw_several(seed, count)
    made, found = cluster_of(drawn.question), Sequence()
    if is_gang:
        _put_gang(made, pods)
    for pod in pods:
        made.upsert_pod(msgspec.convert(pod, Pod))
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
    running = list(drawn.question["pods"])
    for placement in placements(made.decide(0).entries):
        pod = by_uid.pop(placement.pod_uid)
        (theirs,) = oracle.ask([{**drawn.question, "pods": running, "pod": pod}])
        if words := better_than(placement.node, theirs):
            found.differences.append(f"{placement.name}: {words}")
        if placement.node not in (theirs.feasible or ()):
            why = (theirs.why or {}).get(placement.node) or theirs.pre
            found.differences.append(f"{placement.name} is placed on {placement.node}: {why}")
        running.append(_bound(pod, placement.node))
        found.placed += 1
    for pod in running[len(drawn.question["pods"]) :]:
        made.upsert_pod(msgspec.convert(pod, Pod))
    for pod in by_uid.values():
        found.differences += _compare_alone(oracle, made, {**drawn.question, "pods": running}, pod)
    return found


def _put_gang(made: Cluster, pods: list[dict[str, Any]]) -> None:
    for pod in pods:
        pod["metadata"].update(namespace="n1", annotations={names.POD_GROUP_NAME: _GANG})
    meta = {"name": _GANG, "namespace": "n1", "uid": _GANG, "creationTimestamp": "2026-01-01T00:00:00Z"}
    made.upsert_pod_group(msgspec.convert({"metadata": meta, "spec": {"minMember": len(pods)}}, PodGroup))


def _bound(pod: Mapping[str, Any], node: str) -> dict[str, Any]:
    bound = copy.deepcopy(dict(pod))
    bound["spec"]["nodeName"], bound["metadata"]["resourceVersion"] = node, "2"
    return bound


def _compare_alone(oracle: Oracle, made: Cluster, question: Mapping[str, Any], pod: dict[str, Any]) -> list[str]:
    """Compare one that was not placed, as a pod of its own, with all others that wait out of the way."""
    alone = copy.deepcopy(pod)
    uid = f"{pod['metadata']['uid']}-alone"
    alone["metadata"].update(uid=uid, name=uid, annotations={})
    for record in made.waiting():
        made.remove_pod(record.uid)
    made.upsert_pod(msgspec.convert(alone, Pod))
    (theirs,) = oracle.ask([{**question, "pod": alone}])
    return [
        f"{pod['metadata']['name']}, which was not placed: {words}"
        for words in differences(Drawn(question, frozenset()), theirs, answer_of(made, uid))
        if not words.startswith("told: ")  # counts are brought up to date once a second
    ]
