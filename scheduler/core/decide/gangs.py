"""Gangs: they start whole or not at all; members beyond the minimum come one at a time.

A gang that has just its minimum comes before those that have more (as in KAI), so it gets one member, and its
rank is looked at again after each. Of gangs that ask the same the first that can't start speaks for all that are left.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.core.decide.allowance import COST_OF_HOLDING_BACK, COST_OF_PLACING, cost_of_judging
from scheduler.core.decide.attempts import Attempts, KeptOff, asked_amounts, asked_use, least_amounts, least_use
from scheduler.core.decide.gang_search import PlaceBound, records_of, requires_levels
from scheduler.core.decide.gang_sleep import GangWaits, alike_of, asked_by_start, speaks_of
from scheduler.core.decide.gang_start import Start, started, started_on_supposed_nodes, started_within
from scheduler.core.decide.single_pods import BesideGang, Outcome, decide_alone
from scheduler.core.decide.snapshot import obstacle
from scheduler.core.groups.quorum import Quorum, Surplus
from scheduler.core.model.plan import Entry
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import ABOVE, Candidate, Rank, order_members
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import CLAIMS_IN_USE, Code, TopologyCause, Verdict
from scheduler.core.queues.accounts import HeldBack
from scheduler.core.scheduling_queue.gang_signatures import GangLine, GangSignature, Until, WaitingGang
from scheduler.core.scheduling_queue.signatures import Turns
from scheduler.core.scheduling_queue.unschedulable import LARGE


@dataclass(slots=True)
class SurplusMembers:
    """One gang's in one decision. ``above`` as in ``Candidate``. ``is_starting``: its minimum is on its way.

    ``may_sleep``: whether all of them fit nowhere, so that nothing is to be decided until that may have changed.
    """

    surplus: Surplus
    attempts: Attempts
    entries: list[Entry]
    above: int
    is_starting: bool
    may_sleep: bool = True
    #: The least that any of them would use that the queue does not take; may_sleep: what wakes them all.
    held_back: HeldBack | None = None
    #: Whether one of them fits on nodes only that are kept for others, or is left to the next decision.
    is_kept_off: bool = False
    is_put_off: bool = False
    #: Where the gang runs, if it asks for a place; and why the first member found none there.
    beside: BesideGang | None = None
    out_of_place: Verdict | None = None
    _has_failed: bool = False

    def turn(self) -> bool:
        """Decide until one is placed; return whether there is another turn to come."""
        while (pod := self.surplus.take()) is not None:
            if self.attempts.keep_place(pod) if self.is_starting else self._is_served(pod):
                self.surplus.placed()
                self.above = ABOVE
                return True
        return False

    def _is_served(self, pod: PodRecord) -> bool:
        outcome, effects = self._decided(pod), self.attempts.effects
        if isinstance(outcome, HeldBack):
            effects.say((pod.uid,), outcome.verdict)
            self._hold_back(outcome)
            return False
        if isinstance(outcome, KeptOff):
            effects.say((pod.uid,), outcome.verdict)
            self.is_kept_off = True
        if isinstance(outcome, Verdict):
            effects.say((pod.uid,), outcome)
        self.is_put_off = self.is_put_off or outcome is Outcome.PUT_OFF
        fits_nowhere = isinstance(outcome, Verdict) and effects.kept(pod.cls) is not None
        self.may_sleep = self.may_sleep and fits_nowhere and not pod.alone and self.held_back is None
        self._has_failed = True
        return outcome is Outcome.SERVED

    def _decided(self, pod: PodRecord) -> Outcome | Verdict | HeldBack | KeptOff:
        if self.beside is None:
            return decide_alone(pod, self.attempts, self.entries)
        outcome = self.beside.decide(pod, self.attempts, self.entries)
        if isinstance(outcome, Verdict) and outcome.topology is not None:
            self.out_of_place = self.out_of_place or outcome
        return outcome

    def _hold_back(self, held: HeldBack) -> None:
        """They sleep for their queue if it is what keeps all of them."""
        self.may_sleep = self.may_sleep and not self._has_failed
        known = self.held_back or held
        use, is_there = held.use.or_less(known.use), held.is_there or known.is_there
        self.held_back = HeldBack(held.verdict, use, is_there)


#: What a gang costs that does not start, and each of its members that was passed over, in operations (allowance.py).
_TRYING: Final = 50
_PASSING: Final = 5


@dataclass(slots=True)
class GangDecision:
    """The waiting members of a gang in one decision, in their order, and how far it is from its minimum."""

    gang: WaitingGang
    group: PodGroupRecord
    pods: list[PodRecord]
    state: Quorum
    attempts: Attempts
    entries: list[Entry]
    #: Members beyond the minimum, once it has had a turn.
    extras: SurplusMembers | None = None
    #: What it says and what wakes it.
    waits: GangWaits = field(init=False)
    _use: Resources | None = None

    #: What it asks of places, by the node of its tree of minimums; or why that can't be told.
    bounds: Mapping[int, PlaceBound] | Verdict = field(init=False)

    def __post_init__(self) -> None:
        self.bounds = self.attempts.bounds_of(self.group)
        self.waits = GangWaits(self.gang.key, self.group, self.pods, self.state, self.attempts)

    @property
    def rank(self) -> Rank:
        """When it has its turn."""
        return Candidate(self.pods, self.group, above=self.above).rank

    @property
    def queue(self) -> str:
        """The queue of all its pods."""
        return self.group.queue

    @property
    def use(self) -> Resources:
        """What the pods that come next would count for in it: its missing minimum, or one more member.

        Counted once, since each queue above asks for it again.
        """
        if self._use is None:
            self._use = asked_use(self.attempts.snapshot, self._next_up).amounts
        return self._use

    @property
    def least(self) -> Resources:
        """The least that they come to use, wherever they are placed."""
        return least_use(self.attempts.snapshot, self._next_up).amounts

    @property
    def _next_up(self) -> Sequence[PodRecord]:
        return self.state.next_up(self.pods)

    @property
    def classes_next(self) -> Iterable[PodClass]:
        """Of the pods that come next."""
        return {pod.cls for pod in self._next_up}

    def is_settled(self) -> bool:
        """Never: what holds for its members says nothing of all of them together."""
        return False

    @property
    def above(self) -> int:
        """As in ``Candidate``; a minimum that is on its way counts as bound."""
        if self.extras is not None:
            return self.extras.above
        return self.state.above_in_turn

    def decide(self) -> bool:
        """Start it, or place members beyond the minimum, or say why that is not possible now.

        Returns whether it has another turn to come, by its new rank.
        """
        if self.extras is not None:
            return self._go_on(self.extras)
        blocker = self.group.blocker or (self.bounds if isinstance(self.bounds, Verdict) else None)
        if blocker is not None:
            self.waits.explain(blocker)
            self.waits.sleep(Until.TOUCHED)
            return False
        if self._is_pausing():
            return False
        obstacles = self._obstacles()
        ready = [pod for pod in self.pods if not pod.gated and pod.uid not in obstacles]
        self.waits.classes = tuple(dict.fromkeys(pod.cls for pod in ready))
        self.attempts.effects.gang_is_of(self.gang.key, self.waits.classes)
        if self.state.is_met:
            return self._decide_extras(ready, obstacles)
        if self.state.is_starting:
            return self._keep_place(ready)
        self._decide_start(ready, obstacles)
        return False

    def _is_pausing(self) -> bool:
        """Whether its last start was large and failed, and it may not be tried again yet; then it says what it said."""
        pace, kept = self.attempts.effects.pace, self.waits.kept
        next_ns = pace.next_ns(self.gang.key) if pace.is_large(self.gang.key) else 0
        if self.state.is_met or self.attempts.now_ns >= next_ns or kept is None:
            return False
        if not speaks_of(kept, self.group, self.state, len(self.pods)):
            return False
        self.waits.wake_at(next_ns)
        self.waits.explain(kept.verdict)
        self.waits.sleep(Until.TOUCHED)
        return True

    def _obstacles(self) -> dict[str, Verdict]:
        """Why members may not be placed now on any node."""
        found: dict[str, Verdict] = {}
        for pod in self.pods:
            verdict, next_ns = obstacle(self.attempts.snapshot, pod, self.attempts.now_ns)
            if verdict is not None:
                found[pod.uid] = verdict
            if next_ns is not None:
                self.waits.wake_at(next_ns)
        return found

    def _decide_extras(self, ready: list[PodRecord], obstacles: dict[str, Verdict]) -> bool:
        """Members beyond the minimum come one at a time; return whether there is another turn to come."""
        for pod in self.pods:
            if pod.uid in obstacles:
                self.attempts.effects.say((pod.uid,), obstacles[pod.uid])
        self.extras = self._extras(ready, is_starting=False)
        return self._go_on(self.extras)

    def _extras(self, ready: list[PodRecord], *, is_starting: bool) -> SurplusMembers:
        surplus = Surplus(self.group, self.state.active, ready)
        beside = BesideGang(self.group.tree, self.bounds) if self.bounds and isinstance(self.bounds, Mapping) else None
        return SurplusMembers(surplus, self.attempts, self.entries, self.above, is_starting, beside=beside)

    def _go_on(self, extras: SurplusMembers) -> bool:
        if extras.turn():
            return True
        if extras.is_kept_off:
            if extras.held_back is not None:  # their queue may be what keeps one of them
                self.waits.hold_back(extras.held_back, self.rank)
            self.waits.keep_off_later(self.use, are_put_off=extras.is_put_off)
        elif extras.out_of_place is not None and extras.held_back is None and not extras.is_put_off:
            self.waits.keep(extras.out_of_place, None, self.attempts.charged(), lacks=1)
            self.waits.sleep(Until.MAY_START)
        elif extras.may_sleep and extras.held_back is not None:
            self.waits.hold_back(extras.held_back, self.rank)
        elif extras.may_sleep and not extras.is_starting:
            self.waits.sleep(Until.CLASS_FITS, is_counted=self.waits.is_counted(self.attempts.charged()))
        return False

    def _keep_place(self, ready: list[PodRecord]) -> bool:
        """While the minimum is on its way, members beyond it keep their place among those of other gangs."""
        if not ready:
            self.waits.sleep(Until.TOUCHED)
            return False
        self.extras = self._extras(ready, is_starting=True)
        return self._go_on(self.extras)

    # --- starts --------------------------------------------------------------------------------------------------
    def _decide_start(self, ready: list[PodRecord], obstacles: dict[str, Verdict]) -> None:
        """Place as many members as the minimum needs, or none."""
        if not self.state.is_reachable(ready):
            blocking = next(iter(obstacles.values()), None)
            self.waits.explain(blocking or self.state.not_ready(self.pods, ready))
            self.waits.sleep(Until.TOUCHED)
            return
        # Where there is a choice, another one may be less.
        has_choice = self.state.has_choice(ready)
        held_back = None if has_choice else self.attempts.held_back(self.state.needed(ready))
        if held_back is not None:
            self.waits.explain(held_back.verdict)
            self.waits.hold_back(held_back, self.rank)
            return
        self.waits.alike = self._alike(ready)
        asked, kept = self.waits.alike or self._asked(ready), self.waits.kept
        if (like := self.waits.kept_off_like) is not None:
            self.waits.keep_off(like, self.use)
        elif kept is not None and kept.asked == asked and not self.waits.may_start(kept):
            self.waits.for_room(kept.verdict, self.rank)
        elif not self._is_in_turn(ready):
            turn = Verdict(code=Code.WAITS_FOR_TURN, required=self.state.minimum)
            self.waits.explain(kept.verdict if kept is not None else self.waits.held_back_before(ready) or turn)
            self.waits.sleep(Until.TOUCHED)
        elif not self.attempts.affords(ready):
            self.waits.explain_kept()
            self.attempts.effects.leave_gang(self.gang.key)
        else:
            self._try(ready, asked)

    def _try(self, ready: list[PodRecord], asked: Hashable) -> None:
        attempts, namespace = self.attempts, self.group.namespace
        mark, charged, spent = attempts.checkpoint(), attempts.charged(), attempts.allowance.spent_by(namespace)
        start = self._started(ready)
        if start.is_whole:
            self._carry_out(start)
            return
        attempts.rollback(mark)
        if attempts.snapshot.supposes_nodes:
            attempts.allowance.spend(namespace, _PASSING * len(ready))
            start = started_on_supposed_nodes(start, ready, self.state, attempts)
            if start.is_whole:
                self._carry_out(start)
                return
            attempts.rollback(mark)
        attempts.allowance.spend(namespace, _TRYING + _PASSING * len(ready))
        cost = attempts.allowance.spent_by(namespace) - spent
        if not attempts.snapshot.supposes_nodes:  # there, one that failed is no reason for others to pause
            attempts.effects.start_failed(self.gang.key, cost, attempts.now_ns)
        if start.failed is None and start.held_back is not None and not start.is_kept_off:
            self.waits.explain(start.held_back.verdict)
            self.waits.hold_back(start.held_back, self.rank)
            return
        verdict = _out_of_place(start, self.group) or _incomplete(start, self.state)
        if start.is_kept_off or self.waits.may_be_kept_off():
            if start.held_back is not None:
                self.waits.alike = None  # what others say that ask the same would not hold for their queue
                self.waits.hold_back(start.held_back, self.rank)
            self.waits.keep_off(verdict, self.use)
            return
        if start.held_back is not None:
            self.waits.for_both(verdict, start.held_back, self.rank)
            return
        if cost > LARGE:
            self.waits.alike, asked = None, self._asked(ready)
        self.waits.keep(verdict, asked, charged, lacks=self._lacks(start, ready))
        self.waits.for_room(verdict, self.rank, is_counted=self.waits.is_counted(charged))

    def _started(self, ready: Sequence[PodRecord]) -> Start:
        """Start it where it asks to be; where it only prefers that, anywhere.

        On supposed nodes it starts anywhere: nobody knows which domain a node would come to.
        """
        attempts = self.attempts
        if not self.bounds or isinstance(self.bounds, Verdict) or attempts.snapshot.supposes_nodes:
            return started(ready, self.state, attempts)
        mark = attempts.checkpoint()
        start = started_within(ready, self.state, attempts, self.bounds)
        if start.is_whole or start.unsatisfied is not None or start.held_back is not None:
            return start
        attempts.rollback(mark)
        anywhere = started(ready, self.state, attempts)
        if anywhere.is_whole and requires_levels(self.group):
            attempts.rollback(mark)
            return start
        return anywhere

    def _topologies(self) -> Hashable:
        return records_of(self.attempts.snapshot, self.group)

    def _asked(self, ready: Sequence[PodRecord]) -> Hashable:
        """All that its start depends on beside the nodes: of Topologies, and of domains in which others of it run."""
        bounds = {} if isinstance(self.bounds, Verdict) else self.bounds
        running = tuple((node, bound.running_in) for node, bound in bounds.items() if bound.running)
        return asked_by_start(self.group, self.state, ready, (self._topologies(), running))

    def _carry_out(self, start: Start) -> None:
        if start.waiting:
            self.entries.extend(start.retired)
            self.waits.explain(Verdict(code=Code.WAITING_FOR_DEVICE, detail=start.waits_on))
            self.attempts.effects.leave_gang(self.gang.key)
        else:
            self.entries.append(start.entry(self.group, self.attempts))

    def _lacks(self, start: Start, ready: Sequence[PodRecord]) -> int:
        """How many members found no place: enough to know where others of their class don't either; else 1."""
        if start.first_failure is None or self.state.has_choice(ready) or any(pod.alone for pod in ready):
            return 1
        return max(1, self.state.missing(ready).total - len(start.placed) - len(start.waiting))

    def _alike(self, ready: Sequence[PodRecord]) -> GangSignature | None:
        """What its start depends on; None where that is not the same for others, or it costs much.

        See unschedulable.py.
        """
        if self.attempts.effects.pace.is_large(self.gang.key) or self.attempts.snapshot.supposes_nodes:
            return None
        found = alike_of(self.group, self.state, ready, len(self.pods), places=self._topologies())
        return found if found is not None and self._cost(ready) <= LARGE else None

    def _is_in_turn(self, ready: Sequence[PodRecord]) -> bool:
        """Whether the start of a gang is tried now; one that costs much is tried seldom (unschedulable.py)."""
        next_ns = self.attempts.effects.pace.next_ns(self.gang.key)
        if next_ns <= self.attempts.now_ns or self._cost(ready) <= LARGE:
            return True
        self.waits.wake_at(next_ns)
        return False

    def _cost(self, ready: Sequence[PodRecord]) -> int:
        """About what it takes to try the start to its end."""
        classes = sum(cost_of_judging(self.attempts.snapshot, cls) for cls in self.waits.classes)
        return _TRYING + _PASSING * len(ready) + COST_OF_PLACING * self.state.total + classes


