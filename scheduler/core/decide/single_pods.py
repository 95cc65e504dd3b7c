"""Pods one by one: alone by signature, or members beyond the minimum of their gang.

The first pod of a signature that fits nowhere speaks for all that are left. A member beyond the minimum has to be in
the required domains that the others are in, and had better be in the smaller ones, down to the preferred level.

A snapshot may suppose one node for each that fits nowhere, as large as it asks (``NodesAsAsked``): what an autoscaler
would bring. A share alone gets none while whole GPUs are free that it can't use, as their cards are too small.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.core.decide.attempts import Attempts, KeptOff, asked_use
from scheduler.core.decide.gang_search import PlaceBound
from scheduler.core.model.minimum_tree import MinimumTree
from scheduler.core.model.plan import Bind, Entry, Placement
from scheduler.core.model.pod_class import Demand, PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, DomainRoom, TopologyCause, Verdict
from scheduler.core.nodes.table import Bools
from scheduler.core.queues.accounts import HeldBack
from scheduler.core.scheduling_queue.signatures import Shape, Turns
from scheduler.core.snapshot.node_count import NodeMask, both

#: The name of all of them; no node has it.
SUPPOSED: Final = "(supposed)"
#: What it costs to see whether a class gets one, in operations, with one more for each this many nodes (allowance.py).
#: To give one to each pod of a class that does costs as little as to say why it waits.
_COMPARING: Final = 80
_NODES_PER_OPERATION: Final = 10


def supposed_node_for_share(attempts: Attempts, pod: PodRecord, verdict: Verdict) -> Placement | Verdict | HeldBack:
    """A place for a share alone that fits nowhere; its verdict if it gets none."""
    if verdict.code is not Code.NO_NODE_FITS or not _brings_node(attempts, pod):
        return verdict
    return place_on_supposed_node(attempts, pod)


def place_on_supposed_node(attempts: Attempts, pod: PodRecord) -> Placement | HeldBack:
    """Place a pod on a node of its own, and charge it to its queue, if that takes it."""
    use = asked_use(attempts.snapshot, [pod])
    refused = attempts.accounts.refusal(use)
    if refused is not None:
        return HeldBack(refused, use)
    attempts.accounts.charge(use)
    return Placement(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, rv=pod.rv, node=SUPPOSED)


def in_whole_devices(cls: PodClass, devices: int) -> Demand:
    """What a pod takes if it gets whole devices in the place of its shares."""
    return msgspec.structs.replace(cls.demand, gpus=cls.demand.gpus + devices)


def _brings_node(attempts: Attempts, pod: PodRecord) -> bool:
    """Whether no node has as many whole GPUs free as a class has shares, when it first fits nowhere."""
    cls = pod.cls
    if not cls.request.is_shared:
        return False
    known = attempts.brings_node.get(cls)
    if known is None:
        whole = PodClass(
            demand=in_whole_devices(cls, len(cls.request.shared)),
            constraints=cls.constraints,
            rules=cls.rules,
            avoids=cls.avoids,
            taken_by=cls.taken_by,
        )
        nodes = len(attempts.snapshot.ledger.row_of)
        attempts.allowance.spend(pod.namespace, _COMPARING + nodes // _NODES_PER_OPERATION)
        known = attempts.brings_node[cls] = attempts.placer.ranking(whole).best() is None
    return known


class Outcome(enum.Enum):
    """What became of a pod that has no verdict which holds for its class."""

    #: It was placed, or room is being made for it.
    SERVED = enum.auto()
    #: It is left to the next decision.
    PUT_OFF = enum.auto()


def decide_alone(pod: PodRecord, attempts: Attempts, entries: list[Entry]) -> Outcome | Verdict | HeldBack | KeptOff:
    """Place a pod, or make room for it; else say why it fits nowhere, or that its queue takes no more.

    Or that it fits only where nodes are kept for others.
    """
    outcome = attempts.held_back([pod]) or _decide_by_nodes(pod, attempts, entries)
    if attempts.snapshot.supposes_nodes and isinstance(outcome, Verdict | KeptOff):
        return _decide_by_supposed_nodes(pod, outcome, attempts, entries)
    return outcome


def _decide_by_supposed_nodes(
    pod: PodRecord, refusal: Verdict | KeptOff, attempts: Attempts, entries: list[Entry]
) -> Outcome | Verdict | HeldBack:
    verdict = refusal if isinstance(refusal, Verdict) else refusal.verdict
    placed = supposed_node_for_share(attempts, pod, verdict)
    if isinstance(placed, Placement):
        entries.append(Bind(placed))
        return Outcome.SERVED
    return placed


def _decide_by_nodes(
    pod: PodRecord, attempts: Attempts, entries: list[Entry]
) -> Outcome | Verdict | HeldBack | KeptOff:
    known = attempts.classes.verdict(pod.cls, pod.namespace)
    if known is not None:
        return known
    if not attempts.affords([pod]):
        return Outcome.PUT_OFF
    placed = attempts.place(pod)
    if isinstance(placed, Placement):
        entries.append(attempts.placer.entry_alone(pod, placed))
        return Outcome.SERVED
    if isinstance(placed, HeldBack | KeptOff):
        return placed
    found = attempts.by_retiring(pod)
    if found is None or isinstance(found, KeptOff):
        return found or placed
    node, retired = found
    entries.extend(retired)
    attempts.effects.say((pod.uid,), Verdict(code=Code.WAITING_FOR_DEVICE, detail=node))
    return Outcome.SERVED


@dataclass(slots=True)
class WholeShape:
    """The pods of a shape in one decision: one of them a turn."""

    turns: Turns[Shape]
    attempts: Attempts
    entries: list[Entry]

    @property
    def rank(self) -> Rank | None:
        """The rank of the pod that is decided on next."""
        return self.turns.first()

    @property
    def queue(self) -> str:
        """The queue of all its pods."""
        return self.turns.of.key.queue

    @property
    def use(self) -> Resources:
        """What the pod that is decided on next would count for in it."""
        return self.attempts.snapshot.queues.asked(self.turns.of.key.cls)

    @property
    def least(self) -> Resources:
        """The least that it comes to use, wherever it is placed."""
        return self.attempts.snapshot.queues.least(self.turns.of.key.cls)

    @property
    def classes_next(self) -> Iterable[PodClass]:
        """The class of all its pods."""
        return (self.turns.of.key.cls,)

    def is_settled(self) -> bool:
        """Whether its class is known to fit nowhere, so that no turn is needed to say so."""
        key, attempts = self.turns.of.key, self.attempts
        if attempts.snapshot.supposes_nodes:
            return False
        if key.uid or key.cls not in attempts.classes.hopeless or key.cls not in attempts.classes.roomless:
            return False
        attempts.effects.shape_failed(key, attempts.classes.hopeless[key.cls], served=self.turns.taken)
        return True

    def decide(self) -> bool:
        """Decide on one pod; return whether there is another turn to come."""
        uid, snapshot = self.turns.take().uid, self.attempts.snapshot
        known = snapshot.pod(uid)
        if known is None:
            raise LookupError(f"pod {uid} waits, and is not known")
        pod = snapshot.judged(known, self.attempts.now_ns)
        if pod.blocker is not None or pod.cls != self.turns.of.key.cls:
            self._decide_misfiled(pod)
            return True
        outcome = decide_alone(pod, self.attempts, self.entries)
        key, effects, served = self.turns.of.key, self.attempts.effects, self.turns.taken - {uid}
        if isinstance(outcome, Verdict):
            effects.shape_failed(key, outcome, served=served)
        elif isinstance(outcome, HeldBack):
            elsewhere = self.attempts.classes.as_of_now(key.cls, outcome.verdict) if outcome.is_there else None
            effects.shape_held_back(key, outcome, served=served, elsewhere=elsewhere)
        elif isinstance(outcome, KeptOff):
            off, kept = (
                self.attempts.kept.off_of(key.queue, self.use, key),
                self.attempts.classes.as_of_now(key.cls, outcome.verdict),
            )
            effects.shape_kept_off(key, outcome.verdict, off, kept=kept, served=served)
        return outcome is Outcome.SERVED

    def _decide_misfiled(self, pod: PodRecord) -> None:
        """Decide on a pod whose volumes or others' terms have made it one of another shape since it was filed."""
        if pod.blocker is None and decide_alone(pod, self.attempts, self.entries) is Outcome.SERVED:
            return
        self.attempts.effects.misfiled(pod.uid)
        self.attempts.put_off()


