"""What a leader decides, abstract: any place that is free, any victims that are enough and none of them needless.

A decision to bind and the binding are one step, as in the model of sharing; a gang's plan is one, and each of its
bindings another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations, product

from verification.model.preemption.config import GIVES, TAKES, Config, Rules
from verification.model.preemption.state import (
    GONE,
    LEAVING,
    LIVE,
    Leader,
    Nomination,
    Pod,
    Step,
    Victim,
    World,
    breaking,
    free,
    freed,
    has_all,
    is_there,
    kept,
    put_leader,
    put_pod,
    waits,
    will_fit,
)

Places = tuple[tuple[int, int], ...]


class Deciding:
    """All decisions of a leader."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules
        self._members = [config.members(group) for group in range(len(config.groups))]

    def steps(self, world: World, number: int) -> Iterator[Step]:
        """Everything that a leader may decide next."""
        leader = world.leaders[number]
        for group, members in enumerate(self._members):
            if world.plans[group]:
                yield from self._carry_out(world, group)
            elif has_all(world, members):
                yield from self._place(world, number, group)
            elif len(members) > 1:
                yield from self._release(world, members)
        for nomination in leader.known:
            if nomination.id not in leader.over and (why := self._ends(world, leader, nomination)):
                yield ("leader", number, "gives up for", _pods(nomination), why), _given_up(world, number, nomination)
        if again := tuple(one for one in leader.shuns if one[0] not in self._config.refused):
            shuns = tuple(one for one in leader.shuns if one not in again)
            yield ("leader", number, "may ask again"), put_leader(world, number, leader._replace(shuns=shuns))

    # --- placing -----------------------------------------------------------------------------------------------------
    def _place(self, world: World, number: int, group: int) -> Iterator[Step]:
        leader = world.leaders[number]
        fits = False
        for places in self._assignments(group):
            if self._has_room(world, leader, group, places):
                fits = True
                after = self._judged(world, group, places)
                yield ("leader", number, "places", _told(places)), _placed(after, group, places)
        own = [nomination for nomination in (*leader.known, *leader.makes) if nomination.group == group]
        stands = any(nomination.id not in leader.over for nomination in own)
        is_asking = any(id_ == nomination.id for id_, _ in leader.asked for nomination in own)
        if fits or self._config.groups[group] != TAKES or leader.write or leader.makes:
            return
        if (stands and self._rules.one_for_each) or (is_asking and self._rules.waits_for_answers):
            return
        for places in self._assignments(group):
            yield from self._make(world, number, group, places)

    def _assignments(self, group: int) -> Iterator[Places]:
        members = self._members[group]
        for nodes in product(range(len(self._config.nodes)), repeat=len(members)):
            yield tuple(zip(members, nodes, strict=True))

    def _has_room(self, world: World, leader: Leader, group: int, places: Places) -> bool:
        others = [nomination for nomination in self._charged(leader) if nomination.group != group]
        own = next((at for at, i in enumerate(leader.known) if i.group == group and i.id not in leader.over), None)
        if own is not None and leader.known[own].places == places:
            older = leader.known[:own] if self._rules.oldest_first else ()
            others = [nomination for nomination in others if nomination in older]
        return all(self._room(world, node, others) >= need for node, need in _needs(places))

    def _charged(self, leader: Leader) -> list[Nomination]:
        """Nominations that charge what they free, as far as a leader knows."""
        if not self._rules.charges:
            return []
        all_ = (*leader.known, *leader.makes)
        return [one for one in all_ if one.id not in leader.over or self._rules.charges_until_written]

    def _room(self, world: World, node: int, nominations: Iterable[Nomination]) -> int:
        """What is free on a node beside these nominations and the unbound pods of plans."""
        left = free(world, node, self._config.nodes[node]) - _planned(world, node)
        return left - sum(kept(world, one, node) for one in nominations if self._stands(world, one))

    def _stands(self, world: World, nomination: Nomination) -> bool:
        """A nomination that lost one of its pods charges nothing."""
        return all(world.pods[slot].life == LIVE for slot, _ in nomination.places)

    def _judged(self, world: World, group: int, places: Places) -> World:
        """S14: others are bound beside what standing nominations freed; of two nominations the older comes first."""
        own = next((i for i in world.record if i.group == group and i.places == places), None)
        before = world.record[: world.record.index(own)] if own is not None else world.record
        others = [one for one in before if one.group != group and has_all(world, self._members[one.group])]
        for node, need in _needs(places):
            left = free(world, node, self._config.nodes[node]) - _planned(world, node) - need
            owed = sum(freed(world, one, node) for one in others)
            if left < owed and self._config.is_fenced:
                which = "an older nomination" if own is not None else "a nomination"
                return breaking(world, f"S14: what {which} freed was given to others")
        return world

    # --- preemption -------------------------------------------------------------------------------------------------
    def _make(self, world: World, number: int, group: int, places: Places) -> Iterator[Step]:
        leader = world.leaders[number]
        others = [nomination for nomination in self._charged(leader) if nomination.group != group]
        taken = {victim[:2] for nomination in self._charged(leader) for victim in nomination.victims}
        ways = []
        for node, need in _needs(places):
            missing = need - self._room(world, node, others)
            able = [one for one in self._candidates(world, node) if one[:2] not in leader.shuns]
            if self._rules.spares_victims:
                able = [one for one in able if one[:2] not in taken]
            ways.append(list(combinations(able, missing)) if missing > 0 else [()])
        for chosen in product(*ways):
            victims = tuple(victim for of_node in chosen for victim in of_node)
            if victims:
                nomination = Nomination(_new_id(world), group, places, victims)
                after = put_leader(world, number, leader._replace(makes=(nomination,)))
                names = " ".join(_name(victim.slot) for victim in victims)
                yield ("leader", number, "decides: room for", _told(places), "by", names), after

    def _candidates(self, world: World, node: int) -> list[Victim]:
        return [
            Victim(slot, pod.serial, node)
            for slot, pod in enumerate(world.pods)
            if pod.node == node and pod.life == LIVE and self._config.groups[self._config.pods[slot][0]] == GIVES
        ]

    def _ends(self, world: World, leader: Leader, nomination: Nomination) -> str:
        """Why a nomination is over, "" if it is not."""
        if any(world.pods[slot].life != LIVE for slot, _ in nomination.places):
            return "who is gone"
        if not any(waits(world.pods[slot]) for slot, _ in nomination.places) or world.plans[nomination.group]:
            return "who is placed"
        if any(is_there(world, one) and one[:2] in leader.shuns for one in nomination.victims):
            return "since an eviction is refused"
        if any(is_there(world, one) and world.pods[one.slot].life == LEAVING for one in nomination.victims):
            return "since a victim stays"
        return "" if will_fit(world, nomination, self._config.nodes) else "since the room is gone"

    def can_be_helped(self, world: World, group: int) -> bool:
        """Whether a group that waits fits, or room can be made for it: then nobody is done."""
        if not has_all(world, self._members[group]) or world.plans[group]:
            return False
        takes = self._config.groups[group] == TAKES
        for places in self._assignments(group):
            lacks = {node: need - self._room(world, node, ()) for node, need in _needs(places)}
            able = {node: self._candidates(world, node) if takes else () for node in lacks}
            if all(
                sum(one.slot not in self._config.refused for one in able[node]) >= lack for node, lack in lacks.items()
            ):
                return True
        return False

    # --- gangs -------------------------------------------------------------------------------------------------------
    def _carry_out(self, world: World, group: int) -> Iterator[Step]:
        """Bind what a plan names; kubelet refuses whom foreign pods left no room. A plan that lost a pod is over."""
        plan = world.plans[group]
        if any(world.pods[slot].life != LIVE for slot, _ in plan):
            plans = (*world.plans[:group], (), *world.plans[group + 1 :])
            yield ("leader", "takes back the plan of", _told(plan)), world._replace(plans=plans)
            return
        for slot, node in plan:
            if waits(world.pods[slot]):
                yield ("leader", "binds", _name(slot), f"n{node}"), self._bound(world, slot, node)

    def _bound(self, world: World, slot: int, node: int) -> World:
        pod = world.pods[slot]
        if free(world, node, self._config.nodes[node]) > 0:
            return put_pod(world, slot, pod._replace(node=node))
        if not world.foreign[node]:
            world = breaking(world, "S1: a place was given twice")
        return put_pod(world, slot, pod._replace(life=GONE))

    def _release(self, world: World, members: tuple[int, ...]) -> Iterator[Step]:
        """What is left of a gang that lost a pod goes (scheduler/background/stale_gangs.py)."""
        if not any(world.pods[slot].life != LIVE for slot in members):
            return
        for slot in members:
            pod = world.pods[slot]
            if not waits(pod) and pod.life == LIVE:
                yield ("leader", "releases", _name(slot)), put_pod(world, slot, pod._replace(life=LEAVING))