def whole_gang(gang: WaitingGang, attempts: Attempts, entries: list[Entry]) -> GangDecision | None:
    """What waits of a gang; None where there is nothing to decide: nobody waits, or its PodGroup is not there."""
    snapshot, effects = attempts.snapshot, attempts.effects
    pods = order_members(snapshot.waiting_members(*gang.key, attempts.now_ns))
    if not pods:
        effects.drop_gang(gang.key)
        return None
    if attempts.settled:
        pods = [pod for pod in pods if pod.uid not in attempts.settled]
        if not pods:
            return None
    group = snapshot.pod_group(*gang.key)
    if group is not None:
        return GangDecision(gang, group, pods, snapshot.quorum(group), attempts, entries)
    for pod in pods:
        if not pod.gated:
            missing = pod.blocker or Verdict(code=Code.POD_GROUP_NOT_FOUND, detail=gang.key[1])
            effects.say((pod.uid,), missing)
    effects.sleep_gang(gang.key, Until.TOUCHED)
    return None


def _out_of_place(start: Start, group: PodGroupRecord) -> Verdict | None:
    """The verdict on a gang for which no domain of a required level was found; None if that is not why it waits."""
    if start.unsatisfied is None:
        return None
    node, bound, pods, best = start.unsatisfied
    cause = TopologyCause(
        topology=bound.asked.topology,
        level=bound.asked.required,
        owner=f"{group.namespace}/{group.name}",
        subgroup=group.tree.names[node],
        required=pods,
        best=best,
    )
    return Verdict(code=Code.TOPOLOGY_SEARCH_CUT if start.is_cut else Code.TOPOLOGY_NOT_SATISFIED, topology=cause)


