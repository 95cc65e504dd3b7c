"""S6: nobody passes the limits of its queue, and what can't be preempted stays within the quotas, by own count.

Judged whenever a pod of ours is bound, or one that is bound comes to use more. What all pods of a queue and of those
below it use then, terminating ones included, is held against what the Queue objects say. Where node pools have
schedulers each, a queue is one pool's: the tree of a pool has its queues alone, and pods of other pools count in none
of them. A limit that is lowered and a queue or pod that is moved evict nobody (S7), and bring no violation: only what
is bound afterwards does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Final, NamedTuple

from simulator.checks import queues
from simulator.checks.facts import Charged, Json, PodFacts
from simulator.checks.gangs import Pools
from simulator.checks.queues import AMOUNTS, PER, Amounts, Load, QueueTree, Row, Sums
from simulator.checks.violations import Findings
from wire import names

#: Pods of this priority and more can't be preempted, unless a label or a PodGroup says they can (as in KAI).
_NOT_PREEMPTED: Final = 100
#: Only the system's classes have more.
_MOST_PRIORITY: Final = 1_000_000_000
_SAID: Final = {"preemptible": False, "non-preemptible": True}

Key = tuple[str, str]


class Lateness(NamedTuple):
    """How late who decides may hear of queues: by ``usual_s``, and by ``late_s`` in spans of time since the start."""

    usual_s: float = 0.0
    late_s: float = 300.0
    spans: tuple[tuple[float, float], ...] = ()

    def at(self, since_start_s: float) -> float:
        """How late it may be at a time."""
        is_late = any(first_s <= since_start_s <= last_s for first_s, last_s in self.spans)
        return self.late_s if is_late else self.usual_s


class Bound(NamedTuple):
    """One amount that a queue allows: a limit or a quota (``field``) of one resource."""

    queue: str
    field: str
    resource: str


class Limits:
    """Queues and PodGroups as they are now, and what pods use.

    ``card_mib`` returns the memory of the card by which MiB count that a pod asks in a pool; 0 if none is known.

    A scheduler decides on what is known by then. So a binding counts as permitted where any version of the Queues
    permits it that was in force since the decision (its BindRequest, or its gang's plan), or before it by as much as
    the scheduler may hear of them late. For as long nothing is judged in a queue into which pods came without a
    decision: by hand, or by a new label.

    A pod that is bound counts for what its Binding says, which has to be what its labels and its PodGroup said since it
    was decided on. One that vanishes before its end may go on to count: nobody is blamed for a pod that waits for it.
    That it does is not judged, as a restart forgets it.
    """

    def __init__(
        self, findings: Findings, lateness: Lateness, card_mib: Callable[[PodFacts, str], int], pools: Pools
    ) -> None:
        self._findings, self.lateness, self._card_mib, self._pools = findings, lateness, card_mib, pools
        #: By pool.
        self._trees: dict[str, QueueTree] = {}
        #: Earlier versions of a pool's tree, each with the time until which it stood.
        self._older: list[tuple[float, str, QueueTree]] = []
        self._groups: dict[Key, Json] = {}
        #: PriorityClass -> value.
        self._classes: dict[str, int] = {}
        #: Pods of ours that are there, by UID, and those of each PodGroup.
        self._pods: dict[str, PodFacts] = {}
        self._members: dict[Key, dict[str, None]] = {}
        self._sums = Sums()
        #: Of pods that vanished before their end.
        self._gone = Sums()
        #: When a pod came into a queue by other means than a binding of ours, by pool and queue.
        self._entered_s: dict[Key, float] = {}
        #: When a pod's (UID) pool, queue, preemptibility or priority changed last.
        self._moved_s: dict[str, float] = {}
        #: When what binds it was decided: by pod (its BindRequest), and by PodGroup (its plan).
        self._decided_s: dict[Key, float] = {}
        self._planned_s: dict[Key, float] = {}

    # --- what is there -----------------------------------------------------------------------------------------------
    def queue(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a Queue."""
        name, here = raw["metadata"]["name"], self._pools.labelled(raw["metadata"].get("labels"))
        for pool in {here, *self._trees}:
            spec = (raw.get("spec") or {}) if pool == here and not is_gone else None
            self._put(pool, name, spec, at_s)

    def _put(self, pool: str, name: str, spec: Json | None, at_s: float) -> None:
        """Take what a queue of a pool says; None: there is no such queue in this pool."""
        tree = self._tree(pool)
        if tree.specs.get(name) == spec:
            return
        others = {each: its for each, its in tree.specs.items() if each != name}
        if self._pods or self.lateness != Lateness():
            self._older.append((at_s, pool, tree))
        self._trees[pool] = QueueTree(others if spec is None else {**others, name: spec})

    def _tree(self, pool: str) -> QueueTree:
        return self._trees.setdefault(pool, QueueTree({}))

    def pod_group(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PodGroup."""
        key = raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
        spec = raw.get("spec") or {}
        known = self._groups.pop(key, {})
        is_planned = names.PLAN in (raw["metadata"].get("annotations") or {})
        if is_planned and not known.get("is_planned"):
            self._planned_s[key] = at_s
        if not is_gone:
            said = {key: spec.get(key) for key in ("queue", "preemptibility", "priorityClassName")}
            self._groups[key] = {**said, "is_planned": is_planned}
        for uid in self._members.get(key, ()):
            self._count(self._pods[uid], at_s)

    def priority_class(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PriorityClass."""
        name, value = raw["metadata"]["name"], None if is_gone else int(raw.get("value") or 0)
        if self._classes.get(name) == value:
            return
        self._classes.pop(name, None)
        if value is not None:
            self._classes[name] = value
        for key in [key for key, said in self._groups.items() if said["priorityClassName"] == name]:
            for uid in self._members.get(key, ()):
                self._count(self._pods[uid], at_s)

    def decided(self, raw: Json, at_s: float) -> None:
        """Take a new BindRequest: what is decided is bound later."""
        name = str((raw.get("spec") or {}).get("podName"))
        self._decided_s[raw["metadata"].get("namespace", ""), name] = at_s

    def pod(self, pod: PodFacts, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a pod, and judge it where it comes to use more by that."""
        known = self._pods.pop(pod.uid, None)
        if known is not None and (key := _group_of(known)) is not None:
            self._members[key].pop(pod.uid, None)
        if is_gone or not pod.is_ours or pod.is_reservation:
            row = self._sums.row(pod.uid)
            if is_gone and row is not None and pod.node and not pod.has_ended:
                self._gone.put(pod.uid, row)
            self._sums.put(pod.uid, None)
            self._moved_s.pop(pod.uid, None)
            return
        self._pods[pod.uid] = pod
        if (key := _group_of(pod)) is not None:
            self._members.setdefault(key, {})[pod.uid] = None
        before = self._sums.row(pod.uid)
        if known is not None and not known.node and pod.node:
            self._judge_charge(pod, at_s)
        self._count(pod, at_s)
        row = self._row(pod)
        if before is None or (known is not None and known.has_ended and not pod.has_ended):
            if pod.node:  # it is there again as it was, in a restored etcd: nobody has decided on it
                self._entered_s[row.pool, row.queue] = at_s
        elif grown := [each for each in PER if row.used[each] > before.used[each]]:
            self._judge(pod, row, grown, at_s)

    def _count(self, pod: PodFacts, at_s: float) -> None:
        before, row = self._sums.row(pod.uid), self._row(pod)
        if before is not None and before[:4] != row[:4]:
            self._moved_s[pod.uid] = at_s
            if pod.node and pod.charged is None:
                self._entered_s[row.pool, row.queue] = at_s
        self._sums.put(pod.uid, row)

    def _row(self, pod: PodFacts) -> Row:
        pool = self.pool_of(pod)
        used = queues.amounts_used(pod, self._card_mib(pod, pool))
        return Row(pool, self._queue_of(pod), self._is_fixed(pod), self.priority_of(pod), used)

    # --- what is judged ----------------------------------------------------------------------------------------------
    def _judge_charge(self, pod: PodFacts, at_s: float) -> None:
        """Judge what a Binding says that its pod counts for: as it is now, unless that changed since the decision."""
        said, due = pod.charged, self._due(pod)
        if said is not None and not self._pools.is_divided:
            # A scheduler with the default node pool writes "", one without a node pool writes none.
            said = said._replace(pool=said.pool or None)
        if said is None and names.RECEIVED_RESOURCE_TYPE in pod.annotations:  # by a Binding of ours
            self._findings.add("S6", at_s, f"pod {pod.key} was bound, and nothing says what it counts for")
        elif said not in {None, due} and self._moved_s.get(pod.uid, -math.inf) < self.decided_since_s(pod, at_s):
            self._findings.add("S6", at_s, f"pod {pod.key} was bound to count as {said}, and was due to as {due}")

    def _judge(self, pod: PodFacts, row: Row, grown: list[str], at_s: float) -> None:
        since_s = self.decided_since_s(pod, at_s)
        trees = self.trees(since_s, row.pool)
        if any(not tree.specs for tree in trees):
            return
        if pod.charged is None and self._moved_s.get(pod.uid, -math.inf) >= since_s:
            self._entered_s[row.pool, row.queue] = at_s
            return
        closed = [tree.closed(row.queue) for tree in trees]
        if all(closed):
            self._findings.add("S6", at_s, f"pod {pod.key} was bound, and {closed[0]}")
            return
        for bound in _bounds(next(tree for tree, why in zip(trees, closed, strict=True) if not why), row, grown):
            told = [why or self._passed(tree, bound, row, since_s) for tree, why in zip(trees, closed, strict=True)]
            if all(told):
                text = next(each for each, why in zip(told, closed, strict=True) if not why)
                self._findings.add("S6", at_s, f"{text} with pod {pod.key}")

    def decided_since_s(self, pod: PodFacts, at_s: float) -> float:
        """Since when a binding at ``at_s`` may have been decided, less how late who decides may hear of things."""
        decided_s = self._decided_s.get((pod.namespace, pod.name), at_s)
        key = _group_of(pod)
        planned_s = self._planned_s.get(key, at_s) if key is not None else at_s
        known_s = min(decided_s, planned_s, at_s)
        return known_s - self.lateness.at(known_s - self._findings.start_s)

    def _passed(self, tree: QueueTree, bound: Bound, row: Row, since_s: float) -> str:
        """How a queue above a pod uses more than a version of the Queues allows; "" if not, or if nobody can say."""
        most = tree.most(*bound) if bound.queue in tree.path(row.queue)[0] else None
        below = list(tree.below(bound.queue))
        used = self._sums.used(row.pool, below, bound.resource, of_fixed=bound.field == "quota")
        if most is None or used <= most or self._has_entered(row.pool, below, since_s):
            return ""
        return f"queue {bound.queue} uses {float(used):g} {bound.resource} of a {bound.field} of {float(most):g}"

    def _has_entered(self, pool: str, queues: Iterable[str], since_s: float) -> bool:
        return any(self._entered_s.get((pool, each), -math.inf) >= since_s for each in queues)

    def may_hold(self, pod: PodFacts, *, missing: int = 1, without: PodFacts | None = None) -> bool:
        """Whether the queue of a pod that waits may be why it does: it can't be used, or has too little left.

        ``missing``: how many of its gang have to start together. What they ask is taken on the smallest card, and of
        those members that ask the most; where one of them can't be preempted, the scheduler may take all of them so.
        ``without``: a pod that will be gone.
        """
        row = self._row(pod)
        tree = self._tree(row.pool)
        if not tree.specs:
            return False
        if tree.closed(row.queue):
            return True
        together = self._together(pod) if missing > 1 else [pod]
        row = row._replace(is_fixed=any(map(self._is_fixed, together)))
        asked = self._asked(together, max(1, missing))
        gone = None if without is None else self._sums.row(without.uid)
        return any(
            self._exceeds(row.pool, bound, asked[bound.resource], gone)
            for bound in _bounds(tree, row, [resource for resource, amount in asked.items() if amount])
        )

    def is_short(self, pod: PodFacts, *, missing: int = 1) -> bool:
        """Whether the queue of a waiting pod stays within its quotas with it, or with those of its gang that start."""
        queue, pool = self._queue_of(pod), self.pool_of(pod)
        tree = self._tree(pool)
        if tree.closed(queue):
            return False
        asked = self._asked(self._together(pod) if missing > 1 else [pod], max(1, missing))
        quotas = {resource: tree.most(queue, "quota", resource) for resource in PER}
        used = {resource: self._sums.used(pool, [queue], resource, of_fixed=False) for resource in PER}
        return all(quota is None or used[each] + asked[each] <= quota for each, quota in quotas.items())

    def _together(self, pod: PodFacts) -> list[PodFacts]:
        """All of its gang that wait."""
        members = self._members.get(_group_of(pod) or ("", ""), (pod.uid,))
        return [self._pods[uid] for uid in members if not self._pods[uid].node]

    def _asked(self, pods: list[PodFacts], most: int) -> Amounts:
        """What those that ask the most ask together."""
        each = [queues.asked(pod, self._card_mib(pod, self.pool_of(pod))) for pod in pods]
        return {name: sum(sorted((one[name] for one in each), reverse=True)[:most], Fraction(0)) for name in PER}

    def _exceeds(self, pool: str, bound: Bound, more: Fraction, gone: Row | None) -> bool:
        tree = self._tree(pool)
        most, below = tree.most(*bound), [*tree.below(bound.queue)]
        used = self._used(pool, below, bound.resource, of_fixed=bound.field == "quota", with_gone=True)
        if gone is not None and gone.pool == pool and gone.queue in below and (gone.is_fixed or bound.field == "limit"):
            used -= gone.used[bound.resource]
        return most is not None and used + more > most

    def _used(
        self, pool: str, queues: Sequence[str], resource: str, *, of_fixed: bool, with_gone: bool = False
    ) -> Fraction:
        """What pods use. ``with_gone``: those that vanished, too."""
        found = self._sums.used(pool, queues, resource, of_fixed=of_fixed)
        return found + self._gone.used(pool, queues, resource, of_fixed=of_fixed) if with_gone else found

    # --- what pods report --------------------------------------------------------------------------------------------
    def untrue(self, pod: PodFacts) -> Iterator[str]:
        """Yield what a waiting pod says of its queue that is not so (L3)."""
        pool = self.pool_of(pod)
        tree = self._tree(pool)

        def used(name: str, resource: str, of_fixed: bool) -> tuple[Fraction, Fraction]:
            below = [*tree.below(name)]
            return (
                self._used(pool, below, resource, of_fixed=of_fixed),
                self._used(pool, below, resource, of_fixed=of_fixed, with_gone=True),
            )

        text = pod.verdict.message if pod.verdict else ""
        return queues.untrue(text, self._queue_of(pod), tree, used)

    def loads(self) -> Iterator[Load]:
        """Yield every queue with what it and those below it have; after them those that pods name and nobody made."""
        own: dict[str, dict[str, list[PodFacts]]] = {pool: {} for pool in self._trees or ("",)}
        for pod in self._pods.values():
            if not pod.has_ended:
                own.setdefault(self.pool_of(pod), {}).setdefault(self._queue_of(pod), []).append(pod)
        for pool, pods in own.items():
            yield from queues.loads(self._tree(pool), pods, partial(self._card_in, pool))

    def _card_in(self, pool: str, pod: PodFacts) -> int:
        return self._card_mib(pod, pool)

    # --- who counts where --------------------------------------------------------------------------------------------
    def _due(self, pod: PodFacts) -> Charged:
        """What a pod would be placed for now, by its labels and its PodGroup alone."""
        plain = replace(pod, annotations={key: text for key, text in pod.annotations.items() if key != names.CHARGED})
        pool = self.pool_of(plain) if self._pools.is_divided else None
        priority = self.priority_of(plain)
        return Charged(
            self._queue_of(plain), self._is_fixed(plain), pool, None if priority == _own_priority(plain) else priority
        )

    def _queue_of(self, pod: PodFacts) -> str:
        if (charged := pod.charged) is not None:
            return charged.queue
        group = self._groups.get(_group_of(pod) or ("", ""))
        if group is not None:
            return group["queue"] or names.DEFAULT_QUEUE
        is_of_project = pod.node or _group_of(pod) is None
        project = pod.labels.get(names.PROJECT_LABEL) if is_of_project else ""
        return pod.labels.get(names.QUEUE_LABEL) or project or names.DEFAULT_QUEUE

    def queue_of(self, pod: PodFacts) -> str:
        """In which queue a pod counts now."""
        return self._queue_of(pod)

    def pool_of(self, pod: PodFacts) -> str:
        """In which node pool a pod counts now."""
        pool = None if pod.charged is None or not self._pools.is_divided else pod.charged.pool
        return self._pools.of(pod) if pool is None else pool

    def counted_pool(self, uid: str) -> str | None:
        """In which node pool a pod (UID) counts that is there; None: it is gone."""
        row = self._sums.row(uid)
        return None if row is None else row.pool

    def use_of(self, uid: str) -> Amounts | None:
        """What a bound pod uses in its queue."""
        row = self._sums.row(uid)
        return None if row is None else row.used

    def was_moved(self, uid: str, since_s: float) -> bool:
        """Whether a pod's pool, queue, preemptibility or priority has changed since then."""
        return self._moved_s.get(uid, -math.inf) >= since_s

    def trees(self, since_s: float, pool: str) -> list[QueueTree]:
        """All versions of a pool's Queues that stood since then, the newest first."""
        older = (tree for until_s, of, tree in reversed(self._older) if of == pool and until_s >= since_s)
        return [self._tree(pool), *older]

    def is_fixed(self, pod: PodFacts, *, since_s: float) -> bool:
        """Whether a pod can't be preempted, and could not since then."""
        row = self._sums.row(pod.uid)
        return row is not None and row.is_fixed and self._moved_s.get(pod.uid, -math.inf) < since_s

    def _is_fixed(self, pod: PodFacts) -> bool:
        if (charged := pod.charged) is not None:
            return charged.is_fixed
        group = self._groups.get(_group_of(pod) or ("", ""))
        written = pod.labels.get(names.PREEMPTIBILITY_LABEL) if group is None else group["preemptibility"]
        return _SAID.get(written or "", self.priority_of(pod) >= _NOT_PREEMPTED)

    def priority_of(self, pod: PodFacts) -> int:
        """As it was placed, else of its PodGroup's class, where that is there and not the system's, else its own."""
        if (charged := pod.charged) is not None:
            return _own_priority(pod) if charged.priority is None else charged.priority
        group = self._groups.get(_group_of(pod) or ("", ""), {})
        found = self._classes.get(group.get("priorityClassName") or "")
        return _own_priority(pod) if found is None or found > _MOST_PRIORITY else found


def _own_priority(pod: PodFacts) -> int:
    return int((pod.raw.get("spec") or {}).get("priority") or 0)


def _bounds(tree: QueueTree, row: Row, resources: Iterable[str]) -> list[Bound]:
    """What a pod's queue and those above it allow of some resources; quotas for what can't be preempted only."""
    fields = AMOUNTS if row.is_fixed else AMOUNTS[:1]
    return [Bound(*each) for each in product(tree.path(row.queue)[0], fields, resources)]


def _group_of(pod: PodFacts) -> Key | None:
    name = pod.annotations.get(names.POD_GROUP_NAME)
    return (pod.namespace, name) if name else None
