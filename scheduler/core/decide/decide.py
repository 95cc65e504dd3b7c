"""``decide``: from what is known to what is to be done. Pure: same cluster, same time, same plan.

Groups are decided in order; each choice is charged on a working copy before the next is made, so no device is given
twice by one decision (invariants.md, R5). A gang is tried whole and taken back if it doesn't fit. Pods of one class are
judged once: after one of them fitted nowhere, and since a decision only ever charges, the others don't either.

A class that fitted nowhere is not judged again by later decisions until something changes that may help it (asleep.py),
and a decision ends after a bounded amount of work, divided between namespaces (allowance.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from scheduler.core.assumed.backoff import Setback
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Allowance, Limits
from scheduler.core.decide.asleep import Asleep, Kept, KeptGang
from scheduler.core.decide.gang_pace import LARGE
from scheduler.core.decide.placer import Placer
from scheduler.core.devices.device_choice import rule_of
from scheduler.core.explain.explain import explain_ways
from scheduler.core.groups.quorum import Quorum
from scheduler.core.model.plan import Attempt, Entry, Explain, Gang, Placement, Plan, Retire, Withdraw
from scheduler.core.model.priority_order import Candidate, order, order_members
from scheduler.core.model.records import PodClass, PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code, Verdict

T = TypeVar("T")

#: What the steps of a decision cost, in operations of about a microsecond.
_PLACING: Final = 50
_COMPARING: Final = 20
_JUDGING: Final = 180
#: The same for a gang that does not start, and for each of its members that was passed over.
_TRYING: Final = 50
_PASSING: Final = 5
#: The same for each node: of shares, and of shares for which each device is looked at; of all others one for so many.
_COUNTING: Final = 1
_LOOKING: Final = 60
_NODES_PER_OPERATION: Final = 10
#: What is kept for classes is not looked through for those to forget while it is less than this.
_FEW: Final = 64
#: So long after a decision that left counts as they were the next ones are brought up to date.
_RETELL_NS: Final = 1_000_000_000


def decide(cluster: Cluster, now_ns: int, limits: Limits = LIMITS) -> Plan:
    """Say what is to be done now. Leaves the cluster unchanged (but for its memory of this very answer).

    Deciding again when nothing changed and ``wake_at_ns`` has not come costs nothing.
    """
    known = cluster.remembered(now_ns)
    if known is not None:
        return known
    plan = _Decision(cluster, now_ns, cluster.asleep(), limits).made()
    cluster.remember(plan)
    return plan


@dataclass(slots=True)
class _Start:
    """A gang's start as far as it got. ``waits_on`` names a node where a device has to come back first."""

    placed: list[tuple[PodRecord, Placement]] = field(default_factory=list)
    retired: list[Retire] = field(default_factory=list)
    waits_on: str = ""
    #: Why the first member that was passed over fitted nowhere; and why the start failed, if it did.
    first_failure: Verdict | None = None
    failed: Verdict | None = None