def _incomplete(start: Start, state: Quorum) -> Verdict:
    """A gang's verdict out of the one on its first member that fitted nowhere."""
    failure = start.failed or Verdict(code=Code.NO_NODE_FITS)
    if failure.code in CLAIMS_IN_USE:
        return failure  # no node changes that
    # Of a single pod. Where there are subgroups, another one may be what a pod waits for.
    if state.minimum <= 1 and len(state.tree.names) == 1:
        return failure
    return msgspec.structs.replace(
        failure,
        code=Code.GANG_INCOMPLETE,
        placed=state.bound + start.placed_at_most,
        required=state.minimum,
        subgroup=state.failed_in(*start.short),
    )


@dataclass(slots=True)
class SignatureDecision:
    """The gangs of a line in one decision: one of them a turn."""

    turns: Turns[GangLine]
    attempts: Attempts
    entries: list[Entry]

    @property
    def rank(self) -> Rank | None:
        """The rank of the gang that is decided on next."""
        return self.turns.first()

    @property
    def queue(self) -> str:
        """The queue of all its gangs."""
        return self.turns.of.key.queue

    @property
    def use(self) -> Resources:
        """What the members that start the next gang would count for in it."""
        return asked_amounts(self.attempts.snapshot, self.turns.of.needed)

    @property
    def least(self) -> Resources:
        """The least that they come to use, wherever they are placed."""
        return least_amounts(self.attempts.snapshot, self.turns.of.needed)

    @property
    def classes_next(self) -> Iterable[PodClass]:
        """Of the members that start the next gang."""
        return [cls for cls, _ in self.turns.of.needed]

    def is_settled(self) -> bool:
        """Whether a gang that asks the same could not start: then they sleep on, and say what that one says."""
        return self.attempts.effects.has_failed(self.turns.of.key.alike)

    def decide(self) -> bool:
        """Decide on one gang; return whether there is another turn to come.

        There is none after a gang that neither starts nor says that its like can't: it is left to the next decision.
        The line stays awake then. So it does if its queue takes no more, or nodes are kept for others: each behind has
        to be looked at once, as far as the namespace may go on.
        """
        line = self.turns.of
        key, before = line.gang(self.turns.take()), len(self.entries)
        if key in self.attempts.settled_gangs:
            return True
        whole = whole_gang(self.attempts.snapshot.scheduling_queue.gang(key), self.attempts, self.entries)
        if whole is None:
            return True
        whole.decide()
        if whole.waits.is_held_back or whole.waits.is_kept_off:
            self.attempts.allowance.spend(line.key.namespace, COST_OF_HOLDING_BACK)
            return self.attempts.allowance.has_left(line.key.namespace) or self.attempts.put_off()
        return len(self.entries) > before or whole.waits.alike != line.key.alike