@dataclass(slots=True)
class BesideGang:
    """One gang's. ``bounds``: what it and its subgroups ask, by the node of ``tree``."""

    tree: MinimumTree
    bounds: Mapping[int, PlaceBound]

    def decide(
        self, pod: PodRecord, attempts: Attempts, entries: list[Entry]
    ) -> Outcome | Verdict | HeldBack | KeptOff:
        """Place a member, or make room for it, in the domains where it has to be; else say why not."""
        asked = list(self._asked_of(pod))
        if not asked or attempts.snapshot.supposes_nodes:
            return decide_alone(pod, attempts, entries)
        if (held := attempts.held_back([pod])) is not None:
            return held
        if not attempts.affords([pod]):
            return Outcome.PUT_OFF
        return self._decide_here(pod, asked, attempts, entries)

    def _decide_here(
        self, pod: PodRecord, asked: list[PlaceBound], attempts: Attempts, entries: list[Entry]
    ) -> Outcome | Verdict | HeldBack | KeptOff:
        required = self._required(asked)
        for mask in self._masks(asked[0], required):
            placed = attempts.place_within(pod, mask)
            if isinstance(placed, Placement):
                entries.append(attempts.placer.entry_alone(pod, placed))
                self._note(asked, attempts.placer.statement.position_of[placed.node])
                return Outcome.SERVED
            if placed is not None:
                return placed
        if required is None:
            return decide_alone(pod, attempts, entries)
        found = attempts.by_retiring_within(pod, required)
        if found is None:
            return self._waits(pod, asked, attempts)
        node, retired = found
        entries.extend(retired)
        attempts.effects.say((pod.uid,), Verdict(code=Code.WAITING_FOR_DEVICE, detail=node))
        return Outcome.SERVED

    def required_of(self, pod: PodRecord) -> NodeMask:
        """Where a member has to be; None: anywhere."""
        return self._required(list(self._asked_of(pod)))

    def _asked_of(self, pod: PodRecord) -> Iterator[PlaceBound]:
        """What its subgroup asks, and all above it, the nearest first."""
        node = self.tree.numbers().get(pod.subgroup, 0)
        while True:
            if node in self.bounds:
                yield self.bounds[node]
            if not node:
                return
            node = self.tree.parents[node]

    def _required(self, asked: list[PlaceBound]) -> NodeMask:
        """Where it has to be: in all required domains that others are in; where none is, in any of the level."""
        found: NodeMask = None
        for bound in asked:
            if bound.required:
                held = bound.held_by(bound.required) or bound.tree.domains(bound.required)
                found = both(found, bound.tree.mask(*held))
        return found

    def _masks(self, bound: PlaceBound, required: NodeMask) -> Iterator[Bools]:
        """The domains in which others are, the smallest first, then all in which it may be."""
        for level in range(bound.preferred, bound.required, -1):
            inside = both(bound.tree.mask(*bound.held_by(level)), required)
            if inside is not None and inside.any():
                yield inside
        if required is not None:
            yield required

    def _note(self, asked: list[PlaceBound], position: int) -> None:
        """Others that are placed in this decision go beside it."""
        for bound in asked:
            bound.add(position)

    def _waits(self, pod: PodRecord, asked: list[PlaceBound], attempts: Attempts) -> Verdict | KeptOff:
        """Why it waits; where nodes are kept for others, it may be for these."""
        verdict, kept = self._out_of_place(pod, asked), attempts.kept
        if not kept.off or not kept.fit_any(attempts.placer, [pod.cls]):
            return verdict
        return KeptOff(msgspec.structs.replace(verdict, reserve=kept.cause(kept.off[0])))

    def _out_of_place(self, pod: PodRecord, asked: list[PlaceBound]) -> Verdict:
        bound = next(each for each in asked if each.required)
        held = bound.held_by(bound.required)[:1]
        cause = TopologyCause(
            topology=bound.asked.topology,
            level=bound.asked.required,
            owner=f"{pod.namespace}/{pod.pod_group}",
            subgroup=pod.subgroup,
            required=1,
            best=tuple(DomainRoom(bound.tree.name(domain), 0) for domain in held),
        )
        return Verdict(code=Code.TOPOLOGY_NOT_SATISFIED, topology=cause)
