"""L6: nobody is evicted in vain. Who had others evicted runs soon after its intent has left the record.

An intent may end without that where something has happened since it was written: to its holders or their gang, to
a node of its places, to a queue; somebody was bound there while it stood; a victim is there still; or a holder was on
its way, and failed. All of that is seen by the checker itself. What is left is an intent that was dropped for nothing.

Claims of a holder may fail to be bound once its place is free. That explains an intent, and no other one of that holder
within the minutes after it: a claim that failed has nobody evicted again for a while.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from simulator.checks.counting import NodeFacts
from simulator.checks.standing import Record, Standing
from simulator.facts import Json, PodFacts
from simulator.violations import Findings
from wire import names

#: So long after its intent has left the record a holder runs, or something is seen that explains why it doesn't.
SERVED_S: Final = 120.0
#: Between two intents that end since claims of their holders failed: the pause is 300 s, and an end is written late.
CLAIM_PAUSE_S: Final = 200.0

_Group = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Served:
    """An intent. ``since_s``: when it was written; ``has_evicted``: somebody was evicted for it."""

    standing: Standing
    since_s: float
    until_s: float = math.inf
    has_evicted: bool = False


@dataclass(slots=True, eq=False)
class InVain:
    """``nodes``: as the checker has them. ``late_s``: by how much who decides may be late at a time."""

    findings: Findings
    record: Record
    nodes: Mapping[str, NodeFacts]
    late_s: Callable[[float], float]
    #: Intents by id: those that stand, and those that are not judged yet, as evictions are told late.
    _served: dict[tuple[str, str], _Served] = field(default_factory=dict)
    _open: deque[_Served] = field(default_factory=deque)
    #: When something last happened: to a node, on a node, to a pod (UID) or a group, to any queue.
    _node_s: dict[str, float] = field(default_factory=dict)
    _bound_s: dict[str, list[float]] = field(default_factory=dict)
    _pod_s: dict[str, float] = field(default_factory=dict)
    _group_s: dict[_Group, float] = field(default_factory=dict)
    _queue_s: float = -math.inf
    #: When the last pod of a group, or the group itself, was first shown: that it is new explains nothing before.
    _joined_s: dict[_Group, float] = field(default_factory=dict)
    #: Of queues (without a namespace) and PodGroups, with their node pool, as they were shown last.
    _specs: dict[_Group, tuple[Json, str] | None] = field(default_factory=dict)
    #: When a pod (by namespace and name) was handed over to the binder, or that was over.
    _request_s: dict[tuple[str, str], float] = field(default_factory=dict)
    #: When an intent of a pod (UID) with claims was over last, and nothing else explained why.
    _claims_s: dict[str, float] = field(default_factory=dict)

    # --- what happens ------------------------------------------------------------------------------------------------
    def recorded(self, at_s: float) -> None:
        """The record has changed."""
        there = {each.intent.key: each for each in self.record.standing}
        for key, standing in there.items():
            known = self._served.get(key)
            if known is None or known.until_s <= at_s:
                self._served[key] = _Served(standing, at_s)
            else:
                known.standing = standing
        for key, served in self._served.items():
            if key not in there and served.until_s > at_s:
                served.until_s = at_s
                self._open.append(served)

    def evicted(self, standing: Standing) -> None:
        """Somebody was evicted for an intent that stands, or stood a moment ago."""
        if (served := self._served.get(standing.intent.key)) is not None:
            served.has_evicted = True

    def node(self, name: str, known: NodeFacts | None, at_s: float) -> None:
        """A node was shown. ``known``: as it was before."""
        if self.nodes.get(name) != known:
            self._node_s[name] = at_s

    def queue(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """A queue was shown, or is gone."""
        if self._is_news("", raw, is_gone=is_gone):
            self._queue_s = at_s

    def pod_group(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """A PodGroup was shown, or is gone."""
        key = raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
        is_new = key not in self._specs
        if self._is_news(key[0], raw, is_gone=is_gone):
            (self._joined_s if is_new else self._group_s)[key] = at_s

    def _is_news(self, namespace: str, raw: Json, *, is_gone: bool) -> bool:
        """Whether its spec or its node pool is another one: what we say in its status ourselves explains nothing."""
        key = namespace, raw["metadata"]["name"]
        pool = str((raw["metadata"].get("labels") or {}).get(names.NODE_POOL_LABEL) or "")
        spec = None if is_gone else (raw.get("spec") or {}, pool)
        is_news = key not in self._specs or self._specs[key] != spec
        self._specs[key] = spec
        return is_news

    def pod(self, known: PodFacts | None, pod: PodFacts, at_s: float, *, is_there: bool, is_bound: bool) -> None:
        """A pod was shown. ``known``: as it was before; ``is_bound``: it has come to its node by this."""
        is_over = not is_there or pod.deleting or pod.has_ended
        if is_over or (known is not None and _words(known) != _words(pod)):
            self._pod_s[pod.uid] = at_s
            if pod.pod_group:
                self._group_s[pod.namespace, pod.pod_group] = at_s
        elif known is None and pod.pod_group:
            self._joined_s[pod.namespace, pod.pod_group] = at_s
        if is_bound or (known is None and pod.node):
            self._bound_s.setdefault(pod.node, []).append(at_s)

    def request(self, key: tuple[str, str], at_s: float) -> None:
        """Somebody is handed over to the binder: by namespace and name."""
        self._request_s[key] = at_s

    # --- judging -----------------------------------------------------------------------------------------------------
    def judge(self, now_s: float, *, is_end: bool = False) -> None:
        """Judge intents that have left the record long enough ago; what is too young at the end is not judged."""
        while self._open and self._open[0].until_s + SERVED_S <= now_s:
            one = self._open.popleft()
            if self._served.get(one.standing.intent.key) is one:
                del self._served[one.standing.intent.key]
            if one.has_evicted:
                self._judge(one)
        if is_end:
            self._open.clear()

    def _judge(self, one: _Served) -> None:
        self.findings.judged.add("L6")
        holders = [self.record.pods.get(uid) for uid in one.standing.intent.holders]
        if any(pod is None or pod.node for pod in holders) or self._is_explained(one, holders):
            return
        who = ", ".join(sorted(map(self.record.key, one.standing.intent.holders)))
        text = f"pods were evicted for {who}, which waits though nothing happened to it, its queue, or its node"
        self.findings.add("L6", one.until_s, text)

    def _is_explained(self, one: _Served, holders: Iterable[PodFacts | None]) -> bool:
        """Whether something has happened since the intent stood, or shortly before, by which it may have ended."""
        since_s = one.since_s - self.late_s(one.since_s)
        if self._queue_s >= since_s:
            return True
        for pod in holders:
            if pod is None or self._pod_s.get(pod.uid, -math.inf) >= since_s or pod.uid not in self.record.live:
                return True
            if self._request_s.get((pod.namespace, pod.name), -math.inf) >= since_s:
                return True
            group = pod.namespace, pod.pod_group
            if self._group_s.get(group, -math.inf) >= since_s or self._joined_s.get(group, -math.inf) > one.since_s:
                return True
        if any(self._is_touched(place.node, since_s, one.until_s) for place in one.standing.intent.places):
            return True
        return any(self._stays(victim.uid) for victim in one.standing.intent.victims) or self._may_claims_fail(one)

    def _may_claims_fail(self, one: _Served) -> bool:
        """Whether claims of a holder may have failed, and none of the holders had such an end shortly before."""
        uids = one.standing.intent.holders
        before_s = max(self._claims_s.get(uid, -math.inf) for uid in uids)
        self._claims_s.update(dict.fromkeys(uids, one.until_s))
        has_claims = any(_has_claims(pod) for uid in uids if (pod := self.record.pods.get(uid)) is not None)
        return has_claims and one.since_s >= before_s + CLAIM_PAUSE_S

    def _is_touched(self, node: str, since_s: float, until_s: float) -> bool:
        """Whether a node changed, or somebody came to it while the intent stood."""
        is_taken = any(since_s <= at_s <= until_s for at_s in self._bound_s.get(node, ()))
        return is_taken or self._node_s.get(node, -math.inf) >= since_s

    def _stays(self, uid: str) -> bool:
        return uid in self.record.live and not self.record.live[uid].has_ended


def _has_claims(pod: PodFacts) -> bool:
    """Whether a pod has claims that may be bound, or allocated, when it is placed."""
    spec = pod.raw.get("spec") or {}
    volumes = spec.get("volumes") or ()
    return bool(spec.get("resourceClaims")) or any(
        {"persistentVolumeClaim", "ephemeral"} & each.keys() for each in volumes
    )


def _words(pod: PodFacts) -> object:
    """What its maker says of a pod, and may change."""
    return pod.labels, pod.raw.get("spec"), pod.raw.get("metadata", {}).get("annotations")
