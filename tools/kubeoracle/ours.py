"""Moorage's own answer to a snapshot: of each node by its ranking and its reasons, and what a decision makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from scheduler.core.cluster import Cluster
from scheduler.core.convert import constraints, selectors, volumes
from scheduler.core.decide.placer import Placer
from scheduler.core.devices.device_fit import NOWHERE
from scheduler.core.explain.explain import EXCLUDED, explain
from scheduler.core.filters.registry import FILTERS, OK, Filters
from scheduler.core.model.plan import Explain, placements
from scheduler.core.model.pod_class import Weights
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from tools.kubeoracle.program import Question
from wire.core import Namespace, Node, NodeSelector, Pod
from wire.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment

#: Of each preference, by its name: of each node.
ByPreference = Mapping[str, Mapping[str, int]]
#: How points are asked for: a snapshot, the nodes that are to have some, settings.
Scoring = Callable[[Question, frozenset[str], Settings], ByPreference]
#: All preferences count, as they do for kube-scheduler by default.
SETTINGS: Final = Settings(weights=Weights(images=1))


@dataclass(frozen=True, slots=True)
class Ours:
    """Each node is feasible or has kinds of reasons. ``blocker``: why the pod waits on any nodes.

    ``scores``: of each preference that the pod has, by its name: of each feasible node, times its weight.
    ``chosen``: the node that a decision places it on, "" for none; ``told``: its counts of reasons, by kind.
    """

    feasible: frozenset[str]
    why: Mapping[str, frozenset[str]]
    blocker: str = ""
    chosen: str = ""
    told: Mapping[str, int] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def cluster_of(question: Question, filters: Filters = FILTERS, settings: Settings = SETTINGS) -> Cluster:
    """A cluster that has seen a snapshot, without its pod."""
    made = Cluster(_with_added(question, settings), filters)
    for node in _read(question, "nodes", Node):
        made.upsert_node(node)
    made.others.namespaces.replace(map(selectors.namespace_record, _read(question, "namespaces", Namespace)))
    storage = made.storage
    storage.claims.replace(map(volumes.claim_record, _read(question, "claims", PersistentVolumeClaim)))
    storage.volumes.replace(map(volumes.volume_record, _read(question, "volumes", PersistentVolume)))
    storage.classes.replace(map(volumes.storage_class_record, _read(question, "classes", StorageClass)))
    storage.attachments.attached.replace(
        map(volumes.attachment_record, _read(question, "attachments", VolumeAttachment))
    )
    storage.attachments.limits.replace(map(volumes.limits_record, _read(question, "csiNodes", CSINode)))
    for pod in _read(question, "pods", Pod):
        made.upsert_pod(pod)
    return made


def _with_added(question: Question, settings: Settings) -> Settings:
    added = question.get("addedAffinity")
    if added is None:
        return settings
    required = added["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = constraints.terms(msgspec.convert(required, NodeSelector))
    return msgspec.structs.replace(settings, enforced_node_affinity=terms)


def answer(question: Question, filters: Filters = FILTERS, settings: Settings = SETTINGS) -> Ours:
    """What Moorage says of a snapshot."""
    made = cluster_of(question, filters, settings)
    made.upsert_pod(msgspec.convert(question["pod"], Pod))
    return answer_of(made, question["pod"]["metadata"]["uid"])


def answer_of(made: Cluster, uid: str) -> Ours:
    """What a cluster says of a pod that waits in it."""
    record = made.pod(uid)
    if record is None:
        raise LookupError(f"the pod {uid} waits for nobody")
    snapshot = made.snapshot()
    pod = snapshot.judged(record, 0)
    if pod.blocker is not None:
        return Ours(frozenset(), {}, blocker=f"{pod.blocker.code.value}: {pod.blocker.detail}")
    placer = Placer(snapshot)
    feasible, why = _by_node(placer, pod)
    scores = _scores(placer, pod, feasible)
    plan = made.decide(0)
    told = [entry.verdict for entry in plan.entries if isinstance(entry, Explain) and uid in entry.pods]
    counts = {
        f"{reason.kind} {reason.resource}".strip(): reason.nodes for verdict in told for reason in verdict.node_reasons
    }
    chosen = next((placed.node for placed in placements(plan.entries) if placed.pod_uid == uid), "")
    return Ours(feasible, why, chosen=chosen, told=counts, scores=scores)


def scores_among(question: Question, among: frozenset[str], settings: Settings = SETTINGS) -> ByPreference:
    """Points of each preference that the pod has, of some nodes, as if these were the ones that fit."""
    made = cluster_of(question, settings=settings)
    made.upsert_pod(msgspec.convert(question["pod"], Pod))
    record = made.pod(question["pod"]["metadata"]["uid"])
    if record is None:
        raise LookupError("the pod of the question waits for nobody")
    snapshot = made.snapshot()
    return _scores(Placer(snapshot), snapshot.judged(record, 0), among)


def _scores(placer: Placer, pod: PodRecord, feasible: frozenset[str]) -> ByPreference:
    preferred, names = placer.ranking(pod.cls).preferred, [node.name for node in placer.statement.nodes]
    if preferred is None or not feasible:
        return {}
    fits = np.array([name in feasible for name in names])
    columns = preferred.by_preference(fits).items()
    return {kind: {n: int(score) for n, score in zip(names, of, strict=True) if n in feasible} for kind, of in columns}


def _by_node(placer: Placer, pod: PodRecord) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    ranking, statement = placer.ranking(pod.cls), placer.statement
    eligible = ranking.eligible
    fits = (ranking.keys != NOWHERE) & (eligible == OK)
    kinds = {number: kind for kind, number in statement.filters.numbers.items()}
    why: dict[str, frozenset[str]] = {}
    for position, node in enumerate(statement.nodes):
        judged = int(eligible[position])
        if judged != OK:
            why[node.name] = frozenset((kinds[judged],))
        elif not fits[position]:
            alone = np.zeros(len(statement.nodes), np.bool_)
            alone[position] = True
            verdict = explain(statement, ranking, pod.cls, settings=SETTINGS, mask=alone)
            lacks = (reason for reason in verdict.node_reasons if reason.kind not in {*kinds.values(), EXCLUDED})
            why[node.name] = frozenset(f"{reason.kind} {reason.resource}".strip() for reason in lacks)
    feasible = frozenset(node.name for position, node in enumerate(statement.nodes) if fits[position])
    return feasible, why


def _read(question: Question, of: str, kind: Callable[..., Any]) -> list[Any]:
    return [msgspec.convert(each, kind) for each in question.get(of, ())]
