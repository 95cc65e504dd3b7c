"""Reserved nodes of one decision: who is kept off which nodes, and for whom nodes are reserved from now on.

A look for more costs a walk over all that waits for room, so there is one a second at most, when something has changed
or somebody's patience has ended; and one of them tries one group: of the first groups of each queue without reserved
nodes the one that has waited longest. A group that can have none keeps none from those behind it: it is passed over,
and tried again when something has changed. What ends a reservation at once is looked at in each decision
(queues/reserved_nodes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from scheduler.core.decide.attempts import Attempts, asked_use
from scheduler.core.decide.preemption_needs import HeldBackItems, Looks, Needing, gang_need, needs_left, pod_need
from scheduler.core.decide.reserved_node_choice import Choice, asks_gpus, needed
from scheduler.core.model.plan import Entry, placements
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import Found
from scheduler.core.model.priority_order import Candidate, Rank
from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, ReserveCause, Verdict
from scheduler.core.preemption.need import Need
from scheduler.core.queues import reserved_nodes as rules
from scheduler.core.queues.reserved_nodes import UNKNOWN, NodeReserve, NodeReserves, Refused
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.queues.use import held, queue_of
from wire import rfc3339
from wire.units import SECOND_NS


def is_entitled(attempts: Attempts, need: Need, queue: TreeQueue, rank: Rank) -> bool:
    """Whether a queue is within its fair share with a need, but for what has overtaken it."""
    account = attempts.accounts.of[queue.number]
    use = asked_use(attempts.snapshot, needed(need)).amounts
    if rules.is_entitled(account, use, behind=NOTHING):
        return True
    return rules.is_entitled(account, use, behind=_behind(attempts, queue, rank))


def _behind(attempts: Attempts, queue: TreeQueue, rank: Rank) -> Resources:
    """What the queue uses for groups that come after this one: they have overtaken it."""
    snapshot, total, tree = attempts.snapshot, NOTHING, attempts.accounts.tree
    nodes = {node.name: node for node in attempts.placer.statement.nodes}
    for pod in snapshot.pods.records.values():
        if not (pod.node and pod.queue) or pod.deleting or pod.uid in snapshot.commits.nominations.victims:
            continue
        group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        found = tree.find(queue_of(pod, group))
        if found is None or found.number != queue.number:
            continue
        if Candidate([pod], group).rank > rank:
            total = total.plus(held(pod, nodes.get(pod.node)))
    return total


def free_s(attempts: Attempts, queue: str, nodes: Sequence[str]) -> int:
    """When the last pod on these nodes ends that counts in a queue; UNKNOWN if nobody knows.

    ``queue``: of the owner. Seconds since the epoch.
    """
    snapshot, latest_s = attempts.snapshot, attempts.wall_s
    for pod in (pod for name in nodes for pod in snapshot.pods.bound_to(name) if pod.queue):
        ends_s = _pod_end_s(attempts, pod, queue)
        if ends_s == UNKNOWN:
            return UNKNOWN
        latest_s = max(latest_s, ends_s)
    return latest_s


def _pod_end_s(attempts: Attempts, pod: PodRecord, queue: str) -> int:
    """When a pod ends that runs; UNKNOWN if nobody knows, or it should have ended. ``queue``: of the owner."""
    if not pod.started_s:
        return UNKNOWN
    snapshot = attempts.snapshot
    group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
    leaf = attempts.accounts.tree.find(queue_of(pod, group))
    ends_s = rules.end_s([pod.cls], pod.started_s, is_own=leaf is not None and leaf.name == queue)
    return ends_s if ends_s >= attempts.wall_s else UNKNOWN


@dataclass(frozen=True, slots=True)
class ReserveOwners:
    """Owners of node reserves in one decision."""

    attempts: Attempts

    def members(self, reserve: NodeReserve) -> list[PodRecord]:
        """Pods of an owner that wait."""
        snapshot = self.attempts.snapshot
        if reserve.is_gang:
            pods = snapshot.pods.members(reserve.namespace, reserve.name)
        else:
            pods = [pod for pod in (snapshot.pod(reserve.uid),) if pod is not None]
        return [each for each in pods if self._waits(each)]

    def _waits(self, pod: PodRecord) -> bool:
        return not (pod.node or pod.deleting or pod.gated or self.attempts.snapshot.is_spoken_for(pod.uid))

    def waiting(self, reserves: Iterable[NodeReserve], entries: Iterable[Entry]) -> tuple[NodeReserve, ...]:
        """Node reserves whose owners have no place yet: not bound, on their way, placed now, or nominated.

        ``entries``: what the decision has done.
        """
        served = {placement.pod_uid for placement in placements(entries)}
        served |= self.attempts.snapshot.commits.nominations.nominees.keys()
        return tuple(reserve for reserve in reserves if self._is_waiting(reserve, served))

    def _is_waiting(self, reserve: NodeReserve, served: set[str]) -> bool:
        members, snapshot = self.members(reserve), self.attempts.snapshot
        if not members or any(pod.uid in served for pod in members):
            return False
        if not reserve.is_gang:
            return True
        group = snapshot.pod_group(reserve.namespace, reserve.name)
        if group is None or group.uid != reserve.uid:
            return False
        state = snapshot.quorum(group)
        return not state.is_met and not state.is_starting

    def need(self, reserve: NodeReserve) -> Need | None:
        """What an owner needs; None if room is not all that it lacks."""
        attempts = self.attempts
        if reserve.is_gang:
            need = gang_need((reserve.namespace, reserve.name), attempts)
        else:
            known = attempts.snapshot.pod(reserve.uid)
            need = None if known is None else pod_need(attempts.snapshot.judged(known, attempts.now_ns), attempts)
        return need if need is not None and lacks_nodes(need, attempts) else None


def lacks_nodes(need: Need, attempts: Attempts) -> bool:
    """Whether a pod alone or a gang's minimum lacks nothing but nodes: its queue takes it."""
    if need.quorum is None:
        return need.group is None and attempts.held_back(need.pods) is None
    return need.quorum.has_choice(need.pods) or attempts.held_back(needed(need)) is None