@dataclass(slots=True)
class _Decision:
    """One decision under way."""

    cluster: Cluster
    now_ns: int
    asleep: Asleep
    limits: Limits
    entries: list[Entry] = field(default_factory=list)
    #: Verdicts on pods alone: one Explain for all that wait for the same reason.
    waiting: dict[Verdict, list[str]] = field(default_factory=dict)
    hopeless: dict[PodClass, Verdict] = field(default_factory=dict)
    #: Classes for which no idle reservations would make room either.
    roomless: dict[PodClass, None] = field(default_factory=dict)
    wake_at_ns: int | None = None
    allowance: Allowance = field(init=False)
    #: Classes of which a pod was placed.
    fitting: set[PodClass] = field(default_factory=set)
    #: The highest priority of a pod that was put off and may fit: none of lower priority is placed before it.
    floor: int | None = None
    #: Classes that are judged again for the counts in their verdicts, and what that has cost.
    retold: set[PodClass] = field(default_factory=set)
    #: Classes whose verdicts are of this decision.
    told: set[PodClass] = field(default_factory=set)
    retelling: int = 0
    #: PodGroup -> how far it is from its minimum.
    states: dict[tuple[str, str], Quorum] = field(default_factory=dict)
    _placer: Placer | None = None

    @property
    def placer(self) -> Placer:
        """The working copy, made when there is something to place."""
        if self._placer is None:
            self._placer = Placer(self.cluster)
        return self._placer

    def made(self) -> Plan:
        """Decide everything, or as much as one decision may."""
        waiting = self.cluster.waiting()
        self.allowance = Allowance(namespaces=len({pod.namespace for pod in waiting}), most=self.limits.most)
        stuck = list(self._stuck())
        self._forget_others([*waiting, *(pod for pod, _ in stuck)])
        if self.asleep.pace.is_kept:
            self.asleep.pace.keep_only({(pod.namespace, pod.pod_group) for pod in waiting}, self.now_ns)
        self.retold = self.asleep.oldest(self.limits.retold)
        for candidate in order(self._candidates([pod for pod in waiting if not self._sleeps_on(pod)])):
            if candidate.pod_group is not None:
                self._decide_gang(candidate.pods, candidate.pod_group)
            elif not self._is_passed_over(candidate.pods[0]):
                self._decide_alone(candidate.pods[0])
        self._move_on(stuck)
        return Plan(entries=(*self.entries, *self._explained()), wake_at_ns=self.wake_at_ns)

    def _explained(self) -> list[Explain]:
        explained = [Explain(pods=tuple(sorted(pods)), pod_group=None, verdict=v) for v, pods in self.waiting.items()]
        return sorted(explained, key=lambda entry: entry.pods)

    def _forget_others(self, waiting: Iterable[PodRecord]) -> None:
        """Forget what is kept for classes and gangs of which no pod waits any more, once that is about half."""
        classes = {pod.cls for pod in waiting}
        if self.asleep.size + self.cluster.ledger.constraints < 2 * len(classes) + _FEW:
            return
        self.asleep.keep_only(classes, {(pod.namespace, pod.pod_group) for pod in waiting if pod.pod_group})
        self.cluster.ledger.forget_constraints({one for cls in classes for one in cls.all_constraints()})
        self.cluster.ledger.forget_profiles({profile for cls in classes for profile in cls.profiles()})

    def _sleeps_on(self, pod: PodRecord) -> bool:
        """Whether nothing needs to be decided of a pod: of its class it is sure, and not told again now."""
        if pod.cls in self.retold or pod.pod_group or pod.gated or self._is_held(pod):
            return False
        kept = self.asleep.get(pod.cls)
        if kept is None or self.cluster.setback(pod.uid) is not None:
            return False
        if not self.asleep.is_sure(pod.cls, kept, self.cluster.generation):
            return False
        self._wait(pod, kept.verdict)
        if kept.told_at != self.cluster.ledger.changes.last:
            self._wake_by(self.now_ns + _RETELL_NS)
        return True

    def _is_held(self, pod: PodRecord) -> bool:
        """Whether a pod waits for a reason of its own, which its class does not have."""
        return pod.blocker is not None or self.cluster.owners.verdict(pod, self.now_ns) is not None

    def _is_passed_over(self, pod: PodRecord) -> bool:
        """Whether a pod's namespace has spent its share: a short way to put off thousands of pods."""
        if self.allowance.has_left(pod.namespace) or pod.cls in self.fitting or self._is_held(pod):
            return False
        if pod.cls in self.hopeless or self.cluster.setback(pod.uid) is not None:
            return False
        self._put_off_alone(pod)
        return True

    def _put_off_alone(self, pod: PodRecord) -> None:
        """Leave a pod to the next decision. It goes on to say what it said."""
        self._wake_by(self.now_ns)
        if (kept := self.asleep.get(pod.cls)) is not None:
            self._wait(pod, kept.verdict)

    def _wake_by(self, at_ns: int) -> None:
        if self.wake_at_ns is None or at_ns < self.wake_at_ns:
            self.wake_at_ns = at_ns

    def _candidates(self, waiting: Iterable[PodRecord]) -> Iterable[Candidate]:
        gangs: dict[tuple[str, str], list[PodRecord]] = {}
        for pod in waiting:
            if pod.pod_group:
                gangs.setdefault((pod.namespace, pod.pod_group), []).append(pod)
            elif not pod.gated:
                yield Candidate([pod])
        for key, pods in gangs.items():
            group = self.cluster.pod_group(*key)
            if group is None:
                self._miss(pods)
            else:
                state = self.states[key] = self.cluster.quorum(group)
                yield Candidate(order_members(pods), group, above=state.above)

    def _miss(self, pods: Iterable[PodRecord]) -> None:
        for pod in order_members(pod for pod in pods if not pod.gated):
            self._wait(pod, pod.blocker or Verdict(code=Code.POD_GROUP_NOT_FOUND, detail=pod.pod_group))

    # --- pods alone ----------------------------------------------------------------------------------------------
    def _decide_alone(self, pod: PodRecord) -> None:
        verdict = self._obstacle(pod)
        if verdict is None:
            verdict = None if self._without(pod) else self._known(pod.cls, pod.namespace)
        if verdict is None and not self._affords([pod]):
            self._put_off_alone(pod)
            return
        if verdict is None:
            placed = self._place(pod)
            if isinstance(placed, Placement):
                self.entries.append(self.placer.entry_alone(pod, placed))
                return
            verdict = self._await_device(pod, placed)
        self._wait(pod, verdict)

    def _known(self, cls: PodClass, namespace: str) -> Verdict | None:
        """The verdict on a class of which it is known that it fits nowhere, and that nothing makes room for it."""
        if cls in self.hopeless and cls in self.roomless:
            return self.hopeless[cls]
        kept = self.asleep.get(cls)
        if kept is None or cls in self.told or not self.allowance.has_left(namespace):
            return None
        if self._may_fit(cls, kept, namespace):
            return None
        is_told = kept.told_at == self.cluster.ledger.changes.last and not self._has_charged()
        if not is_told and cls in self.retold and self.retelling < self.limits.retelling:
            self.retelling += self._cost(cls)
            return None
        if not is_told:
            self._wake_by(self.now_ns + _RETELL_NS)
        self.hopeless[cls] = kept.verdict
        self.roomless[cls] = None
        return kept.verdict

    def _may_fit(self, cls: PodClass, kept: Kept, namespace: str) -> bool:
        if self.asleep.is_sure(cls, kept, self.cluster.generation):
            return False
        self.allowance.spend(namespace, _COMPARING)
        return self.asleep.may_fit(cls, kept)

    def _has_charged(self) -> bool:
        return self._placer is not None and self._placer.trial.mark() > 0

    def _affords(self, pods: Sequence[PodRecord]) -> bool:
        """Whether these pods of one namespace are decided on now. Else they are left to the next decision.

        What is judged stays judged, so each decision gets further than the one before.
        """
        first = pods[0]
        priority = max(pod.priority for pod in pods)
        if self.floor is not None and priority < self.floor:
            return self._put_off()
        if not self.allowance.has_left(first.namespace):
            if any(pod.cls in self.fitting for pod in pods):
                self.floor = priority if self.floor is None else max(priority, self.floor)
            return self._put_off()
        return all(self._is_judged(cls, first.namespace) for cls in dict.fromkeys(pod.cls for pod in pods))

    def _is_judged(self, cls: PodClass, namespace: str) -> bool:
        """Judge the nodes for the constraints of a class; False if that is not done yet."""
        ledger = self.cluster.ledger
        for constraints in cls.all_constraints():
            if ledger.effort(constraints) and not self.allowance.has_left(namespace):
                return self._put_off()
            if ledger.effort(constraints):
                self.allowance.spend(namespace, ledger.judge_some(constraints, self.limits.most // 2))
            if ledger.effort(constraints):
                return self._put_off()
        return True

    def _put_off(self) -> bool:
        self._wake_by(self.now_ns)
        return False

    def _cost(self, cls: PodClass) -> int:
        """About what it takes to find that a class fits nowhere, and to say why."""
        ways = 1 + len(cls.alternatives)
        nodes = len(self.cluster.ledger.row_of)
        if not cls.request.is_shared:
            return ways * (_JUDGING + nodes // _NODES_PER_OPERATION)
        is_any = rule_of(cls).takes_any
        return ways * (_JUDGING + nodes * (_COUNTING if all(map(is_any, cls.request.shared)) else _LOOKING))

    def _wait(self, pod: PodRecord, verdict: Verdict) -> None:
        self.waiting.setdefault(verdict, []).append(pod.uid)

    def _obstacle(self, pod: PodRecord) -> Verdict | None:
        """Why a pod may not be placed now, whatever the nodes have."""
        if pod.blocker is not None:
            return pod.blocker
        if (by_owner := self.cluster.owners.verdict(pod, self.now_ns)) is not None:
            if by_owner.code is Code.OWNER_NOT_SEEN:
                self._wake_by(self.cluster.owners.next_change_ns(pod))
            return by_owner
        setback = self._setback(pod)
        if setback is not None and self.now_ns < setback.until_ns:
            return Verdict(code=Code.BACKING_OFF, detail=setback.reason)
        return None

    def _setback(self, pod: PodRecord) -> Setback | None:
        """What went wrong with the pod; notes when time alone changes something about it."""
        setback = self.cluster.setback(pod.uid)
        if setback is not None:
            next_ns = setback.next_change_ns(self.now_ns)
            if next_ns is not None:
                self._wake_by(next_ns)
        return setback

    def _without(self, pod: PodRecord) -> frozenset[str]:
        setback = self.cluster.setback(pod.uid)
        return frozenset(setback.excluded_at(self.now_ns)) if setback else frozenset()

    def _place(self, pod: PodRecord) -> Placement | Verdict:
        """Place and charge a pod, or say why it fits nowhere."""
        without = self._without(pod)
        if claim := self.placer.taken_claim(pod):
            return Verdict(code=Code.CLAIM_IN_USE, detail=claim)
        known = self.hopeless.get(pod.cls) or self._known(pod.cls, pod.namespace)
        if known is not None and not without:
            return known
        placed = self.placer.place(pod, without=without)
        if placed is not None:
            self.allowance.spend(pod.namespace, _PLACING)
            self.fitting.add(pod.cls)
            self.asleep.wakes(pod.cls)
            return placed
        self.allowance.spend(pod.namespace, self._cost(pod.cls))
        verdict = self._explain(pod.cls, without)
        if not without:
            self.hopeless[pod.cls] = verdict
        return verdict

    def _explain(self, cls: PodClass, without: frozenset[str]) -> Verdict:
        """Why a class fits nowhere: on each kind of node by what is asked first there."""
        placer, settings = self.placer, self.cluster.settings
        first = {way.constraints: way for way in reversed(placer.ways(cls))} if cls.places else {cls.constraints: cls}
        rankings = [placer.ranking(way) for way in reversed(first.values())]
        return explain_ways(placer.trial, rankings, settings=settings, without=without)

    def _await_device(self, pod: PodRecord, verdict: Verdict) -> Verdict:
        """Make room for whole GPUs out of idle reservations; the verdict that then holds."""
        found = self._make_room(pod)
        if found is None:
            return verdict
        node, retired = found
        self.entries.extend(retired)
        return Verdict(code=Code.WAITING_FOR_DEVICE, detail=node)

    def _make_room(self, pod: PodRecord) -> tuple[str, list[Retire]] | None:
        """Charge a whole-GPU pod where idle reservations can go for it: the node, and those that have to go."""
        if pod.cls in self.roomless or self.placer.taken_claim(pod):
            return None
        without = self._without(pod)
        found = self.placer.wait_for_device(pod, without=without)
        if found is None and not without:
            self.roomless[pod.cls] = None
            self._sleep(pod.cls)
        return found

    def _sleep(self, cls: PodClass) -> None:
        """Keep the verdict on a class for which nothing makes room, until something changes that may help it."""
        verdict = self.hopeless.get(cls)
        if verdict is not None:
            self.told.add(cls)
            charged = self.placer.trial.charged()
            self.asleep.put(cls, verdict, charged=charged, generation=self.cluster.generation)

    # --- pods that wait for a node that is late ------------------------------------------------------------------
    def _stuck(self) -> Iterator[tuple[PodRecord, Placement]]:
        """Pods that wait for the answer of a node whose time is over."""
        doubts = self.cluster.doubts()
        for placement in self.cluster.stuck() if doubts else ():
            known = self.cluster.pod(placement.pod_uid)
            if known is not None and placement.node in doubts:
                yield self.cluster.judged(known), placement

    def _move_on(self, stuck: Iterable[tuple[PodRecord, Placement]]) -> None:
        """Take back pods that wait for a node whose time is over, as far as they fit where no answer is owed.

        This comes after all pods that wait for room: what is taken back is decided on like any other.
        """
        doubted = frozenset(self.cluster.doubts())
        roomless = set(self.hopeless)
        for pod, placement in stuck:
            if pod.cls in roomless or not self._affords([pod]):
                continue
            without = self._without(pod)
            if self.placer.place(pod, without=doubted | without):
                self.allowance.spend(pod.namespace, _PLACING)
                self.entries.append(Withdraw(placement))
                continue
            self.allowance.spend(pod.namespace, self._cost(pod.cls))
            if not without:
                roomless.add(pod.cls)

    # --- gangs ---------------------------------------------------------------------------------------------------
    def _decide_gang(self, pods: list[PodRecord], group: PodGroupRecord) -> None:
        if group.unsupported:
            verdict = Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=group.unsupported)
            self._explain_gang(pods, group, verdict)
            return
        key = (group.namespace, group.name)
        state, kept = self.states[key], self.asleep.get_gang(key)
        next_ns = self.asleep.pace.next_ns(key) if self.asleep.pace.is_large(key) else 0
        is_pausing = not state.is_met and self.now_ns < next_ns
        if is_pausing and kept is not None and _speaks_of(kept, group, state, len(pods)):
            self._wake_by(next_ns)
            self._explain_gang(pods, group, kept.verdict)
            return
        obstacles = {pod.uid: obstacle for pod in pods if (obstacle := self._obstacle(pod)) is not None}
        ready = [pod for pod in pods if not pod.gated and pod.uid not in obstacles]
        if state.is_met:
            self._decide_extras(pods, ready, obstacles)
        elif not state.is_starting:
            self._decide_start(pods, group, ready=ready, obstacles=obstacles, state=state)

    def _decide_extras(self, pods: list[PodRecord], ready: list[PodRecord], obstacles: dict[str, Verdict]) -> None:
        """Members beyond the minimum come one at a time."""
        for pod in pods:
            if pod.uid in obstacles:
                self._wait(pod, obstacles[pod.uid])
        for pod in ready:
            self._decide_alone(pod)

    def _decide_start(
        self,
        pods: list[PodRecord],
        group: PodGroupRecord,
        *,
        ready: list[PodRecord],
        obstacles: dict[str, Verdict],
        state: Quorum,
    ) -> None:
        """Place as many members as the minimum needs, or none."""
        if not state.is_reachable(ready):
            blocking = next(iter(obstacles.values()), None)
            self._explain_gang(pods, group, blocking or state.not_ready(pods, ready))
            return
        key, asked = (group.namespace, group.name), self._asked_by(group, ready, state)
        kept = self.asleep.get_gang(key)
        is_sure = kept is not None and self._is_sure_gang(kept, asked, ready)
        if is_sure or not self._is_in_turn(key, ready, state) or not self._affords(ready):
            if kept is not None:
                self._explain_gang(pods, group, kept.verdict)
            return
        mark, hopeless, roomless = self.placer.trial.mark(), len(self.hopeless), len(self.roomless)
        spent = self.allowance.spent_by(group.namespace)
        start = self._try_start(ready, state)
        if start.failed is not None:
            self.placer.trial.undo(mark)
            _cut(self.hopeless, hopeless)
            _cut(self.roomless, roomless)
            self.allowance.spend(group.namespace, _TRYING + _PASSING * len(ready))
            self.asleep.pace.failed(key, self.allowance.spent_by(group.namespace) - spent, self.now_ns)
            verdict = _incomplete(start.failed, len(start.placed), state)
            self.asleep.put_gang(key, verdict, asked=asked, charged=mark > 0, generation=self.cluster.generation)
            self._explain_gang(pods, group, verdict)
        elif start.retired or start.waits_on:
            self.entries.extend(start.retired)
            self._explain_gang(pods, group, Verdict(code=Code.WAITING_FOR_DEVICE, detail=start.waits_on))
        else:
            self._add_gang(group, start.placed)

    def _is_in_turn(self, key: tuple[str, str], ready: Sequence[PodRecord], state: Quorum) -> bool:
        """Whether the start of a gang is tried now; one that costs much is tried seldom (gang_pace.py)."""
        next_ns = self.asleep.pace.next_ns(key)
        if next_ns <= self.now_ns or self._cost_of_start(ready, state) <= LARGE:
            return True
        self._wake_by(next_ns)
        return False

    def _cost_of_start(self, ready: Sequence[PodRecord], state: Quorum) -> int:
        """About what it takes to try the start of a gang to its end."""
        classes = {pod.cls for pod in ready}
        return _TRYING + _PASSING * len(ready) + _PLACING * state.total + sum(map(self._cost, classes))

    def _asked_by(self, group: PodGroupRecord, ready: Sequence[PodRecord], state: Quorum) -> Hashable:
        """All that the start of a gang depends on beside the nodes."""
        members = tuple((pod.uid, pod.cls, pod.subgroup, pod.alone, self._without(pod)) for pod in ready)
        return group.minimum, group.subgroups, state.bound, state.total, members

    def _is_sure_gang(self, kept: KeptGang, asked: Hashable, ready: Sequence[PodRecord]) -> bool:
        classes = {pod.cls for pod in ready}
        return not self._has_charged() and self.asleep.is_sure_gang(kept, asked, self.cluster.generation, classes)

    def _try_start(self, ready: list[PodRecord], state: Quorum) -> _Start:
        """Place members until the minimum is reached; a member that fits nowhere is passed over."""
        start = _Start()
        missing = state.missing()
        for pod in ready:
            if missing.is_reached:
                break
            if not missing.wants(pod):
                continue
            placed = self._place(pod)
            if isinstance(placed, Placement):
                start.placed.append((pod, placed))
                missing.take(pod)
                continue
            found = self._make_room(pod)
            if found is None:
                start.first_failure = start.first_failure or placed
            else:
                start.waits_on = found[0]
                start.retired += found[1]
                missing.take(pod)
        if not missing.is_reached:
            start.failed = start.first_failure or Verdict(code=Code.NO_NODE_FITS)
        return start

    def _add_gang(self, group: PodGroupRecord, placed: list[tuple[PodRecord, Placement]]) -> None:
        """One entry for all; a single member that completes the minimum needs no plan of its own."""
        entries = [self.placer.entry(pod, placement) for pod, placement in placed]
        if len(entries) == 1:
            self.entries.append(entries[0])
            return
        self.entries.append(
            Gang(
                pod_group=(group.namespace, group.name),
                rv=group.rv,
                placements=tuple(placement for _, placement in placed),
                by_binder=any(isinstance(entry, Attempt) for entry in entries),
            )
        )

    def _explain_gang(self, pods: list[PodRecord], group: PodGroupRecord, verdict: Verdict) -> None:
        explained = tuple(pod.uid for pod in pods if not pod.gated)
        self.entries.append(Explain(pods=explained, pod_group=(group.namespace, group.name), verdict=verdict))


def _cut(known: dict[PodClass, T], length: int) -> None:
    """Take back what was noted last, until so much is left as there was before."""
    while len(known) > length:
        known.popitem()


def _speaks_of(kept: KeptGang, group: PodGroupRecord, state: Quorum, waiting: int) -> bool:
    """Whether a gang needs what it needed when it was told, and has no fewer members: then that is still true."""
    if not isinstance(kept.asked, tuple):
        return False
    needs = (group.minimum, group.subgroups, state.bound, state.total)
    return kept.asked[:4] == needs and waiting >= len(kept.asked[4])


def _incomplete(failure: Verdict, placed: int, state: Quorum) -> Verdict:
    """A gang's verdict out of the one on its first member that fitted nowhere."""
    if state.minimum <= 1:
        return failure
    return msgspec.structs.replace(
        failure, code=Code.GANG_INCOMPLETE, placed=state.bound + placed, required=state.minimum
    )
