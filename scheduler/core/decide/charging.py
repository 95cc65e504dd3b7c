"""A search for victims on what a decision has tried so far, and what it found, charged on nodes and in queues.

What a decision learned of classes holds while it only charges. A search (core/preemption/trial.py) evicts on paper
again and again, so it neither reads nor writes that: it places pods in the same way, but apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
from typing_extensions import override

from scheduler.core.decide.attempts import Attempts, asked_use
from scheduler.core.decide.domain_search import DomainSearch
from scheduler.core.decide.gang_search import Search, Tried, requires_levels
from scheduler.core.decide.single_pods import BesideGang
from scheduler.core.model.plan import Entry, Nominate, Placement
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import Action, Found, Moved, Moves, Nomination, Place, Unit, Victim
from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from scheduler.core.queues.accounts import HeldBack, Use
from scheduler.core.queues.use import held, is_fixed, queue_of
from scheduler.core.snapshot.node_count import NodeMask, both, only


def preemption_trial(attempts: Attempts, *, wall_s: int, **given: Any) -> Trial:
    """Make a trial of a decision's attempts; ``given``: the other fields of ``Trial``."""
    snapshot = attempts.snapshot
    return Trial(
        statement=attempts.placer.statement,
        accounts=attempts.accounts,
        paper=OnPaper(attempts),
        pods=snapshot.pods,
        pod_groups=snapshot.pod_groups,
        quorum=snapshot.quorum,
        queues=snapshot.queues,
        residents=snapshot.residents,
        wall_s=wall_s,
        **given,
    )


@dataclass(frozen=True, slots=True)
class OnPaper:
    """Places needs on a decision's working copy. ``mask``: the nodes for that; ``for_moved``: for who is moved."""

    attempts: Attempts
    mask: NodeMask = None
    for_moved: NodeMask = None

    def place(self, need: Need) -> tuple[Place, ...] | None:
        """Place and charge what a need lacks, and all that are equal to it; None if that is not possible.

        Then something may be charged.
        """
        trying = _Trying(self.attempts, self.mask)
        return tuple(trying.placed) if all(_is_placed(each, trying) for each in need.all) else None

    def move(self, pod: PodRecord, besides: Set[str]) -> Place | None:
        """Place and charge the successor of a bound pod on a node that is none of these, nor its own."""
        if pod.moves_as is None:
            return None
        successor = msgspec.structs.replace(pod, node="", held=(), started_s=0, cls=pod.moves_as)
        elsewhere = self.attempts.placer.all_but(frozenset({pod.node, *besides}))
        placed = self.attempts.place_on_paper(successor, both(self.for_moved, both(self.mask, elsewhere)))
        return Place(pod.uid, placed.node, placed.devices) if isinstance(placed, Placement) else None


def _is_placed(need: Need, trying: _Trying) -> bool:
    if need.group is not None and requires_levels(need.group):
        return _is_in_place(need, need.group, trying)
    if need.quorum is None:
        return trying.place(need.pods[0]) is Tried.PLACED
    return need.quorum.is_reachable(need.pods) and Search(need.quorum, need.pods, trying).run()


def _is_in_place(need: Need, group: PodGroupRecord, trying: _Trying) -> bool:
    """The same in the domains where a gang has to be, or beside those of it that run."""
    attempts, bounds = trying.attempts, trying.attempts.bounds_of(group)
    if isinstance(bounds, Verdict):
        return False
    within = _TryingWithin(attempts, trying.mask, trying.placed)
    if need.quorum is None:
        within.within = BesideGang(group.tree, bounds).required_of(need.pods[0])
        return within.place(need.pods[0]) is Tried.PLACED
    if not need.quorum.is_reachable(need.pods):
        return False
    placer, nodes = attempts.placer, trying.mask
    return DomainSearch(need.quorum, need.pods, within, bounds, placer, with_idle=True, nodes=nodes).run()


