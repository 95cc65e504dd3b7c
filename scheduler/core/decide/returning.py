"""Successors of pods that were moved: each gets the place that an intent keeps for it (docs/design/room.md).

The controllers of the moved pods make them, so nobody knows their names before. A place is for a pod of the same owner
that asks the same, from when the pod before it is gone, and for a minute at most: then nobody makes one. A gang is
placed as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.costs import PLACING
from scheduler.core.decide.filing import obstacle
from scheduler.core.decide.gang_trying import Start
from scheduler.core.model.plan import Entry, MakeRoom, Placement
from scheduler.core.model.preemption import Intent, Moved
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.room.need import owner_of
from scheduler.core.snapshot.node_mask import only

_S: Final = 1_000_000_000
#: A place is kept for so long after the pod is gone whose successor it is for.
KEPT_NS: Final = 60 * _S

_Pair = tuple[Moved, PodRecord]


@dataclass(slots=True)
class Returning:
    """One decision's. ``entries`` takes what is placed, and intents that keep fewer places."""

    attempts: Attempts
    entries: list[Entry]
    #: Pods that are gone, and since when that is known.
    _since: dict[str, int] = field(default_factory=dict)
    _served: set[str] = field(default_factory=set)

    def serve(self) -> set[str]:
        """Place successors; return intents (ids) that still keep places for others."""
        snapshot = self.attempts.snapshot
        intents = snapshot.commits.intents
        moving = [each for each in intents.moving if not intents.is_ending(each.id)]
        if not moving and not snapshot.backlog.returning:
            return set()
        gone = {each.pod_uid for intent in moving for each in intent.moved if each.pod_uid not in snapshot.pods.records}
        before = snapshot.backlog.returning
        self._since = {uid: before.get(uid, self.attempts.now_ns) for uid in sorted(gone)}
        if self._since != before:
            self.attempts.notes.returning(self._since)
        waiting = self._waiting({each.owner for intent in moving for each in intent.moved if each.pod_uid in gone})
        for intent in moving:
            self._place(intent, waiting)
        return {intent.id for intent in moving if self._left(intent)}

    def _waiting(self, owners: set[str]) -> dict[str, list[PodRecord]]:
        """Pods of these owners that wait for nothing but a place, the oldest first."""
        found: dict[str, list[PodRecord]] = {}
        snapshot = self.attempts.snapshot
        for uid in snapshot.pods.unbound if owners else ():
            pod = snapshot.pods.records[uid]
            group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
            if (owner := owner_of(pod, group)) in owners and self._may_be_placed(pod, group):
                found.setdefault(owner, []).append(snapshot.judged(pod, self.attempts.now_ns))
        return {owner: sorted(pods, key=lambda pod: (pod.created, pod.uid)) for owner, pods in found.items()}

    def _may_be_placed(self, pod: PodRecord, group: PodGroupRecord | None) -> bool:
        snapshot = self.attempts.snapshot
        if pod.deleting or pod.gated or snapshot.is_spoken_for(pod.uid) or pod.uid in snapshot.commits.intents.holders:
            return False
        if pod.pod_group and (group is None or group.blocker is not None):
            return False
        return obstacle(snapshot, pod, self.attempts.now_ns)[0] is None

    # --- placing -------------------------------------------------------------------------------------------------
    def _place(self, intent: Intent, waiting: dict[str, list[PodRecord]]) -> None:
        gangs: dict[str, list[_Pair]] = {}
        for moved in intent.moved:
            pod = self._successor(moved, waiting.get(moved.owner, []))
            if pod is None:
                continue
            group = self._group(pod)
            if group is not None and not self.attempts.snapshot.quorum(group).is_met:
                gangs.setdefault(moved.owner, []).append((moved, pod))
            else:
                self._start(intent, [(moved, pod)], None)
        for pairs in gangs.values():
            group = self._group(pairs[0][1])
            state = None if group is None else self.attempts.snapshot.quorum(group)
            if state is not None and not state.is_starting and state.is_reachable([pod for _, pod in pairs]):
                self._start(intent, pairs, group)
        if (left := self._left(intent)) != intent.moved:
            self.entries.append(MakeRoom(msgspec.structs.replace(intent, moved=left)))

    def _successor(self, moved: Moved, waiting: list[PodRecord]) -> PodRecord | None:
        """Take the first that asks what the place is for."""
        if moved.pod_uid not in self._since:
            return None
        found = (pod for pod in waiting if pod.namespace == moved.namespace and pod.cls.demand == moved.demand)
        pod = next(found, None)
        if pod is not None:
            waiting.remove(pod)
        return pod

    def _group(self, pod: PodRecord) -> PodGroupRecord | None:
        return self.attempts.snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None

    def _start(self, intent: Intent, pairs: Sequence[_Pair], group: PodGroupRecord | None) -> None:
        """Place these where places are kept for them, all or none. ``group``: of a gang that starts by that."""
        attempts, start = self.attempts, Start(is_whole=True)
        mark = attempts.checkpoint()
        for moved, pod in pairs:
            attempts.placer.statement.lift(f"{intent.id}/{moved.pod_uid}", [moved.node])
            placed = attempts.place_on_paper(pod, only([moved.node], attempts.placer.statement.position_of))
            if not isinstance(placed, Placement):
                attempts.rollback(mark)
                return
            start.placed.append((pod, placed))
        attempts.allowance.spend(intent.namespace, PLACING * len(pairs))
        self._served.update(moved.pod_uid for moved, _ in pairs)
        if group is None:
            self.entries += [attempts.placer.entry_alone(pod, placed) for pod, placed in start.placed]
        else:
            self.entries.append(start.entry(group, attempts))
            attempts.settled_gangs.add((group.namespace, group.name))
        attempts.settled.update(pod.uid for _, pod in pairs)

    # --- what is kept on -----------------------------------------------------------------------------------------
    def _left(self, intent: Intent) -> tuple[Moved, ...]:
        """Places that are still kept: of those who are to go while the holders wait, and of those who went just now."""
        is_waited_for = any(map(self.attempts.snapshot.commits.intents.waits, (each.pod_uid for each in intent.places)))
        return tuple(each for each in intent.moved if self._is_kept(each, is_waited_for=is_waited_for))

    def _is_kept(self, moved: Moved, *, is_waited_for: bool) -> bool:
        if moved.pod_uid in self._served:
            return False
        since_ns = self._since.get(moved.pod_uid)
        if since_ns is None:
            there = self.attempts.snapshot.pods.records[moved.pod_uid]
            return is_waited_for or there.deleting
        is_kept = self.attempts.now_ns < since_ns + KEPT_NS
        if is_kept:
            self.attempts.notes.wake_at(since_ns + KEPT_NS, moved.pod_uid)
        return is_kept
