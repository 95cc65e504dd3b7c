"""Why a node takes none of the groups that wait: its state, what is free, and what keeps each group's pods off it."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.explain.explain import EXCLUDED, explain
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import NodeReason, Verdict
from scheduler.core.snapshot.node_mask import only

#: Forms of pods that are looked at, those that most pods have first.
_MOST_CLASSES: Final = 200


class KeptOff(msgspec.Struct, frozen=True, gc=False):
    """Pods that wait and that this reason keeps off the node. A pod may have several."""

    reason: NodeReason
    pods: int


class NodeExplained(msgspec.Struct, frozen=True, kw_only=True):
    """``fits``: pods that fit here alone, though they wait. ``waiting``: in all; ``left_out``: not looked at."""

    node: NodeRecord
    waiting: int
    fits: int
    kept_off: tuple[KeptOff, ...]
    left_out: int = 0


def node_explained(snapshot: Snapshot, name: str, now_ns: int) -> NodeExplained | None:
    """Explain a node; None if it is not there."""
    row = snapshot.ledger.row_of.get(name)
    node = None if row is None else snapshot.ledger.nodes[row]
    if node is None:
        return None
    unbound = map(snapshot.pods.records.__getitem__, snapshot.pods.unbound)
    waiting = Counter(snapshot.judged(pod, now_ns).cls for pod in unbound if not (pod.gated or pod.deleting))
    placer = Placer(snapshot)
    kept: Counter[tuple[str, str]] = Counter()
    fits = 0
    looked_at = waiting.most_common(_MOST_CLASSES)
    for cls, pods in looked_at:
        reasons = _reasons(placer, name, cls, snapshot.settings)
        fits += 0 if reasons else pods
        for reason in reasons:
            kept[reason.kind, reason.resource] += pods
    found = [KeptOff(NodeReason(kind, resource, 1), pods) for (kind, resource), pods in kept.items()]
    return NodeExplained(
        node=node,
        waiting=waiting.total(),
        fits=fits,
        kept_off=tuple(sorted(found, key=lambda each: (-each.pods, each.reason))),
        left_out=waiting.total() - sum(pods for _, pods in looked_at),
    )


def _reasons(placer: Placer, name: str, cls: PodClass, settings: Settings) -> list[NodeReason]:
    """What keeps a pod of a class off this node, by the first of its ways that may be here at all."""
    statement = placer.statement
    position = statement.position_of[name]
    first: list[NodeReason] = []
    for way in placer.ways(cls):
        ranking = placer.ranking(way)
        judged = ranking.eligible[position]
        if judged != OK:
            found = [NodeReason(kind, "", 1) for kind, number in statement.filters.numbers.items() if number == judged]
        elif ranking.fitting(only([name], statement.position_of)):
            return []
        else:
            found = _lacks(placer, name, way, settings)
        first = first or found
    return first


def _lacks(placer: Placer, name: str, cls: PodClass, settings: Settings) -> list[NodeReason]:
    statement = placer.statement
    mask = only([name], statement.position_of)
    verdict: Verdict = explain(statement, placer.ranking(cls), cls, settings=settings, mask=mask)
    out = {*statement.filters.numbers, EXCLUDED}
    return [reason for reason in verdict.node_reasons if reason.kind not in out]
