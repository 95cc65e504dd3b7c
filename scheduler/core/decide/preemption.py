"""Preemption: needs for which others are moved or evicted; the last phase of a decision (docs/design/preemption.md).

For pods that fitted nowhere others are moved, if what is free in all is enough (consolidate). Where that finds nothing
victims are searched by the rules of reclaim, and then by the rules of preempt. What is found is charged at once, on
nodes and in queues, so the next need sees it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from scheduler.core.decide.allowance import FURTHER, Allowance, cost_beside, cost_of_search, cost_of_whole
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.charging import Charging, OnPaper, preemption_trial
from scheduler.core.decide.nominations import NominationTurn
from scheduler.core.decide.preemption_needs import (
    HeldBackItems,
    Looks,
    Needing,
    gang_need,
    member_need,
    needs_left,
    pause_ns,
    pod_need,
)
from scheduler.core.decide.reserved_nodes import ReserveStep
from scheduler.core.model.plan import Entry, GiveUp
from scheduler.core.model.preemption import (
    Action,
    Ended,
    Found,
    Kept,
    KeptPods,
    Moves,
    Nomination,
    NoMoves,
    NoVictims,
    PreemptionSettings,
)
from scheduler.core.model.quota import WITHOUT_END
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Strategy
from scheduler.core.model.steps import Steps
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.ledger import Capacity
from scheduler.core.preemption.consolidation import Movers, disturbing, find_moves
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.protection import next_end_s
from scheduler.core.preemption.trial import Trial
from scheduler.core.queues.order import QueueOrder
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.queues.use import held
from scheduler.core.scheduling_queue.gang_signatures import LineKey
from scheduler.core.scheduling_queue.queue import SchedulingQueue
from scheduler.core.scheduling_queue.signatures import NeedKey, Passed, PreemptionMemo, Refused, ShapeKey, Stamp
from scheduler.core.scheduling_queue.verdicts import Key
from wire.units import SECOND_NS


@dataclass(slots=True)
class MovesOfLook:
    """What was found about moves for one need: it holds for all that ask the same, until something is charged.

    ``has_charged`` is called then.
    """

    _movers: Movers | None = None
    _none: set[Hashable] = field(default_factory=set)

    def has_charged(self) -> None:
        """Forget everything: nodes hold something else now."""
        self._movers = None
        self._none.clear()

    def is_known(self, need: Need, trial: Trial, off: frozenset[str]) -> bool:
        """Whether no group can be moved for a need that asks the same. ``off``: nodes that it is kept off."""
        return _asked(need, trial, off) in self._none

    def find(self, need: Need, trial: Trial, off: frozenset[str]) -> Moves | NoMoves:
        """Search for one need."""
        if self._movers is None:
            self._movers = Movers(trial)
        found = find_moves(need, trial, movers=self._movers)
        if isinstance(found, NoMoves) and (asked := _asked(need, trial, off)) is not None:
            self._none.add(asked)
        return found


def _asked(need: Need, trial: Trial, off: frozenset[str]) -> Hashable:
    """What an answer depends on, as long as nothing is charged; None where it depends on the pods themselves.

    Without a limit a queue within its share takes every need that can be preempted, and one that can't has nobody moved
    for it.
    """
    tree = trial.accounts.tree
    if need.delay_ns > 0 or need.has_places:
        return None
    if any(pod.cls.rules is not None or pod.alone or pod.unbound_claims for pod in need.pods):
        return None
    leaf = tree.leaf(need.queue)
    if isinstance(leaf, Verdict):
        return None
    is_limited = any(tree.queues[number].record.limit != WITHOUT_END for number in leaf.path)
    is_limited = is_limited or not disturbing(need, trial).is_entitled
    _, priority, *form = need.form
    return need.queue if is_limited else "", priority, off, tuple(form)


#: A nomination is revised so often at most.
MOST: Final = 3


@dataclass(slots=True)
class Revising:
    """One decision's. ``stuck``: victims (UIDs) that are counted on no more. ``revised``: how often, by id.

    A nomination is revised if it does not come about unchanged: a victim stays although its time is over, the node of a
    place is gone, or somebody else came. It then gets other places and further victims, and keeps its age.
    """

    attempts: Attempts
    trial: Trial
    charging: Charging
    stuck: Set[str]
    revised: dict[str, int]
    is_put_off: bool = field(default=False)

    def revise(self, failing: Mapping[str, Ended]) -> None:
        """Search again for these nominations, the oldest first."""
        nominations = [each for each in self.attempts.snapshot.commits.nominations.all() if each.id in failing]
        namespaces = len({nomination.namespace for nomination in nominations})
        allowance = Allowance(namespaces=namespaces, most=self.attempts.limits.searching)
        for nomination in nominations:
            if not allowance.has_left(nomination.namespace):
                self.is_put_off = True
            elif not self._is_revised(nomination, allowance):
                self.revised.pop(nomination.id, None)
                self.charging.entries.append(GiveUp(nomination.id, failing[nomination.id]))

    def _is_revised(self, nomination: Nomination, allowance: Allowance) -> bool:
        standing = NominationTurn(nomination, self.attempts)
        standing.lift()
        times = self.revised[nomination.id] = self.revised.get(nomination.id, 0) + 1
        need = self._need(standing)
        if need is None or times > MOST or nomination.action is Action.MOVE:
            return False
        found = self.attempts.snapshot.victims_for(need, self.trial, Action.RECLAIM, Action.PREEMPT)
        snapshot = self.attempts.snapshot
        allowance.spend(nomination.namespace, cost_of_search(snapshot) + cost_beside(snapshot, found))
        records = self.attempts.snapshot.pods.records
        still = [each for each in nomination.victims if each.pod_uid in records and each.pod_uid not in self.stuck]
        return isinstance(found, Found) and self.charging.take(need, found, standing=nomination, still=still)

    def _need(self, standing: NominationTurn) -> Need | None:
        nomination = standing.nomination
        group = standing.group if nomination.pod_group else None
        if not standing.waiting or (nomination.pod_group and group is None):
            return None
        _, pod = standing.waiting[0]
        if group is None:
            return pod_need(pod, self.attempts)
        if self.attempts.snapshot.quorum(group).is_met:
            return member_need(pod, group, self.attempts)
        return gang_need((nomination.namespace, nomination.pod_group), self.attempts)


#: Victims are counted on for their grace period, up to the longest that is set, and this.
STAYING_NS: Final = 60 * SECOND_NS
#: The most equal needs that are searched for together.
_TOGETHER: Final = 256
#: What it costs to see that one needs no room, and for each of its pods.
_PASSING: Final = 50
_PASSING_EACH: Final = 10


@dataclass(slots=True)
class PreemptionPhase:
    """One decision's. ``entries`` takes nominations, and has what was decided before.

    ``failing``: standing nominations (ids) that don't come about as they are, and why. ``reserve_step``: nodes that are
    kept.
    """

    attempts: Attempts
    entries: list[Entry]
    wall_s: int
    failing: dict[str, Ended]
    reserve_step: ReserveStep
    trial: Trial = field(init=False)
    charging: Charging = field(init=False)
    _stamp: Stamp = field(init=False)
    _looks: Looks = field(init=False)
    _capacity: Capacity = field(init=False)
    _too_large: set[ShapeKey] = field(default_factory=set)
    _refused: dict[NeedKey, Refused] = field(default_factory=dict)
    _passed: dict[NeedKey, Passed] = field(default_factory=dict)
    _leaving: dict[str, int] = field(default_factory=dict)
    _revised: dict[str, int] = field(default_factory=dict)
    #: When something is to be looked at again.
    _times: list[int] = field(default_factory=list)

    def run(self) -> Steps[None]:
        """Look for room, if it is time to."""
        scheduling_queue, now_ns = self.attempts.snapshot.scheduling_queue, self.attempts.now_ns
        memo, self._stamp = (
            scheduling_queue.preemption.without_answers_to(scheduling_queue.retry_preemption),
            self._stamp_now(),
        )
        interval_ns = self._settings.interval_ns
        if memo.looked_ns is not None and memo.looked_ns <= now_ns < memo.looked_ns + interval_ns:
            has_changed = self._stamp != memo.stamp or bool(self.failing)
            self._wait(memo, memo.looked_ns + interval_ns, has_changed=has_changed)
            return
        self._capacity = Capacity.of(self.attempts.snapshot.ledger, memo.capacity)
        self._too_large = {*memo.too_large} & scheduling_queue.shape_keys if self._capacity is memo.capacity else set()
        self._looks = Looks.of(memo, now_ns, (self._stamp, (self._capacity.version,)))
        held = HeldBackItems.of(self.attempts, self._looks)
        found = list(needs_left(self.attempts, self.entries, held, besides=self._too_large))
        due = [need for need in found if self._is_due(need) and need.may_have_turn]
        keys = {need.key for need in found}
        known = keys | self._too_large | held.items()
        self._refused = {key: refused for key, refused in memo.refused.items() if key in known}
        self._passed = {key: passed for key, passed in memo.passed.items() if key in known}
        self._note_victims(memo)
        if any(need.has_others for need in due):
            self._times.append(now_ns)
        if found and (end_s := self._next_end_s()):
            self._times.append(now_ns + (end_s - self.wall_s) * SECOND_NS)
        if due or self.failing:
            yield from self._look(due)
        next_ns = self._next_ns(keys | held.freeable())
        self.attempts.effects.preemption_looked(
            PreemptionMemo(
                now_ns,
                self._stamp,
                self._refused,
                self._passed,
                self._leaving,
                self._revised,
                next_ns,
                self._capacity,
                frozenset(self._too_large),
            )
        )

    def _next_end_s(self) -> int:
        """When the next one of those ends for which pods take from nobody (wall clock); 0: there is none."""
        facts = self.attempts.snapshot.preemption_facts
        ends = (next_end_s(facts.failed_claims, self.wall_s), *facts.takers_wait.values())
        return min((at_s for at_s in ends if at_s > self.wall_s), default=0)

    @property
    def _settings(self) -> PreemptionSettings:
        return self.attempts.snapshot.preemption_facts.settings

    def _patience_ns(self, victim: PodRecord) -> int:
        """For how long a victim is waited for: nobody keeps a nominated pod waiting by a grace period of a year."""
        return min(victim.grace_s, self._settings.longest_victim_grace_s) * SECOND_NS + STAYING_NS

    def _since_ns(self, pod: PodRecord) -> int | None:
        """Since when a pod is waited for: it is terminating, or its eviction was tried; None: it was not yet."""
        asked = self.attempts.snapshot.preemption_facts.asked
        is_waited_for = pod.deleting or asked is None or pod.uid in asked
        return self._leaving.setdefault(pod.uid, self.attempts.now_ns) if is_waited_for else None

    # --- when ----------------------------------------------------------------------------------------------------
    def _stamp_now(self) -> Stamp:
        """All that answers depend on: nodes, queues, who may be evicted, and what the shell knows."""
        snapshot = self.attempts.snapshot
        queues = snapshot.queues
        return (
            snapshot.ledger.changes.last,
            queues.sums.version,
            queues.tree_version,
            snapshot.residents.changes,
            snapshot.preemption_facts.version,
        )

    def _wait(self, memo: PreemptionMemo, at_ns: int, *, has_changed: bool) -> None:
        """Leave everything as it is until the time has come."""
        next_ns = at_ns if has_changed else memo.next_ns
        if next_ns is not None:
            next_ns = max(at_ns, next_ns)
        scheduling_queue = self.attempts.snapshot.scheduling_queue
        is_idle = not scheduling_queue.gangs() and next(scheduling_queue.shapes(), None) is None
        if is_idle:  # no look may follow that forgets them
            memo = msgspec.structs.replace(memo, refused={}, passed={}, too_large=frozenset())
        self.attempts.effects.preemption_looked(msgspec.structs.replace(memo, next_ns=next_ns))

    def _is_due(self, need: Needing) -> bool:
        """Whether a need is searched for: its answer may be another one, or was given to a less urgent one."""
        if self._looks.is_due(need.key):
            return True
        rank = need.rank if isinstance(need.key, ShapeKey | LineKey) else None
        return rank is not None and -rank.minus_priority > self._looks.refused[need.key].priority

    def _next_ns(self, searchable: AbstractSet[NeedKey]) -> int | None:
        """When there is something to look for again, as far as is known now. ``searchable``: what is searched for."""
        refused = [each for key, each in self._refused.items() if key in searchable]
        times = [*self._times, *(each.again_ns for each in refused if each.again_ns is not None)]
        times += (each.at_ns + pause_ns(each) for each in refused if self._looks.may_differ(each))
        return max(min(times), self.attempts.now_ns + self._settings.interval_ns) if times else None

    # --- who -----------------------------------------------------------------------------------------------------
    def _note_victims(self, memo: PreemptionMemo) -> None:
        """Note since when victims are to go, and which nominations wait for one that does not."""
        snapshot, now_ns = self.attempts.snapshot, self.attempts.now_ns
        self._leaving = {uid: at_ns for uid, at_ns in memo.leaving.items() if uid in snapshot.pods.records}
        over = {entry.nomination_id for entry in self.entries if isinstance(entry, GiveUp)}
        self.failing = {key: because for key, because in self.failing.items() if key not in over}
        nominations = snapshot.commits.nominations

        def stands(nomination_id: str) -> bool:
            return (
                nominations.get(nomination_id) is not None
                and nomination_id not in over
                and not nominations.is_ending(nomination_id)
            )

        self._revised = {nomination_id: times for nomination_id, times in memo.revised.items() if stands(nomination_id)}
        for pod in self._waited_for():
            since_ns, nomination = self._since_ns(pod), nominations.victims.get(pod.uid)
            if since_ns is None or nomination is None or not stands(nomination.id):
                continue
            over_ns = since_ns + self._patience_ns(pod)
            if over_ns > now_ns:
                self._times.append(over_ns)
            elif nominations.waits(nomination.places[0].pod_uid):
                self.failing.setdefault(nomination.id, Ended.VICTIM_STAYS)

    def _waited_for(self) -> Iterator[PodRecord]:
        """Bound pods that are terminating, or whose eviction was tried: not all victims of all nominations."""
        snapshot = self.attempts.snapshot
        asked, victims = snapshot.preemption_facts.asked, snapshot.commits.nominations.victims
        tried = victims if asked is None else filter(victims.__contains__, sorted(asked))
        records = map(snapshot.pods.records.get, dict.fromkeys((*tried, *snapshot.pods.terminating)))
        return (pod for pod in records if pod is not None and pod.node)

    def _look(self, due: Sequence[Needing]) -> Steps[None]:
        """Search for those that are due: reclaim for all of them first, then preempt for those that are left."""
        facts = self.attempts.snapshot.preemption_facts
        nominations = self.attempts.snapshot.commits.nominations
        # A nominated pod of a gang may be bound before the others are: its nomination stands, and nobody else has it.
        self.charging = Charging(self.attempts, self.entries, {*nominations.victims, *nominations.nominees})
        self.trial = preemption_trial(
            self.attempts,
            wall_s=self.wall_s,
            taken=self.charging.taken,
            refused=facts.refused,
            budgets=facts.budgets,
            labels=facts.labels,
            evicted=facts.evicted,
            settings=facts.settings,
        )
        stuck = self._leave()
        revising = Revising(self.attempts, self.trial, self.charging, stuck, self._revised)
        revising.revise(self.failing)
        if revising.is_put_off:
            self._times.append(self.attempts.now_ns)
        left = yield from self._move(due)
        for action in (Action.RECLAIM, Action.PREEMPT):
            left = yield from self._search(left, action)

    def _leave(self) -> set[str]:
        """Take off pods that go anyway; return those who should have been gone long ago."""
        snapshot, now_ns, there = self.attempts.snapshot, self.attempts.now_ns, self.attempts.placer.statement
        victims, leaving, stuck = snapshot.commits.nominations.victims, list[PodRecord](), set[str]()
        for pod in map(snapshot.pods.records.get, dict.fromkeys((*victims, *snapshot.pods.terminating))):
            if pod is None or not pod.node:
                continue
            since_ns = self._since_ns(pod)
            patience_ns = self._patience_ns(pod) if pod.uid in victims else self._settings.releasing_threshold_ns
            if since_ns is not None and now_ns >= since_ns + patience_ns:
                stuck.add(pod.uid)
            elif pod.node in there.position_of:
                leaving.append(pod)
                if since_ns is not None:
                    self._times.append(since_ns + patience_ns)  # who counts on it is looked at again if it stays
        self.charging.leave(leaving)
        return stuck

    # --- moving --------------------------------------------------------------------------------------------------
    def _move(self, due: Sequence[Needing]) -> Steps[list[Needing]]:
        """Have groups moved for needs that fit in what is free in all, in the order of queues; return the others.

        Not where pods are spread: what was moved together would be spread again (as KAI).
        """
        settings = self.attempts.snapshot.settings
        if Strategy.SPREAD in {settings.gpu_strategy, settings.cpu_strategy}:
            return list(due)
        left, allowance, moves = list[Needing](), self._allowance(due), MovesOfLook()
        for first, order in self._by_turns(due, allowance):
            yield cost_of_search(self.attempts.snapshot)
            if self._is_moved(first, allowance, moves):
                self._refused.pop(first.key, None)  # what it was told before is over
                self._line_up(order, first)
            else:
                left.append(first)
        return left

    def _is_moved(self, first: Needing, allowance: Allowance, of_look: MovesOfLook) -> bool:
        """Whether groups are moved for the first one, or it needs nothing: then it has had its turn."""
        need = first.need()
        if need is None or not need.takes:
            self._pass_over(first, allowance)
            return True
        off = self.reserve_step.alike(need)[1]
        if need.own_until_s or of_look.is_known(need, self.trial, off):
            allowance.spend(first.namespace, _PASSING + _PASSING_EACH * first.members())
            return False
        moves = of_look.find(need, self._trial_beside(off), off)
        snapshot = self.attempts.snapshot
        allowance.spend(first.namespace, cost_of_search(snapshot) + cost_beside(snapshot, moves))
        is_moved = isinstance(moves, Moves) and self.charging.take_moves(need, moves)
        if is_moved:
            first.take()
            of_look.has_charged()
        return is_moved

    # --- searches ------------------------------------------------------------------------------------------------
    def _search(self, due: Sequence[Needing], action: Action) -> Steps[list[Needing]]:
        """Search by one action, in the order of queues; return those that were refused."""
        refused, allowance = list[Needing](), self._allowance(due)
        for first, order in self._by_turns(due, allowance):
            if (yield from self._is_made(first, action, allowance)):
                self._line_up(order, first)
            elif first.key in self._refused and self._refused[first.key].at_ns == self.attempts.now_ns:
                refused.append(first)
        return refused

    def _allowance(self, due: Sequence[Needing]) -> Allowance:
        return Allowance(namespaces=len({need.namespace for need in due}), most=self.attempts.limits.searching)

    def _by_turns(self, due: Sequence[Needing], allowance: Allowance) -> Iterator[tuple[Needing, QueueOrder[Needing]]]:
        """Needs whose turn it is, in the order of queues; one with another turn is put into the order again.

        Needs that were never looked at come first. Of the others as many come as one look can have, those that were
        looked at longest ago, and of these first as many as it can have if all are searched for to the end. The rest is
        looked at the next time, so no need stands before another for ever.
        """
        looks, snapshot = self._looks, self.attempts.snapshot
        most, few = (allowance.share // cost(snapshot) + 1 for cost in (cost_of_search, cost_of_whole))
        again = sorted((need for need in due if looks.at_ns(need.key) >= 0), key=lambda need: looks.at_ns(need.key))
        left_over, again = again[most:], again[:most]
        by_age = [again[at : at + few] for at in range(0, len(again), few)]
        for group in ([need for need in due if looks.at_ns(need.key) < 0], *by_age):
            order: QueueOrder[Needing] = QueueOrder(self.attempts.accounts)
            for need in group:
                self._line_up(order, need)
            while (first := order.pop()) is not None:
                if allowance.has_left(first.namespace):
                    yield first, order
                else:
                    left_over.append(first)
        if any(looks.has_news(need.key) for need in left_over):
            self._times.append(self.attempts.now_ns)

    def _line_up(self, order: QueueOrder[Needing], need: Needing) -> None:
        queue, rank = self.attempts.accounts.tree.leaf(need.queue), need.rank
        if rank is not None and isinstance(queue, TreeQueue):
            order.put(queue, rank, need)

    def _is_made(self, first: Needing, action: Action, allowance: Allowance) -> Steps[bool]:
        """Make room for the first one; return whether the next one of its kind may follow."""
        cost = cost_of_search(self.attempts.snapshot)
        need = first.need(_most(allowance.share - allowance.spent_by(first.namespace) - cost))
        if need is None or not need.takes:
            self._pass_over(first, allowance)
            return True
        allowance.spend(first.namespace, cost)
        need, off = self.reserve_step.alike(need)
        yield cost
        answer = yield from self.attempts.snapshot.finding_victims(need, self.trial, action)
        if isinstance(answer, Found) and self.reserve_step.delays(need, answer, off):
            allowance.spend(first.namespace, cost)
            reserved = self._reserved_victims(answer, off)
            answer = yield from self.attempts.snapshot.finding_victims(need, self._trial_beside(off), action)
            if isinstance(answer, NoVictims) and reserved.pods:
                answer = msgspec.structs.replace(answer, kept=(*answer.kept, reserved))
        taken = self.charging.take_each(need, answer) if isinstance(answer, Found) else 0
        allowance.spend(first.namespace, cost_beside(self.attempts.snapshot, answer, needs=len(need.all)))
        if taken:
            self._refused.pop(first.key, None)
            first.take(taken)
            if first.has_more:
                self._times.append(self.attempts.now_ns)
            return True
        self._refuse(first, answer if isinstance(answer, NoVictims) else NoVictims())
        return False

    def _reserved_victims(self, found: Found, off: frozenset[str]) -> KeptPods:
        """Victims that reserved nodes keep; a node may be gone whose pods are not."""
        snapshot, statement = self.attempts.snapshot, self.attempts.placer.statement
        known = [snapshot.pod(uid) for unit in found.units for uid in unit.pods]
        there = off & statement.position_of.keys()
        pods = [pod for pod in known if pod is not None and pod.node in there]
        nano = sum(held(pod, statement.nodes[statement.position_of[pod.node]]).gpu_nano for pod in pods)
        return KeptPods(Kept.RESERVED, len(pods), nano)

    def _pass_over(self, first: Needing, allowance: Allowance) -> None:
        """It needs no room now, or takes from nobody for a while: what it was told before is over."""
        allowance.spend(first.namespace, _PASSING + _PASSING_EACH * first.members())
        self._refused.pop(first.key, None)
        self._passed[first.key] = Passed(self._stamp, self.attempts.now_ns)
        first.pass_over()

    def _trial_beside(self, off: frozenset[str]) -> Trial:
        """A trial on nodes that are not kept for others; nobody is moved to any that are kept."""
        all_but = self.attempts.placer.all_but
        kept = frozenset(
            name for reserve in self.attempts.snapshot.scheduling_queue.reserves.of for name in reserve.nodes
        )
        return replace(self.trial, paper=OnPaper(self.attempts, all_but(off), all_but(kept)))

    def _refuse(self, first: Needing, answer: NoVictims) -> None:
        key, rank = first.key, first.rank
        self._passed.pop(key, None)
        now_ns, before = self.attempts.now_ns, self._refused.get(key)
        if isinstance(key, ShapeKey) and not self._capacity.may_hold(self.attempts.snapshot.ledger, key.cls):
            self._too_large.add(key)
            self._refused[key] = Refused((self._capacity.version,), now_ns, answer)
            return
        again_ns = now_ns + max(1, answer.until_s - self.wall_s) * SECOND_NS if answer.until_s else None
        if before is not None and before.at_ns == now_ns:  # by the action before
            answer = msgspec.structs.replace(
                answer,
                placed=answer.placed + before.answer.placed,
                taken_off=answer.taken_off + before.answer.taken_off,
            )
            if before.again_ns is not None:
                again_ns = before.again_ns if again_ns is None else min(again_ns, before.again_ns)
        self._refused[key] = Refused(
            self._stamp, now_ns, answer, again_ns, -rank.minus_priority if rank is not None else 0
        )


def _most(operations: int) -> int:
    """For how many equal needs room is looked for together: as many as this work pays for."""
    return max(1, min(_TOGETHER, operations // FURTHER))


#: News is held back for so long at most, and only if the next look comes within it.
MOST_NS: Final = 1_000_000_000
#: What a search for room may change.
_NEWS_HELD_BACK: Final = frozenset({Code.NO_NODE_FITS, Code.GANG_INCOMPLETE})


class DelayedConditions:
    """News of pods that wait for room: whose is held back until victims have been looked for, and since when.

    A pod that is served at once would else cost two writes for nothing.
    """

    def __init__(self) -> None:
        self._since_ns: dict[str, int] = {}

    def held(self, scheduling_queue: SchedulingQueue, now_ns: int) -> frozenset[str]:
        """Pods (UIDs) that are not told their news yet. To be asked once after each decision."""
        before, self._since_ns = self._since_ns, {}
        next_ns = scheduling_queue.preemption.next_ns
        if next_ns is None or next_ns > now_ns + MOST_NS:
            return frozenset()
        refused = scheduling_queue.preemption.refused
        for uid, verdict, item in scheduling_queue.said.untold():
            since_ns = before.get(uid, now_ns)
            is_new = since_ns <= now_ns < since_ns + MOST_NS
            if is_new and verdict.code in _NEWS_HELD_BACK and _need_of(scheduling_queue, item) not in refused:
                self._since_ns[uid] = since_ns
        return frozenset(self._since_ns)


def _need_of(scheduling_queue: SchedulingQueue, item: Key | ShapeKey | None) -> NeedKey:
    """What the need of a shape or of a gang is known by."""
    if item is None or isinstance(item, ShapeKey):
        return item
    return scheduling_queue.lines.line_of(item) or item
