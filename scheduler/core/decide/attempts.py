"""What one decision tries on its working copy. What it learns of classes by that is kept apart (known_classes.py).

What a decision may spend is bounded, and divided between namespaces (allowance.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler.core.backlog.notes import Notes
from scheduler.core.backlog.sayings import Key
from scheduler.core.decide import costs, queue_use
from scheduler.core.decide.allowance import Allowance, Limits
from scheduler.core.decide.kept_nodes import KeptNodes, KeptOff
from scheduler.core.decide.known_classes import SEARCHED_ON_NS, Known, KnownClasses
from scheduler.core.decide.place_bounds import PlaceBound, place_bounds
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.explain.explain import explain_ways
from scheduler.core.model.plan import Placement, Retire
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import Accounts, HeldBack
from scheduler.core.snapshot.node_mask import NodeMask, both


class Mark(NamedTuple):
    """How much there was of each at one time."""

    statement: int
    accounts: int
    known: Known


@dataclass(slots=True)
class Attempts:
    """Placements tried so far, and ``notes`` of what they have shown."""

    snapshot: Snapshot
    now_ns: int
    limits: Limits
    allowance: Allowance
    notes: Notes
    wall_s: int = 0
    #: Whether something was left to the next decision.
    has_put_off: bool = False
    #: The highest priority of a pod that was put off and may fit: none of lower priority is placed before it.
    floor: int | None = None
    #: What it has cost to keep room, by namespace, and classes for which there was none.
    keeping: Counter[str] = field(default_factory=Counter)
    roomless_on_paper: set[PodClass] = field(default_factory=set)
    #: Pods (UIDs) and gangs that have had their turn already, as holders of intents (holders.py).
    settled: set[str] = field(default_factory=set)
    settled_gangs: set[Key] = field(default_factory=set)
    #: Classes that fit nowhere: whether a supposed node would be brought for them (supposed_nodes.py).
    brings_node: dict[PodClass, bool] = field(default_factory=dict)
    #: What gangs ask of places, as far as that was looked at (place_bounds.py).
    _bounds: dict[Key, Mapping[int, PlaceBound] | Verdict] = field(default_factory=dict)
    #: What is known of classes, and nodes that are kept for others.
    classes: KnownClasses = field(init=False)
    kept: KeptNodes = field(init=False)
    #: What queues have, and were charged by this decision.
    accounts: Accounts = field(init=False)

    def __post_init__(self) -> None:
        self.accounts = self.snapshot.queues.accounts()
        self.kept = KeptNodes(self.accounts)
        self.classes = KnownClasses(self.snapshot, self.limits, self.allowance, self.notes)

    @property
    def placer(self) -> Placer:
        """The working copy, made when there is something to place."""
        if self.classes.placer is None:
            self.classes.placer = Placer(self.snapshot)
        return self.classes.placer

    def bounds_of(self, group: PodGroupRecord) -> Mapping[int, PlaceBound] | Verdict:
        """What a gang asks of places, by the node of its tree of minimums, or why that can't be told."""
        if not group.levels:
            return {}
        key = group.namespace, group.name
        if key not in self._bounds:
            self._bounds[key] = place_bounds(self.snapshot, group)
        return self._bounds[key]

    # --- what may be tried ---------------------------------------------------------------------------------------
    def put_off(self) -> bool:
        """Note that something is left to the next decision, which follows at once; return False."""
        self.has_put_off = True
        return False

    def affords(self, pods: Sequence[PodRecord]) -> bool:
        """Whether these pods of one namespace are decided on now. Else they are left to the next decision.

        What is judged stays judged, so each decision gets further than the one before.
        """
        namespace = pods[0].namespace
        priority = max(pod.priority for pod in pods)
        if self.floor is not None and priority < self.floor:
            return self.put_off()
        if not self.allowance.has_left(namespace):
            if any(pod.cls in self.classes.fitting for pod in pods):
                self.floor = priority
            return self.put_off()
        return all(self._is_judged(cls, namespace) for cls in dict.fromkeys(pod.cls for pod in pods))

    def _is_judged(self, cls: PodClass, namespace: str) -> bool:
        """Judge the nodes for the constraints of a class; False if that is not done yet."""
        ledger = self.snapshot.ledger
        for constraints in cls.all_constraints():
            if ledger.effort(constraints) and not self.allowance.has_left(namespace):
                return self.put_off()
            if ledger.effort(constraints):
                self.allowance.spend(namespace, ledger.judge_some(constraints, self.limits.most // 2))
            if ledger.effort(constraints):
                return self.put_off()
        return True

    # --- trying --------------------------------------------------------------------------------------------------
    def place(self, pod: PodRecord) -> Placement | Verdict | HeldBack | KeptOff:
        """Place and charge a pod, or say why it fits nowhere, or that its queue takes no more.

        A pod that fits on nodes only that are kept for others says nothing of its class.
        """
        placer = self.placer
        if taken := placer.taken_claim(pod):
            return taken
        if not self.classes.may_have_opened(pod.cls):
            known = self.classes.hopeless.get(pod.cls) or self.classes.verdict(pod.cls, pod.namespace)
            if known is not None:
                return known
            if pod.cls in self.kept.kept_off:
                return self.kept.kept_off[pod.cls]
        mask = placer.all_but(pod.cls.excluded)
        placed = self._place(pod, both(mask, self.kept.open_to(placer)))
        self._spend_on_looks(pod)
        if placed is None and self.kept.off and (there := self._on_berths(pod, mask)) is not None:
            self.allowance.spend(pod.namespace, costs.of_judging(self.snapshot, pod.cls))
            return self._keep_off(pod.cls, mask) if isinstance(there, Placement) else there
        if placed is not None:
            self.allowance.spend(pod.namespace, costs.PLACING)
            self.classes.fits(pod.cls)
            return placed
        self.allowance.spend(pod.namespace, costs.of_judging(self.snapshot, pod.cls))
        verdict = self._explain(pod.cls, mask)
        self._spend_on_looks(pod)
        if self.classes.is_cut_short(pod.cls):
            self.notes.search_on(self.now_ns + SEARCHED_ON_NS)
        self.classes.failed(pod.cls, verdict)
        return verdict

    def _on_berths(self, pod: PodRecord, mask: NodeMask) -> Placement | HeldBack | None:
        """What would become of a pod on the nodes that are kept for others; nothing is charged."""
        mark = self.placer.statement.checkpoint(), self.accounts.checkpoint()
        found = self._place(pod, both(mask, self.kept.closed_to(self.placer)))
        self._spend_on_looks(pod)
        self.placer.statement.rollback(mark[0])
        self.accounts.rollback(mark[1])
        return found

    def _keep_off(self, cls: PodClass, mask: NodeMask) -> KeptOff:
        return self.kept.keep_off(self.placer, cls, mask, self._explain(cls, mask))

    def keep_room(self, pod: PodRecord) -> bool:
        """Charge a pod that can't be placed yet on the working copy only, if it fits.

        The same is done again in each decision, so it is no part of what the namespace may spend: others of it would
        have no turn, in any decision, as long as that lasts. It has a bound of its own, half of that.
        """
        cls, namespace = pod.cls, pod.namespace
        is_bounded = self.keeping[namespace] <= self.allowance.share // 2 and self.allowance.has_left(namespace)
        if not is_bounded:
            return False
        if cls in self.roomless_on_paper or cls in self.classes.hopeless or self.placer.taken_claim(pod):
            return False
        if self.classes.verdict(cls, namespace) is not None or self.held_back([pod]) is not None:
            return False
        if not self._is_judged(cls, namespace):
            return False
        placed = self._place(pod, both(self.placer.all_but(cls.excluded), self.kept.open_to(self.placer)))
        self.keeping[namespace] += self.placer.statement.take_effort()
        if not isinstance(placed, Placement):
            self.keeping[namespace] += costs.of_judging(self.snapshot, cls)
            if placed is None and not self.kept.off:
                self.roomless_on_paper.add(cls)
            return False
        self.keeping[namespace] += costs.PLACING
        return True

    def place_within(self, pod: PodRecord, within: NodeMask) -> Placement | Verdict | HeldBack | None:
        """Place and charge a pod on these nodes, as far as they are kept for nobody else; None if it fits on none.

        That it fits on none of them says nothing of its class.
        """
        if taken := self.placer.taken_claim(pod):
            return taken
        placed = self._place(pod, self._among(pod, within))
        self._spend_on_looks(pod)
        self.allowance.spend(pod.namespace, costs.PLACING)
        if isinstance(placed, Placement):
            self.classes.fits(pod.cls)
        return placed

    def make_room_within(self, pod: PodRecord, within: NodeMask) -> tuple[str, list[Retire]] | None:
        """Charge a whole-GPU pod on one of these nodes where idle reservations can go for it; as ``make_room``."""
        found = None if self.placer.taken_claim(pod) else self.placer.wait_for_device(pod, self._among(pod, within))
        if found is not None:
            self.accounts.charge(queue_use.asked(self.snapshot, [pod]))
        return found

    def _among(self, pod: PodRecord, within: NodeMask) -> NodeMask:
        return both(within, both(self.placer.all_but(pod.cls.excluded), self.kept.open_to(self.placer)))

    def place_on_paper(self, pod: PodRecord, mask: NodeMask = None) -> Placement | HeldBack | None:
        """Place and charge a pod without what is known of its class; None if it fits nowhere. It learns nothing."""
        placed = self._place(pod, both(mask, self.placer.all_but(pod.cls.excluded)))
        self._spend_on_looks(pod)
        return placed

    def _spend_on_looks(self, pod: PodRecord) -> None:
        """Charge its namespace for counts of a pod's rules and choices for its claims: at once, or the next pays."""
        self.allowance.spend(pod.namespace, self.placer.statement.take_effort())

    def _place(self, pod: PodRecord, mask: NodeMask) -> Placement | HeldBack | None:
        """Place a pod where its queue takes what it uses there, by the first of its requests for which there is such.

        Memory is a larger part of a smaller card (kai-contract 14.4).
        """
        refused: HeldBack | None = None
        placer = self.placer
        for number in range(len(placer.ways(pod.cls))):
            left, mark = mask, placer.statement.checkpoint()
            while (placed := placer.place_as(pod, number, left)) is not None:
                use = queue_use.placed(self.snapshot, pod, placed)
                verdict = self.accounts.refusal(use)
                if verdict is None:
                    self.accounts.charge(use)
                    return placed
                placer.statement.rollback(mark)
                refused = HeldBack(verdict, use if refused is None else use.or_less(refused.use), is_there=True)
                if not any(device.mem_mib for device in placed.devices):
                    break
                left = both(left, placer.with_larger_cards(placed.node))
        return refused

    # --- queues --------------------------------------------------------------------------------------------------
    def held_back(self, pods: Sequence[PodRecord]) -> HeldBack | None:
        """Why the queue of these pods, of one gang or a single one, can't take the least that they would use."""
        if self.accounts.tree.limits_nothing:
            return None
        use = queue_use.least(self.snapshot, pods)
        verdict = self.accounts.refusal(use)
        return None if verdict is None else HeldBack(verdict, use)

    def _explain(self, cls: PodClass, mask: NodeMask) -> Verdict:
        """Why a class fits nowhere: on each kind of node by what is asked first there.

        Where it gets a node of its own then nobody asks that, and not where a change is only tried.
        """
        if self.snapshot.supposes_nodes or not self.limits.explains:
            return Verdict(code=Code.NO_NODE_FITS)
        placer, settings = self.placer, self.snapshot.settings
        differs = cls.places or cls.backed
        first = {way.constraints: way for way in reversed(placer.ways(cls))} if differs else {cls.constraints: cls}
        rankings = [placer.ranking(way) for way in reversed(first.values())]
        return explain_ways(placer.statement, rankings, settings=settings, mask=mask)

    def make_room(self, pod: PodRecord) -> tuple[str, list[Retire]] | KeptOff | None:
        """Charge a whole-GPU pod where idle reservations can go for it: the node, and those that have to go."""
        if pod.cls in self.classes.roomless or self.placer.taken_claim(pod):
            return None
        mask = self.placer.all_but(pod.cls.excluded)
        found = self.placer.wait_for_device(pod, both(mask, self.kept.open_to(self.placer)))
        if found is not None:
            self.accounts.charge(queue_use.asked(self.snapshot, [pod]))
        elif self.kept.off and self._comes_free_on_berths(pod, mask):
            return self._keep_off(pod.cls, mask)
        else:
            self.classes.has_no_room(pod.cls)
        return found

    def _comes_free_on_berths(self, pod: PodRecord, mask: NodeMask) -> bool:
        """Whether a whole-GPU pod would wait for a device on nodes that are kept for others."""
        mark = self.placer.statement.checkpoint()
        found = self.placer.wait_for_device(pod, both(mask, self.kept.closed_to(self.placer)))
        self.placer.statement.rollback(mark)
        return found is not None

    # --- taking back ---------------------------------------------------------------------------------------------
    def charged(self) -> set[int]:
        """Rows of the ledger that this decision has charged."""
        return set() if self.classes.placer is None else self.classes.placer.statement.charged()

    def checkpoint(self) -> Mark:
        """A point to come back to."""
        return Mark(self.placer.statement.checkpoint(), self.accounts.checkpoint(), self.classes.checkpoint())

    def rollback(self, mark: Mark) -> None:
        """Take back all charges since ``mark``, and what was learned on top of them."""
        self.placer.statement.rollback(mark.statement)
        self.accounts.rollback(mark.accounts)
        self.classes.rollback(mark.known)
        self.kept.kept_off.clear()
