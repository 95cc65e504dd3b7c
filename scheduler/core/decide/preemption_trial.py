"""A search for victims on what a decision has tried so far (core/preemption/trial.py).

What a decision learned of classes holds while it only charges. A search evicts on paper again and again, so it neither
reads nor writes that: it places pods in the same way, but apart.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import msgspec
from typing_extensions import override

from scheduler.core.decide.attempts import Attempts, asked_use
from scheduler.core.decide.domain_search import DomainSearch
from scheduler.core.decide.gang_places import requires_levels
from scheduler.core.decide.gang_search import Search, Tried
from scheduler.core.decide.single_pods import BesideGang
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import Place
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from scheduler.core.queues.accounts import HeldBack
from scheduler.core.snapshot.node_mask import NodeMask, both


def room_trial(attempts: Attempts, *, wall_s: int, **given: Any) -> Trial:
    """Make a trial of a decision's attempts; ``given``: the other fields of ``Trial``."""
    snapshot = attempts.snapshot
    return Trial(
        statement=attempts.placer.statement,
        accounts=attempts.accounts,
        paper=OnPaper(attempts),
        pods=snapshot.pods,
        pod_groups=snapshot.pod_groups,
        quorum=snapshot.quorum,
        queues=snapshot.queues,
        residents=snapshot.residents,
        wall_s=wall_s,
        **given,
    )


@dataclass(frozen=True, slots=True)
class OnPaper:
    """Places needs on a decision's working copy. ``mask``: the nodes for that; ``for_moved``: for who is moved."""

    attempts: Attempts
    mask: NodeMask = None
    for_moved: NodeMask = None

    def place(self, need: Need) -> tuple[Place, ...] | None:
        """Place and charge what a need lacks, and all that are equal to it; None if that is not possible.

        Then something may be charged.
        """
        trying = _Trying(self.attempts, self.mask)
        return tuple(trying.placed) if all(_is_placed(each, trying) for each in need.all) else None

    def move(self, pod: PodRecord, besides: Set[str]) -> Place | None:
        """Place and charge the successor of a bound pod on a node that is none of these, nor its own."""
        if pod.moves_as is None:
            return None
        successor = msgspec.structs.replace(pod, node="", held=(), started_s=0, cls=pod.moves_as)
        elsewhere = self.attempts.placer.all_but(frozenset({pod.node, *besides}))
        placed = self.attempts.place_on_paper(successor, both(self.for_moved, both(self.mask, elsewhere)))
        return Place(pod.uid, placed.node, placed.devices) if isinstance(placed, Placement) else None


def _is_placed(need: Need, trying: _Trying) -> bool:
    if need.group is not None and requires_levels(need.group):
        return _is_in_place(need, need.group, trying)
    if need.quorum is None:
        return trying.place(need.pods[0]) is Tried.PLACED
    return need.quorum.is_reachable(need.pods) and Search(need.quorum, need.pods, trying).run()


def _is_in_place(need: Need, group: PodGroupRecord, trying: _Trying) -> bool:
    """The same in the domains where a gang has to be, or beside those of it that run."""
    attempts, bounds = trying.attempts, trying.attempts.bounds_of(group)
    if isinstance(bounds, Verdict):
        return False
    within = _TryingWithin(attempts, trying.mask, trying.placed)
    if need.quorum is None:
        within.within = BesideGang(group.tree, bounds).required_of(need.pods[0])
        return within.place(need.pods[0]) is Tried.PLACED
    if not need.quorum.is_reachable(need.pods):
        return False
    placer, nodes = attempts.placer, trying.mask
    return DomainSearch(need.quorum, need.pods, within, bounds, placer, with_idle=True, nodes=nodes).run()


@dataclass(slots=True)
class _Trying:
    """Members of one need. ``unplaced``: classes that fit nowhere beside what is placed."""

    attempts: Attempts
    mask: NodeMask = None
    placed: list[Place] = field(default_factory=list)
    unplaced: dict[PodClass, None] = field(default_factory=dict)

    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place, or one that comes free when idle reservations go."""
        is_shut = pod.cls in self.unplaced and not (pod.cls.rules is not None and pod.cls.rules.may_open)
        if is_shut:
            return Tried.PASSED
        tried = self._place(pod, self.mask)
        if tried is Tried.PASSED and not self.attempts.placer.taken_claim(pod):
            self.unplaced[pod.cls] = None
        return tried

    def _place(self, pod: PodRecord, mask: NodeMask) -> Tried:
        if self.attempts.placer.taken_claim(pod):
            return Tried.PASSED
        found = self.attempts.place_on_paper(pod, mask)
        if isinstance(found, HeldBack):
            return Tried.STOPPED
        if isinstance(found, Placement):
            self.placed.append(Place(pod.uid, found.node, found.devices))
            return Tried.PLACED
        return self._wait_for_device(pod, mask)

    def _wait_for_device(self, pod: PodRecord, mask: NodeMask) -> Tried:
        attempts = self.attempts
        use = asked_use(attempts.snapshot, [pod])
        if attempts.accounts.refusal(use) is not None:
            return Tried.STOPPED
        found = attempts.placer.wait_for_device(pod, both(mask, attempts.placer.all_but(pod.cls.excluded)))
        if found is None:
            return Tried.PASSED
        attempts.accounts.charge(use)
        self.placed.append(Place(pod.uid, found[0]))
        return Tried.PLACED

    def failed(self, subgroup: str, placed: int) -> None:
        """Nobody asks why."""

    def checkpoint(self) -> tuple[int, int, int, int]:
        """A point to come back to."""
        attempts = self.attempts
        statement, accounts = attempts.placer.statement.checkpoint(), attempts.accounts.checkpoint()
        return statement, accounts, len(self.placed), len(self.unplaced)

    def rollback(self, mark: tuple[int, int, int, int]) -> None:
        """Take back all places since ``mark``."""
        statement, accounts, placed, unplaced = mark
        self.attempts.placer.statement.rollback(statement)
        self.attempts.accounts.rollback(accounts)
        del self.placed[placed:]
        while len(self.unplaced) > unplaced:
            self.unplaced.popitem()


@dataclass(slots=True)
class _TryingWithin(_Trying):
    """The same on the nodes of ``within``, where a member that fits nowhere says nothing of its class."""

    within: NodeMask = None

    @override
    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place there."""
        return self._place(pod, both(self.mask, self.within))
