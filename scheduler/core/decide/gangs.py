"""Gangs: they start whole or not at all; members beyond the minimum come one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.core.backlog.asleep import KeptGang
from scheduler.core.backlog.gang_lines import Alike, Lined, LineKey
from scheduler.core.backlog.gang_pace import LARGE
from scheduler.core.backlog.waiting_gang import Until, WaitingGang
from scheduler.core.decide import queue_use, start_asks
from scheduler.core.decide.attempts import PLACING, Attempts
from scheduler.core.decide.extras import Extras
from scheduler.core.decide.filing import obstacle
from scheduler.core.decide.gang_start import Start, started, started_on_supposed_nodes
from scheduler.core.groups.quorum import Quorum
from scheduler.core.groups.surplus import Surplus
from scheduler.core.model.plan import Entry
from scheduler.core.model.priority_order import Candidate, Rank, order_members
from scheduler.core.model.records import PodClass, PodGroupRecord, PodRecord
from scheduler.core.model.resources import NOTHING, Resources
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import HeldBack
from scheduler.core.queues.use import is_fixed

#: What a gang costs that does not start, and each of its members that was passed over, in operations (attempts.py).
_TRYING: Final = 50
_PASSING: Final = 5
#: So much later members have their turn that were left over beside others that are kept off.
_SOON_NS: Final = 1_000_000_000
_OF_QUEUES: Final = frozenset({Code.OVER_LIMIT, Code.OVER_QUOTA})


@dataclass(slots=True)
class WholeGang:
    """The waiting members of a gang in one decision, in their order, and how far it is from its minimum."""

    gang: WaitingGang
    group: PodGroupRecord
    pods: list[PodRecord]
    state: Quorum
    attempts: Attempts
    entries: list[Entry]
    #: Members beyond the minimum, once it has had a turn.
    extras: Extras | None = None
    #: Of the members that may be placed, each once.
    classes: tuple[PodClass, ...] = ()
    #: What its start depends on, if that is the same for others.
    alike: Alike | None = None
    #: Whether its queue takes no more, or nodes that are kept for others are all it fits on.
    is_held_back: bool = False
    is_kept_off: bool = False
    _use: Resources | None = None

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
            self._use = queue_use.asked(self.attempts.snapshot, self._next_up).amounts
        return self._use

    @property
    def least(self) -> Resources:
        """The least that they come to use, wherever they are placed."""
        return queue_use.least(self.attempts.snapshot, self._next_up).amounts

    @property
    def _next_up(self) -> Sequence[PodRecord]:
        return self.state.needed(pod for pod in self.pods if not pod.gated) or self.pods[:1]

    @property
    def classes_next(self) -> Iterable[PodClass]:
        """Of the pods that come next."""
        return {pod.cls for pod in self._next_up}

    def is_settled(self) -> bool:
        """Never: what holds for its members says nothing of all of them together."""
        return False

    def _hold_back(self, held: HeldBack) -> None:
        self.is_held_back = True
        elsewhere = self._as_of_now(held.verdict, None, self.attempts.charged()) if held.is_there else None
        self.attempts.notes.gang_held_back(self.gang.key, held.use, self.rank, elsewhere=elsewhere)

    @property
    def above(self) -> int:
        """As in ``Candidate``; a minimum that is on its way counts as bound."""
        if self.extras is not None:
            return self.extras.above
        return 1 if self.state.is_starting and not self.state.is_met else self.state.above

    def decide(self) -> bool:
        """Start it, or place members beyond the minimum, or say why that is not possible now.

        Returns whether it has another turn to come, by its new rank.
        """
        if self.extras is not None:
            return self._go_on(self.extras)
        if self.group.blocker is not None:
            self._explain(self.group.blocker)
            self._sleep(Until.TOUCHED)
            return False
        if self._is_pausing():
            return False
        obstacles = self._obstacles()
        ready = [pod for pod in self.pods if not pod.gated and pod.uid not in obstacles]
        self.classes = tuple(dict.fromkeys(pod.cls for pod in ready))
        self.attempts.notes.gang_is_of(self.gang.key, self.classes)
        if self.state.is_met:
            return self._decide_extras(ready, obstacles)
        if self.state.is_starting:
            return self._keep_room(ready)
        self._decide_start(ready, obstacles)
        return False

    def _is_pausing(self) -> bool:
        """Whether its last start was large and failed, and it may not be tried again yet; then it says what it said."""
        pace, kept = self.attempts.notes.pace, self._kept
        next_ns = pace.next_ns(self.gang.key) if pace.is_large(self.gang.key) else 0
        if self.state.is_met or self.attempts.now_ns >= next_ns or kept is None:
            return False
        if not start_asks.speaks_of(kept, self.group, self.state, len(self.pods)):
            return False
        self._wake_at(next_ns)
        self._explain(kept.verdict)
        self._sleep(Until.TOUCHED)
        return True

    def _obstacles(self) -> dict[str, Verdict]:
        """Why members may not be placed now on any node."""
        found: dict[str, Verdict] = {}
        for pod in self.pods:
            verdict, next_ns = obstacle(self.attempts.snapshot, pod, self.attempts.now_ns)
            if verdict is not None:
                found[pod.uid] = verdict
            if next_ns is not None:
                self._wake_at(next_ns)
        return found

    def _decide_extras(self, ready: list[PodRecord], obstacles: dict[str, Verdict]) -> bool:
        """Members beyond the minimum come one at a time; return whether there is another turn to come."""
        for pod in self.pods:
            if pod.uid in obstacles:
                self.attempts.notes.say((pod.uid,), obstacles[pod.uid])
        self.extras = self._extras(ready, is_starting=False)
        return self._go_on(self.extras)

    def _extras(self, ready: list[PodRecord], *, is_starting: bool) -> Extras:
        surplus = Surplus(self.group, self.state.active, ready)
        return Extras(surplus, self.attempts, self.entries, self.above, is_starting)

    def _go_on(self, extras: Extras) -> bool:
        if extras.turn():
            return True
        if extras.is_kept_off:
            self._keep_off_extras(extras)
        elif extras.may_sleep and extras.held_back is not None:
            self._hold_back(extras.held_back)
        elif extras.may_sleep and not extras.is_starting:
            self._sleep(Until.CLASS_FITS, is_counted=self._is_counted(self.attempts.charged()))
        return False

    def _keep_off_extras(self, extras: Extras) -> None:
        """Members that were not placed have said why; they wake together, for any node that may help one of them.

        Or for their queue, if it is what keeps one. Those that were left to the next decision have their turn soon.
        """
        self.is_kept_off = True
        if extras.held_back is not None:
            self._hold_back(extras.held_back)
        if extras.is_put_off:
            self._wake_at(self.attempts.now_ns + _SOON_NS)
        off = self.attempts.off_of(self.queue, self.use, self.gang.key)
        self.attempts.notes.gang_kept_off(self.gang.key, off, kept=None)

    def _keep_room(self, ready: list[PodRecord]) -> bool:
        """While the minimum is on its way, members beyond it keep their place among those of other gangs."""
        if not ready:
            self._sleep(Until.TOUCHED)
            return False
        self.extras = self._extras(ready, is_starting=True)
        return self._go_on(self.extras)

    # --- starts --------------------------------------------------------------------------------------------------
    def _decide_start(self, ready: list[PodRecord], obstacles: dict[str, Verdict]) -> None:
        """Place as many members as the minimum needs, or none."""
        if not self.state.is_reachable(ready):
            blocking = next(iter(obstacles.values()), None)
            self._explain(blocking or self.state.not_ready(self.pods, ready))
            self._sleep(Until.TOUCHED)
            return
        # Where there is a choice, another one may be less.
        has_choice = self.state.has_choice(ready)
        held_back = None if has_choice else self.attempts.held_back(self.state.needed(ready))
        if held_back is not None:
            self._explain(held_back.verdict)
            self._hold_back(held_back)
            return
        self.alike = self._alike(ready)
        asked, kept = self.alike or start_asks.asked(self.group, self.state, ready), self._kept
        if (like := self._kept_off_like) is not None:
            self._keep_off(like)
        elif kept is not None and kept.asked == asked and not self._may_start(kept):
            self._wait_for_room(kept.verdict)
        elif not self._is_in_turn(ready):
            turn = Verdict(code=Code.WAITS_FOR_TURN, required=self.state.minimum)
            self._explain(kept.verdict if kept is not None else self._held_back_before(ready) or turn)
            self._sleep(Until.TOUCHED)
        elif not self.attempts.affords(ready):
            self._explain_kept(kept)
            self.attempts.notes.leave_gang(self.gang.key)
        else:
            self._try(ready, asked)

    def _try(self, ready: list[PodRecord], asked: Hashable) -> None:
        attempts, namespace = self.attempts, self.group.namespace
        mark, charged, spent = attempts.checkpoint(), attempts.charged(), attempts.allowance.spent_by(namespace)
        start = started(ready, self.state, attempts)
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
            attempts.notes.start_failed(self.gang.key, cost, attempts.now_ns)
        if start.failed is None and start.held_back is not None and not start.is_kept_off:
            self._explain(start.held_back.verdict)
            self._hold_back(start.held_back)
            return
        verdict = _incomplete(start, self.state)
        if start.is_kept_off or self._is_kept_off():
            if start.held_back is not None:
                self.alike = None  # what others say that ask the same would not hold for their queue
                self._hold_back(start.held_back)
            self._keep_off(verdict)
            return
        if start.held_back is not None:
            self._wait_for_both(verdict, start.held_back)
            return
        if cost > LARGE:
            self.alike, asked = None, start_asks.asked(self.group, self.state, ready)
        self._keep(verdict, asked, charged, lacks=self._lacks(start, ready))
        self._wait_for_room(verdict, is_counted=self._is_counted(charged))

    def _is_kept_off(self) -> bool:
        """Whether members of another class would leave room if they might go where nodes are kept for others."""
        attempts = self.attempts
        return bool(attempts.off) and len(self.classes) > 1 and attempts.fits_on_berths(self.classes)

    def _keep_off(self, verdict: Verdict) -> None:
        """It may have room where nodes are kept for others: it sleeps until it may go there, or elsewhere."""
        attempts = self.attempts
        if verdict.berth is None:
            verdict = msgspec.structs.replace(verdict, berth=attempts.cause(attempts.off[0]))
        self.is_kept_off = True
        self._explain(verdict)
        off = attempts.off_of(self.queue, self.use, self.alike or self.gang.key)
        kept = attempts.as_of_now(self.classes[0], verdict) if len(self.classes) == 1 else None
        attempts.notes.gang_kept_off(self.gang.key, off, kept=kept)
        if self.alike is not None:
            attempts.kept_alike[off._replace(use=NOTHING)] = verdict

    @property
    def _kept_off_like(self) -> Verdict | None:
        """What a gang said that asks the same, and was kept off by the same berths in this decision."""
        attempts = self.attempts
        if self.alike is None or not attempts.off:
            return None
        return attempts.kept_alike.get(attempts.off_of(self.queue, NOTHING, self.alike))

    def _carry_out(self, start: Start) -> None:
        if start.waiting:
            self.entries.extend(start.retired)
            self._explain(Verdict(code=Code.WAITING_FOR_DEVICE, detail=start.waits_on))
            self.attempts.notes.leave_gang(self.gang.key)
        else:
            self.entries.append(start.entry(self.group, self.attempts))

    def _wait_for_both(self, verdict: Verdict, held: HeldBack) -> None:
        """Some of its subgroups find no room, others are too much for its queue: either may change that."""
        self.is_held_back = True
        self._explain(verdict)
        self.attempts.notes.gang_held_back(self.gang.key, held.use, self.rank, elsewhere=None)
        self._sleep(Until.CLASS_FITS)

    def _held_back_before(self, ready: list[PodRecord]) -> Verdict | None:
        """Why its queue did not take it where it was to be placed last; None if that is not why it waits."""
        said = self.attempts.snapshot.backlog.said.verdict(ready[0].uid)
        return said if said is not None and said.code in _OF_QUEUES else None

    def _lacks(self, start: Start, ready: Sequence[PodRecord]) -> int:
        """How many members found no place: enough to know where others of their class don't either; else 1."""
        if start.first_failure is None or self.state.has_choice(ready) or any(pod.alone for pod in ready):
            return 1
        return max(1, self.state.missing(ready).total - len(start.placed) - len(start.waiting))

    def _keep(self, verdict: Verdict, asked: Hashable, charged: set[int], *, lacks: int) -> None:
        kept = self._as_of_now(verdict, asked, charged, lacks=lacks)
        if self.alike is not None:
            self.attempts.notes.alike_failed(self.alike, kept, is_counted=self._is_counted(charged))
        else:
            self.attempts.notes.gang_failed(self.gang.key, kept)

    def _as_of_now(self, verdict: Verdict, asked: Hashable, charged: set[int], *, lacks: int = 1) -> KeptGang:
        """A verdict on the gang, as it can be kept: it holds for what nodes have now."""
        snapshot = self.attempts.snapshot
        return snapshot.backlog.asleep.kept_gang(
            verdict, asked=asked, classes=self.classes, charged=charged, generation=snapshot.generation, lacks=lacks
        )

    def _wait_for_room(self, verdict: Verdict, *, is_counted: bool = False) -> None:
        """Sleep until it may start: behind those that ask the same, if others may."""
        if self.alike is None:
            self._explain(verdict)
            self._sleep(Until.MAY_START, is_counted=is_counted)
            return
        needed = Counter(pod.cls for pod in self.state.needed(self.pods))
        line = LineKey(self.group.namespace, self.group.queue, is_fixed(self.pods[0], self.group), self.alike)
        uids = tuple(pod.uid for pod in self.pods)
        lined = Lined(self.gang.key, self.rank, line, tuple(needed.items()), uids)
        self.attempts.notes.line_up(lined, is_counted=is_counted)

    def _alike(self, ready: Sequence[PodRecord]) -> Alike | None:
        """What its start depends on; None where that is not the same for others, or it costs much (gang_pace.py)."""
        if self.attempts.notes.pace.is_large(self.gang.key) or self.attempts.snapshot.supposes_nodes:
            return None
        found = start_asks.alike(self.group, self.state, ready, len(self.pods))
        return found if found is not None and self._cost(ready) <= LARGE else None

    def _may_start(self, kept: KeptGang) -> bool:
        snapshot = self.attempts.snapshot
        asleep = snapshot.backlog.asleep
        if self.alike is not None and self.attempts.notes.has_failed(self.alike):
            return False
        if self.gang.key in snapshot.recounts.gangs:
            return True
        if asleep.is_sure_gang(kept, snapshot.generation):
            return False
        still = asleep.still_out_gang(kept)
        if still is not None and self.alike is not None:
            self.attempts.notes.alike_failed(self.alike, still, is_counted=False)
        elif still is not None:
            self.attempts.notes.gang_failed(self.gang.key, still)
        return still is None

    def _is_in_turn(self, ready: Sequence[PodRecord]) -> bool:
        """Whether the start of a gang is tried now; one that costs much is tried seldom (gang_pace.py)."""
        next_ns = self.attempts.notes.pace.next_ns(self.gang.key)
        if next_ns <= self.attempts.now_ns or self._cost(ready) <= LARGE:
            return True
        self._wake_at(next_ns)
        return False

    def _cost(self, ready: Sequence[PodRecord]) -> int:
        """About what it takes to try the start to its end."""
        classes = sum(map(self.attempts.cost, self.classes))
        return _TRYING + _PASSING * len(ready) + PLACING * self.state.total + classes

    # --- what is kept --------------------------------------------------------------------------------------------
    def _explain(self, verdict: Verdict) -> None:
        uids = [pod.uid for pod in self.pods if not pod.gated]
        self.attempts.notes.say(uids, verdict, self.gang.key)

    def _is_counted(self, charged: set[int]) -> bool:
        """Whether the counts in its verdict, and in those on its classes, are of the ledger as it is."""
        asleep, notes = self.attempts.snapshot.backlog.asleep, self.attempts.notes
        old = [cls for cls in self.classes if cls not in self.attempts.judged]
        return not charged and all(asleep.is_counted(notes.kept(cls)) for cls in old)

    def _explain_kept(self, kept: KeptGang | None) -> None:
        if kept is not None:
            self._explain(kept.verdict)

    @property
    def _kept(self) -> KeptGang | None:
        notes = self.attempts.notes
        return notes.kept_gang(self.gang.key) if self.alike is None else notes.kept_alike(self.alike)

    def _sleep(self, until: Until, *, is_counted: bool = False) -> None:
        self.attempts.notes.sleep_gang(self.gang.key, until, is_counted=is_counted)

    def _wake_at(self, at_ns: int) -> None:
        self.attempts.notes.wake_at(at_ns, self.gang.key)


def whole_gang(gang: WaitingGang, attempts: Attempts, entries: list[Entry]) -> WholeGang | None:
    """What waits of a gang; None where there is nothing to decide: nobody waits, or its PodGroup is not there."""
    snapshot, notes = attempts.snapshot, attempts.notes
    pods = order_members(snapshot.waiting_members(*gang.key, attempts.now_ns))
    if not pods:
        notes.drop_gang(gang.key)
        return None
    if attempts.settled:
        pods = [pod for pod in pods if pod.uid not in attempts.settled]
        if not pods:
            return None
    group = snapshot.pod_group(*gang.key)
    if group is not None:
        return WholeGang(gang, group, pods, snapshot.quorum(group), attempts, entries)
    for pod in pods:
        if not pod.gated:
            missing = pod.blocker or Verdict(code=Code.POD_GROUP_NOT_FOUND, detail=gang.key[1])
            notes.say((pod.uid,), missing)
    notes.sleep_gang(gang.key, Until.TOUCHED)
    return None


def _incomplete(start: Start, state: Quorum) -> Verdict:
    """A gang's verdict out of the one on its first member that fitted nowhere."""
    failure = start.failed or Verdict(code=Code.NO_NODE_FITS)
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
