"""The start of a gang: as many members as its minimum needs get a place, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu.request import GpuRequest, MemoryAsk
from scheduler.core.backlog.gang_pace import LARGE
from scheduler.core.decide import costs
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.domain_search import DomainSearch
from scheduler.core.decide.gang_search import Search
from scheduler.core.decide.gang_trying import (
    Start,
    TryingAnywhere,
    TryingInDomain,
    TryingOnLargeCards,
    TryingTogether,
)
from scheduler.core.decide.place_bounds import PlaceBound
from scheduler.core.decide.shared_claims import SharedClaims
from scheduler.core.groups.quorum import Quorum
from scheduler.core.model.records import PodRecord

#: How often members that share claims are tried together, each time without the nodes of the time before. No further
#: time begins once that has cost as much as a large start, in operations.
_TRIES_TOGETHER: Final = 8


def started(ready: Sequence[PodRecord], state: Quorum, attempts: Attempts, *, supposes_nodes: bool = False) -> Start:
    """Place as many members as the minimum needs (gang_search.py).

    ``supposes_nodes``: those that fit nowhere get nodes of their own. Where members have unbound claims and one finds
    no place, all are tried once more. Those with the largest claims come first: a small claim may have taken the only
    volume or node that would do for a large one. Those that share a claim of one node go to nodes that may take all of
    them (shared_claims.py): the first one may have chosen a node that is too small. Members that ask for memory are
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
    return _tried(ordered, state, TryingTogether(Start(), attempts, before, False, makes_room=True, shared=shared))


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
    attempts.allowance.spend(ready[0].namespace, shared.counted * costs.of_counting(attempts.snapshot))
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
    attempts.allowance.spend(ready[0].namespace, len(masks) * costs.of_counting(attempts.snapshot))
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
        trying = TryingInDomain(start, attempts, before, False, makes_room=with_idle)
        if shared is not None:
            trying = TryingTogether(start, attempts, before, False, makes_room=with_idle, shared=shared)
        search = DomainSearch(self.state, self.ready, trying, self.bounds, attempts.placer, with_idle=with_idle)
        search.nodes = None if shared is None else shared.nodes_for_all
        start.is_whole = search.run()
        start.unsatisfied, start.is_cut = search.unsatisfied, search.is_cut
        attempts.allowance.spend(self.ready[0].namespace, search.tries * costs.of_counting(attempts.snapshot))
        return start
