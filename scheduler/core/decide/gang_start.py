"""The start of a gang: as many members as its minimum needs get a place, or none.

Members are placed one at a time on the working copy. What they were given, and why others were passed over, is the
start as far as it got.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from typing_extensions import override

from gpu.request import GpuRequest, MemoryAsk
from scheduler.core.decide.allowance import cost_of_counting
from scheduler.core.decide.attempts import Attempts, KeptOff, Mark
from scheduler.core.decide.capacity import SharedClaims
from scheduler.core.decide.domain_search import DomainSearch, Unsatisfied
from scheduler.core.decide.gang_search import PlaceBound, Search, Tried
from scheduler.core.decide.single_pods import place_on_supposed_node
from scheduler.core.groups.quorum import Quorum
from scheduler.core.model.plan import Attempt, Entry, Gang, Placement, Prepare, Retire
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import DIMENSIONS
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import CLAIMS_IN_USE, Code, Verdict
from scheduler.core.queues.accounts import HeldBack
from scheduler.core.scheduling_queue.unschedulable import LARGE
from scheduler.core.snapshot.node_count import NodeMask, both


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
        found = placed if isinstance(placed, KeptOff) else attempts.by_retiring(pod)
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
        placed = place_on_supposed_node(self.attempts, pod)
        if isinstance(placed, HeldBack):
            self._hold_back(placed)
            return Tried.STOPPED
        self.start.placed.append((pod, placed))
        return Tried.PLACED

    def _keep_off(self, kept: KeptOff) -> Tried:
        """It fits on nodes only that are kept for others."""
        self.start.is_kept_off = True
        if self.start.first_failure is None or self.start.first_failure.reserve is None:
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

    retires: bool = False
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
        found = attempts.by_retiring_within(pod, within) if self.retires and placed is None else None
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
    """The same, where members that share claims go to the nodes for them (capacity.py), and others anywhere."""

    shared: SharedClaims

    @override
    def _nodes(self, pod: PodRecord) -> NodeMask:
        return both(self.within, self.shared.nodes_for(pod.cls))

    @override
    def _note(self, pod: PodRecord, node: str) -> None:
        self.shared.note(pod.cls, node)


#: How often members that share claims are tried together, each time without the nodes of the time before. No further
#: time begins once that has cost as much as a large start, in operations.
_TRIES_TOGETHER: Final = 8


def started(ready: Sequence[PodRecord], state: Quorum, attempts: Attempts, *, supposes_nodes: bool = False) -> Start:
    """Place as many members as the minimum needs (gang_search.py).

    ``supposes_nodes``: those that fit nowhere get nodes of their own. Where members have unbound claims and one finds
    no place, all are tried once more. Those with the largest claims come first: a small claim may have taken the only
    volume or node that would do for a large one. Those that share a claim of one node go to nodes that may take all of
    them (capacity.py): the first one may have chosen a node that is too small. Members that ask for memory are
    tried once more on the largest cards, where they use least of their queue.
    """
    mark = attempts.checkpoint()
    start = _tried(ready, state, TryingAnywhere(Start(), attempts, attempts.accounts.checkpoint(), supposes_nodes))
    if start.is_whole or supposes_nodes:
        return start
    if start.held_back is not None:
        attempts.rollback(mark)
        return _started_on_large_cards(start, ready, state, attempts)
    if not any(pod.cls.unbound or pod.cls.devices for pod in ready):
        return start
    ordered = sorted(ready, key=_by_claims, reverse=True)
    attempts.rollback(mark)
    shared = _shared_claims(ready, state, attempts)
    if not shared.has_any and [pod.uid for pod in ordered] == [pod.uid for pod in ready]:
        return start
    return _started_together(start, shared, attempts, lambda: _tried_together(ordered, state, attempts, shared))


def _tried_together(ordered: Sequence[PodRecord], state: Quorum, attempts: Attempts, shared: SharedClaims) -> Start:
    before = attempts.accounts.checkpoint()
    return _tried(ordered, state, TryingTogether(Start(), attempts, before, False, retires=True, shared=shared))


def _started_together(failed: Start, shared: SharedClaims, attempts: Attempts, again: Callable[[], Start]) -> Start:
    """Try the start ``again`` where all that share a claim may fit, on nodes not yet tried so; else ``failed``.

    Nothing of ``failed`` may be left on the working copy.
    """
    mark, spent = attempts.checkpoint(), attempts.allowance.spent
    for _ in range(_TRIES_TOGETHER):
        start = again()
        if start.is_whole:
            return start
        attempts.rollback(mark)
        failed.held_back = failed.held_back or start.held_back  # room in its queue may start it, too
        if not shared.take_out() or attempts.allowance.spent - spent > LARGE:
            break
    return failed


def _shared_claims(ready: Sequence[PodRecord], state: Quorum, attempts: Attempts) -> SharedClaims:
    shared = SharedClaims(ready, state.missing(ready).total, attempts.placer)
    attempts.allowance.spend(ready[0].namespace, shared.counted * cost_of_counting(attempts.snapshot))
    return shared


def _started_on_large_cards(held: Start, ready: Sequence[PodRecord], state: Quorum, attempts: Attempts) -> Start:
    """The same for a gang that its queue ``held`` back; that start where this one isn't whole either.

    Memory is a larger part of a smaller card. A member takes the best node, which may be one of those, and what is left
    of the queue is then too little for the others.
    """
    asking = {cls for cls in dict.fromkeys(pod.cls for pod in ready) if any(map(_asks_memory, cls.requests()))}
    masks = attempts.placer.by_card_size() if asking else []
    if len(masks) == 1 or not asking:
        return held
    attempts.allowance.spend(ready[0].namespace, len(masks) * cost_of_counting(attempts.snapshot))
    trying = TryingOnLargeCards(Start(), attempts, attempts.accounts.checkpoint(), False, asking, masks)
    again = _tried(ready, state, trying)
    if again.is_whole:
        return again
    if held.held_back is not None and again.held_back is not None:
        least = held.held_back.use.or_less(again.held_back.use)
        held.held_back = held.held_back._replace(use=least)
    return held


def _asks_memory(request: GpuRequest) -> bool:
    return any(isinstance(ask, MemoryAsk) for ask in request.shared)


def _by_claims(pod: PodRecord) -> list[int]:
    """Sizes of its unbound claims, the largest first."""
    return sorted((need.size_bytes for need in pod.cls.unbound), reverse=True)


def _tried(ready: Sequence[PodRecord], state: Quorum, trying: TryingAnywhere) -> Start:
    trying.start.is_whole = Search(state, ready, trying).run()
    return trying.start


def started_on_supposed_nodes(failed: Start, ready: Sequence[PodRecord], state: Quorum, attempts: Attempts) -> Start:
    """The same for a gang that ``failed``, with further nodes: as few as the members ask who fit on none."""
    ordered = sorted(ready, key=lambda pod: pod.uid not in failed.fitted)
    return started(ordered, state, attempts, supposes_nodes=True)


def started_within(
    ready: Sequence[PodRecord], state: Quorum, attempts: Attempts, bounds: Mapping[int, PlaceBound]
) -> Start:
    """The same for a gang that asks for places (domain_search.py): first without GPUs that idle reservations hold."""
    mark = attempts.checkpoint()
    within = _Within(ready, state, attempts, bounds)
    start = within.started()
    if start.is_whole or start.held_back is not None or not attempts.placer.has_idle:
        return start
    attempts.rollback(mark)
    return within.started(with_idle=True)


@dataclass(slots=True)
class _Within:
    """A gang that asks for places: its ready members, and the bounds of its tree of minimums."""

    ready: Sequence[PodRecord]
    state: Quorum
    attempts: Attempts
    bounds: Mapping[int, PlaceBound]

    def started(self, *, with_idle: bool = False) -> Start:
        """Place as many members as the minimum needs; those that share claims again where all of them may fit."""
        attempts = self.attempts
        mark = attempts.checkpoint()
        start = self._tried(None, with_idle=with_idle)
        has_claims = any(pod.cls.unbound or pod.cls.devices for pod in self.ready)
        if start.is_whole or start.held_back is not None or not has_claims:
            return start
        attempts.rollback(mark)
        shared = _shared_claims(self.ready, self.state, attempts)
        if not shared.has_any:
            return start
        return _started_together(start, shared, attempts, lambda: self._tried(shared, with_idle=with_idle))

    def _tried(self, shared: SharedClaims | None, *, with_idle: bool) -> Start:
        start, attempts = Start(), self.attempts
        before = attempts.accounts.checkpoint()
        trying = TryingInDomain(start, attempts, before, False, retires=with_idle)
        if shared is not None:
            trying = TryingTogether(start, attempts, before, False, retires=with_idle, shared=shared)
        search = DomainSearch(self.state, self.ready, trying, self.bounds, attempts.placer, with_idle=with_idle)
        search.nodes = None if shared is None else shared.nodes_for_all
        start.is_whole = search.run()
        start.unsatisfied, start.is_cut = search.unsatisfied, search.is_cut
        attempts.allowance.spend(self.ready[0].namespace, search.tries * cost_of_counting(attempts.snapshot))
        return start
