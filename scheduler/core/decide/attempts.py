"""What one decision tries on its working copy, and what it knows by that of classes of pods, apart from the copy.

Pods of one class are judged once: after one of them fitted nowhere the others don't either, as long as the decision
only charges, unless they look for others, of which some were placed since. An eviction on paper ends that. What a
decision may spend is bounded, and divided between namespaces (allowance.py). While one group has its turn, nodes may be
reserved for others (reserved_nodes.py). What pods would use of their queue is counted here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import msgspec

from gpu.bind_request import PlannedDevice
from scheduler.core.decide.allowance import COST_OF_COMPARING, COST_OF_PLACING, Allowance, Limits, cost_of_judging
from scheduler.core.decide.gang_search import PlaceBound, place_bounds
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.explain.explain import explain_ways
from scheduler.core.model.plan import Placement, Retire
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code, NodeReason, ReserveCause, Verdict
from scheduler.core.queues.accounts import Accounts, HeldBack, Use
from scheduler.core.queues.reserved_nodes import NodeReserve
from scheduler.core.queues.use import is_fixed, of_counts, of_pods, planned, queue_of
from scheduler.core.scheduling_queue.effects import Effects
from scheduler.core.scheduling_queue.held_back import Off
from scheduler.core.scheduling_queue.hints import Columns
from scheduler.core.scheduling_queue.unschedulable import Kept
from scheduler.core.scheduling_queue.verdicts import Key
from scheduler.core.snapshot.node_count import NodeMask, both, only
from scheduler.core.snapshot.statement import Statement


def least_use(snapshot: Snapshot, pods: Sequence[PodRecord]) -> Use:
    """The least that these pods, of one gang or a single one, come to use wherever they are placed."""
    return _use(snapshot, pods, of_pods(pods, snapshot.queues.least))


def asked_use(snapshot: Snapshot, pods: Sequence[PodRecord]) -> Use:
    """What these pods ask, as it counts while they wait."""
    return _use(snapshot, pods, of_pods(pods, snapshot.queues.asked))


def placed_use(snapshot: Snapshot, pod: PodRecord, placement: Placement) -> Use:
    """What a pod uses where it is placed: memory is a larger part of a smaller card (as in KAI)."""
    return _use(snapshot, [pod], planned(pod.cls.demand, placement.devices, claimed_nano=placement.claimed_nano))


def planned_use(snapshot: Snapshot, pod: PodRecord, devices: Iterable[PlannedDevice]) -> Use:
    """What a pod uses on the devices that are planned for it."""
    return _use(snapshot, [pod], planned(pod.cls.demand, devices))


def _use(snapshot: Snapshot, pods: Sequence[PodRecord], amounts: Resources) -> Use:
    pod = pods[0]
    group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
    # Of a gang that can be preempted in part only that part counts against quotas: each is looked at where it goes.
    are_fixed = all(is_fixed(each, group) for each in pods)
    return Use(queue_of(pod, group), amounts, are_fixed)


def asked_amounts(snapshot: Snapshot, counts: Iterable[tuple[PodClass, int]]) -> Resources:
    """What these numbers of pods of these classes ask."""
    return of_counts(counts, snapshot.queues.asked)


def least_amounts(snapshot: Snapshot, counts: Iterable[tuple[PodClass, int]]) -> Resources:
    """The least that these numbers of pods of these classes come to use."""
    return of_counts(counts, snapshot.queues.least)


T = TypeVar("T")
#: When a search for devices that was cut short goes on, if nothing happens before.
SEARCHED_ON_NS: Final = 1_000_000_000


class Known(NamedTuple):
    """How much was known at one time."""

    hopeless: int
    roomless: int
    forgotten: int


@dataclass(slots=True)
class KnownClasses:
    """One decision's. ``placer``: of its working copy; None as long as nothing was tried.

    Nothing here refers to what holds it: a cycle would keep the working copy, some MiB, until garbage is looked for.
    """

    snapshot: Snapshot
    limits: Limits
    allowance: Allowance
    effects: Effects
    placer: Placer | None = None
    #: Classes of which a pod was placed.
    fitting: set[PodClass] = field(default_factory=set)
    #: Classes whose verdicts are of this decision.
    judged: set[PodClass] = field(default_factory=set)
    #: At which move of the working copy a class fitted nowhere (snapshot/pod_counts.py).
    _moved_at: dict[PodClass, int] = field(default_factory=dict)
    #: What judging again for the counts has cost.
    _recounting: int = 0
    _hopeless: dict[PodClass, Verdict] = field(default_factory=dict)
    _roomless: dict[PodClass, None] = field(default_factory=dict)
    #: How many evictions stood when both were read last, and how often one of them ended what they say.
    _evictions: int = 0
    _forgotten: int = 0

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
        standing = self._nominated_evictions
        if standing > self._evictions:
            self._forget()
        self._evictions = standing

    def _forget(self) -> None:
        self._hopeless.clear()
        self._roomless.clear()
        self._forgotten += 1

    @property
    def _nominated_evictions(self) -> int:
        statement = self._statement()
        return 0 if statement is None else statement.evictions

    # --- asking --------------------------------------------------------------------------------------------------
    def verdict(self, cls: PodClass, namespace: str) -> Verdict | None:
        """The verdict on a class of which it is known that it fits nowhere, and that nothing makes room for it."""
        if cls in self.hopeless and cls in self.roomless:
            return self.hopeless[cls]
        kept = None if self._nominated_evictions else self.effects.kept(cls)
        if kept is None or cls in self.judged or not self.allowance.has_left(namespace):
            return None
        if self._may_fit(cls, kept, namespace):
            return None
        if cls in self.snapshot.recounts.classes and self._recounting < self.limits.retelling:
            self._recounting += cost_of_judging(self.snapshot, cls)
            return None
        self.hopeless[cls] = kept.verdict
        self.roomless[cls] = None
        return kept.verdict

    def _may_fit(self, cls: PodClass, kept: Kept, namespace: str) -> bool:
        unschedulable = self.snapshot.scheduling_queue.unschedulable
        if unschedulable.is_sure(cls, kept, self.snapshot.generation):
            return False
        self.allowance.spend(namespace, COST_OF_COMPARING)
        still = unschedulable.still_out(cls, kept, self._tried())
        if still is not None:
            self.effects.failed(cls, still, is_told=False)
        return still is None

    def _tried(self) -> Columns | None:
        """What is left after all that was charged so far; None while nothing was tried."""
        statement, nodes = self._statement(), self.snapshot.ledger.nodes
        if statement is None:
            return None

        def column_of(row: int) -> int | None:
            node = nodes[row]
            return None if node is None else statement.position_of[node.name]

        return Columns(statement.table, column_of)

    def may_have_opened(self, cls: PodClass) -> bool:
        """Whether pods that were placed since may let in a class that fitted nowhere."""
        statement = self._statement()
        may_open = cls.rules is not None and cls.rules.may_open
        return may_open and statement is not None and self._moved_at.get(cls, 0) != statement.counts.moved

    # --- learning ------------------------------------------------------------------------------------------------
    def fits(self, cls: PodClass) -> None:
        """A pod of a class was placed."""
        self.fitting.add(cls)
        self.effects.fits(cls)

    def failed(self, cls: PodClass, verdict: Verdict) -> None:
        """A pod of a class fits nowhere."""
        self.hopeless[cls] = verdict
        statement = self._statement()
        self._moved_at[cls] = 0 if statement is None else statement.counts.moved

    def has_no_room(self, cls: PodClass) -> None:
        """Nothing makes room for a class either: keep the verdict on it until something changes that may help it."""
        self.roomless[cls] = None
        verdict = self.hopeless.get(cls)
        if verdict is not None:
            self.judged.add(cls)
            self.effects.failed(cls, self.as_of_now(cls, verdict), is_told=True)

    def as_of_now(self, cls: PodClass, verdict: Verdict) -> Kept:
        """A verdict on a class, as it can be kept: it holds for what nodes have now."""
        unschedulable, placer = self.snapshot.scheduling_queue.unschedulable, self.placer
        charged = set[int]() if placer is None else placer.statement.charged()
        closed = None if placer is None else placer.closed_by_rules(cls)
        return unschedulable.kept(cls, verdict, charged=charged, generation=self.snapshot.generation, closed=closed)

    def is_cut_short(self, cls: PodClass) -> bool:
        """Whether the search for devices for a class ended before all nodes were looked at: it goes on later."""
        statement = self._statement()
        if statement is None or not (cls.devices or cls.backed):
            return False
        return any(statement.allocating.is_cut_short(way.devices) for way in cls.ways() if way.devices)

    def _statement(self) -> Statement | None:
        return None if self.placer is None else self.placer.statement

    # --- taking back ---------------------------------------------------------------------------------------------
    def checkpoint(self) -> Known:
        """A point to come back to."""
        return Known(len(self.hopeless), len(self.roomless), self._forgotten)

    def rollback(self, mark: Known) -> None:
        """Forget what was learned on top of charges that are taken back."""
        if self._forgotten != mark.forgotten:
            self._forget()
        _cut(self._hopeless, mark.hopeless)
        _cut(self._roomless, mark.roomless)


def _cut(known: dict[PodClass, T], length: int) -> None:
    """Take back what was noted last, until so much is left as there was before."""
    while len(known) > length:
        known.popitem()


#: The kind of reason (verdict.py) of nodes that are kept for others.
RESERVE: Final = "reserve"


class KeptOff(NamedTuple):
    """Why a pod is not placed though it fits: only on nodes that are kept for others."""

    verdict: Verdict


@dataclass(slots=True)
class KeptNodes:
    """``off``: node reserves that keep off the group that has its turn."""

    accounts: Accounts
    off: tuple[NodeReserve, ...] = ()
    #: Classes that fit nowhere else, of that turn.
    kept_off: dict[PodClass, KeptOff] = field(default_factory=dict)
    #: Gangs that ask the same and were kept off by the same node reserves, by queue: what each of them says.
    kept_alike: dict[Hashable, Verdict] = field(default_factory=dict)

    def begin_turn(self, off: tuple[NodeReserve, ...]) -> None:
        """Somebody has its turn who is kept off by these node reserves."""
        self.off = off
        self.kept_off.clear()

    def open_to(self, placer: Placer) -> NodeMask:
        """Nodes that are kept for nobody else."""
        names = frozenset(name for reserve in self.off for name in reserve.nodes)
        return placer.all_but(names) if names else None

    def closed_to(self, placer: Placer) -> NodeMask:
        """The others."""
        return only((name for reserve in self.off for name in reserve.nodes), placer.statement.position_of)

    def fit_any(self, placer: Placer, classes: Iterable[PodClass]) -> bool:
        """Whether a pod of one of these classes fits on nodes that are kept for others, as far as ranks tell."""
        kept = self.closed_to(placer)
        return any(placer.ranking(way).fitting(kept) for cls in classes for way in placer.ways(cls))

    def keep_off(self, placer: Placer, cls: PodClass, mask: NodeMask, elsewhere: Verdict) -> KeptOff:
        """Say for whom the nodes are kept that a class fits on. ``elsewhere``: why it fits on no others."""
        ways, kept = placer.ways(cls), both(mask, self.closed_to(placer))
        fits = [placer.ranking(way).fitting(kept) for way in ways]
        found = {position for positions in fits for position in positions}
        position_of = placer.statement.position_of
        first = next((b for b in self.off if any(position_of.get(n) in found for n in b.nodes)), self.off[0])
        reasons = (*elsewhere.node_reasons, NodeReason(RESERVE, "", max(1, len(found))))
        self.kept_off[cls] = KeptOff(
            msgspec.structs.replace(
                elsewhere, node_reasons=tuple(sorted(reasons)), shortfall=None, reserve=self.cause(first)
            )
        )
        return self.kept_off[cls]

    def cause(self, reserve: NodeReserve) -> ReserveCause:
        """For whom nodes are kept, as far as others are told."""
        return ReserveCause(owner=f"{reserve.namespace}/{reserve.name}", since_s=reserve.since_s, queue=reserve.queue)

    def off_of(self, queue: str, use: Resources, asks: Hashable) -> Off:
        """Why what has its turn is kept off: by which node reserves, and what would change that.

        See scheduling_queue/held_back.py.
        """
        leaf = self.accounts.tree.find(queue)
        return Off(queue if leaf is None else leaf.name, use, self.off, asks)


class Mark(NamedTuple):
    """How much there was of each at one time."""

    statement: int
    accounts: int
    known: Known


@dataclass(slots=True)
class Attempts:
    """Placements tried so far, and ``effects`` of what they have shown."""

    snapshot: Snapshot
    now_ns: int
    limits: Limits
    allowance: Allowance
    effects: Effects
    wall_s: int = 0
    #: Whether something was left to the next decision.
    has_put_off: bool = False
    #: The highest priority of a pod that was put off and may fit: none of lower priority is placed before it.
    floor: int | None = None
    #: What it has cost to keep room, by namespace, and classes for which there was none.
    keeping: Counter[str] = field(default_factory=Counter)
    roomless_on_paper: set[PodClass] = field(default_factory=set)
    #: Pods (UIDs) and gangs that have had their turn already, as nominated pods of nominations (nominations.py).
    settled: set[str] = field(default_factory=set)
    settled_gangs: set[Key] = field(default_factory=set)
    #: Classes that fit nowhere: whether a supposed node would be brought for them (single_pods.py).
    brings_node: dict[PodClass, bool] = field(default_factory=dict)
    #: What gangs ask of places, as far as that was looked at (gang_search.py).
    _bounds: dict[Key, Mapping[int, PlaceBound] | Verdict] = field(default_factory=dict)
    #: What is known of classes, and nodes that are kept for others.
    classes: KnownClasses = field(init=False)
    kept: KeptNodes = field(init=False)
    #: What queues have, and were charged by this decision.
    accounts: Accounts = field(init=False)

    def __post_init__(self) -> None:
        self.accounts = self.snapshot.queues.accounts()
        self.kept = KeptNodes(self.accounts)
        self.classes = KnownClasses(self.snapshot, self.limits, self.allowance, self.effects)

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
        if placed is None and self.kept.off and (there := self._on_reserves(pod, mask)) is not None:
            self.allowance.spend(pod.namespace, cost_of_judging(self.snapshot, pod.cls))
            return self._keep_off(pod.cls, mask) if isinstance(there, Placement) else there
        if placed is not None:
            self.allowance.spend(pod.namespace, COST_OF_PLACING)
            self.classes.fits(pod.cls)
            return placed
        self.allowance.spend(pod.namespace, cost_of_judging(self.snapshot, pod.cls))
        verdict = self._explain(pod.cls, mask)
        self._spend_on_looks(pod)
        if self.classes.is_cut_short(pod.cls):
            self.effects.search_on(self.now_ns + SEARCHED_ON_NS)
        self.classes.failed(pod.cls, verdict)
        return verdict

    def _on_reserves(self, pod: PodRecord, mask: NodeMask) -> Placement | HeldBack | None:
        """What would become of a pod on the nodes that are kept for others; nothing is charged."""
        mark = self.placer.statement.checkpoint(), self.accounts.checkpoint()
        found = self._place(pod, both(mask, self.kept.closed_to(self.placer)))
        self._spend_on_looks(pod)
        self.placer.statement.rollback(mark[0])
        self.accounts.rollback(mark[1])
        return found

    def _keep_off(self, cls: PodClass, mask: NodeMask) -> KeptOff:
        return self.kept.keep_off(self.placer, cls, mask, self._explain(cls, mask))

    def keep_place(self, pod: PodRecord) -> bool:
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
            self.keeping[namespace] += cost_of_judging(self.snapshot, cls)
            if placed is None and not self.kept.off:
                self.roomless_on_paper.add(cls)
            return False
        self.keeping[namespace] += COST_OF_PLACING
        return True

    def place_within(self, pod: PodRecord, within: NodeMask) -> Placement | Verdict | HeldBack | None:
        """Place and charge a pod on these nodes, as far as they are kept for nobody else; None if it fits on none.

        That it fits on none of them says nothing of its class.
        """
        if taken := self.placer.taken_claim(pod):
            return taken
        placed = self._place(pod, self._among(pod, within))
        self._spend_on_looks(pod)
        self.allowance.spend(pod.namespace, COST_OF_PLACING)
        if isinstance(placed, Placement):
            self.classes.fits(pod.cls)
        return placed

    def by_retiring_within(self, pod: PodRecord, within: NodeMask) -> tuple[str, list[Retire]] | None:
        """Charge a whole-GPU pod on one of these nodes where idle reservations can go for it; as ``by_retiring``."""
        found = None if self.placer.taken_claim(pod) else self.placer.wait_for_device(pod, self._among(pod, within))
        if found is not None:
            self.accounts.charge(asked_use(self.snapshot, [pod]))
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

        Memory is a larger part of a smaller card (as in KAI).
        """
        refused: HeldBack | None = None
        placer = self.placer
        for number in range(len(placer.ways(pod.cls))):
            left, mark = mask, placer.statement.checkpoint()
            while (placed := placer.place_as(pod, number, left)) is not None:
                use = placed_use(self.snapshot, pod, placed)
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
        use = least_use(self.snapshot, pods)
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

    def by_retiring(self, pod: PodRecord) -> tuple[str, list[Retire]] | KeptOff | None:
        """Charge a whole-GPU pod where idle reservations can go for it: the node, and those that have to go."""
        if pod.cls in self.classes.roomless or self.placer.taken_claim(pod):
            return None
        mask = self.placer.all_but(pod.cls.excluded)
        found = self.placer.wait_for_device(pod, both(mask, self.kept.open_to(self.placer)))
        if found is not None:
            self.accounts.charge(asked_use(self.snapshot, [pod]))
        elif self.kept.off and self._comes_free_on_reserves(pod, mask):
            return self._keep_off(pod.cls, mask)
        else:
            self.classes.has_no_room(pod.cls)
        return found

    def _comes_free_on_reserves(self, pod: PodRecord, mask: NodeMask) -> bool:
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
