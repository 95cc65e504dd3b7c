"""Nominations: their pods are placed first in a decision, then successors of moved pods (docs/design/preemption.md)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.core.decide.allowance import COST_OF_PLACING
from scheduler.core.decide.attempts import Attempts, planned_use
from scheduler.core.decide.gang_search import are_in_domains
from scheduler.core.decide.gang_start import Start
from scheduler.core.decide.snapshot import obstacle
from scheduler.core.filters.registry import OK
from scheduler.core.model.plan import Entry, Gang, GiveUp, Nominate, Placement, placements
from scheduler.core.model.preemption import Ended, Moved, Nomination, Place
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.node_usage import Group
from scheduler.core.nodes.table import GPUS
from scheduler.core.preemption.need import owner_of
from scheduler.core.preemption.protection import paused_until_s
from scheduler.core.queues.accounts import HeldBack
from scheduler.core.snapshot.node_count import NodeMask, Supposed, only
from wire.units import SECOND_NS

#: These are no reason to end a nomination if others can be found (preemption.py).
_REVISED: Final = frozenset({Ended.PLACE_GONE, Ended.PLACE_TAKEN})
#: What keeps a nominated pod for a while only: its nomination stands meanwhile.
_FOR_A_WHILE: Final = frozenset({Code.BACKING_OFF, Code.NOT_READ, Code.OWNER_NOT_SEEN})


@dataclass(slots=True)
class Nominees:
    """Those of one decision. ``entries`` takes what is to be done.

    The oldest nomination comes first. With its own charge taken off its pods are placed where it keeps room for them,
    all of a gang or none; what is taken back of that goes back to being charged. Else they have their usual turn beside
    it.
    """

    attempts: Attempts
    entries: list[Entry]
    #: Nominations (ids) that don't come about as they are, and why.
    failing: dict[str, Ended] = field(default_factory=dict)
    #: Nominations (ids) that keep places for successors of pods that were moved (nominations.py).
    keeping: Set[str] = frozenset()
    #: Nominations that are neither over nor served, with what their nominated pods say.
    _waiting: list[tuple[Nomination, Verdict]] = field(default_factory=list)
    #: Ids of all that were looked at, and of those that need no look before something changes
    #: (scheduling_queue/queue.py).
    _looked: dict[str, None] = field(default_factory=dict)
    _resting: set[str] = field(default_factory=set)
    #: Nodes on which a nomination that is over still charges something, for a moment.
    _ending_on: set[str] = field(default_factory=set)

    def serve(self) -> None:
        """Place nominated pods whose places are free, and end the nominations that are over."""
        nominations, awake = (
            self.attempts.snapshot.commits.nominations,
            self.attempts.snapshot.scheduling_queue.resting.awake,
        )
        for nomination in nominations.all() if awake is None else nominations.in_order(awake):
            self._looked[nomination.id] = None
            self._serve(nomination)

    def _serve(self, nomination: Nomination) -> None:
        turn = NominationTurn(nomination, self.attempts)
        because = turn.ended()
        if self.attempts.snapshot.commits.nominations.is_ending(nomination.id):
            self._serve_last(turn, because)
            return
        if because is None and turn.is_to_be_tried:
            because = self._try(turn)
        if because is Ended.BOUND and nomination.id in self.keeping:
            return
        if because in _REVISED:
            self.failing[nomination.id] = because
            self._waiting.append((nomination, turn.verdict()))
        elif because is not None:
            self._give_up(turn, because)

    def _give_up(self, turn: NominationTurn, because: Ended) -> None:
        """Its charge stays: it is others' when its end is on record, which is not before the next decision."""
        self._note_ending(turn)
        self.entries.append(GiveUp(turn.nomination.id, because))

    def _serve_last(self, turn: NominationTurn, because: Ended | None) -> None:
        """One that is over: its pods may still get their places, or else have their usual turn; no more is decided."""
        self._note_ending(turn)
        if because is None and turn.is_to_be_tried:
            found = turn.placed()
            if found is not None and not found.waiting:
                self.entries.extend(turn.settle(found))

    def _note_ending(self, turn: NominationTurn) -> None:
        self._ending_on.update(place.node for place, _ in turn.waiting)

    def _try(self, turn: NominationTurn) -> Ended | None:
        found = turn.placed()
        is_all_gone = found is None and turn.is_all_gone()
        if is_all_gone:
            found = turn.placed(before_younger=True)
        if found is None:
            is_kept = any(place.node in self._ending_on for place, _ in turn.waiting)
            if is_all_gone and not turn.is_in_a_book() and not is_kept:
                return Ended.PLACE_TAKEN
            if not is_all_gone and turn.may_rest:
                self._resting.add(turn.nomination.id)
            self._waiting.append((turn.nomination, turn.verdict()))
            return None
        if found.waiting:
            self.entries.extend(found.retired)
            self._waiting.append((turn.nomination, Verdict(code=Code.WAITING_FOR_DEVICE, detail=found.waits_on)))
            return None
        self.entries.extend(turn.settle(found))
        return None

    def conclude(self) -> None:
        """After all turns: who was placed elsewhere gives up its nomination, all others say for whom they wait."""
        nominations = self.attempts.snapshot.commits.nominations
        verdicts = {nomination.id: verdict for nomination, verdict in self._waiting}
        placed = {placement.pod_uid for placement in placements(self.entries)}
        gangs = {entry.pod_group for entry in self.entries if isinstance(entry, Gang)}
        found = {nominations.nominees[uid].id for uid in placed if uid in nominations.nominees}
        found |= {each for key in gangs for each in nominations.ids_of_gang(*key)}
        at_rest = (each for each in found if each not in self._looked)
        for nomination in nominations.in_order({*verdicts, *at_rest}):
            if nomination.id in found:
                self._give_way(nomination, placed)
            else:
                key = (nomination.namespace, nomination.pod_group) if nomination.pod_group else None
                uids = [place.pod_uid for place in nomination.places]
                self.attempts.effects.say(uids, verdicts[nomination.id], key, lasts=True)
        self.attempts.effects.nominations_looked(each for each in self._looked if each not in self._resting)

    def _give_way(self, nomination: Nomination, placed: Set[str]) -> None:
        """Its nominated pods were placed elsewhere, all or some of them."""
        waits, places = self.attempts.snapshot.commits.nominations.waits, nomination.places
        if all(place.pod_uid in placed for place in places if waits(place.pod_uid)):
            self.attempts.placer.statement.lift(nomination.id, {place.node for place in places})
        self.entries.append(GiveUp(nomination.id, Ended.BETTER_PLACE))


