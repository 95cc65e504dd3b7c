"""What holds of bound pods: bound once and where the attempt chose (S5), and touched by nobody else afterwards (S8).

A pod runs on the node that its attempt chose, in its own node pool. What another user writes changes nothing of what
it has, and frees nothing on paper that is still used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from simulator.checks import ledgers, shares
from simulator.checks.evictions import Writes
from simulator.checks.facts import Granted, PodFacts
from simulator.checks.gangs import Pools
from simulator.checks.ledgers import NodeFacts
from simulator.checks.limits import Limits
from simulator.checks.shares import Share, asked
from simulator.checks.violations import Findings
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Started
from wire import names


class Bindings:
    """Judges where pods are bound, and where their containers start."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        #: BindRequest UID (the attempt) -> the node that it chose.
        self._chosen: dict[str, str] = {}
        #: Pods (UID) as they were bound last, whose binding a restored API server does not know.
        self._undone: dict[str, PodFacts] = {}

    def chose(self, attempt: str, node: str) -> None:
        """Note what an attempt chose."""
        self._chosen[attempt] = node

    def changed(self, known: PodFacts | None, pod: PodFacts, at_s: float) -> None:
        """Judge a version of a pod. ``known``: the one before it."""
        before = known.node if known is not None else ""
        if known is not None and before and pod.node != before:
            self._findings.add("S5", at_s, f"pod {pod.key} was bound to {before}, then to {pod.node or 'no node'}")
            self._undone[pod.uid] = known
        if pod.node and not before:
            self._judge_attempt(pod, at_s)

    def _judge_attempt(self, pod: PodFacts, at_s: float) -> None:
        chosen = self._chosen.get(pod.attempt, pod.node)
        if chosen != pod.node:
            self._findings.add("S5", at_s, f"pod {pod.key} is bound to {pod.node}, its attempt chose {chosen}")

    def as_bound(self, pod: PodFacts) -> PodFacts:
        """The pod as it was bound last; as it is, if it was not."""
        return pod if pod.node else self._undone.get(pod.uid, pod)

    def started(self, record: Started, pod: PodFacts, *, is_bound: bool) -> None:
        """Judge where a container started. ``is_bound``: ``pod`` is its pod as it is now."""
        if not is_bound:
            self._findings.add("S5", record.at_s, f"pod {pod.key} runs on {record.node}, and is bound to it no more")
        elif record.node != pod.node:
            self._findings.add("S5", record.at_s, f"pod {pod.key} runs on {record.node}, but is bound to {pod.node}")

    def never_bound(self, record: Started) -> None:
        """A container started, and its pod has not been bound until the end."""
        text = f"container {record.container} of {record.pod} ran on {record.node} without having been bound"
        self._findings.add("S5", record.at_s, text)


class PoolNodes:
    """Which pools nodes were in, for S5 where node pools have schedulers each.

    A binding is judged by every pool that the node was in since the decision (its BindRequest, or its gang's plan), or
    shortly before it, as long as the scheduler may have heard of it late. A pod that changed pools in this time is not
    judged. ``limits`` knows when a pod's binding was decided, and when it changed pools last.
    """

    def __init__(self, findings: Findings, pools: Pools, limits: Limits) -> None:
        self._findings, self._pools, self._limits = findings, pools, limits
        self._now: dict[str, str] = {}
        #: Node -> the pools that it left, each with the time.
        self._left: dict[str, list[tuple[float, str]]] = {}

    def node(self, node: NodeFacts, at_s: float) -> None:
        """Take a version of a node. One that is deleted is in its pool until it comes back in another."""
        before = self._now.get(node.name)
        self._now[node.name] = node.pool
        if before is not None and before != node.pool:
            self._left.setdefault(node.name, []).append((at_s, before))

    def bound(self, pod: PodFacts, node: str, at_s: float) -> None:
        """Judge a binding on ``node``. ``pod``: as it was before, since a Binding brings the label of its scheduler."""
        if not self._pools.is_divided or not pod.is_ours or pod.is_reservation or node not in self._now:
            return
        since_s = self._limits.decided_since_s(pod, at_s)
        if self._limits.was_moved(pod.uid, since_s):
            return
        pool = self._pools.of(pod)
        pools = [self._now[node], *(left for until_s, left in self._left.get(node, ()) if until_s >= since_s)]
        if pool not in pools:
            text = f"pod {pod.key} of {_named(pool)} was bound to {node}, which is in {_named(pools[0])}"
            self._findings.add("S5", at_s, text)


def _named(pool: str) -> str:
    return f"pool {pool}" if pool else "the pool without a label"


#: Of a bound pod only the scheduler and the binder write these.
_ANNOTATIONS: Final = frozenset({
    names.GRANT, names.CHARGED, names.GPU_PORTION_ANNOTATION, names.RECEIVED_RESOURCE_TYPE, names.TENANTS,
})  # fmt: skip
#: Nobody changes these of a bound pod: it has its devices.
_ASKS: Final = (
    names.GPU_FRACTION,
    names.GPU_MEMORY,
    names.GPU_FRACTION_NUM_DEVICES,
    names.GPU_FRACTION_CONTAINER_NAME,
    names.GPU_FRACTION_CONTAINER_TYPE,
    names.GPU_RECORD,
)
#: Of an entry of a book these may change while it stays there: it is renewed, and charged less when it is bound.
_RENEWED: Final = frozenset({"nano", "rv", "since"})


