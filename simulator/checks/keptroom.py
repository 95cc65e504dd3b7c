"""S14: what victims of a standing intent left is bound by nobody else of ours; of two intents the older comes first.

Where node pools have schedulers each, each knows the intents of its own pool: room is kept from pods of this pool.

Judged when a pod of ours is bound, by own count of what is free beside it then: whole devices, CPU, memory, and parts
of devices. A pod is judged only on what it uses itself, since pods of others may take what they like.

A holder that is on its way keeps nothing any more beside what its attempt takes: its BindRequest or the book of a
device says so, or, as nothing is seen of some decisions before they land, that it was bound elsewhere within a minute.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from simulator.checks import counting
from simulator.checks.counting import NANO, NodeFacts
from simulator.checks.limits import Limits
from simulator.checks.standing import ON_ITS_WAY_S, Moment, Record, Standing
from simulator.facts import PodFacts
from simulator.violations import Findings

_GPUS: Final = "GPUs"
_CPU: Final = "milli CPU"
_MEMORY: Final = "MiB"

Amounts = Counter[str]
"""Of whole GPUs, CPU, memory, and (by its group) nano of a shared device."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """Somebody was bound on what an intent had freed, if it stood then. ``owed``: to these pods, on this node."""

    when: Moment
    by: Standing
    node: str
    owed: frozenset[str]
    text: str


@dataclass(slots=True, eq=False)
class KeptRoom:
    """``nodes`` and ``on_node`` (node -> UIDs of its pods) are as the checker has them."""

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
            short = [name for name, amount in self._uses(pod).items() if amount and free[name] < owed[name]]
            if short:
                who = ", ".join(sorted(map(self.record.key, each.intent.holders)))
                text = f"pod {pod.key} was bound on {pod.node} on {short[0]} that were freed for {who}"
                self._open.append(_Taken(when, each, pod.node, frozenset(self._waiting(each, pod.node, when)), text))
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
        planned = {group for place in one.by.intent.places if place.uid == uid for group, _ in place.nano}
        return pod.node != one.node or (bool(planned) and planned.isdisjoint(grant.group for grant in pod.grants))

    def _kept_from(self, pod: PodFacts) -> list[Standing]:
        """Intents of its pool that keep something there from this pod: all but its own, and younger ones."""
        pool = self.limits.pool_of(pod)
        mine = (each for each in self.record.standing if each.intent.pool == pool)
        there = [each for each in mine if any(place.node == pod.node for place in each.intent.places)]
        own = next((each for each in there if pod.uid in each.intent.holders), None)
        is_placed = own is not None and any((p.uid, p.node) == (pod.uid, pod.node) for p in own.intent.places)
        return [each for each in there if each is not own and not (own and is_placed and each.age > own.age)]

    # --- amounts -----------------------------------------------------------------------------------------------------
    def _pods(self, node: str) -> list[PodFacts]:
        return [self.record.live[uid] for uid in self.on_node.get(node, ()) if uid in self.record.live]

    def _free(self, node: NodeFacts) -> Amounts:
        use = counting.count_node(self._pods(node.name))
        shared = {group: NANO - sum(nano.values()) for group, nano in use.groups.items()}
        whole = {_GPUS: node.gpus - use.gpus, _CPU: node.cpu_milli - use.cpu_milli, _MEMORY: node.mem_mib - use.mem_mib}
        return Counter({**whole, **shared})

    def _uses(self, pod: PodFacts) -> Amounts:
        """What it takes; a device on which it is alone was a whole one."""
        others = [grant.group for each in self._pods(pod.node) if each.uid != pod.uid for grant in each.grants]
        uses = _demands(pod)
        uses[_GPUS] += sum(grant.group not in others for grant in pod.grants)
        return uses

    def _owed(self, each: Standing, node: str, when: Moment) -> Amounts:
        """What those who left for an intent have left of its places on a node, whose holders still wait."""
        intent = each.intent
        if not all(self._is_there(uid) for uid in intent.holders):
            return Counter()
        groups = {group for pod in self._pods(node) if pod.is_reservation for group in pod.groups}
        wanted: Amounts = Counter()
        waiting, opened = self._waiting(each, node, when), set[str]()
        for place in intent.places:
            pod = self.record.pods.get(place.uid)
            if place.node == node and pod is not None and place.uid in waiting:
                wanted.update(_whole(pod))
                wanted.update({group: nano for group, nano in place.nano if group in groups})
                opened |= {group for group, _ in place.nano if group not in groups}
        wanted[_GPUS] += len(opened)
        # A pod that vanished by force is in the book of its device until its machine was heard of.
        books = counting.count_node(self._pods(node)).groups
        held = {uid for nano in books.values() for uid in nano}
        victims = {v.uid: None for v in intent.victims if v.node == node}
        left = [uid for uid in victims if self.record.was_gone(uid, when) and uid not in held]
        freed = _freed([self.record.pods[uid] for uid in left if uid in self.record.pods], groups)
        return (wanted - self._still(victims.keys(), books)) & freed

    def _still(self, victims: Set[str], books: Mapping[str, Mapping[str, int]]) -> Amounts:
        """What victims still have: their holders get that when they go, and others what is free beside it."""
        still: Amounts = Counter()
        for uid in victims:
            if self._is_there(uid) or (uid in self.record.live and self.record.live[uid].deleting):
                still.update(_whole(self.record.live[uid]))
            still.update({group: nano[uid] for group, nano in books.items() if uid in nano})
        # A device of which all tenants go comes back whole.
        still[_GPUS] += sum(bool(nano) and nano.keys() <= victims for nano in books.values())
        return still

    def _waiting(self, each: Standing, node: str, when: Moment) -> list[str]:
        """Holders (UIDs) that wait for their places on a node, and are not on their way to it or elsewhere."""
        booked = {uid for nano in counting.count_node(self._pods(node)).groups.values() for uid in nano}
        return [
            place.uid
            for place in each.intent.places
            if place.node == node
            and self._is_of(place.uid, each.intent.pool)
            and self.record.waited(place.uid, when)
            and not self.record.is_handed_over(place.uid)
            and place.uid not in booked
        ]

    def _is_of(self, uid: str, pool: str) -> bool:
        """Whether a holder is still of the pool whose scheduler made room for it."""
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
    cpu, memory = counting.demand(pod, "cpu", per=counting.MILLI), counting.demand(pod, "memory", per=counting.MIB)
    return Counter({_GPUS: counting.whole_gpus(pod), _CPU: cpu, _MEMORY: memory})
