"""What was freed for nominations: nobody is evicted in vain (L6), and nobody else is bound on it (S14).

``Nominations`` judges these together with evictions for others (S7, S13) and takers (victims.py).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from simulator.checks import ledgers, nominations
from simulator.checks.evictions import HEARSAY_S, Budgets, ForOthers, Write
from simulator.checks.facts import Json, PodFacts
from simulator.checks.gangs import Gangs
from simulator.checks.ledgers import NANO, NodeFacts
from simulator.checks.limits import Limits
from simulator.checks.nominations import ON_ITS_WAY_S, Moment, OpenNomination, Record
from simulator.checks.victims import Takers, Taking
from simulator.checks.violations import Findings
from wire import names

#: So long after its nomination has left the record a nominated pod runs, or something is seen that explains why it
#: doesn't.
SERVED_S: Final = 120.0
#: Between two nominations that end since claims of their nominated pods failed: the pause is 300 s, and an end is
#: written late.
CLAIM_PAUSE_S: Final = 200.0

_Group = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Served:
    """A nomination. ``since_s``: when it was written; ``has_evicted``: somebody was evicted for it."""

    open_nomination: OpenNomination
    since_s: float
    until_s: float = math.inf
    has_evicted: bool = False


@dataclass(slots=True, eq=False)
class InVain:
    """L6: who had others evicted runs soon after its nomination has left the record.

    A nomination may end without that where something has happened since it was written: to its nominated pods or their
    gang, to a node of its places, to a queue; somebody was bound there while it stood; a victim still exists; or a
    nominated pod was on its way, and failed. All of that is seen by the checker itself. What is left is a nomination
    that was dropped for nothing.

    Claims of a nominated pod may fail to be bound once its place is free. That explains a nomination, and no other one
    of that nominated pod within the minutes after it: a claim that failed has nobody evicted again for a while.

    ``nodes``: as the checker has them. ``late_s``: by how much a scheduler may be late at a time.
    """

    findings: Findings
    record: Record
    nodes: Mapping[str, NodeFacts]
    late_s: Callable[[float], float]
    #: Nominations by id: those that stand, and those that are not judged yet, as evictions are told late.
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
    #: When a nomination of a pod (UID) with claims was over last, and nothing else explained why.
    _claims_s: dict[str, float] = field(default_factory=dict)

    # --- what happens ------------------------------------------------------------------------------------------------
    def recorded(self, at_s: float) -> None:
        """The record has changed."""
        there = {each.nomination.key: each for each in self.record.open}
        for key, open_nomination in there.items():
            known = self._served.get(key)
            if known is None or known.until_s <= at_s:
                self._served[key] = _Served(open_nomination, at_s)
            else:
                known.open_nomination = open_nomination
        for key, served in self._served.items():
            if key not in there and served.until_s > at_s:
                served.until_s = at_s
                self._open.append(served)

    def evicted(self, open_nomination: OpenNomination) -> None:
        """Somebody was evicted for a nomination that stands, or stood a moment ago."""
        if (served := self._served.get(open_nomination.nomination.key)) is not None:
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
        """Judge nominations that have left the record long enough ago; what is too young at the end is not judged."""
        while self._open and self._open[0].until_s + SERVED_S <= now_s:
            one = self._open.popleft()
            if self._served.get(one.open_nomination.nomination.key) is one:
                del self._served[one.open_nomination.nomination.key]
            if one.has_evicted:
                self._judge(one)
        if is_end:
            self._open.clear()

    def _judge(self, one: _Served) -> None:
        self.findings.judged.add("L6")
        nominees = [self.record.pods.get(uid) for uid in one.open_nomination.nomination.nominees]
        if any(pod is None or pod.node for pod in nominees) or self._is_explained(one, nominees):
            return
        who = ", ".join(sorted(map(self.record.key, one.open_nomination.nomination.nominees)))
        text = f"pods were evicted for {who}, which waits though nothing happened to it, its queue, or its node"
        self.findings.add("L6", one.until_s, text)

    def _is_explained(self, one: _Served, nominees: Iterable[PodFacts | None]) -> bool:
        """Whether something has happened since the nomination stood, or shortly before, by which it may have ended."""
        since_s = one.since_s - self.late_s(one.since_s)
        if self._queue_s >= since_s:
            return True
        for pod in nominees:
            if pod is None or self._pod_s.get(pod.uid, -math.inf) >= since_s or pod.uid not in self.record.live:
                return True
            if self._request_s.get((pod.namespace, pod.name), -math.inf) >= since_s:
                return True
            group = pod.namespace, pod.pod_group
            if self._group_s.get(group, -math.inf) >= since_s or self._joined_s.get(group, -math.inf) > one.since_s:
                return True
        if any(self._is_touched(place.node, since_s, one.until_s) for place in one.open_nomination.nomination.places):
            return True
        return any(
            self._stays(victim.uid) for victim in one.open_nomination.nomination.victims
        ) or self._may_claims_fail(one)

    def _may_claims_fail(self, one: _Served) -> bool:
        """Whether claims of a nominated pod may have failed, and none of the pods had such an end shortly before."""
        uids = one.open_nomination.nomination.nominees
        before_s = max(self._claims_s.get(uid, -math.inf) for uid in uids)
        self._claims_s.update(dict.fromkeys(uids, one.until_s))
        has_claims = any(_has_claims(pod) for uid in uids if (pod := self.record.pods.get(uid)) is not None)
        return has_claims and one.since_s >= before_s + CLAIM_PAUSE_S

    def _is_touched(self, node: str, since_s: float, until_s: float) -> bool:
        """Whether a node changed, or somebody came to it while the nomination stood."""
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


_GPUS: Final = "GPUs"
_CPU: Final = "milli CPU"
_MEMORY: Final = "MiB"

Amounts = Counter[str]
"""Of whole GPUs, CPU, memory, and (by its group) nano of a shared device."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """Somebody was bound on what a nomination had freed, if it stood then. ``owed``: to these pods, on this node."""

    when: Moment
    by: OpenNomination
    node: str
    owed: frozenset[str]
    text: str


@dataclass(slots=True, eq=False)
class NominatedPlace:
    """S14: what victims of a standing nomination left is bound by nobody else of ours; of two the older comes first.

    Judged when a pod of ours is bound, by own count of what is free beside it then: whole devices, CPU, memory, and
    parts of devices. A pod is judged only on what it uses itself, since pods of others may take what they like. Where
    node pools have schedulers each, each knows the nominations of its own pool.

    A nominated pod that is on its way keeps nothing beside what its attempt takes: its BindRequest or the book of a
    device says so, or, as some decisions show only when they land, that it was bound elsewhere within a minute.

    ``nodes`` and ``on_node`` (node -> UIDs of its pods) are as the checker has them.
    """

    findings: Findings
    record: Record
    limits: Limits
    nodes: Mapping[str, NodeFacts]
    on_node: Mapping[str, Mapping[str, None]]
    _open: deque[_Taken] = field(default_factory=deque)

    def bound(self, pod: PodFacts, at_s: float) -> None:
        """A pod of ours was just bound, and is counted on its node."""
        node = self.nodes.get(pod.node)
        kept = self._kept_from(pod)
        if node is None or not kept or not node.is_ready:
            return
        when = Moment(pod.version, at_s)
        free = self._free(node)
        for each in kept:
            owed = self._owed(each, pod.node, when)
            used = [name for name, amount in self._uses(pod).items() if amount]
            short = [name for name in used if free[name] < owed[name]]
            if short:
                who = ", ".join(sorted(map(self.record.key, each.nomination.nominees)))
                text = f"pod {pod.key} was bound on {pod.node} on {short[0]} that were freed for {who}"
                self._open.append(_Taken(when, each, pod.node, frozenset(self._waiting(each, pod.node, when)), text))
            else:  # what this one lacks, a younger one doesn't lack as well
                free.subtract(owed)

    def judge(self, now_s: float, *, is_end: bool = False) -> None:
        """Judge what happened long enough ago that the record is known that stood then."""
        while self._open and (is_end or self._open[0].when.at_s + ON_ITS_WAY_S <= now_s):
            one = self._open.popleft()
            if one.by.stood(one.when) and not any(self._went_elsewhere(uid, one) for uid in one.owed):
                self.findings.add("S14", one.when.at_s, one.text)

    def _went_elsewhere(self, uid: str, one: _Taken) -> bool:
        pod = self.record.pods.get(uid)
        if pod is None or not self._is_there(uid):
            return True  # nobody can say any more where it was on its way to
        if not pod.node or not self.record.waited(uid, one.when):
            return False
        planned = {group for place in one.by.nomination.places if place.uid == uid for group, _ in place.nano}
        return pod.node != one.node or (bool(planned) and planned.isdisjoint(grant.group for grant in pod.grants))

    def _kept_from(self, pod: PodFacts) -> list[OpenNomination]:
        """Nominations of its pool that keep something there from this pod: all but its own, and younger ones."""
        pool = self.limits.pool_of(pod)
        mine = (each for each in self.record.open if each.nomination.pool == pool)
        there = [each for each in mine if any(place.node == pod.node for place in each.nomination.places)]
        own = next((each for each in there if pod.uid in each.nomination.nominees), None)
        is_placed = own is not None and any((p.uid, p.node) == (pod.uid, pod.node) for p in own.nomination.places)
        return [each for each in there if each is not own and not (own and is_placed and each.age > own.age)]

    # --- amounts -----------------------------------------------------------------------------------------------------
    def _pods(self, node: str) -> list[PodFacts]:
        return [self.record.live[uid] for uid in self.on_node.get(node, ()) if uid in self.record.live]

    def _free(self, node: NodeFacts) -> Amounts:
        use = ledgers.count_node(self._pods(node.name))
        shared = {group: NANO - sum(nano.values()) for group, nano in use.groups.items()}
        whole = {_GPUS: node.gpus - use.gpus, _CPU: node.cpu_milli - use.cpu_milli, _MEMORY: node.mem_mib - use.mem_mib}
        return Counter({**whole, **shared})

    def _uses(self, pod: PodFacts) -> Amounts:
        """What it takes; a device on which it is alone was a whole one."""
        others = [grant.group for each in self._pods(pod.node) if each.uid != pod.uid for grant in each.grants]
        uses = _demands(pod)
        uses[_GPUS] += sum(grant.group not in others for grant in pod.grants)
        return uses

    def _owed(self, each: OpenNomination, node: str, when: Moment) -> Amounts:
        """What those who left for a nomination have left of its places on a node, whose nominated pods still wait."""
        nomination = each.nomination
        if not all(self._is_there(uid) for uid in nomination.nominees):
            return Counter()
        groups = {group for pod in self._pods(node) if pod.is_reservation for group in pod.groups}
        wanted: Amounts = Counter()
        waiting, opened = self._waiting(each, node, when), set[str]()
        for place in nomination.places:
            pod = self.record.pods.get(place.uid)
            if place.node == node and pod is not None and place.uid in waiting:
                wanted.update(_whole(pod))
                wanted.update({group: nano for group, nano in place.nano if group in groups})
                opened |= {group for group, _ in place.nano if group not in groups}
        wanted[_GPUS] += len(opened)
        # A pod that vanished by force is in the book of its device until its machine was heard of.
        books = ledgers.count_node(self._pods(node)).groups
        held = {uid for nano in books.values() for uid in nano}
        victims = {v.uid: None for v in nomination.victims if v.node == node}
        left = [uid for uid in victims if self.record.was_gone(uid, when) and uid not in held]
        freed = _freed([self.record.pods[uid] for uid in left if uid in self.record.pods], groups)
        return (wanted - self._still(victims.keys(), books)) & freed

    def _still(self, victims: Set[str], books: Mapping[str, Mapping[str, int]]) -> Amounts:
        """What victims still have: their nominated pods get that when they go, and others what is free beside it."""
        still: Amounts = Counter()
        for uid in victims:
            if self._is_there(uid) or (uid in self.record.live and self.record.live[uid].deleting):
                still.update(_whole(self.record.live[uid]))
            still.update({group: nano[uid] for group, nano in books.items() if uid in nano})
        # A device of which all tenants go comes back whole.
        still[_GPUS] += sum(bool(nano) and nano.keys() <= victims for nano in books.values())
        return still

    def _waiting(self, each: OpenNomination, node: str, when: Moment) -> list[str]:
        """Nominated pods (UIDs) that wait for their places on a node, and are not on their way to it or elsewhere."""
        booked = {uid for nano in ledgers.count_node(self._pods(node)).groups.values() for uid in nano}
        return [
            place.uid
            for place in each.nomination.places
            if place.node == node
            and self._is_of(place.uid, each.nomination.pool)
            and self.record.waited(place.uid, when)
            and not self.record.is_handed_over(place.uid)
            and place.uid not in booked
        ]

    def _is_of(self, uid: str, pool: str) -> bool:
        """Whether a nominated pod is still of the pool whose scheduler made room for it."""
        pod = self.record.pods.get(uid)
        return pod is None or self.limits.pool_of(pod) == pool

    def _is_there(self, uid: str) -> bool:
        pod = self.record.live.get(uid)
        return pod is not None and not pod.deleting and not pod.has_ended


def _freed(pods: Iterable[PodFacts], groups: set[str]) -> Amounts:
    """What pods have left: their parts of devices that are still shared, and whole devices that are not any more."""
    freed: Amounts = Counter()
    emptied: set[str] = set()
    for pod in pods:
        freed.update(_whole(pod))
        freed.update({grant.group: grant.nano for grant in pod.grants if grant.group in groups})
        emptied |= {grant.group for grant in pod.grants if grant.group not in groups}
    freed[_GPUS] += len(emptied)
    return freed


def _demands(pod: PodFacts) -> Amounts:
    return _whole(pod) + Counter({grant.group: grant.nano for grant in pod.grants})


def _whole(pod: PodFacts) -> Amounts:
    cpu, memory = ledgers.demand(pod, "cpu", per=ledgers.MILLI), ledgers.demand(pod, "memory", per=ledgers.MIB)
    return Counter({_GPUS: ledgers.whole_gpus(pod), _CPU: cpu, _MEMORY: memory})


class Nominations:
    """Judges S7 and S13 of evictions for others, S14, and L6.

    ``pods``: all that were ever seen, ``live``: those that are there; ``on_node``: node -> UIDs of its pods; ``find``:
    the pod of a namespace and name.
    """

    def __init__(
        self,
        findings: Findings,
        limits: Limits,
        gangs: Gangs,
        *,
        pods: Mapping[str, PodFacts],
        live: Mapping[str, PodFacts],
        nodes: Mapping[str, NodeFacts],
        on_node: Mapping[str, Mapping[str, None]],
        find: Callable[[str, str], PodFacts | None],
    ) -> None:
        self._findings, self._limits, self._live = findings, limits, live
        self._record = Record(pods, live)
        self._kept_room = NominatedPlace(findings, self._record, limits, nodes, on_node)
        self._budgets = Budgets(live)
        self._taking = Taking(findings, limits, gangs, pods)
        self._in_vain = InVain(findings, self._record, nodes, self._late_s)
        self._takers = Takers(findings, pods, live, self._late_s)
        self._for_others = ForOthers(findings, self._record, limits, self._budgets, find, self._was_for)

    def _was_for(self, open_nomination: OpenNomination) -> None:
        self._in_vain.evicted(open_nomination)
        self._takers.evicted(open_nomination)

    def _late_s(self, at_s: float) -> float:
        return HEARSAY_S + self._limits.lateness.at(at_s - self._findings.start_s)

    def record(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a ConfigMap of the scheduler's namespace."""
        if (pool := nominations.pool_of(raw["metadata"]["name"])) is not None:
            for text in self._record.take(raw, pool, at_s, is_gone=is_gone):
                self._findings.add("S13", at_s, text)
            self._in_vain.recorded(at_s)
            listed = [each.nomination for each in self._record.open if each.nomination.pool == pool]
            self._taking.record(pool, listed, at_s, late_s=self._late_s(at_s))

    def request(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a BindRequest."""
        self._record.request(raw, is_gone=is_gone)
        self._in_vain.request((raw["metadata"].get("namespace", ""), str((raw.get("spec") or {}).get("podName"))), at_s)

    def node(self, name: str, known: NodeFacts | None, at_s: float) -> None:
        """A node was shown. ``known``: as it was before."""
        self._in_vain.node(name, known, at_s)

    def queue(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """A queue was shown, or is gone."""
        self._in_vain.queue(raw, at_s, is_gone=is_gone)

    def budget(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PodDisruptionBudget."""
        self._budgets.take(raw, at_s, is_gone=is_gone)

    def pod_group(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PodGroup."""
        self._taking.pod_group(raw, at_s)
        self._in_vain.pod_group(raw, at_s, is_gone=is_gone)

    def pod(self, known: PodFacts | None, pod: PodFacts, at_s: float, *, is_bound: bool) -> None:
        """Take a version of a pod. ``known``: the one before it; ``is_bound``: it was bound by this."""
        self._record.pod(pod, at_s)
        self._budgets.pod(pod, at_s)
        self._takers.pod(pod, at_s)
        self._taking.pod(pod, at_s, is_there=pod.uid in self._live)
        self._in_vain.pod(known, pod, at_s, is_there=pod.uid in self._live, is_bound=is_bound)
        if is_bound and pod.is_ours:
            self._kept_room.bound(pod, at_s)

    def evicted(self, write: Write) -> None:
        """Take an eviction for others."""
        self._for_others.take(write)

    def judge(self, at_s: float, *, is_end: bool = False) -> None:
        """Judge what happened long enough ago that all watches have told of it."""
        self._for_others.judge(at_s, is_end=is_end)
        self._kept_room.judge(at_s, is_end=is_end)
        self._taking.judge(at_s, is_end=is_end)
        self._in_vain.judge(at_s, is_end=is_end)

    def judge_rest(self, at_s: float) -> None:
        """L6: at rest every nomination has come to its end."""
        self._for_others.judge_rest(at_s)