@dataclass(slots=True)
class _Trying:
    """Members of one need. ``unplaced``: classes that fit nowhere beside what is placed."""

    attempts: Attempts
    mask: NodeMask = None
    placed: list[Place] = field(default_factory=list)
    unplaced: dict[PodClass, None] = field(default_factory=dict)

    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place, or one that comes free when idle reservations go."""
        is_shut = pod.cls in self.unplaced and not (pod.cls.rules is not None and pod.cls.rules.may_open)
        if is_shut:
            return Tried.PASSED
        tried = self._place(pod, self.mask)
        if tried is Tried.PASSED and not self.attempts.placer.taken_claim(pod):
            self.unplaced[pod.cls] = None
        return tried

    def _place(self, pod: PodRecord, mask: NodeMask) -> Tried:
        if self.attempts.placer.taken_claim(pod):
            return Tried.PASSED
        found = self.attempts.place_on_paper(pod, mask)
        if isinstance(found, HeldBack):
            return Tried.STOPPED
        if isinstance(found, Placement):
            self.placed.append(Place(pod.uid, found.node, found.devices))
            return Tried.PLACED
        return self._wait_for_device(pod, mask)

    def _wait_for_device(self, pod: PodRecord, mask: NodeMask) -> Tried:
        attempts = self.attempts
        use = asked_use(attempts.snapshot, [pod])
        if attempts.accounts.refusal(use) is not None:
            return Tried.STOPPED
        found = attempts.placer.wait_for_device(pod, both(mask, attempts.placer.all_but(pod.cls.excluded)))
        if found is None:
            return Tried.PASSED
        attempts.accounts.charge(use)
        self.placed.append(Place(pod.uid, found[0]))
        return Tried.PLACED

    def failed(self, subgroup: str, placed: int) -> None:
        """Nobody asks why."""

    def checkpoint(self) -> tuple[int, int, int, int]:
        """A point to come back to."""
        attempts = self.attempts
        statement, accounts = attempts.placer.statement.checkpoint(), attempts.accounts.checkpoint()
        return statement, accounts, len(self.placed), len(self.unplaced)

    def rollback(self, mark: tuple[int, int, int, int]) -> None:
        """Take back all places since ``mark``."""
        statement, accounts, placed, unplaced = mark
        self.attempts.placer.statement.rollback(statement)
        self.attempts.accounts.rollback(accounts)
        del self.placed[placed:]
        while len(self.unplaced) > unplaced:
            self.unplaced.popitem()


@dataclass(slots=True)
class _TryingWithin(_Trying):
    """The same on the nodes of ``within``, where a member that fits nowhere says nothing of its class."""

    within: NodeMask = None

    @override
    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place there."""
        return self._place(pod, both(self.mask, self.within))


class Left:
    """Units of a set that were not asked to go yet: those on a node first, then all others, in the order of the set."""

    def __init__(self, units: Sequence[Unit], pod_of: Callable[[str], PodRecord | None]) -> None:
        self._pods = [[pod for pod in map(pod_of, unit.pods) if pod is not None] for unit in units]
        self._units, self._left = units, dict.fromkeys(range(len(units)))
        self._surplus: dict[tuple[str, str], list[int]] = {}
        self._at: dict[str, dict[int, None]] = {}
        for number, unit in enumerate(units):
            if not unit.is_core:
                self._surplus.setdefault(unit.group, []).append(number)
            for pod in self._pods[number]:
                self._at.setdefault(pod.node, {})[number] = None

    def on(self, node: str) -> Iterator[list[PodRecord]]:
        """The pods of one unit after the other, of a core with all surplus of its group before it."""
        for number in chain(self._at.get(node, ()), tuple(self._left)):
            if number in self._left:
                unit = self._units[number]
                together = [*(self._surplus.get(unit.group, ()) if unit.is_core else ()), number]
                going = [each for each in together if each in self._left]
                for each in going:
                    del self._left[each]
                yield [pod for each in going for pod in self._pods[each]]


