"""Berths of one decision: who is kept off which nodes, and for whom nodes are kept from now on (queues/berths.py).

A look for more costs a walk over all that waits for room, so there is one a second at most, when something has changed
or somebody's patience has ended; and one of them tries one group. What ends a berth at once is seen in each decision:
its holder has its place, or is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from scheduler.core.decide import queue_use
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.berth_choice import Choice, asks_gpus, needed
from scheduler.core.decide.needed import gang_need, pod_need
from scheduler.core.decide.needs import Needing, needs_left
from scheduler.core.model.plan import Entry, placements
from scheduler.core.model.priority_order import Candidate, Rank
from scheduler.core.model.records import PodClass, PodRecord
from scheduler.core.model.resources import NOTHING, Resources
from scheduler.core.model.verdict import BerthCause, Code, Verdict
from scheduler.core.queues import berths as rules
from scheduler.core.queues.berths import UNKNOWN, Berth, Berths, Refused
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.queues.use import held
from scheduler.core.room.need import Need
from wire import rfc3339

_S: Final = 1_000_000_000
#: So often groups are looked for that have waited too long, and one that found no nodes is tried again.
EVERY_NS: Final = 1 * _S
AGAIN_NS: Final = 10 * _S
#: So many groups of a queue are looked at, where the first ones wait for something else than room.
_HEADS: Final = 8


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
class _Waiting:
    """A group that has waited too long."""

    need: Need
    queue: TreeQueue
    since_s: int
    rank: Rank


@dataclass(slots=True)
class Berthing:
    """Berths as they are, and as they are to be. ``entries``: what the decision has done."""

    attempts: Attempts
    entries: list[Entry]
    _times: list[int] = field(default_factory=list)
    _refused: dict[str, Refused] = field(default_factory=dict)

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

    # --- who has one ---------------------------------------------------------------------------------------------
    def conclude(self) -> None:
        """After all turns: end berths whose holders need none, look for more, have holders say what they wait for."""
        before, backlog = self._before, self.attempts.snapshot.backlog
        is_idle = not before.of and not backlog.gangs() and next(backlog.shapes(), None) is None
        if is_idle or not self._is_on:
            self._keep(Berths())  # nobody is looked at again
            return
        waiting = self._still_waiting()
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
            self.attempts.put_off()  # whoever was kept off has its turn at once
        for berth in berths.of:
            self._say(berth)

    def _stamp(self) -> tuple[object, ...]:
        snapshot = self.attempts.snapshot
        return (snapshot.ledger.changes.last, snapshot.queues.sums.version, snapshot.queues.tree)

    def _say(self, berth: Berth) -> None:
        members = self._members(berth)
        minutes = max(0, self.attempts.wall_s - berth.since_s) // 60
        cause = BerthCause(holder=f"{berth.namespace}/{berth.name}", waited_min=minutes, nodes=berth.nodes)
        key = (berth.namespace, berth.name) if berth.is_gang else None
        self.attempts.notes.say([pod.uid for pod in members], Verdict(code=Code.WAITS_FOR_BERTH, berth=cause), key)

    def _members(self, berth: Berth) -> list[PodRecord]:
        """Pods of a holder that wait."""
        snapshot = self.attempts.snapshot
        if berth.is_gang:
            pods = snapshot.pods.members(berth.namespace, berth.name)
        else:
            pods = [pod for pod in (snapshot.pod(berth.uid),) if pod is not None]
        return [each for each in pods if self._waits(each)]

    def _waits(self, pod: PodRecord) -> bool:
        return not (pod.node or pod.deleting or pod.gated or self.attempts.snapshot.is_spoken_for(pod.uid))

    def _still_waiting(self) -> tuple[Berth, ...]:
        """Berths whose holders have no place yet: neither bound, on their way, placed now, nor kept by an intent."""
        served = {placement.pod_uid for placement in placements(self.entries)}
        served |= self.attempts.snapshot.commits.intents.holders.keys()
        return tuple(berth for berth in self._before.of if self._is_waiting(berth, served))

    def _is_waiting(self, berth: Berth, served: set[str]) -> bool:
        members, snapshot = self._members(berth), self.attempts.snapshot
        if not members or any(pod.uid in served for pod in members):
            return False
        if not berth.is_gang:
            return True
        group = snapshot.pod_group(berth.namespace, berth.name)
        if group is None or group.uid != berth.uid:
            return False
        state = snapshot.quorum(group)
        return not state.is_met and not state.is_starting

    # --- looking for more ----------------------------------------------------------------------------------------
    def _looked(self, waiting: Sequence[Berth], stamp: tuple[object, ...]) -> Berths:
        """All berths that are to be from now on."""
        percent = self.attempts.snapshot.settings.berths_percent
        standing = list(self._renewed(waiting))
        taken = {name for berth in standing for name in berth.nodes}
        heads = self._heads({berth.queue for berth in standing}, stamp)
        fresh = self._first_of(heads, stamp)
        if fresh is not None:
            choice = Choice(self.attempts, taken)
            most = choice.most(percent)
            berth = self._berth(fresh, choice, most - sum(berth.gpus for berth in standing))
            if berth is None:
                is_passed = not standing or self._berth(fresh, Choice(self.attempts, frozenset()), most) is None
                self._refused[fresh.rank.uid] = Refused(self.attempts.now_ns, stamp, is_passed)
            else:
                standing.append(berth)
            if len(heads) > 1 or berth is None:
                self._times.append(self.attempts.now_ns + EVERY_NS)
        return Berths(
            of=tuple(standing),
            looked_ns=self.attempts.now_ns,
            stamp=stamp,
            refused=self._refused,
            next_ns=min(self._times, default=None),
        )

    def _renewed(self, waiting: Sequence[Berth]) -> Iterator[Berth]:
        """Berths that stand, as of now. One that has lost a node is none: its holder is looked at like any other."""
        if not waiting:
            return
        choice = Choice(self.attempts, frozenset())
        for berth in waiting:
            need = self._need(berth)
            if need is None or not choice.takes(need, berth.nodes):
                continue
            rank = rank_of(need)
            gpus, free_s = choice.gpus_of(berth.nodes), self._free_s(berth.queue, berth.nodes)
            yield msgspec.structs.replace(berth, rank=rank, gpus=gpus, free_s=free_s)

    def _need(self, berth: Berth) -> Need | None:
        """What a holder needs; None if room is not all that it lacks."""
        attempts = self.attempts
        if berth.is_gang:
            need = gang_need((berth.namespace, berth.name), attempts)
        else:
            known = attempts.snapshot.pod(berth.uid)
            need = None if known is None else pod_need(attempts.snapshot.judged(known, attempts.now_ns), attempts)
        return need if need is not None and self._lacks_nodes(need) else None

    def _lacks_nodes(self, need: Need) -> bool:
        """Whether a pod alone or a gang's minimum lacks nothing but nodes: its queue takes it."""
        if need.quorum is None:
            return need.group is None and self.attempts.held_back(need.pods) is None
        return need.quorum.has_choice(need.pods) or self.attempts.held_back(needed(need)) is None

    def _free_s(self, queue: str, nodes: Sequence[str]) -> int:
        """When the last pod there ends that counts in a queue; UNKNOWN if nobody knows."""
        snapshot, free_s = self.attempts.snapshot, self.attempts.wall_s
        tree = self.attempts.accounts.tree
        for pod in (pod for name in nodes for pod in snapshot.pods.bound_to(name) if pod.queue):
            leaf = tree.find(pod.queue)
            is_own = leaf is not None and leaf.name == queue
            ends_s = rules.end_s([pod.cls], pod.started_s, is_own=is_own) if pod.started_s else UNKNOWN
            if ends_s == UNKNOWN:
                return UNKNOWN
            free_s = max(free_s, ends_s)
        return free_s

    def _heads(self, queues_with_one: set[str], stamp: tuple[object, ...]) -> dict[str, list[Needing]]:
        """Of each other queue the first groups whose patience may have ended, by rank; those that are tried again last.

        A group that can have no berth keeps none from those behind it.
        """
        tree = self.attempts.accounts.tree
        default_ns = self.attempts.snapshot.settings.patience_ns
        heads: dict[str, list[Needing]] = {}
        for needing in needs_left(self.attempts, self.entries):
            queue, rank = tree.leaf(needing.queue), needing.rank
            if rank is None or not isinstance(queue, TreeQueue) or queue.name in queues_with_one:
                continue
            patience_ns = rules.patience_ns(tree, queue, default_ns)
            if patience_ns < 0 or not self._is_over(_seconds(rank.created), patience_ns):
                continue
            if (refused := self._before.refused.get(rank.uid)) is not None:
                self._refused[rank.uid] = refused
            if refused is None or not refused.is_passed or self._is_tried_again(refused, stamp):
                heads.setdefault(queue.name, []).append(needing)
        return {name: sorted(found, key=self._order)[:_HEADS] for name, found in heads.items()}

    def _order(self, needing: Needing) -> tuple[int, Rank]:
        """Who was passed over comes behind all others, those first that were so longest ago."""
        rank = _first_rank(needing)
        refused = self._refused.get(rank.uid)
        return (refused.at_ns if refused is not None and refused.is_passed else -1), rank

    def _is_tried_again(self, refused: Refused, stamp: tuple[object, ...]) -> bool:
        """Whether a group that found no berth is tried now: something has changed, and that is a while ago."""
        if refused.stamp == stamp:
            return False
        again_ns = refused.at_ns + AGAIN_NS
        if again_ns > self.attempts.now_ns:
            self._times.append(again_ns)
        return again_ns <= self.attempts.now_ns

    def _is_over(self, since_s: int | None, patience_ns: int) -> bool:
        """Whether somebody has waited too long; else it is looked at again when that is so."""
        if since_s is None:
            return False
        left_s = rules.ends_of_patience_s(since_s, patience_ns) - self.attempts.wall_s
        if left_s > 0:
            self._times.append(self.attempts.now_ns + left_s * _S)
        return left_s <= 0

    def _first_of(self, heads: dict[str, list[Needing]], stamp: tuple[object, ...]) -> _Waiting | None:
        """The group that has waited longest, and was not refused on the same ground or just now."""
        found = [each for each in (self._first_in(few, stamp) for few in heads.values()) if each is not None]
        for each in sorted(found, key=lambda each: (each.since_s, each.rank.uid)):
            refused = self._before.refused.get(each.rank.uid)
            if refused is None or self._is_tried_again(refused, stamp):
                return each
        return None

    def _first_in(self, heads: Sequence[Needing], stamp: tuple[object, ...]) -> _Waiting | None:
        """The first group of a queue that lacks nothing but room, asks GPUs, and has waited too long.

        Where there may be others behind these, who lacks something else makes way for them.
        """
        tree = self.attempts.accounts.tree
        for needing in heads:
            queue, need = tree.leaf(needing.queue), needing.need()
            is_able = need is not None and any(asks_gpus(pod.cls) for pod in need.pods) and self._lacks_nodes(need)
            if not is_able and len(heads) >= _HEADS:
                self._refused[_first_rank(needing).uid] = Refused(self.attempts.now_ns, stamp, is_passed=True)
                self._times.append(self.attempts.now_ns + EVERY_NS)
            if need is None or not is_able or not isinstance(queue, TreeQueue):
                continue
            since_s = max((_seconds(pod.created) or 0 for pod in needed(need)), default=0)
            since_s = max(since_s, _seconds(need.created) or 0)
            patience_ns = rules.patience_ns(tree, queue, self.attempts.snapshot.settings.patience_ns)
            if self._is_over(since_s, patience_ns):
                return _Waiting(need, queue, since_s, rank_of(need))
        return None

    def _berth(self, fresh: _Waiting, choice: Choice, most: int) -> Berth | None:
        """The berth of a group; None if its queue has no right to more, or it would not fit on ``most`` GPUs."""
        if choice.asked(fresh.need) > most or not self._is_entitled(fresh):
            return None
        nodes = choice.nodes_for(fresh.need, most)
        if not nodes:
            return None
        need, queue = fresh.need, fresh.queue.name
        of = need.group if need.group is not None and need.quorum is not None else need.pods[0]
        return Berth(
            queue=queue,
            rank=fresh.rank,
            namespace=of.namespace,
            name=of.name,
            is_gang=need.quorum is not None,
            since_s=fresh.since_s,
            nodes=nodes,
            gpus=choice.gpus_of(nodes),
            free_s=self._free_s(queue, nodes),
        )

    def _is_entitled(self, fresh: _Waiting) -> bool:
        account = self.attempts.accounts.of[fresh.queue.number]
        use = queue_use.asked(self.attempts.snapshot, needed(fresh.need)).amounts
        if rules.is_entitled(account, use, behind=NOTHING):
            return True
        return rules.is_entitled(account, use, behind=self._behind(fresh))

    def _behind(self, fresh: _Waiting) -> Resources:
        """What the queue uses for groups that come after this one: they have overtaken it."""
        snapshot, total, tree = self.attempts.snapshot, NOTHING, self.attempts.accounts.tree
        nodes = {node.name: node for node in self.attempts.placer.statement.nodes}
        for pod in snapshot.pods.records.values():
            if not (pod.node and pod.queue) or pod.deleting or pod.uid in snapshot.commits.intents.victims:
                continue
            group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
            queue = tree.find(pod.queue if group is None else group.queue)
            if queue is None or queue.number != fresh.queue.number:
                continue
            if Candidate([pod], group).rank > fresh.rank:
                total = total.plus(held(pod, nodes.get(pod.node)))
        return total


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


def rank_of(need: Need) -> Rank:
    """When a need has its turn."""
    above = 0 if need.quorum is None else need.quorum.above
    return Candidate(list(need.pods), need.group, above=above).rank


def _first_rank(needing: Needing) -> Rank:
    rank = needing.rank
    if rank is None:
        raise LookupError("a need without a rank is no need")
    return rank


def _seconds(created: str) -> int | None:
    found = rfc3339.parse_ns(created)
    return None if found is None else found // _S
