"""What a leader decides and writes, abstract: any free place, any victims that are enough, none of them needless.

A decision to bind and the binding are one step, as in the model of sharing; a gang's plan is one, and each of its
bindings another. Evictions go one by one: what is asked, and what is answered. A leader reads and writes the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations, product

from verification.model.preemption.state import (
    GIVES,
    GONE,
    LEAVING,
    LIVE,
    TAKES,
    Config,
    Late,
    Leader,
    Nomination,
    Pod,
    Rules,
    Step,
    Victim,
    World,
    Write,
    breaking,
    free,
    freed,
    has_all,
    is_there,
    kept,
    put_leader,
    put_pod,
    spend,
    waits,
    will_fit,
)


class Recording:
    """Reads and writes of the record, of one leader."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def may_act(self, leader: Leader) -> bool:
        """Whether a leader may decide and evict."""
        return not self._rules.reads_first or (leader.has_read and self._has_taken(leader))

    def _has_taken(self, leader: Leader) -> bool:
        """Whether no earlier write can land any more: it has written the record since it began, or lost an answer."""
        needed = self._rules.writes_after_doubt if leader.has_doubts else self._rules.takes_over
        return leader.has_taken or not needed

    def steps(self, world: World, number: int) -> Iterator[Step]:
        """Everything that it may do next with the record."""
        leader = world.leaders[number]
        if leader.write:
            yield from self._answers(world, number, leader, leader.write[0])
            return
        if not leader.has_read or not leader.is_newest:
            over = tuple(id_ for id_ in leader.over if any(nomination.id == id_ for nomination in world.record))
            after = leader._replace(has_read=True, is_newest=True, known=world.record, over=over, makes=())
            yield ("leader", number, "reads the record"), put_leader(world, number, after)
        elif not self._has_taken(leader):
            write = Write(leader.known, (), leader.is_newest)
            after = leader._replace(write=(write,))
            yield ("leader", number, "takes over the record"), put_leader(world, number, after)
        if self.may_act(leader) and (leader.makes or leader.over):
            yield from self._writes(world, number, leader)

    def _writes(self, world: World, number: int, leader: Leader) -> Iterator[Step]:
        asking = {id_ for id_, _ in leader.asked} if self._rules.waits_for_answers else set()
        drops = tuple(id_ for id_ in leader.over if id_ not in asking)
        if not drops and not leader.makes:
            return
        left = tuple(nomination for nomination in leader.known if nomination.id not in drops)
        write = Write((*left, *leader.makes), drops, leader.is_newest)
        yield ("leader", number, "writes the record"), put_leader(world, number, leader._replace(write=(write,)))

    def _answers(self, world: World, number: int, leader: Leader, write: Write) -> Iterator[Step]:
        left = world.left
        #: It begins from what it reads next; what it had decided was not written, and nobody was evicted for it.
        again = leader._replace(has_read=False, write=(), makes=())
        doubting = again._replace(has_taken=False, has_doubts=True)
        landed = self.lands(world, write)
        if landed is not None:
            over = tuple(id_ for id_ in leader.over if id_ not in write.drops)
            knowing = leader._replace(has_read=True, has_taken=True, has_doubts=False, is_newest=True)
            done = knowing._replace(known=write.nominations, over=over, makes=(), write=())
            yield ("leader", number, "is answered: written"), put_leader(landed, number, done)
            if left.lost_answers:
                lost = spend(landed, "lost_answers")
                yield ("!leader", number, "is not answered: written"), put_leader(lost, number, doubting)
        else:
            yield ("leader", number, "is answered: conflict"), put_leader(world, number, again)
        if left.failed_writes:
            refused = spend(world, "failed_writes")
            yield ("!leader", number, "is answered: refused"), put_leader(refused, number, again)
        if left.lost_answers:
            lost = spend(world, "lost_answers")
            late = lost._replace(late=(*lost.late, Late("record", write)))
            yield ("!leader", number, "is not answered, it may land later"), put_leader(late, number, doubting)

    def lands(self, world: World, write: Write) -> World | None:
        """The world after a write; None if it is refused."""
        if self._rules.record_at_rv and not write.is_newest:
            return None
        lost = {one.id for one in world.record} - {one.id for one in write.nominations} - set(write.drops)
        after = world._replace(record=write.nominations, leaders=tuple(_older(one) for one in world.leaders))
        late = tuple(one._replace(what=_stale(one.what)) if one.kind == "record" else one for one in after.late)
        after = after._replace(late=late)
        return breaking(after, "S7: a nomination was lost from the record that nobody gave up") if lost else after