@dataclass(slots=True)
class NominationTurn:
    """One nomination in a decision. ``waiting``: its nominated pods that wait, judged, with their places.

    ``is_held_back``: whether a place was free, and a queue took no more.
    """

    nomination: Nomination
    attempts: Attempts
    waiting: list[tuple[Place, PodRecord]] = field(init=False)
    is_held_back: bool = False

    def __post_init__(self) -> None:
        snapshot, nominations = self.attempts.snapshot, self.attempts.snapshot.commits.nominations
        known = [
            (place, snapshot.pod(place.pod_uid)) for place in self.nomination.places if nominations.waits(place.pod_uid)
        ]
        now_ns = self.attempts.now_ns
        self.waiting = [(place, snapshot.judged(pod, now_ns)) for place, pod in known if pod is not None]

    @property
    def group(self) -> PodGroupRecord | None:
        """The PodGroup of its nominated pods."""
        return self.attempts.snapshot.pod_group(self.nomination.namespace, self.nomination.pod_group)

    # --- whether it is over --------------------------------------------------------------------------------------
    def ended(self) -> Ended | None:
        """Why it is over on all nodes; None if it is not."""
        snapshot = self.attempts.snapshot
        nominees = [snapshot.pod(place.pod_uid) for place in self.nomination.places]
        if not self.waiting and any(pod is not None and not pod.node for pod in nominees if not _is_going(pod)):
            return None  # they are on their way
        if not self.waiting:
            return Ended.BOUND if any(pod is not None and pod.node for pod in nominees) else Ended.NOMINEE_GONE
        if any(map(_is_going, nominees)):
            return Ended.NOMINEE_GONE
        if any(map(self._is_kept, (pod for _, pod in self.waiting))):
            return Ended.NOMINEE_KEPT
        if self._has_failed_claim():
            return Ended.CLAIMS_FAILED
        return self._gang_ended() if self.nomination.pod_group else self._place_ended()

    def _is_kept(self, pod: PodRecord) -> bool:
        verdict = obstacle(self.attempts.snapshot, pod, self.attempts.now_ns)[0]
        return pod.gated or (verdict is not None and verdict.code not in _FOR_A_WHILE)

    def _has_failed_claim(self) -> bool:
        """Whether a claim of a nominated pod could not be bound: it gets no victims now, and no place."""
        failed = self.attempts.snapshot.preemption_facts.failed_claims
        return paused_until_s((pod for _, pod in self.waiting), failed, self.attempts.wall_s) > 0

    def _gang_ended(self) -> Ended | None:
        group, pods = self.group, [pod for _, pod in self.waiting]
        if group is None or group.blocker is not None:
            return Ended.NOMINEE_KEPT
        state = self.attempts.snapshot.quorum(group)
        if not state.is_met and not state.is_starting and not state.is_reachable(pods):
            return Ended.ASKS_DIFFERENTLY
        bounds = self.attempts.bounds_of(group)
        if isinstance(bounds, Verdict):
            return None if bounds.code in _FOR_A_WHILE else Ended.NOMINEE_KEPT
        position_of = self.attempts.placer.statement.position_of
        places = ((pod.subgroup, position_of.get(place.node)) for place, pod in self.waiting)
        return self._place_ended() if are_in_domains(group.tree, bounds, places) else Ended.PLACE_GONE

    def _place_ended(self) -> Ended | None:
        if any(pod.pod_group != self.nomination.pod_group for _, pod in self.waiting):
            return Ended.ASKS_DIFFERENTLY
        return None if all(self._takes(place.node, pod) for place, pod in self.waiting) else Ended.PLACE_GONE

    def _takes(self, node: str, pod: PodRecord) -> bool:
        """Whether a nominated pod may be on its node: the node is ready, and no attempt failed there just now."""
        placer = self.attempts.placer
        position = placer.statement.position_of.get(node)
        if position is None or node in pod.cls.excluded:
            return False
        return any(placer.ranking(way).eligible[position] == OK for way in placer.ways(pod.cls))

    def is_in_a_book(self) -> bool:
        """Whether a nominated pod has an entry left of an attempt that broke off: that is its own, and comes free."""
        reserved_on = self.attempts.snapshot.pods.reserved_on
        return any(
            place.pod_uid in held.book.entries
            for place in self.nomination.places
            for held in reserved_on(place.node)
            if held.book is not None
        )

    def is_all_gone(self) -> bool:
        """Whether nothing is left to wait for: no victim, nor anything of one, and nobody else that is terminating."""
        snapshot, victims = self.attempts.snapshot, {victim.pod_uid for victim in self.nomination.victims}
        if any(uid in snapshot.pods.records for uid in victims):
            return False
        emptied = {group for place, _ in self.waiting for group in place.emptied}
        for name in {place.node for place, _ in self.waiting}:
            node = self.attempts.placer.statement.nodes[self.attempts.placer.statement.position_of[name]]
            if any(pod.deleting for pod in snapshot.pods.bound_to(name)):
                return False
            groups = snapshot.used(node, Supposed(lifted={self.nomination.id})).groups.values()
            if any(
                not victims.isdisjoint(group.charges) or (group.id in emptied and self._is_coming_free(group))
                for group in groups
            ):
                return False
        return True

    def _is_coming_free(self, group: Group) -> bool:
        """Whether a device that is to be whole has tenants, and none of them is a pod that stays."""
        records = self.attempts.snapshot.pods.records
        there = (records[uid] for uid in group.charges if uid in records)
        return bool(group.charges) and not any(pod.node and not pod.deleting for pod in there)

    @property
    def may_rest(self) -> bool:
        """Whether nothing can help it, nor end it, that is not heard of by its pods, its gang and its nodes."""
        if self.is_held_back or self.nomination.moved:
            return False
        snapshot, now_ns = self.attempts.snapshot, self.attempts.now_ns
        return all(
            pod.cls.rules is None and not pod.cls.excluded and obstacle(snapshot, pod, now_ns) == (None, None)
            for _, pod in self.waiting
        )

    # --- its places ----------------------------------------------------------------------------------------------
    @property
    def is_to_be_tried(self) -> bool:
        """Whether its pods may be placed now: nothing keeps them for a while, and they are not starting already."""
        snapshot, now_ns = self.attempts.snapshot, self.attempts.now_ns
        group = self.group if self.nomination.pod_group else None
        if group is not None and not (state := snapshot.quorum(group)).is_met and state.is_starting:
            return False
        if group is not None and isinstance(self.attempts.bounds_of(group), Verdict):
            return False
        return bool(self.waiting) and all(obstacle(snapshot, pod, now_ns)[0] is None for _, pod in self.waiting)

    def placed(self, *, before_younger: bool = False) -> Start | None:
        """Place all nominated pods where it keeps room for them, or where a device has to come back for it; else None.

        ``before_younger``: what younger nominations keep there is theirs as well. Only a start without waiting is left
        charged.
        """
        attempts, places = self.attempts, self._in_order()
        if not before_younger and not self._may_fit(places[0][0].node):
            return None
        mark, start = attempts.checkpoint(), Start()
        self._release()
        lifted: dict[str, None] = {}
        for place, pod in places:
            may_fit = before_younger or place.node in lifted or self._may_fit(place.node)
            if may_fit and place.node not in lifted:
                lifted[place.node] = None
                self._lift_at(place.node, before_younger=before_younger)
            if not may_fit or not self._put(place, pod, start):
                attempts.rollback(mark)
                return None
        if start.waiting:
            attempts.rollback(mark)
            return start
        for node in lifted if before_younger else ():
            for nomination in self._younger_at(node):
                attempts.placer.statement.lift(nomination.id, [node], is_off=False)
        start.is_whole = True
        return start

    def _in_order(self) -> list[tuple[Place, PodRecord]]:
        """Those first whose nodes still have a victim: the first that doesn't fit is the last that is looked at."""
        if len(self.waiting) == 1:
            return self.waiting
        records = self.attempts.snapshot.pods.records
        there = {victim.node for victim in self.nomination.victims if victim.pod_uid in records}
        return sorted(self.waiting, key=lambda each: each[0].node not in there)

    def _may_fit(self, name: str) -> bool:
        """Whether a node may have enough whole GPUs with its charge taken off; a look that needs no count of the node.

        Its charge is what places need beyond what victims have. So it is not enough if less is free than victims still
        have of that.
        """
        attempts, statement = self.attempts, self.attempts.placer.statement
        position, records = statement.position_of[name], attempts.snapshot.pods.records
        emptied = {group for place, _ in self.waiting if place.node == name for group in place.emptied}
        if emptied and any(device.group in emptied for device in statement.table.devices[position]):
            return True
        there = (records.get(victim.pod_uid) for victim in self.nomination.victims if victim.node == name)
        held = sum(pod.cls.demand.gpus for pod in there if pod is not None)
        needed = sum(pod.cls.demand.gpus for place, pod in self.waiting if place.node == name)
        return int(statement.table.free[GPUS, position]) >= min(held, needed)

    def _put(self, place: Place, pod: PodRecord, start: Start) -> bool:
        attempts, mask = self.attempts, self._mask(place.node)
        found = attempts.place_on_paper(pod, mask)
        if isinstance(found, Placement):
            start.placed.append((pod, found))
            return True
        self.is_held_back |= isinstance(found, HeldBack)
        room = None if found is not None else attempts.placer.wait_for_device(pod, mask)
        if room is None:
            return False
        start.waiting.append(room)
        return True

    def _mask(self, node: str) -> NodeMask:
        return only([node], self.attempts.placer.statement.position_of)

    def _lift_at(self, node: str, *, before_younger: bool) -> None:
        statement = self.attempts.placer.statement
        statement.lift(self.nomination.id, [node])
        for nomination in self._younger_at(node) if before_younger else ():
            statement.lift(nomination.id, [node])

    def _younger_at(self, node: str) -> list[Nomination]:
        """Those after it that keep a place for a nominated pod there."""
        younger = self.attempts.snapshot.commits.nominations.younger_at(node, self.nomination)
        return [nomination for nomination in younger if any(place.node == node for place in nomination.places)]

    def _release(self) -> None:
        """Take off what its places count for in queues: a pod that gets one is charged for it."""
        snapshot = self.attempts.snapshot
        for place, pod in self.waiting:
            self.attempts.accounts.release(planned_use(snapshot, pod, place.devices))

    def lift(self) -> None:
        """It is over: take its charges off for the rest of the decision."""
        self._release()
        self.attempts.placer.statement.lift(self.nomination.id, {place.node for place in self.nomination.places})

    def settle(self, start: Start) -> list[Entry]:
        """Entries of nominated pods that got their places, who have no other turn in this decision."""
        attempts, group = self.attempts, self.group if self.nomination.pod_group else None
        attempts.allowance.spend(self.nomination.namespace, COST_OF_PLACING * len(start.placed))
        if group is None or attempts.snapshot.quorum(group).is_met:
            attempts.settled.update(pod.uid for pod, _ in start.placed)
            return [attempts.placer.entry_alone(pod, placement) for pod, placement in start.placed]
        attempts.settled_gangs.add((group.namespace, group.name))
        return [start.entry(group, attempts)]

    def verdict(self) -> Verdict:
        """What its nominated pods say: how many of its victims are gone."""
        records, nodes = self.attempts.snapshot.pods.records, {place.node for place in self.nomination.places}
        gone = sum(victim.pod_uid not in records for victim in self.nomination.victims)
        return Verdict(
            code=Code.WAITS_FOR_VICTIMS,
            present=gone,
            required=len(self.nomination.victims),
            detail=next(iter(nodes)) if len(nodes) == 1 else "",
        )