@dataclass(slots=True)
class Charging:
    """One decision's charges of what was found, as it will be once all victims are gone: the next need sees it.

    Places are those that the search names, with devices as they are chosen now. If one does not come about after all,
    nothing is charged. ``entries`` takes nominations; ``taken``: UIDs of all victims, those of standing nominations
    included.
    """

    attempts: Attempts
    entries: list[Entry]
    taken: set[str]

    def leave(self, pods: Sequence[PodRecord]) -> None:
        """Take off pods that go anyway: nobody is evicted for a need that fits then."""
        sums, leaving = self.attempts.snapshot.queues.sums, dict[tuple[str, bool], Resources]()
        for row in filter(None, (sums.row(pod.uid) for pod in pods)):
            key = row.queue, row.is_fixed
            leaving[key] = leaving.get(key, NOTHING).plus(row.amounts)
        for (queue, fixed), amounts in leaving.items():
            self.attempts.accounts.release(Use(queue, amounts, fixed), is_leaving=True)
        self.attempts.placer.statement.evict(*pods)

    def take(
        self, need: Need, found: Found, *, standing: Nomination | None = None, still: Sequence[Victim] = ()
    ) -> bool:
        """Charge what was found, and begin the nomination; False if that is not possible after all.

        ``standing``: the nomination that is revised, and ``still``: victims of it that may be on their way out; those
        stay its victims where a place is. Nobody has to go for a need that fits without: there is no nomination for it
        then.
        """
        attempts, statement = self.attempts, self.attempts.placer.statement
        mark = statement.checkpoint(), attempts.accounts.checkpoint()
        victims = self._victims(found)
        places = None if victims is None else self._places(need, found, victims)
        if victims is None or places is None:
            statement.rollback(mark[0])
            attempts.accounts.rollback(mark[1])
            return False
        if victims or standing is not None:
            nodes = {place.node for place in places}
            left = (victim for victim in still if victim.node in nodes)
            nomination = self._nomination(need, found.action, places, standing)
            self._begin(
                need,
                msgspec.structs.replace(
                    nomination, victims=(*left, *(self._victim(pod, found.past_budgets) for pod in victims))
                ),
            )
        return True

    def take_each(self, need: Need, found: Found) -> int:
        """The same for each of several equal needs that have places, one nomination each; return how many come about.

        The victims of one are those who have to go from its nodes once those of the needs before it are gone.
        """
        where = {place.pod_uid: place for place in found.places}
        served = [each for each in need.all if any(pod.uid in where for pod in each.pods)]
        if len(served) <= 1:
            return int(self.take(need, found))
        left = Left(found.units, self.attempts.snapshot.pod)
        for count, each in enumerate(served):
            if not self._take_next(each, [where[pod.uid] for pod in each.pods if pod.uid in where], found, left):
                return count
        return len(served)

    def _take_next(self, need: Need, wanted: Sequence[Place], found: Found, left: Left) -> bool:
        attempts, statement = self.attempts, self.attempts.placer.statement
        mark, pods = (statement.checkpoint(), attempts.accounts.checkpoint()), {pod.uid: pod for pod in need.pods}
        places, victims = list[Place](), list[PodRecord]()
        for place in wanted:
            put = self._put(pods[place.pod_uid], place.node)
            more = left.on(place.node)
            while put is None and (going := next(more, None)) is not None:
                victims += going
                self._evict(going)
                put = self._put(pods[place.pod_uid], place.node)
            if put is None or any(pod.uid in self.taken for pod in victims):
                statement.rollback(mark[0])
                attempts.accounts.rollback(mark[1])
                return False
            places.append(put)
        if victims:
            nomination = self._nomination(need, found.action, tuple(places), None)
            asked = tuple(self._victim(pod, found.past_budgets) for pod in victims)
            self._begin(need, msgspec.structs.replace(nomination, victims=asked))
        return True

    def take_moves(self, need: Need, moves: Moves) -> bool:
        """Charge a need and the successors of what is moved for it; begin the nomination. False as in ``take``."""
        attempts, statement = self.attempts, self.attempts.placer.statement
        mark = statement.checkpoint(), attempts.accounts.checkpoint()
        victims = self._victims(moves)
        moved = None if victims is None else self._moved(moves, victims)
        places = None if moved is None else self._put_all(need, moves)
        if victims is None or moved is None or places is None:
            statement.rollback(mark[0])
            attempts.accounts.rollback(mark[1])
            return False
        nomination = self._nomination(need, Action.MOVE, places, None)
        self._begin(need, msgspec.structs.replace(nomination, victims=tuple(map(self._victim, victims)), moved=moved))
        return True

    def _moved(self, moves: Moves, victims: Sequence[PodRecord]) -> tuple[Moved, ...] | None:
        """Take victims off and charge their successors; None if one has no place any more."""
        self._evict(victims)
        pods, found = {pod.uid: pod for pod in victims}, list[Moved]()
        position_of = self.attempts.placer.statement.position_of
        for place in moves.moved:
            pod = pods[place.pod_uid]
            placed = OnPaper(self.attempts, only([place.node], position_of)).move(pod, set())
            if placed is None or pod.moves_as is None:
                return None
            found.append(
                Moved(
                    pod_uid=pod.uid,
                    namespace=pod.namespace,
                    owner=self._victim(pod).owner,
                    node=placed.node,
                    demand=pod.moves_as.demand,
                    devices=placed.devices,
                )
            )
        return tuple(found)

    def _victims(self, found: Found | Moves) -> list[PodRecord] | None:
        """Those who have to go; None if one of them can't, as another nomination takes it or it is gone."""
        pods = [self.attempts.snapshot.pod(uid) for unit in found.units for uid in unit.pods]
        there = [pod for pod in pods if pod is not None and pod.node and pod.uid not in self.taken]
        return there if len(there) == len(pods) else None

    def _places(self, need: Need, found: Found, victims: Sequence[PodRecord]) -> tuple[Place, ...] | None:
        self._evict(victims)
        return self._put_all(need, found)

    def _put_all(self, need: Need, found: Found | Moves) -> tuple[Place, ...] | None:
        """Charge all nominated pods where they are to be; None if that is not possible now."""
        places, pods = [], {pod.uid: pod for pod in need.pods}
        for place in found.places:
            put = self._put(pods[place.pod_uid], place.node)
            if put is None:
                return None
            places.append(put)
        return tuple(places)

    def _evict(self, pods: Iterable[PodRecord]) -> None:
        statement = self.attempts.placer.statement
        here = [pod for pod in pods if pod.node in statement.position_of]
        self._release(here)
        statement.evict(*here)

    def _lacks_gpus(self, pod: PodRecord, node: str) -> bool:
        """Whether fewer GPUs are free, or about to be, than a pod asks in each way: a look that needs no ranks."""
        statement, ways = self.attempts.placer.statement, self.attempts.placer.ways(pod.cls)
        asked = min(way.demand.gpus for way in ways)
        position, extra = statement.position_of[node], statement.table.extra
        has = int(statement.table.free[GPUS, position]) + int(extra[IDLE, position]) + int(extra[LEAVING, position])
        return bool(asked) and has < asked

    def _put(self, pod: PodRecord, node: str) -> Place | None:
        """Charge a nominated pod where it is to be, on devices as they are chosen now; None if that is not possible."""
        if self._lacks_gpus(pod, node):  # as long as victims are there
            return None
        attempts, mask = self.attempts, only([node], self.attempts.placer.statement.position_of)
        placed = attempts.place_on_paper(pod, mask)
        if isinstance(placed, Placement):
            return Place(pod.uid, placed.node, placed.devices)
        if placed is not None:
            return None
        use = asked_use(attempts.snapshot, [pod])
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

    def _nomination(
        self, need: Need, action: Action, places: tuple[Place, ...], standing: Nomination | None
    ) -> Nomination:
        first, group = places[0].pod_uid, need.group
        number = self.attempts.snapshot.commits.nominations.next_number(first) if standing is None else standing.number
        return Nomination(
            id=f"{first}-{number}" if standing is None else standing.id,
            action=action,
            namespace=need.pods[0].namespace,
            pod_group=group.name if group is not None else "",
            number=number,
            places=places,
            victims=(),
        )

    def _begin(self, need: Need, nomination: Nomination) -> None:
        self.taken.update(victim.pod_uid for victim in nomination.victims)
        self.entries.append(Nominate(nomination))
        nodes, group = {place.node for place in nomination.places}, need.group
        where = next(iter(nodes)) if len(nodes) == 1 else ""
        verdict = Verdict(code=Code.WAITS_FOR_VICTIMS, required=len(nomination.victims), detail=where)
        key = (group.namespace, group.name) if group is not None else None
        self.attempts.effects.say([place.pod_uid for place in nomination.places], verdict, key)

    def _victim(self, pod: PodRecord, past_budgets: Set[str] = frozenset()) -> Victim:
        group = self.attempts.snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        owner = group.uid if group is not None else pod.controller or pod.uid
        return Victim(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=pod.node,
            owner=owner,
            past_budgets=pod.uid in past_budgets,
        )

    def _release(self, pods: Iterable[PodRecord]) -> None:
        for pod in pods:
            if pod.queue:
                self.attempts.accounts.release(self._use(pod))

    def _use(self, pod: PodRecord) -> Use:
        """What a bound pod counts for."""
        snapshot, statement = self.attempts.snapshot, self.attempts.placer.statement
        group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        node = statement.nodes[statement.position_of[pod.node]]
        return Use(queue_of(pod, group), held(pod, node), is_fixed(pod, group))
