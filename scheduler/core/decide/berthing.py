"""Berths of one decision: who is kept off which nodes, and for whom nodes are kept from now on.

A look for more costs a walk over all that waits for room, so there is one a second at most, when something has changed
or somebody's patience has ended; and one of them tries one group. What ends a berth at once is seen in each decision:
its holder has its place, or is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from scheduler.core.decide import queue_use
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.berth_candidates import EVERY_NS, Candidate, Candidates
from scheduler.core.decide.berth_choice import Choice, needed
from scheduler.core.decide.berth_holders import BerthHolders, rank_of
from scheduler.core.decide.berth_rights import free_s, is_entitled
from scheduler.core.model.plan import Entry
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import Resources
from scheduler.core.model.verdict import BerthCause, Code, Verdict
from scheduler.core.queues import reserved_nodes as rules
from scheduler.core.queues.reserved_nodes import Berth, Berths
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.room.need import Need


class Turn(Protocol):
    """What has its turn."""

    @property
    def queue(self) -> str:
        """In which queue it waits."""
        ...

    @property
    def use(self) -> Resources:
        """What its next pods would use there."""
        ...

    @property
    def rank(self) -> Rank | None:
        """When it has its turn."""
        ...

    @property
    def classes_next(self) -> Iterable[PodClass]:
        """Of the pods that come next."""
        ...


@dataclass(slots=True)
class Berthing:
    """Berths as they are, and as they are to be. ``entries``: what the decision has done."""

    attempts: Attempts
    entries: list[Entry]
    _holders: BerthHolders = field(init=False)

    def __post_init__(self) -> None:
        self._holders = BerthHolders(self.attempts)

    @property
    def _before(self) -> Berths:
        return self.attempts.snapshot.backlog.berths

    @property
    def _is_on(self) -> bool:
        return self.attempts.snapshot.settings.berths_percent > 0 and self.attempts.wall_s > 0

    # --- who is kept off -----------------------------------------------------------------------------------------
    def keeping_off(self, turn: Turn) -> tuple[Berth, ...]:
        """Berths on whose nodes this may not be placed."""
        rank = turn.rank if self._before.of and self._is_on else None
        if rank is None:
            return ()
        accounts = self.attempts.accounts
        queue = accounts.tree.leaf(turn.queue)
        if not isinstance(queue, TreeQueue):
            return ()
        is_starved = rules.is_starved(accounts.of[queue.number], queue, turn.use)
        ends = [rules.end_s(turn.classes_next, self.attempts.wall_s, is_own=is_own) for is_own in (False, True)]
        return tuple(
            berth
            for berth in self._before.of
            if berth.keeps_off(
                queue=queue.name, rank=rank, is_starved=is_starved, end_s=ends[berth.queue == queue.name]
            )
        )

    def alike(self, need: Need) -> tuple[Need, frozenset[str]]:
        """The first of several equal needs that are kept off the same nodes; and those nodes."""
        nodes = self._keeping_off_need(need, 1)
        for before, other in enumerate(need.others if self._before.of else (), start=1):
            if self._keeping_off_need(other, before + 1) != nodes:
                return need.first(before), nodes
        return need, nodes

    def _keeping_off_need(self, need: Need, count: int) -> frozenset[str]:
        """Nodes on which no room may be made for a need. ``count``: of equal needs in all, with those before it."""
        turn = _Need(need, self.attempts, count)
        return frozenset(name for berth in self.keeping_off(turn) for name in berth.nodes)

    # --- holders of berths ---------------------------------------------------------------------------------------
    def conclude(self) -> None:
        """After all turns: end berths whose holders need none, look for more, have holders say what they wait for."""
        before, backlog = self._before, self.attempts.snapshot.backlog
        is_idle = not before.of and not backlog.gangs() and next(backlog.shapes(), None) is None
        if is_idle or not self._is_on:
            self._keep(Berths())  # nobody is looked at again
            return
        waiting = self._holders.waiting(before.of, self.entries)
        stamp, now_ns = self._stamp(), self.attempts.now_ns
        is_early = before.looked_ns is not None and before.looked_ns <= now_ns < before.looked_ns + EVERY_NS
        is_due = before.next_ns is not None and before.next_ns <= now_ns
        if (stamp != before.stamp or is_due) and not is_early:
            self._keep(self._looked(waiting, stamp))
            return
        next_ns = before.next_ns
        if is_early and (stamp != before.stamp or is_due):
            next_ns = (before.looked_ns or 0) + EVERY_NS
        self._keep(msgspec.structs.replace(before, of=waiting, next_ns=next_ns))

    def _keep(self, berths: Berths) -> None:
        before = self._before
        if berths != before:
            self.attempts.notes.berths_looked(berths)
        if any(berth not in berths.of for berth in before.of):
            self.attempts.put_off()  # groups that were kept off have their turn at once
        for berth in berths.of:
            self._say(berth)

    def _stamp(self) -> tuple[object, ...]:
        snapshot = self.attempts.snapshot
        return (snapshot.ledger.changes.last, snapshot.queues.sums.version, snapshot.queues.tree)

    def _say(self, berth: Berth) -> None:
        members = self._holders.members(berth)
        cause = BerthCause(
            holder=f"{berth.namespace}/{berth.name}", since_s=berth.since_s, queue=berth.queue, nodes=berth.nodes
        )
        key = (berth.namespace, berth.name) if berth.is_gang else None
        self.attempts.notes.say([pod.uid for pod in members], Verdict(code=Code.WAITS_FOR_BERTH, berth=cause), key)

    # --- looking for more ----------------------------------------------------------------------------------------
    def _looked(self, waiting: Sequence[Berth], stamp: tuple[object, ...]) -> Berths:
        """All berths that are to be from now on."""
        percent = self.attempts.snapshot.settings.berths_percent
        standing = list(self._renewed(waiting))
        candidates = Candidates(self.attempts, self.entries, self._before, stamp)
        candidate = candidates.first({berth.queue for berth in standing})
        if candidate is not None:
            standing += self._tried(candidate, candidates, standing, percent)
        return Berths(
            of=tuple(standing),
            looked_ns=self.attempts.now_ns,
            stamp=stamp,
            refused=candidates.refused,
            next_ns=min(candidates.times, default=None),
        )

    def _tried(
        self, candidate: Candidate, candidates: Candidates, standing: Sequence[Berth], percent: int
    ) -> Iterator[Berth]:
        """Yield the berth of a group beside those that stand, if it gets one."""
        choice = Choice(self.attempts, {name for berth in standing for name in berth.nodes})
        most = choice.most(percent)
        berth = self._berth(candidate, choice, most - sum(berth.gpus for berth in standing))
        if berth is None:
            is_passed = not standing or self._berth(candidate, Choice(self.attempts, frozenset()), most) is None
            candidates.refuse(candidate, is_passed=is_passed)
        else:
            yield berth
        if candidates.has_several or berth is None:
            candidates.look_again()

    def _renewed(self, waiting: Sequence[Berth]) -> Iterator[Berth]:
        """Berths that stand, as of now. One that has lost a node is none: its holder is looked at like any other."""
        if not waiting:
            return
        choice = Choice(self.attempts, frozenset())
        for berth in waiting:
            need = self._holders.need(berth)
            if need is None or not choice.takes(need, berth.nodes):
                continue
            gpus, until_s = choice.gpus_of(berth.nodes), free_s(self.attempts, berth.queue, berth.nodes)
            yield msgspec.structs.replace(berth, rank=rank_of(need), gpus=gpus, free_s=until_s)

    def _berth(self, candidate: Candidate, choice: Choice, most: int) -> Berth | None:
        """The berth of a group; None if its queue has no right to more, or it would not fit on ``most`` GPUs."""
        need, queue = candidate.need, candidate.queue
        if choice.asked(need) > most or not is_entitled(self.attempts, need, queue, candidate.rank):
            return None
        nodes = choice.nodes_for(need, most)
        if not nodes:
            return None
        of = need.group if need.group is not None and need.quorum is not None else need.pods[0]
        return Berth(
            queue=queue.name,
            rank=candidate.rank,
            namespace=of.namespace,
            name=of.name,
            is_gang=need.quorum is not None,
            since_s=candidate.since_s,
            nodes=nodes,
            gpus=choice.gpus_of(nodes),
            free_s=free_s(self.attempts, queue.name, nodes),
        )


@dataclass(frozen=True, slots=True)
class _Need:
    """A need as a turn, the last of ``count`` equal ones."""

    of: Need
    attempts: Attempts
    count: int

    @property
    def queue(self) -> str:
        return self.of.queue

    @property
    def use(self) -> Resources:
        return queue_use.asked(self.attempts.snapshot, needed(self.of)).amounts.times(self.count)

    @property
    def rank(self) -> Rank | None:
        return rank_of(self.of)

    @property
    def classes_next(self) -> Iterable[PodClass]:
        return {pod.cls for pod in needed(self.of)}
