"""``decide``: from what is known to what is to be done. Pure: same cluster, same time, same plan.

Groups are decided in order; each choice is charged on a working copy before the next is made, so no device is given
twice by one decision (invariants.md, R5). A gang is tried whole and taken back if it doesn't fit. Pods of one class are
judged once: after one of them fitted nowhere, and since a decision only ever charges, the others don't either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.explaining import explain_ways
from scheduler.core.order import Candidate, order, order_members
from scheduler.core.placing import Placer
from scheduler.core.plan import Attempt, Entry, Explain, Gang, Placement, Plan, Retire, Withdraw
from scheduler.core.quorum import Quorum, quorum
from scheduler.core.records import PodClass, PodGroupRecord, PodRecord
from scheduler.core.setbacks import Setback
from scheduler.core.verdict import Code, Verdict

#: Comparisons of nodes with constraints that nobody had before, in one decision: some tenths of a second. While it
#: lasts nothing else runs, and a lease that is not renewed is lost.
_MOST_EFFORT: Final = 300_000


def decide(cluster: Cluster, now_ns: int) -> Plan:
    """Say what is to be done now. Leaves the cluster unchanged (but for its memory of this very answer).

    Deciding again when nothing changed and ``wake_at_ns`` has not come costs nothing.
    """
    known = cluster.remembered(now_ns)
    if known is not None:
        return known
    plan = _Decision(cluster, now_ns).made()
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
    entries: list[Entry] = field(default_factory=list)
    #: Verdicts on pods alone: one Explain for all that wait for the same reason.
    waiting: dict[Verdict, list[str]] = field(default_factory=dict)
    hopeless: dict[PodClass, Verdict] = field(default_factory=dict)
    #: Classes for which no idle reservations would make room either.
    roomless: set[PodClass] = field(default_factory=set)
    wake_at_ns: int | None = None
    #: What this decision has spent on constraints that are new.
    effort: int = 0
    _placer: Placer | None = None

    @property
    def placer(self) -> Placer:
        """The working copy, made when there is something to place."""
        if self._placer is None:
            self._placer = Placer(self.cluster)
        return self._placer

    def made(self) -> Plan:
        """Decide everything."""
        waiting = self.cluster.waiting()
        classes = {pod.cls for pod in waiting}
        self.cluster.ledger.forget_constraints({one for cls in classes for one in cls.all_constraints()})
        self.cluster.ledger.forget_profiles({profile for cls in classes for profile in cls.profiles()})
        for candidate in order(self._candidates(waiting)):
            if candidate.pod_group is not None:
                self._decide_gang(candidate.pods, candidate.pod_group)
            else:
                self._decide_alone(candidate.pods[0])
        self._move_on()
        explained = [Explain(pods=tuple(pods), pod_group=None, verdict=v) for v, pods in self.waiting.items()]
        return Plan(entries=(*self.entries, *explained), wake_at_ns=self.wake_at_ns)

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
                yield Candidate(order_members(pods), group)

    def _miss(self, pods: Iterable[PodRecord]) -> None:
        for pod in order_members(pod for pod in pods if not pod.gated):
            self._wait(pod, pod.blocker or Verdict(code=Code.POD_GROUP_NOT_FOUND, detail=pod.pod_group))

    # --- pods alone ----------------------------------------------------------------------------------------------
    def _decide_alone(self, pod: PodRecord) -> None:
        verdict = self._obstacle(pod)
        if verdict is None and self._is_put_off(pod):
            return
        if verdict is None:
            placed = self._place(pod)
            if isinstance(placed, Placement):
                self.entries.append(self.placer.entry_alone(pod, placed))
                return
            verdict = self._await_device(pod, placed)
        self._wait(pod, verdict)

    def _is_put_off(self, pod: PodRecord) -> bool:
        """Whether a pod is left to the next decision, which follows at once: too much was new to this one already.

        What is judged stays judged, so each decision gets further than the one before.
        """
        ledger, all_constraints = self.cluster.ledger, pod.cls.all_constraints()
        effort = sum(ledger.effort(constraints) for constraints in all_constraints)
        if effort and self.effort and self.effort + effort > _MOST_EFFORT:
            self.wake_at_ns = self.now_ns
            return True
        self.effort += effort
        for constraints in all_constraints:
            ledger.eligible(constraints)
        return False

    def _wait(self, pod: PodRecord, verdict: Verdict) -> None:
        self.waiting.setdefault(verdict, []).append(pod.uid)

    def _obstacle(self, pod: PodRecord) -> Verdict | None:
        """Why a pod may not be placed now, whatever the nodes have."""
        if pod.blocker is not None:
            return pod.blocker
        setback = self._setback(pod)
        if setback is not None and self.now_ns < setback.until_ns:
            return Verdict(code=Code.BACKING_OFF, detail=setback.reason)
        return None

    def _setback(self, pod: PodRecord) -> Setback | None:
        """What went wrong with the pod; notes when time alone changes something about it."""
        setback = self.cluster.setback(pod.uid)
        if setback is not None:
            next_ns = setback.next_change_ns(self.now_ns)
            if next_ns is not None and (self.wake_at_ns is None or next_ns < self.wake_at_ns):
                self.wake_at_ns = next_ns
        return setback

    def _without(self, pod: PodRecord) -> frozenset[str]:
        setback = self.cluster.setback(pod.uid)
        return frozenset(setback.excluded_at(self.now_ns)) if setback else frozenset()

    def _place(self, pod: PodRecord) -> Placement | Verdict:
        """Place and charge a pod, or say why it fits nowhere."""
        without = self._without(pod)
        if claim := self.placer.taken_claim(pod):
            return Verdict(code=Code.CLAIM_IN_USE, detail=claim)
        known = self.hopeless.get(pod.cls)
        if known is not None and not without:
            return known
        placed = self.placer.place(pod, without=without)
        if placed is not None:
            return placed
        verdict = self._explained(pod.cls, without)
        if not without:
            self.hopeless[pod.cls] = verdict
        return verdict

    def _explained(self, cls: PodClass, without: frozenset[str]) -> Verdict:
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
            self.roomless.add(pod.cls)
        return found

    # --- pods that wait for a node that is late ------------------------------------------------------------------
    def _move_on(self) -> None:
        """Take back those who wait for an answer whose time is over, as far as they fit where none is owed.

        After all who wait for room: what is taken back has to find its new place by itself.
        """
        doubted = frozenset(self.cluster.doubts())
        roomless = set(self.hopeless)
        for placement in self.cluster.stuck() if doubted else ():
            known = self.cluster.pod(placement.pod_uid)
            if known is None or placement.node not in doubted:
                continue
            pod = self.cluster.judged(known)
            if pod.cls in roomless:
                continue
            without = self._without(pod)
            if self.placer.place(pod, without=doubted | without):
                self.entries.append(Withdraw(placement))
            elif not without:
                roomless.add(pod.cls)

    # --- gangs ---------------------------------------------------------------------------------------------------
    def _decide_gang(self, pods: list[PodRecord], group: PodGroupRecord) -> None:
        if group.unsupported:
            verdict = Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=group.unsupported)
            self._explain_gang(pods, group, verdict)
            return
        obstacles = {pod.uid: obstacle for pod in pods if (obstacle := self._obstacle(pod)) is not None}
        ready = [pod for pod in pods if not pod.gated and pod.uid not in obstacles]
        state = quorum(group, self.cluster.members(group.namespace, group.name), self.cluster.is_in_flight)
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
        if any(self._is_put_off(pod) for pod in ready):
            return
        mark, hopeless, roomless = self.placer.trial.mark(), dict(self.hopeless), set(self.roomless)
        start = self._try_start(ready, state)
        if start.failed is not None:
            self.placer.trial.undo(mark)
            self.hopeless, self.roomless = hopeless, roomless
            self._explain_gang(pods, group, _incomplete(start.failed, len(start.placed), state))
        elif start.retired or start.waits_on:
            self.entries.extend(start.retired)
            self._explain_gang(pods, group, Verdict(code=Code.WAITING_FOR_DEVICE, detail=start.waits_on))
        else:
            self._add_gang(group, start.placed)

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


def _incomplete(failure: Verdict, placed: int, state: Quorum) -> Verdict:
    """A gang's verdict out of the one on its first member that fitted nowhere."""
    if state.minimum <= 1:
        return failure
    return msgspec.structs.replace(
        failure, code=Code.GANG_INCOMPLETE, placed=state.bound + placed, required=state.minimum
    )