def _placed(world: World, group: int, places: Places) -> World:
    if len(places) == 1:
        ((slot, node),) = places
        return put_pod(world, slot, Pod(node, LIVE, world.pods[slot].serial))
    return world._replace(plans=(*world.plans[:group], places, *world.plans[group + 1 :]))


def _planned(world: World, node: int) -> int:
    """Unbound pods that plans put there."""
    return sum(at == node and waits(world.pods[slot]) for plan in world.plans for slot, at in plan)


def _given_up(world: World, number: int, nomination: Nomination) -> World:
    leader = world.leaders[number]
    return put_leader(world, number, leader._replace(over=tuple(sorted((*leader.over, nomination.id)))))


def _needs(places: Places) -> list[tuple[int, int]]:
    return sorted(Counter(node for _, node in places).items())


def _new_id(world: World) -> int:
    used = {nomination.id for nomination in world.record}
    for leader in world.leaders:
        used |= {nomination.id for nomination in (*leader.known, *leader.makes)}
        used |= {nomination.id for write in leader.write for nomination in write.nominations} | set(leader.over)
        used |= {id_ for id_, _ in leader.asked}
    for late in world.late:
        used |= {late.what[0]} if late.kind == "evict" else {nomination.id for nomination in late.what.nominations}
    return max(used, default=0) + 1


def _name(slot: int) -> str:
    return "ABCDEFGH"[slot]


def _told(places: Places) -> str:
    return " ".join(f"{_name(slot)}@n{node}" for slot, node in places)


def _pods(nomination: Nomination) -> str:
    return " ".join(_name(slot) for slot, _ in nomination.places)
