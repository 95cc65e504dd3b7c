"""Needs for which room is made: the last phase of a decision (docs/design/room.md).

Whoever fitted nowhere is searched for by the rules of reclaim, and those for whom that finds nothing by the rules of
preempt. What is found is charged at once, on nodes and in queues, so the next need sees it. Pods that go anyway are
counted as gone: nobody is evicted for a need that fits then.

It is done every 0.2 s at most. A need that was refused is searched for again only after something has changed that the
answer depends on, and 1 s later at the earliest, or when time alone may have changed it. The work of one decision is
bounded, and divided between namespaces; what is left over comes first the next time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.backlog.room_memo import NeedKey, Refused, RoomMemo, Stamp
from scheduler.core.decide import queue_use
from scheduler.core.decide.allowance import Allowance
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.needs import Needing, needs
from scheduler.core.decide.room_trial import room_trial
from scheduler.core.model.plan import Entry, MakeRoom, Placement, placements
from scheduler.core.model.records import PodRecord
from scheduler.core.model.room import Action, Found, Intent, NoRoom, Place, Victim
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.order import QueueOrder
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.queues.use import held, is_fixed
from scheduler.core.room.need import Need
from scheduler.core.room.trial import Trial
from scheduler.core.snapshot.node_mask import only

_MS: Final = 1_000_000
_S: Final = 1_000_000_000
#: So often room is looked for at most, and for a need that was refused.
EVERY_NS: Final = 200 * _MS
AGAIN_NS: Final = 1 * _S
#: Pods that go anyway are counted on for so long, and victims for their grace period and this.
LEAVING_NS: Final = 120 * _S
STAYING_NS: Final = 60 * _S
#: What a search costs in operations of about a microsecond, beside one for so many nodes and pods.
_SEARCHING: Final = 2_000
_ROWS_PER_OPERATION: Final = 4


@dataclass(slots=True)
class Making:
    """One decision's. ``entries`` takes intents, and has what was decided before."""

    attempts: Attempts
    entries: list[Entry]
    wall_s: int
    trial: Trial = field(init=False)
    _refused: dict[NeedKey, Refused] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _leaving: dict[str, int] = field(default_factory=dict)
    _is_put_off: bool = False

    def run(self) -> None:
        """Look for room, if it is time to."""
        memo, now_ns = self.attempts.snapshot.backlog.room, self.attempts.now_ns
        stamp = self._stamp()
        if memo.looked_ns is not None and memo.looked_ns <= now_ns < memo.looked_ns + EVERY_NS:
            self._wait(memo, memo.looked_ns + EVERY_NS, has_changed=stamp != memo.stamp)
            return
        found = self._needs()
        due = [need for need in found if self._is_due(memo.refused.get(need.key), stamp)]
        self._refused = {need.key: memo.refused[need.key] for need in found if need.key in memo.refused}
        if due:
            self._look(due, memo, stamp)
        self.attempts.notes.room_looked(
            RoomMemo(
                looked_ns=now_ns,
                stamp=stamp,
                refused=self._refused,
                leaving=self._leaving if due else memo.leaving,
                next_ns=self._next_ns(stamp),
            )
        )

    # --- when ----------------------------------------------------------------------------------------------------
    def _stamp(self) -> Stamp:
        """All that answers depend on: what nodes have, what queues hold and may hold, and what the shell knows."""
        snapshot = self.attempts.snapshot
        queues = snapshot.queues
        return (snapshot.ledger.changes.last, queues.sums.version, queues.tree, snapshot.room_facts.version)

    def _wait(self, memo: RoomMemo, at_ns: int, *, has_changed: bool) -> None:
        next_ns = at_ns if has_changed or memo.next_ns is not None else None
        if not has_changed and memo.next_ns is not None:
            next_ns = max(at_ns, memo.next_ns)
        self.attempts.notes.room_looked(
            RoomMemo(
                looked_ns=memo.looked_ns,
                stamp=memo.stamp,
                refused=memo.refused,
                leaving=memo.leaving,
                next_ns=next_ns,
            )
        )

    def _is_due(self, refused: Refused | None, stamp: Stamp) -> bool:
        now_ns = self.attempts.now_ns
        if refused is None or refused.at_ns > now_ns:
            return True
        if refused.again_ns is not None and refused.again_ns <= now_ns:
            return True
        return refused.stamp != stamp and now_ns >= refused.at_ns + AGAIN_NS

    def _next_ns(self, stamp: Stamp) -> int | None:
        """When there is something to look for again, as far as is known now."""
        now_ns = self.attempts.now_ns
        times = [each.again_ns for each in self._refused.values() if each.again_ns is not None]
        times += [each.at_ns + AGAIN_NS for each in self._refused.values() if each.stamp != stamp]
        if self._is_put_off:
            times.append(now_ns)
        return max(min(times), now_ns + EVERY_NS) if times else None

    # --- who -----------------------------------------------------------------------------------------------------
    def _needs(self) -> list[Needing]:
        snapshot = self.attempts.snapshot
        served = {placement.pod_uid for placement in placements(self.entries)} | snapshot.commits.intents.holders.keys()
        gangs = {(pod.namespace, pod.pod_group) for pod in map(snapshot.pod, served) if pod and pod.pod_group}
        return list(needs(self.attempts, served, gangs))

    def _look(self, due: Sequence[Needing], memo: RoomMemo, stamp: Stamp) -> None:
        """Search for those that are due: reclaim for all of them first, then preempt for those that are left."""
        facts = self.attempts.snapshot.room_facts
        self._taken.update(self.attempts.snapshot.commits.intents.victims)
        self.trial = room_trial(
            self.attempts,
            wall_s=self.wall_s,
            taken=self._taken,
            refused=facts.refused,
            budgets=facts.budgets,
            labels=facts.labels,
            evicted=facts.evicted,
            settings=facts.settings,
        )
        self._leave(memo)
        left = list(due)
        for action in (Action.RECLAIM, Action.PREEMPT):
            left = self._search(left, memo, stamp, action)

    def _leave(self, memo: RoomMemo) -> None:
        """Take off whoever goes anyway, and was not said to so long ago that nobody knows whether it will."""
        snapshot, now_ns, statement = self.attempts.snapshot, self.attempts.now_ns, self.attempts.placer.statement
        victims, leaving = snapshot.commits.intents.victims, list[PodRecord]()
        for pod in snapshot.pods.records.values():
            if not pod.node or not (pod.deleting or pod.uid in victims):
                continue
            since_ns = self._leaving[pod.uid] = memo.leaving.get(pod.uid, now_ns)
            patience_ns = pod.grace_s * _S + STAYING_NS if pod.uid in victims else LEAVING_NS
            if now_ns < since_ns + patience_ns and pod.node in statement.position_of:
                leaving.append(pod)
        self._release(leaving, is_leaving=True)
        statement.evict(*leaving)

    def _release(self, pods: Iterable[PodRecord], *, is_leaving: bool = False) -> None:
        for pod in pods:
            if pod.queue:
                self.attempts.accounts.release(self._use(pod), is_leaving=is_leaving)

    def _use(self, pod: PodRecord) -> Use:
        """What a bound pod counts for."""
        snapshot, statement = self.attempts.snapshot, self.attempts.placer.statement
        group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        node = statement.nodes[statement.position_of[pod.node]]
        return Use(pod.queue if group is None else group.queue, held(pod, node), is_fixed(pod, group))

    # --- searches ------------------------------------------------------------------------------------------------
    def _search(self, due: Sequence[Needing], memo: RoomMemo, stamp: Stamp, action: Action) -> list[Needing]:
        """Search by one action, in the order of queues; return those that were refused."""
        allowance = Allowance(namespaces=len({need.namespace for need in due}), most=self.attempts.limits.searching)
        refused: list[Needing] = []
        for group in _by_age(due, memo, allowance.share // self._cost() + 1):
            order: QueueOrder[Needing] = QueueOrder(self.attempts.accounts)
            for need in group:
                self._line_up(order, need)
            while (first := order.pop()) is not None:
                if not allowance.has_left(first.namespace):
                    self._is_put_off = True
                    continue
                allowance.spend(first.namespace, self._cost())
                if self._is_made(first, action, stamp):
                    self._line_up(order, first)
                elif first.key in self._refused and self._refused[first.key].at_ns == self.attempts.now_ns:
                    refused.append(first)
        return refused

    def _line_up(self, order: QueueOrder[Needing], need: Needing) -> None:
        queue, rank = self.attempts.accounts.tree.leaf(need.queue), need.rank
        if rank is not None and isinstance(queue, TreeQueue):
            order.put(queue, rank, need)

    def _cost(self) -> int:
        snapshot = self.attempts.snapshot
        return _SEARCHING + (len(snapshot.ledger.row_of) + len(snapshot.pods.records)) // _ROWS_PER_OPERATION

    def _is_made(self, first: Needing, action: Action, stamp: Stamp) -> bool:
        """Make room for the first one; return whether the next one of its kind may follow."""
        need = first.need()
        if need is None:
            first.take()
            return True
        answer = self.attempts.snapshot.find_room(need, self.trial, (action,))
        if isinstance(answer, Found) and self._take(need, answer):
            self._refused.pop(first.key, None)
            first.take()
            return True
        self._refuse(first.key, answer if isinstance(answer, NoRoom) else NoRoom(), stamp)
        return False

    def _refuse(self, key: NeedKey, answer: NoRoom, stamp: Stamp) -> None:
        now_ns, before = self.attempts.now_ns, self._refused.get(key)
        again_ns = now_ns + max(0, answer.until_s - self.wall_s) * _S if answer.until_s else None
        if before is not None and before.at_ns == now_ns and before.again_ns is not None:
            again_ns = before.again_ns if again_ns is None else min(again_ns, before.again_ns)
        self._refused[key] = Refused(stamp, now_ns, answer, again_ns)

    # --- what is found -------------------------------------------------------------------------------------------
    def _take(self, need: Need, found: Found) -> bool:
        """Charge what was found, on paper as it will be; False if that is not possible after all."""
        attempts, statement = self.attempts, self.attempts.placer.statement
        mark = statement.checkpoint(), attempts.accounts.checkpoint()
        victims = self._victims(found)
        places = None if victims is None else self._places(need, found, victims)
        if victims is None or places is None:
            statement.rollback(mark[0])
            attempts.accounts.rollback(mark[1])
            return False
        if victims:
            self._begin(need, found.action, places, victims)
        return True

    def _victims(self, found: Found) -> list[PodRecord] | None:
        """Those who have to go; None if one of them can't, as another intent takes it or it is gone."""
        pods = [self.attempts.snapshot.pod(uid) for unit in found.units for uid in unit.pods]
        there = [pod for pod in pods if pod is not None and pod.node and pod.uid not in self._taken]
        return there if len(there) == len(pods) else None

    def _places(self, need: Need, found: Found, victims: Sequence[PodRecord]) -> tuple[Place, ...] | None:
        statement, pods = self.attempts.placer.statement, {pod.uid: pod for pod in need.pods}
        here = [pod for pod in victims if pod.node in statement.position_of]
        self._release(here)
        statement.evict(*here)
        places = []
        for place in found.places:
            put = self._put(pods[place.pod_uid], place.node)
            if put is None:
                return None
            places.append(put)
        return tuple(places)

    def _put(self, pod: PodRecord, node: str) -> Place | None:
        """Charge a holder where it is to be, on devices as they are chosen now."""
        attempts, mask = self.attempts, only([node], self.attempts.placer.statement.position_of)
        placed = attempts.place_on_paper(pod, mask)
        if isinstance(placed, Placement):
            return Place(pod.uid, placed.node, placed.devices)
        if placed is not None:
            return None
        use = queue_use.asked(attempts.snapshot, [pod])
        devices = attempts.placer.statement.table.devices[attempts.placer.statement.position_of[node]]
        if attempts.accounts.refusal(use) is not None:
            return None
        room = attempts.placer.wait_for_device(pod, mask)
        if room is None:
            return None
        attempts.accounts.charge(use)
        retired = {retire.reservation_uid for retire in room[1]}
        emptied = (dev.group for dev in devices if dev.reservation is not None and dev.reservation.uid in retired)
        return Place(pod.uid, node, emptied=tuple(emptied))

    def _begin(self, need: Need, action: Action, places: tuple[Place, ...], victims: Sequence[PodRecord]) -> None:
        first = places[0].pod_uid
        number = self.attempts.snapshot.commits.intents.next_number(first)
        group = need.group
        intent = Intent(
            id=f"{first}-{number}",
            action=action,
            namespace=need.pods[0].namespace,
            pod_group=group.name if group is not None else "",
            number=number,
            places=places,
            victims=tuple(self._victim(pod) for pod in victims),
        )
        self._taken.update(pod.uid for pod in victims)
        self.entries.append(MakeRoom(intent))
        nodes = {place.node for place in places}
        verdict = Verdict(
            code=Code.WAITS_FOR_ROOM,
            required=len(victims),
            detail=next(iter(nodes)) if len(nodes) == 1 else "",
        )
        key = (group.namespace, group.name) if group is not None else None
        self.attempts.notes.say([place.pod_uid for place in places], verdict, key)

    def _victim(self, pod: PodRecord) -> Victim:
        group = self.attempts.snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        owner = group.uid if group is not None else pod.controller or pod.uid
        return Victim(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, node=pod.node, owner=owner)


def _by_age(due: Sequence[Needing], memo: RoomMemo, most: int) -> tuple[Sequence[Needing], Sequence[Needing]]:
    """Those that were not searched for yet; then, of those that were refused, as many as were refused longest ago."""
    fresh = [need for need in due if need.key not in memo.refused]
    again = [need for need in due if need.key in memo.refused]
    return fresh, sorted(again, key=lambda need: memo.refused[need.key].at_ns)[:most]
