"""Places members of a gang on the working copy, for the searches that start one: a member at a time, on which nodes.

What members were given, and why others were passed over, is the start as far as it got.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import msgspec
from typing_extensions import override

from scheduler.core.decide import supposed_nodes
from scheduler.core.decide.attempts import Attempts, Mark
from scheduler.core.decide.domain_search import Unsatisfied
from scheduler.core.decide.gang_search import Tried
from scheduler.core.decide.kept_nodes import KeptOff
from scheduler.core.decide.shared_claims import SharedClaims
from scheduler.core.model.plan import Attempt, Entry, Gang, Placement, Prepare, Retire
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import DIMENSIONS
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import CLAIMS_IN_USE, Code, Verdict
from scheduler.core.queues.accounts import HeldBack
from scheduler.core.snapshot.node_mask import NodeMask, both


@dataclass(slots=True)
class Start:
    """A gang's start as far as it got."""

    placed: list[tuple[PodRecord, Placement]] = field(default_factory=list)
    #: Nodes where a device has to come back first, with the reservations that have to go for it.
    waiting: list[tuple[str, list[Retire]]] = field(default_factory=list)
    is_whole: bool = False
    #: Members (UIDs) that found a place, also where it was taken back.
    fitted: set[str] = field(default_factory=set)
    #: Why the first member that was passed over fitted nowhere; and why the first way to start failed for want of room.
    first_failure: Verdict | None = None
    failed: Verdict | None = None
    #: Whether nodes that are kept for others would have taken a member.
    is_kept_off: bool = False
    #: That the queue takes no more in one way or all: of all members that were placed, and the one that was not.
    held_back: HeldBack | None = None
    #: Where there was no room: how many members found a place, and in which subgroup how many, of too few.
    placed_at_most: int = 0
    short: tuple[str, int] = ("", 0)
    #: The required level that no domain satisfied, and whether the search for one ended early.
    unsatisfied: Unsatisfied | None = None
    is_cut: bool = False

    @property
    def waits_on(self) -> str:
        """The node where a device has to come back first; "" if there is none."""
        return self.waiting[-1][0] if self.waiting else ""

    @property
    def retired(self) -> list[Retire]:
        """Reservations that have to go."""
        return [each for _, retired in self.waiting for each in retired]

    def entry(self, group: PodGroupRecord, attempts: Attempts) -> Entry:
        """One entry for all; a single member that completes the minimum needs no plan of its own."""
        placements = tuple(placement for _, placement in self.placed)
        if any(placement.volumes or placement.claims for placement in placements):
            return Prepare(placements)
        entries = [attempts.placer.entry(pod, placement) for pod, placement in self.placed]
        if len(entries) == 1:
            return entries[0]
        return Gang(
            pod_group=(group.namespace, group.name),
            rv=group.rv,
            placements=placements,
            by_binder=any(isinstance(entry, Attempt) for entry in entries),
        )