def _older(leader: Leader) -> Leader:
    """Somebody wrote the record: what this one knows is not the newest any more."""
    return leader._replace(is_newest=False, write=tuple(_stale(write) for write in leader.write))


def _stale(write: Write) -> Write:
    return write._replace(is_newest=False)


class Evicting:
    """Evictions of one leader."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules

    def steps(self, world: World, number: int) -> Iterator[Step]:
        """Everything that it may ask next."""
        leader = world.leaders[number]
        nominations = leader.known if self._rules.record_first else (*leader.known, *leader.makes)
        for nomination in nominations:
            if nomination.id in leader.over or not self._may_ask(world, nomination):
                continue
            for victim in nomination.victims:
                if self._is_due(world, number, nomination, victim):
                    asked = tuple(sorted((*leader.asked, (nomination.id, victim))))
                    after = put_leader(world, number, leader._replace(asked=asked))
                    yield ("leader", number, "asks", "ABCDEFGH"[victim.slot]), self._judged(after, nomination)

    def _may_ask(self, world: World, nomination: Nomination) -> bool:
        if self._rules.looks_at_nominees and not self._is_waited_for(world, nomination):
            return False
        return not self._rules.looks_at_room or will_fit(world, nomination, self._config.nodes)

    def _is_due(self, world: World, number: int, nomination: Nomination, victim: Victim) -> bool:
        leader = world.leaders[number]
        pod = world.pods[victim.slot]
        is_same = pod.serial == victim.serial or not self._rules.evicts_by_uid
        is_asked = any(one[:2] == (nomination.id, victim) for one in leader.asked)
        return is_same and pod.life == LIVE and pod.node == victim.node and not is_asked and (
            (victim.slot, victim.serial) not in leader.shuns
        )  # fmt: skip

    def _judged(self, world: World, nomination: Nomination) -> World:
        if not self._is_waited_for(world, nomination):
            return breaking(world, "S13: a pod is evicted for one that is gone")
        if not will_fit(world, nomination, self._config.nodes):
            return breaking(world, "S7: a pod is evicted, and who it is evicted for will not fit")
        return world

    def _is_waited_for(self, world: World, nomination: Nomination) -> bool:
        return has_all(world, self._config.members(nomination.group)) and not world.plans[nomination.group]

    def answers(self, world: World, number: int) -> Iterator[Step]:
        """What becomes of evictions on their way. Of one that is not answered it may be asked again, so it still is."""
        leader = world.leaders[number]
        for one in leader.asked:
            id_, victim = one
            name = "ABCDEFGH"[victim.slot]
            rest = tuple(other for other in leader.asked if other != one)
            answered = put_leader(world, number, leader._replace(asked=rest))
            shunning = leader._replace(asked=rest, shuns=tuple(sorted({*leader.shuns, victim[:2]})))
            refused = put_leader(world, number, shunning)
            if victim.slot in self._config.refused:
                yield ("server", "refuses to evict", name), refused
                continue
            yield ("server", "evicts", name), self.lands(answered, id_, victim)
            if world.left.refusals:
                yield ("!server", "refuses to evict", name), spend(refused, "refusals")

    def lands(self, world: World, id_: int, victim: Victim) -> World:
        """An eviction is carried out."""
        pod = world.pods[victim.slot]
        if pod.life != LIVE or (self._rules.evicts_by_uid and pod.serial != victim.serial):
            return world
        if pod.serial != victim.serial:
            world = breaking(world, "S13: a pod is evicted that no nomination names, by the name of a victim")
        return put_pod(world, victim.slot, pod._replace(life=LEAVING))


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
