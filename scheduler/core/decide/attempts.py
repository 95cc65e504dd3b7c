"""What one decision tries on its working copy, and what it learns of classes by that.

Pods of one class are judged once: after one of them fitted nowhere the others don't either, as long as the decision
only charges, unless they look for others, of which some were placed since. An eviction on paper ends that: what was
learned before one that stands is forgotten
(``Statement.evictions``). To lift the charge of an intent does not end it: its holders are placed at once or it is put
back, before all turns, or it is lifted after them (holders.py, revising.py). A class that fitted nowhere is not judged
again by later decisions until something changes that may help it (backlog/asleep.py). What a decision may spend is
bounded, and divided between namespaces (allowance.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import msgspec

from scheduler.core.backlog.asleep import Kept
from scheduler.core.backlog.kept_off import Off
from scheduler.core.backlog.notes import Notes
from scheduler.core.backlog.sayings import Key
from scheduler.core.backlog.sums import Columns
from scheduler.core.decide import queue_use
from scheduler.core.decide.allowance import Allowance, Limits
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.devices.device_fit import rule_of
from scheduler.core.explain.explain import explain_ways
from scheduler.core.model.plan import Placement, Retire
from scheduler.core.model.records import PodClass, PodRecord
from scheduler.core.model.resources import Resources
from scheduler.core.model.verdict import BerthCause, Code, NodeReason, Verdict
from scheduler.core.queues.accounts import Accounts, HeldBack
from scheduler.core.queues.berths import Berth
from scheduler.core.snapshot.node_mask import NodeMask, both, only

T = TypeVar("T")
#: The kind of reason (verdict.py) of nodes that are kept for others.
BERTH: Final = "berth"

#: What the steps of a decision cost, in operations of about a microsecond.
PLACING: Final = 50
HOLDING_BACK: Final = 70
_COMPARING: Final = 20
_JUDGING: Final = 180
#: The same for each node: of shares, and of shares for which each device is looked at; of all others one for so many.
_COUNTING: Final = 1
_LOOKING: Final = 60
_NODES_PER_OPERATION: Final = 10


class KeptOff(NamedTuple):
    """Why a pod is not placed though it fits: only on nodes that are kept for others."""

    verdict: Verdict


class Mark(NamedTuple):
    """How much there was of each at one time."""

    statement: int
    accounts: int
    hopeless: int
    roomless: int
    forgotten: int


@dataclass(slots=True)
class Attempts:
    """Placements tried so far, and ``notes`` of what they have shown."""

    snapshot: Snapshot
    now_ns: int
    limits: Limits
    allowance: Allowance
    notes: Notes
    wall_s: int = 0
    #: At which move of the working copy a class fitted nowhere (snapshot/pod_counts.py).
    moved_at: dict[PodClass, int] = field(default_factory=dict)
    #: Whether something was left to the next decision.
    has_put_off: bool = False
    #: Classes of which a pod was placed.
    fitting: set[PodClass] = field(default_factory=set)
    #: The highest priority of a pod that was put off and may fit: none of lower priority is placed before it.
    floor: int | None = None
    #: Classes whose verdicts are of this decision.
    judged: set[PodClass] = field(default_factory=set)
    #: What it has cost to keep room, by namespace, and classes for which there was none.
    keeping: Counter[str] = field(default_factory=Counter)
    roomless_on_paper: set[PodClass] = field(default_factory=set)
    #: Pods (UIDs) and gangs that have had their turn already, as holders of intents (holders.py).
    settled: set[str] = field(default_factory=set)
    settled_gangs: set[Key] = field(default_factory=set)
    #: Classes that fit nowhere: whether a supposed node would be brought for them (supposed_nodes.py).
    brings_node: dict[PodClass, bool] = field(default_factory=dict)
    #: Berths that keep off whoever has its turn, and classes that fit nowhere else, of that turn.
    off: tuple[Berth, ...] = ()
    kept_off: dict[PodClass, KeptOff] = field(default_factory=dict)
    #: Gangs that ask the same and were kept off by the same berths, by queue: what each of them says.
    kept_alike: dict[Hashable, Verdict] = field(default_factory=dict)
    #: What judging again for the counts has cost.
    recounting: int = 0
    #: What queues have, and were charged by this decision.
    accounts: Accounts = field(init=False)
    _hopeless: dict[PodClass, Verdict] = field(default_factory=dict)
    _roomless: dict[PodClass, None] = field(default_factory=dict)
    #: How many evictions stood when both were read last, and how often one of them ended what they say.
    _evictions: int = 0
    _forgotten: int = 0
    _placer: Placer | None = None

    def __post_init__(self) -> None:
        self.accounts = self.snapshot.queues.accounts()

    @property
    def placer(self) -> Placer:
        """The working copy, made when there is something to place."""
        if self._placer is None:
            self._placer = Placer(self.snapshot)
        return self._placer

    def begin_turn(self, off: tuple[Berth, ...]) -> None:
        """Somebody has its turn who is kept off by these berths."""
        self.off = off
        self.kept_off.clear()

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
            if any(pod.cls in self.fitting for pod in pods):
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

    def cost(self, cls: PodClass) -> int:
        """About what it takes to find that a class fits nowhere, and to say why."""
        ways = len(list(cls.requests()))
        nodes = len(self.snapshot.ledger.row_of)
        if not cls.request.is_shared or self.snapshot.supposes_nodes:
            return ways * (_JUDGING + nodes // _NODES_PER_OPERATION)
        is_any = rule_of(cls).takes_any
        return ways * (_JUDGING + nodes * (_COUNTING if all(map(is_any, cls.request.shared)) else _LOOKING))

    # --- what is known of classes --------------------------------------------------------------------------------
    @property
    def hopeless(self) -> dict[PodClass, Verdict]:
        """Classes that fit nowhere now."""
        self._forget_what_evictions_ended()
        return self._hopeless

    @property
    def roomless(self) -> dict[PodClass, None]:
        """Classes for which no idle reservations would make room either."""
        self._forget_what_evictions_ended()
        return self._roomless

    def _forget_what_evictions_ended(self) -> None:
        standing = self._standing_evictions
        if standing > self._evictions:
            self._forget()
        self._evictions = standing

    def _forget(self) -> None:
        self._hopeless.clear()
        self._roomless.clear()
        self._forgotten += 1

    @property
    def _standing_evictions(self) -> int:
        return 0 if self._placer is None else self._placer.statement.evictions

    def known(self, cls: PodClass, namespace: str) -> Verdict | None:
        """The verdict on a class of which it is known that it fits nowhere, and that nothing makes room for it."""
        if cls in self.hopeless and cls in self.roomless:
            return self.hopeless[cls]
        kept = None if self._standing_evictions else self.notes.kept(cls)
        if kept is None or cls in self.judged or not self.allowance.has_left(namespace):
            return None
        if self._may_fit(cls, kept, namespace):
            return None
        if cls in self.snapshot.recounts.classes and self.recounting < self.limits.retelling:
            self.recounting += self.cost(cls)
            return None
        self.hopeless[cls] = kept.verdict
        self.roomless[cls] = None
        return kept.verdict

    def _may_fit(self, cls: PodClass, kept: Kept, namespace: str) -> bool:
        asleep = self.snapshot.backlog.asleep
        if asleep.is_sure(cls, kept, self.snapshot.generation):
            return False
        self.allowance.spend(namespace, _COMPARING)
        still = asleep.still_out(cls, kept, self._tried())
        if still is not None:
            self.notes.failed(cls, still, is_told=False)
        return still is None

    def _tried(self) -> Columns | None:
        """What is left after all that was charged so far; None while nothing was tried."""
        if self._placer is None:
            return None
        statement, nodes = self._placer.statement, self.snapshot.ledger.nodes

        def column_of(row: int) -> int | None:
            node = nodes[row]
            return None if node is None else statement.position_of[node.name]

        return Columns(statement.table, column_of)

    # --- trying --------------------------------------------------------------------------------------------------
    def place(self, pod: PodRecord) -> Placement | Verdict | HeldBack | KeptOff:
        """Place and charge a pod, or say why it fits nowhere, or that its queue takes no more.

        A pod that fits on nodes only that are kept for others says nothing of its class.
        """
        if claim := self.placer.taken_claim(pod):
            return Verdict(code=Code.CLAIM_IN_USE, detail=claim)
        if not self._may_have_opened(pod.cls):
            known = self.hopeless.get(pod.cls) or self.known(pod.cls, pod.namespace)
            if known is not None:
                return known
            if pod.cls in self.kept_off:
                return self.kept_off[pod.cls]
        mask = self.placer.all_but(pod.cls.excluded)
        placed = self._place(pod, both(mask, self._allowed()))
        self._spend_on_counts(pod)
        if placed is None and self.off and (there := self._on_berths(pod, mask)) is not None:
            self.allowance.spend(pod.namespace, self.cost(pod.cls))
            return self._keep_off(pod.cls, mask) if isinstance(there, Placement) else there
        if placed is not None:
            self.allowance.spend(pod.namespace, PLACING)
            self.fitting.add(pod.cls)
            self.notes.fits(pod.cls)
            return placed
        self.allowance.spend(pod.namespace, self.cost(pod.cls))
        verdict = self.hopeless[pod.cls] = self._explain(pod.cls, mask)
        self.moved_at[pod.cls] = self.placer.statement.counts.moved
        return verdict

    def off_of(self, queue: str, use: Resources, asks: Hashable) -> Off:
        """Why what has its turn is kept off: by which berths, and what would change that (backlog/kept_off.py)."""
        leaf = self.accounts.tree.find(queue)
        return Off(queue if leaf is None else leaf.name, use, self.off, asks)

    def fits_on_berths(self, classes: Iterable[PodClass]) -> bool:
        """Whether a pod of one of these classes fits on nodes that are kept for others, as far as ranks tell."""
        kept = self._berths()
        return any(self.placer.ranking(way).fitting(kept) for cls in classes for way in self.placer.ways(cls))

    def _allowed(self) -> NodeMask:
        """Nodes that are kept for nobody else."""
        names = frozenset(name for berth in self.off for name in berth.nodes)
        return self.placer.all_but(names) if names else None

    def _berths(self) -> NodeMask:
        """The others."""
        return only((name for berth in self.off for name in berth.nodes), self.placer.statement.position_of)

    def _on_berths(self, pod: PodRecord, mask: NodeMask) -> Placement | HeldBack | None:
        """What would become of a pod on the nodes that are kept for others; nothing is charged."""
        mark = self.placer.statement.checkpoint(), self.accounts.checkpoint()
        found = self._place(pod, both(mask, self._berths()))
        self._spend_on_counts(pod)
        self.placer.statement.rollback(mark[0])
        self.accounts.rollback(mark[1])
        return found

    def _keep_off(self, cls: PodClass, mask: NodeMask) -> KeptOff:
        """Say for whom the nodes are kept that a class fits on."""
        ways, kept = self.placer.ways(cls), both(mask, self._berths())
        fits = [self.placer.ranking(way).fitting(kept) for way in ways]
        found = {position for positions in fits for position in positions}
        position_of = self.placer.statement.position_of
        first = next((b for b in self.off if any(position_of.get(n) in found for n in b.nodes)), self.off[0])
        verdict = self._explain(cls, mask)
        reasons = (*verdict.node_reasons, NodeReason(BERTH, "", max(1, len(found))))
        self.kept_off[cls] = KeptOff(
            msgspec.structs.replace(
                verdict, node_reasons=tuple(sorted(reasons)), shortfall=None, berth=self.cause(first)
            )
        )
        return self.kept_off[cls]

    def cause(self, berth: Berth) -> BerthCause:
        """For whom nodes are kept, as far as others are told."""
        minutes = max(0, self.wall_s - berth.since_s) // 60
        return BerthCause(holder=f"{berth.namespace}/{berth.name}", waited_min=minutes)

    def _may_have_opened(self, cls: PodClass) -> bool:
        """Whether pods that were placed since may let in a class that fitted nowhere."""
        may_open = cls.rules is not None and cls.rules.may_open
        return may_open and self.moved_at.get(cls, 0) != self.placer.statement.counts.moved

    def keep_room(self, pod: PodRecord) -> bool:
        """Charge a pod that can't be placed yet on the working copy only, if it fits.

        The same is done again in each decision, so it is no part of what the namespace may spend: others of it would
        have no turn, in any decision, as long as that lasts. It has a bound of its own, half of that.
        """
        cls, namespace = pod.cls, pod.namespace
        is_bounded = self.keeping[namespace] <= self.allowance.share // 2 and self.allowance.has_left(namespace)
        if not is_bounded:
            return False
        if cls in self.roomless_on_paper or cls in self.hopeless or self.placer.taken_claim(pod):
            return False
        if self.known(cls, namespace) is not None or self.held_back([pod]) is not None:
            return False
        if not self._is_judged(cls, namespace):
            return False
        placed = self._place(pod, both(self.placer.all_but(cls.excluded), self._allowed()))
        self.keeping[namespace] += self.placer.statement.counts.take_effort()
        if not isinstance(placed, Placement):
            self.keeping[namespace] += self.cost(cls)
            if placed is None and not self.off:
                self.roomless_on_paper.add(cls)
            return False
        self.keeping[namespace] += PLACING
        return True

    def place_on_paper(self, pod: PodRecord, mask: NodeMask = None) -> Placement | HeldBack | None:
        """Place and charge a pod without what is known of its class; None if it fits nowhere. It learns nothing."""
        placed = self._place(pod, both(mask, self.placer.all_but(pod.cls.excluded)))
        self._spend_on_counts(pod)
        return placed

    def _spend_on_counts(self, pod: PodRecord) -> None:
        """Charge the namespace of a pod for what it took to count pods for its rules: at once, or the next one pays."""
        self.allowance.spend(pod.namespace, self.placer.statement.counts.take_effort())

    def _place(self, pod: PodRecord, mask: NodeMask) -> Placement | HeldBack | None:
        """Place a pod where its queue takes what it uses there, by the first of its requests for which there is such.

        Memory is a larger part of a smaller card (kai-contract 14.4).
        """
        refused: HeldBack | None = None
        for number in range(len(self.placer.ways(pod.cls))):
            left, mark = mask, self.placer.statement.checkpoint()
            while (placed := self.placer.place_as(pod, number, left)) is not None:
                use = queue_use.placed(self.snapshot, pod, placed)
                verdict = self.accounts.refusal(use)
                if verdict is None:
                    self.accounts.charge(use)
                    return placed
                self.placer.statement.rollback(mark)
                refused = HeldBack(verdict, use if refused is None else use.or_less(refused.use), is_there=True)
                if not any(device.mem_mib for device in placed.devices):
                    break
                left = both(left, self.placer.with_larger_cards(placed.node))
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

        Where it gets a node of its own then nobody asks that.
        """
        if self.snapshot.supposes_nodes:
            return Verdict(code=Code.NO_NODE_FITS)
        placer, settings = self.placer, self.snapshot.settings
        first = {way.constraints: way for way in reversed(placer.ways(cls))} if cls.places else {cls.constraints: cls}
        rankings = [placer.ranking(way) for way in reversed(first.values())]
        return explain_ways(placer.statement, rankings, settings=settings, mask=mask)

    def make_room(self, pod: PodRecord) -> tuple[str, list[Retire]] | KeptOff | None:
        """Charge a whole-GPU pod where idle reservations can go for it: the node, and those that have to go."""
        if pod.cls in self.roomless or self.placer.taken_claim(pod):
            return None
        mask = self.placer.all_but(pod.cls.excluded)
        found = self.placer.wait_for_device(pod, both(mask, self._allowed()))
        if found is not None:
            self.accounts.charge(queue_use.asked(self.snapshot, [pod]))
        elif self.off and self._comes_free_on_berths(pod, mask):
            return self._keep_off(pod.cls, mask)
        else:
            self.roomless[pod.cls] = None
            self._keep(pod.cls)
        return found

    def _comes_free_on_berths(self, pod: PodRecord, mask: NodeMask) -> bool:
        """Whether a whole-GPU pod would wait for a device on nodes that are kept for others."""
        mark = self.placer.statement.checkpoint()
        found = self.placer.wait_for_device(pod, both(mask, self._berths()))
        self.placer.statement.rollback(mark)
        return found is not None

    def _keep(self, cls: PodClass) -> None:
        """Keep the verdict on a class for which nothing makes room, until something changes that may help it."""
        verdict = self.hopeless.get(cls)
        if verdict is not None:
            self.judged.add(cls)
            self.notes.failed(cls, self.as_of_now(cls, verdict), is_told=True)

    def as_of_now(self, cls: PodClass, verdict: Verdict) -> Kept:
        """A verdict on a class, as it can be kept: it holds for what nodes have now."""
        asleep = self.snapshot.backlog.asleep
        return asleep.kept(cls, verdict, charged=self.charged(), generation=self.snapshot.generation)

    # --- taking back ---------------------------------------------------------------------------------------------
    def charged(self) -> set[int]:
        """Rows of the ledger that this decision has charged."""
        return set() if self._placer is None else self._placer.statement.charged()

    def checkpoint(self) -> Mark:
        """A point to come back to."""
        statement = self.placer.statement.checkpoint()
        known = len(self.hopeless), len(self.roomless)
        return Mark(statement, self.accounts.checkpoint(), *known, self._forgotten)

    def rollback(self, mark: Mark) -> None:
        """Take back all charges since ``mark``, and what was learned on top of them."""
        self.placer.statement.rollback(mark.statement)
        self.accounts.rollback(mark.accounts)
        if self._forgotten != mark.forgotten:
            self._forget()
        _cut(self._hopeless, mark.hopeless)
        _cut(self._roomless, mark.roomless)
        self.kept_off.clear()


def _cut(known: dict[PodClass, T], length: int) -> None:
    """Take back what was noted last, until so much is left as there was before."""
    while len(known) > length:
        known.popitem()