@dataclass(slots=True)
class TryingAnywhere:
    """Places members on the working copy. ``before``: what queues had been charged."""

    start: Start
    attempts: Attempts
    before: int
    supposes_nodes: bool

    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place, or one that comes free when idle reservations go."""
        start, attempts = self.start, self.attempts
        placed = attempts.place(pod)
        if isinstance(placed, Placement):
            start.placed.append((pod, placed))
            start.fitted.add(pod.uid)
            return Tried.PLACED
        if isinstance(placed, HeldBack):
            self._hold_back(placed)
            return Tried.STOPPED
        if self.supposes_nodes:
            return self._suppose(pod)
        found = placed if isinstance(placed, KeptOff) else attempts.make_room(pod)
        if isinstance(found, KeptOff):
            return self._keep_off(found)
        if found is not None:
            start.waiting.append(found)
            return Tried.PLACED
        if isinstance(placed, Verdict):
            self._pass_over(placed)
        return Tried.PASSED

    def _pass_over(self, why: Verdict) -> None:
        """Remember the first that fitted nowhere; one whose claim another member has says less: no room helps it."""
        known = self.start.first_failure
        if known is None or (known.code in CLAIMS_IN_USE and why.code not in CLAIMS_IN_USE):
            self.start.first_failure = why

    def _suppose(self, pod: PodRecord) -> Tried:
        placed = supposed_nodes.place(self.attempts, pod)
        if isinstance(placed, HeldBack):
            self._hold_back(placed)
            return Tried.STOPPED
        self.start.placed.append((pod, placed))
        return Tried.PLACED

    def _keep_off(self, kept: KeptOff) -> Tried:
        """It fits on nodes only that are kept for others."""
        self.start.is_kept_off = True
        if self.start.first_failure is None or self.start.first_failure.berth is None:
            self.start.first_failure = kept.verdict
        return Tried.PASSED

    def _hold_back(self, held: HeldBack) -> None:
        """All members that were placed, and this one, are more than the queue takes; what asks least of it wakes it."""
        amounts = self.attempts.accounts.charged_since(self.before).plus(held.use.amounts)
        held = held._replace(use=held.use._replace(amounts=amounts), verdict=self._for_all(held.verdict))
        known = self.start.held_back or held
        self.start.held_back = HeldBack(known.verdict, held.use.or_less(known.use), held.is_there or known.is_there)

    def _for_all(self, verdict: Verdict) -> Verdict:
        """The same refusal with what members have on paper as asked for: nothing of it is allocated."""
        cause = verdict.queue
        if cause is None or not cause.resource:
            return verdict
        charged = self.attempts.accounts.charged_since(self.before, of_fixed=verdict.code is Code.OVER_QUOTA)
        own = charged[DIMENSIONS.index(cause.resource)]
        whole = msgspec.structs.replace(cause, held=cause.held - own, asked=cause.asked + own)
        return msgspec.structs.replace(verdict, queue=whole)

    def failed(self, subgroup: str, placed: int) -> None:
        """Remember the first that there was no room for."""
        start = self.start
        start.placed_at_most = max(start.placed_at_most, len(start.placed))
        if start.failed is None:
            start.failed = start.first_failure or Verdict(code=Code.NO_NODE_FITS)
            start.short = (subgroup, placed)

    def checkpoint(self) -> tuple[Mark, int, int]:
        """A point to come back to."""
        return self.attempts.checkpoint(), len(self.start.placed), len(self.start.waiting)

    def rollback(self, mark: tuple[Mark, int, int]) -> None:
        """Take back all places since ``mark``."""
        at, placed, waiting = mark
        if len(self.start.placed) > placed or len(self.start.waiting) > waiting:
            self.attempts.rollback(at)
            del self.start.placed[placed:], self.start.waiting[waiting:]


@dataclass(slots=True)
class TryingInDomain(TryingAnywhere):
    """The same on the nodes of ``within``, where a member that fits nowhere says nothing of its class."""

    makes_room: bool = False
    within: NodeMask = None

    @override
    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place there, or one that comes free when idle reservations go."""
        start, attempts = self.start, self.attempts
        within = self._nodes(pod)
        placed = attempts.place_within(pod, within)
        if isinstance(placed, Placement):
            start.placed.append((pod, placed))
            self._note(pod, placed.node)
            return Tried.PLACED
        if isinstance(placed, HeldBack):
            self._hold_back(placed)
            return Tried.STOPPED
        found = attempts.make_room_within(pod, within) if self.makes_room and placed is None else None
        if found is not None:
            start.waiting.append(found)
            self._note(pod, found[0])
            return Tried.PLACED
        if isinstance(placed, Verdict):
            self._pass_over(placed)
        return Tried.PASSED

    def _nodes(self, pod: PodRecord) -> NodeMask:
        """The nodes for a member."""
        return self.within

    def _note(self, pod: PodRecord, node: str) -> None:
        """Note where a member was placed."""


@dataclass(slots=True)
class TryingOnLargeCards(TryingAnywhere):
    """The same, where a member of the classes ``asking`` gets a place on nodes of the first of ``masks`` that takes it.

    That it fits on none says nothing of its class.
    """

    asking: Container[PodClass]
    masks: Sequence[NodeMask]

    @override
    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place."""
        refused: HeldBack | None = None
        for mask in self.masks if pod.cls in self.asking else (None,):
            placed = self.attempts.place_within(pod, mask)
            if isinstance(placed, Placement):
                self.start.placed.append((pod, placed))
                return Tried.PLACED
            if isinstance(placed, HeldBack):
                refused = refused or placed
        if refused is None:
            return Tried.PASSED
        self._hold_back(refused)
        return Tried.STOPPED


@dataclass(slots=True, kw_only=True)
class TryingTogether(TryingInDomain):
    """The same, where members that share claims go to the nodes for them (shared_claims.py), and others anywhere."""

    shared: SharedClaims

    @override
    def _nodes(self, pod: PodRecord) -> NodeMask:
        return both(self.within, self.shared.nodes_for(pod.cls))

    @override
    def _note(self, pod: PodRecord, node: str) -> None:
        self.shared.note(pod.cls, node)