def _is_going(pod: PodRecord | None) -> bool:
    return pod is None or pod.deleting or pod.is_elsewhere


#: A place is kept for so long after the pod is gone whose successor it is for.
KEPT_NS: Final = 60 * SECOND_NS

_Pair = tuple[Moved, PodRecord]


@dataclass(slots=True)
class Returning:
    """One decision's. ``entries`` takes what is placed, and nominations that keep fewer places.

    Successors are made by the controllers of the moved pods, so nobody knows their names before. A place is for a pod
    of the same owner that asks the same, from when the pod before it is gone, and for a minute at most.
    """

    attempts: Attempts
    entries: list[Entry]
    #: Pods that are gone, and since when that is known.
    _since: dict[str, int] = field(default_factory=dict)
    _served: set[str] = field(default_factory=set)

    def serve(self) -> set[str]:
        """Place successors; return nominations (ids) that still keep places for others."""
        snapshot = self.attempts.snapshot
        nominations = snapshot.commits.nominations
        moving = [each for each in nominations.moving if not nominations.is_ending(each.id)]
        if not moving and not snapshot.scheduling_queue.returning:
            return set()
        gone = {
            each.pod_uid
            for nomination in moving
            for each in nomination.moved
            if each.pod_uid not in snapshot.pods.records
        }
        before = snapshot.scheduling_queue.returning
        self._since = {uid: before.get(uid, self.attempts.now_ns) for uid in sorted(gone)}
        if self._since != before:
            self.attempts.effects.returning(self._since)
        waiting = self._waiting(
            {each.owner for nomination in moving for each in nomination.moved if each.pod_uid in gone}
        )
        for nomination in moving:
            self._place(nomination, waiting)
        return {nomination.id for nomination in moving if self._left(nomination)}

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
        if (
            pod.deleting
            or pod.gated
            or snapshot.is_spoken_for(pod.uid)
            or pod.uid in snapshot.commits.nominations.nominees
        ):
            return False
        if pod.pod_group and (group is None or group.blocker is not None):
            return False
        return obstacle(snapshot, pod, self.attempts.now_ns)[0] is None

    # --- placing -------------------------------------------------------------------------------------------------
    def _place(self, nomination: Nomination, waiting: dict[str, list[PodRecord]]) -> None:
        gangs: dict[str, list[_Pair]] = {}
        for moved in nomination.moved:
            pod = self._successor(moved, waiting.get(moved.owner, []))
            if pod is None:
                continue
            group = self._group(pod)
            if group is not None and not self.attempts.snapshot.quorum(group).is_met:
                gangs.setdefault(moved.owner, []).append((moved, pod))
            else:
                self._start(nomination, [(moved, pod)], None)
        for pairs in gangs.values():
            group = self._group(pairs[0][1])
            state = None if group is None else self.attempts.snapshot.quorum(group)
            if state is not None and not state.is_starting and state.is_reachable([pod for _, pod in pairs]):
                self._start(nomination, pairs, group)
        if (left := self._left(nomination)) != nomination.moved:
            self.entries.append(Nominate(msgspec.structs.replace(nomination, moved=left)))

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

    def _start(self, nomination: Nomination, pairs: Sequence[_Pair], group: PodGroupRecord | None) -> None:
        """Place these where places are kept for them, all or none. ``group``: of a gang that starts by that."""
        attempts, start = self.attempts, Start(is_whole=True)
        mark = attempts.checkpoint()
        for moved, pod in pairs:
            attempts.placer.statement.lift(f"{nomination.id}/{moved.pod_uid}", [moved.node])
            placed = attempts.place_on_paper(pod, only([moved.node], attempts.placer.statement.position_of))
            if not isinstance(placed, Placement):
                attempts.rollback(mark)
                return
            start.placed.append((pod, placed))
        attempts.allowance.spend(nomination.namespace, COST_OF_PLACING * len(pairs))
        self._served.update(moved.pod_uid for moved, _ in pairs)
        if group is None:
            self.entries += [attempts.placer.entry_alone(pod, placed) for pod, placed in start.placed]
        else:
            self.entries.append(start.entry(group, attempts))
            attempts.settled_gangs.add((group.namespace, group.name))
        attempts.settled.update(pod.uid for _, pod in pairs)

    # --- what is kept on -----------------------------------------------------------------------------------------
    def _left(self, nomination: Nomination) -> tuple[Moved, ...]:
        """Places that are still kept: of victims that are to go while its pods wait, or went just now."""
        is_waited_for = any(
            map(self.attempts.snapshot.commits.nominations.waits, (each.pod_uid for each in nomination.places))
        )
        return tuple(each for each in nomination.moved if self._is_kept(each, is_waited_for=is_waited_for))

    def _is_kept(self, moved: Moved, *, is_waited_for: bool) -> bool:
        if moved.pod_uid in self._served:
            return False
        since_ns = self._since.get(moved.pod_uid)
        if since_ns is None:
            there = self.attempts.snapshot.pods.records[moved.pod_uid]
            return is_waited_for or there.deleting
        is_kept = self.attempts.now_ns < since_ns + KEPT_NS
        if is_kept:
            self.attempts.effects.wake_at(since_ns + KEPT_NS, moved.pod_uid)
        return is_kept