@dataclass(slots=True)
class Keeping:
    """Judges versions of bound pods, and of the books of their devices. ``pods``: those that are there, by UID.

    ``on_node``: node -> UIDs of those that name it.
    """

    findings: Findings
    writes: Writes
    cards: Mapping[str, Device]
    pods: Mapping[str, PodFacts]
    on_node: Mapping[str, Mapping[str, None]]

    def bound(self, pod: PodFacts, at_s: float) -> None:
        """A pod of ours was just bound: each device is charged with what was asked, and its book says so."""
        for grant in pod.grants:
            card = self.cards.get(grant.uuid)
            if card is not None:
                self._judge_charge(pod, grant, card, at_s)
            reservation = self.pods.get(grant.reservation)
            if reservation is not None:
                self._judge_entry(reservation, pod, grant.group, at_s)

    def _judge_charge(self, pod: PodFacts, grant: Granted, card: Device, at_s: float) -> None:
        share = self._asked(pod, grant.uuid, card)
        if grant.nano < share.least_nano(card.mem_mib):
            told = f"{float(share.part):.9g} of {grant.uuid} and is charged {grant.nano} nano"
            self._add(at_s, f"pod {pod.key} asked {told}")

    def _asked(self, pod: PodFacts, uuid: str, card: Device) -> Share:
        """What it asked of a device that it was given; all of one that nobody can have asked for."""
        if shares.ways(pod):
            placed = shares.placement_of(pod, self.cards)
            return placed.share(uuid) if placed is not None else Share(Fraction(1))
        ask = next((ask for ask in pod.asks.values() if not ask.is_whole), None)
        return asked(ask, card.mem_mib) if ask is not None else Share()

    def changed(self, known: PodFacts, pod: PodFacts, at_s: float) -> None:
        """A bound pod has a new version."""
        if known.annotations == pod.annotations and known.labels == pod.labels:
            return
        asks = [key for key in _ASKS if known.annotations.get(key) != pod.annotations.get(key)]
        if asks and pod.is_ours and not pod.has_ended:
            self._add(at_s, f"pod {pod.key} changed {', '.join(asks)} after it was placed")
        touched = _touched(known, pod)
        if touched and not self.writes.is_ours(pod.version):
            self._add(at_s, f"somebody else changed {', '.join(touched)} of bound pod {pod.key}")

    def book(self, known: PodFacts | None, reservation: PodFacts, at_s: float) -> None:
        """A reservation has a new version: a tenant that still uses its device stays in its book."""
        if known is not None and known.annotations.get(names.TENANTS) == reservation.annotations.get(names.TENANTS):
            return
        if known is not None:
            self._judge_kept(known, reservation, at_s)
        uids = ledgers.entries(known) if known is not None else self.on_node.get(reservation.node, {})
        for uid in tuple(uids):
            pod = self.pods.get(uid)
            if pod is None or pod.node != reservation.node or ledgers.is_over(pod):
                continue
            for group in reservation.groups:
                self._judge_entry(reservation, pod, group, at_s)

    def _judge_kept(self, known: PodFacts, reservation: PodFacts, at_s: float) -> None:
        """Who writes a book keeps what it says of others, also in words that only another version knows."""
        after = ledgers.entries(reservation)
        for uid, entry in ledgers.entries(known).items():
            now = after.get(uid)
            if now is None or now.get("attempt") != entry.get("attempt"):
                continue
            changed = sorted(key for key in {*entry, *now} - _RENEWED if entry.get(key) != now.get(key))
            if changed:
                text = f"the book of {reservation.name} has another {', '.join(changed)} for pod {entry.get('pod')}"
                self._add(at_s, text)

    def _judge_entry(self, reservation: PodFacts, pod: PodFacts, group: str, at_s: float) -> None:
        granted = next((grant.nano for grant in pod.grants if grant.group == group), 0)
        held = ledgers.book_nano(reservation).get(pod.uid, 0)
        if held < granted:
            text = f"the book of {reservation.name} holds {held} nano for pod {pod.key}, which uses {granted}"
            self._add(at_s, text)

    def _add(self, at_s: float, text: str) -> None:
        self.findings.add("S8", at_s, text)


def _touched(known: PodFacts, pod: PodFacts) -> list[str]:
    """Protected keys that differ."""
    keys = [*_ANNOTATIONS, *(k for k in {**known.annotations, **pod.annotations} if _is_device(k))]
    touched = [key for key in keys if known.annotations.get(key) != pod.annotations.get(key)]
    labels = {key for key in {**known.labels, **pod.labels} if key.startswith(names.GPU_GROUP_LABEL)}
    return sorted({*touched, *(key for key in labels if known.labels.get(key) != pod.labels.get(key))})


def _is_device(key: str) -> bool:
    return key.startswith((names.VISIBLE_DEVICES_PREFIX, names.ENV_PREFIX))