def rank_of(need: Need) -> Rank:
    """When a need has its turn."""
    above = 0 if need.quorum is None else need.quorum.above
    return Candidate(list(need.pods), need.group, above=above).rank


#: A look for more node reserves is made at this interval, and tries one group.
EVERY_NS: Final = 1 * SECOND_NS
#: A group that found no nodes is tried again after this time.
AGAIN_NS: Final = 10 * SECOND_NS
#: The most groups of a queue that are looked at, where the first ones wait for something else than room.
_HEADS: Final = 8


@dataclass(frozen=True, slots=True)
class ReservationCandidate:
    """A group that has waited too long."""

    need: Need
    queue: TreeQueue
    since_s: int
    rank: Rank


@dataclass(slots=True)
class ReservationCandidates:
    """Those of one look. ``entries``: what the decision has done; ``before``: node reserves as they were.

    ``stamp``: what answers depend on. ``refused``: groups (UIDs) that found no node reserve. ``times``: when to look
    next.
    """

    attempts: Attempts
    entries: list[Entry]
    before: NodeReserves
    stamp: tuple[object, ...]
    refused: dict[str, Refused] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    _heads: dict[str, list[Needing]] = field(default_factory=dict)

    @property
    def has_several(self) -> bool:
        """Whether groups of several queues may have waited too long."""
        return len(self._heads) > 1

    def first(self, queues_with_one: AbstractSet[str]) -> ReservationCandidate | None:
        """The group that has waited longest, and was not refused on the same ground or just now."""
        self._heads = self._found_heads(queues_with_one)
        found = [each for each in map(self._first_in, self._heads.values()) if each is not None]
        for each in sorted(found, key=lambda each: (each.since_s, each.rank.uid)):
            refused = self._refused_before(each.rank)
            if refused is None or self._is_tried_again(refused):
                return each
        return None

    def refuse(self, rank: Rank, *, is_passed: bool, for_s: int = 0) -> None:
        """Note that a group found no node reserve. ``is_passed``: nor would it have, had nobody else one.

        ``for_s``: how long it is not tried again.
        """
        not_before_ns = self.attempts.now_ns + for_s * SECOND_NS if for_s else 0
        self.refused[rank.uid] = Refused(self.attempts.now_ns, self.stamp, is_passed, not_before_ns)
        if for_s:
            self.times.append(not_before_ns)

    def look_again(self) -> None:
        """Have the next look as soon as one may be."""
        self.times.append(self.attempts.now_ns + EVERY_NS)

    def _found_heads(self, queues_with_one: AbstractSet[str]) -> dict[str, list[Needing]]:
        """Of each other queue the first groups whose patience may have ended, by rank; those tried again come last."""
        tree = self.attempts.accounts.tree
        heads: dict[str, list[Needing]] = {}
        held = HeldBackItems.of(self.attempts, Looks.of(self.attempts.snapshot.scheduling_queue.preemption))
        for needing in needs_left(self.attempts, self.entries, held):
            queue, rank = tree.leaf(needing.queue), needing.rank
            if rank is None or not isinstance(queue, TreeQueue) or queue.name in queues_with_one:
                continue
            if not self._is_over(_seconds(rank.created), queue):
                continue
            if (refused := self._refused_before(rank)) is not None:
                self.refused[rank.uid] = refused
            if refused is None or not refused.is_passed or self._is_tried_again(refused):
                heads.setdefault(queue.name, []).append(needing)
        return {name: sorted(found, key=self._order)[:_HEADS] for name, found in heads.items()}

    def _refused_before(self, rank: Rank) -> Refused | None:
        return self.refused.get(rank.uid) or self.before.refused.get(rank.uid)

    def _order(self, needing: Needing) -> tuple[int, Rank]:
        """Who was passed over comes behind all others, those first that were so longest ago."""
        rank = _first_rank(needing)
        refused = self.refused.get(rank.uid)
        return (refused.at_ns if refused is not None and refused.is_passed else -1), rank

    def _is_tried_again(self, refused: Refused) -> bool:
        """Whether a group that found no node reserve is tried now: something has changed, and that is a while ago."""
        if refused.stamp == self.stamp and not refused.not_before_ns:
            return False
        again_ns = max(refused.at_ns + AGAIN_NS, refused.not_before_ns)
        if again_ns > self.attempts.now_ns:
            self.times.append(again_ns)
        return again_ns <= self.attempts.now_ns

    def _is_over(self, since_s: int | None, queue: TreeQueue) -> bool:
        """Whether somebody has waited longer than a queue's patience; else it is looked at again when that is so."""
        default_ns = self.attempts.snapshot.settings.reserved_nodes_patience_ns
        patience_ns = rules.patience_ns(self.attempts.accounts.tree, queue, default_ns)
        if since_s is None or patience_ns < 0:
            return False
        left_s = rules.ends_of_patience_s(since_s, patience_ns) - self.attempts.wall_s
        if left_s > 0:
            self.times.append(self.attempts.now_ns + left_s * SECOND_NS)
        return left_s <= 0

    def _first_in(self, heads: Sequence[Needing]) -> ReservationCandidate | None:
        """The first group of a queue that lacks nothing but room, asks GPUs, and has waited too long.

        Where there may be others behind these, who lacks something else makes way for them.
        """
        tree = self.attempts.accounts.tree
        for needing in heads:
            queue, need = tree.leaf(needing.queue), needing.need()
            is_able = need is not None and any(asks_gpus(pod.cls) for pod in need.pods)
            is_able = is_able and need is not None and lacks_nodes(need, self.attempts)
            if not is_able and len(heads) >= _HEADS:
                self.refused[_first_rank(needing).uid] = Refused(self.attempts.now_ns, self.stamp, is_passed=True)
                self.look_again()
            if need is None or not is_able or not isinstance(queue, TreeQueue):
                continue
            since_s = max((_seconds(pod.created) or 0 for pod in needed(need)), default=0)
            since_s = max(since_s, _seconds(need.created) or 0)
            if self._is_over(since_s, queue):
                return ReservationCandidate(need, queue, since_s, rank_of(need))
        return None


def _first_rank(needing: Needing) -> Rank:
    rank = needing.rank
    if rank is None:
        raise LookupError("a need without a rank is no need")
    return rank


def _seconds(created: str) -> int | None:
    found = rfc3339.parse_ns(created)
    return None if found is None else found // SECOND_NS


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
class ReserveStep:
    """Node reserves as they are, and as they are to be. ``entries``: what the decision has done."""

    attempts: Attempts
    entries: list[Entry]
    _owners: ReserveOwners = field(init=False)

    def __post_init__(self) -> None:
        self._owners = ReserveOwners(self.attempts)

    @property
    def _before(self) -> NodeReserves:
        return self.attempts.snapshot.scheduling_queue.reserves

    @property
    def _is_on(self) -> bool:
        return self.attempts.snapshot.settings.reserved_nodes_percent > 0 and self.attempts.wall_s > 0

    # --- who is kept off -----------------------------------------------------------------------------------------
    def keeping_off(self, turn: Turn) -> tuple[NodeReserve, ...]:
        """Node reserves on whose nodes this may not be placed."""
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
            reserve
            for reserve in self._before.of
            if reserve.keeps_off(
                queue=queue.name, rank=rank, is_starved=is_starved, end_s=ends[reserve.queue == queue.name]
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
        return frozenset(name for reserve in self.keeping_off(turn) for name in reserve.nodes)

    def delays(self, need: Need, found: Found, off: AbstractSet[str]) -> bool:
        """Whether victims and places that were found for a need keep an owner of the nodes ``off`` waiting for longer.

        They do not where the victims on each node leave all that is placed there, and none is known to end sooner.
        """
        if not off:
            return False
        pods = {pod.uid: pod for each in need.all for pod in each.pods}
        come, go = dict[str, list[PodRecord]](), dict[str, list[PodRecord]]()
        for place in found.places:
            come.setdefault(place.node, []).append(pods[place.pod_uid])
        known = (self.attempts.snapshot.pod(uid) for unit in found.units for uid in unit.pods)
        for victim in (pod for pod in known if pod is not None):
            go.setdefault(victim.node, []).append(victim)
        return any(
            self._is_delayed(reserve, need.queue, come[name], go.get(name, []))
            for reserve in self._before.of
            for name in reserve.nodes
            if name in off and name in come
        )

    def _is_delayed(self, reserve: NodeReserve, queue: str, come: Sequence[PodRecord], go: Sequence[PodRecord]) -> bool:
        statement, left = self.attempts.placer.statement, NOTHING
        for victim in go:
            left = left.plus(held(victim, statement.nodes[statement.position_of[victim.node]]))
        taken = asked_use(self.attempts.snapshot, come).amounts
        leaf = self.attempts.accounts.tree.leaf(queue)
        is_own = isinstance(leaf, TreeQueue) and leaf.name == reserve.queue
        end_s = rules.end_s({pod.cls for pod in come}, self.attempts.wall_s, is_own=is_own)
        return any(more > less for more, less in zip(taken, left, strict=True)) or any(
            rules.is_sooner(_pod_end_s(self.attempts, victim, reserve.queue), end_s) for victim in go
        )

    # --- owners of node reserves -------------------------------------------------------------------------------------
    def conclude(self) -> None:
        """After all turns: end node reserves that are not needed, look for more, write why their owners wait."""
        before, scheduling_queue = self._before, self.attempts.snapshot.scheduling_queue
        is_idle = not before.of and not scheduling_queue.gangs() and next(scheduling_queue.shapes(), None) is None
        if is_idle or not self._is_on:
            self._keep(NodeReserves())  # nobody is looked at again
            return
        waiting = self._owners.waiting(before.of, self.entries)
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

    def _keep(self, reserves: NodeReserves) -> None:
        before = self._before
        if reserves != before:
            self.attempts.effects.reserves_looked(reserves)
        if any(reserve not in reserves.of for reserve in before.of):
            self.attempts.put_off()  # groups that were kept off have their turn at once
        for reserve in reserves.of:
            self._say(reserve)

    def _stamp(self) -> tuple[object, ...]:
        snapshot = self.attempts.snapshot
        return (snapshot.ledger.changes.last, snapshot.queues.sums.version, snapshot.queues.tree)

    def _say(self, reserve: NodeReserve) -> None:
        members = self._owners.members(reserve)
        cause = ReserveCause(
            owner=f"{reserve.namespace}/{reserve.name}",
            since_s=reserve.since_s,
            queue=reserve.queue,
            nodes=reserve.nodes,
        )
        key = (reserve.namespace, reserve.name) if reserve.is_gang else None
        self.attempts.effects.say(
            [pod.uid for pod in members], Verdict(code=Code.WAITS_FOR_RESERVED_NODES, reserve=cause), key
        )

    # --- looking for more ----------------------------------------------------------------------------------------
    def _looked(self, waiting: Sequence[NodeReserve], stamp: tuple[object, ...]) -> NodeReserves:
        """All node reserves that are to be from now on."""
        percent = self.attempts.snapshot.settings.reserved_nodes_percent
        candidates = ReservationCandidates(self.attempts, self.entries, self._before, stamp, self._paused())
        standing = list(self._renewed(waiting, candidates, percent))
        candidate = candidates.first({reserve.queue for reserve in standing})
        if candidate is not None:
            standing += self._tried(candidate, candidates, standing, percent)
        wall_s, now_ns = self.attempts.wall_s, self.attempts.now_ns
        waits = (each for each in standing if each.free_s != wall_s)  # else nobody is left on its nodes
        candidates.times += (now_ns + (each.next_look_s - wall_s) * SECOND_NS for each in waits)
        return NodeReserves(
            of=tuple(standing),
            looked_ns=self.attempts.now_ns,
            stamp=stamp,
            refused=candidates.refused,
            next_ns=min(candidates.times, default=None),
        )

    def _paused(self) -> dict[str, Refused]:
        """Groups that are not tried yet, also where their queue has another reserve meanwhile."""
        now_ns = self.attempts.now_ns
        return {uid: refused for uid, refused in self._before.refused.items() if refused.not_before_ns > now_ns}

    def _tried(
        self,
        candidate: ReservationCandidate,
        candidates: ReservationCandidates,
        standing: Sequence[NodeReserve],
        percent: int,
    ) -> Iterator[NodeReserve]:
        """Yield the node reserve of a group beside those that stand, if it gets one."""
        choice = Choice(self.attempts, {name for reserve in standing for name in reserve.nodes})
        most = choice.most(percent)
        reserve = self._reserve(candidate, choice, most - sum(reserve.gpus for reserve in standing))
        if reserve is None:
            is_passed = not standing or self._reserve(candidate, Choice(self.attempts, frozenset()), most) is None
            candidates.refuse(candidate.rank, is_passed=is_passed)
        else:
            yield reserve
        if candidates.has_several or reserve is None:
            candidates.look_again()

    def _renewed(
        self, waiting: Sequence[NodeReserve], candidates: ReservationCandidates, percent: int
    ) -> Iterator[NodeReserve]:
        """Node reserves that stand, as of now.

        One that has lost a node is none: its owner is looked at like any other. One that stood for too long is moved to
        other nodes, or given up.
        """
        if not waiting:
            return
        choice = Choice(self.attempts, frozenset())
        for reserve in waiting:
            need = self._owners.need(reserve)
            if need is None or not choice.takes(need, reserve.nodes):
                continue
            gpus, until_s = choice.gpus_of(reserve.nodes), free_s(self.attempts, reserve.queue, reserve.nodes)
            known = reserve.free_at(until_s, self.attempts.wall_s)
            known = msgspec.structs.replace(known, rank=rank_of(need), gpus=gpus)
            if not known.is_too_long(self.attempts.wall_s):
                yield known
            elif (moved := self._moved(known, need, waiting, percent)) is not None:
                yield moved
            else:
                candidates.refuse(known.rank, is_passed=True, for_s=rules.LONGEST_S)

    def _moved(
        self, reserve: NodeReserve, need: Need, waiting: Sequence[NodeReserve], percent: int
    ) -> NodeReserve | None:
        """A node reserve on nodes of which none is reserved now; None if there are not enough."""
        queue = self.attempts.accounts.tree.leaf(need.queue)
        if not isinstance(queue, TreeQueue):
            return None
        choice = Choice(self.attempts, {name for each in waiting for name in each.nodes})
        most = choice.most(percent) - sum(each.gpus for each in waiting if each.uid != reserve.uid)
        candidate = ReservationCandidate(need, queue, reserve.since_s, reserve.rank)
        return self._reserve(candidate, choice, most)

    def _reserve(self, candidate: ReservationCandidate, choice: Choice, most: int) -> NodeReserve | None:
        """The node reserve of a group; None if its queue has no right to more, or it would not fit on ``most`` GPUs."""
        need, queue = candidate.need, candidate.queue
        if choice.asked(need) > most or not is_entitled(self.attempts, need, queue, candidate.rank):
            return None
        nodes = choice.nodes_for(need, most)
        if not nodes:
            return None
        of = need.group if need.group is not None and need.quorum is not None else need.pods[0]
        return NodeReserve(
            queue=queue.name,
            rank=candidate.rank,
            namespace=of.namespace,
            name=of.name,
            is_gang=need.quorum is not None,
            since_s=candidate.since_s,
            begun_s=self.attempts.wall_s,
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
        return asked_use(self.attempts.snapshot, needed(self.of)).amounts.times(self.count)

    @property
    def rank(self) -> Rank | None:
        return rank_of(self.of)

    @property
    def classes_next(self) -> Iterable[PodClass]:
        return {pod.cls for pod in needed(self.of)}
