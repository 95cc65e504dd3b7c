"""Preemption as a system to explore (verification/model/explorer.py): its steps, what must hold, and where it ends."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from verification.model.explorer import Result, explored, lines_of
from verification.model.preemption.deciding import Deciding, Evicting, Recording
from verification.model.preemption.state import (
    BUILT,
    GONE,
    LEAVING,
    LIVE,
    Config,
    Late,
    Leader,
    Nomination,
    Pod,
    Rules,
    Step,
    World,
    Write,
    free,
    put_leader,
    put_pod,
    spend,
    waits,
)


def named_anew(world: World, rules: Rules) -> World:
    """One representative for states that differ in the numbers of nominations only.

    They are numbered in the order of the record, then of leaders and late requests; late ones that can land.
    """
    late = tuple(one for one in world.late if _may_land(world, one, rules))
    ids: dict[int, int] = {}

    def number(id_: int) -> int:
        return ids.setdefault(id_, len(ids) + 1)

    def nominations(listed: tuple[Nomination, ...]) -> tuple[Nomination, ...]:
        return tuple([one._replace(id=number(one.id)) for one in listed])

    def write(one: Write) -> Write:
        return Write(nominations(one.nominations), tuple(sorted(map(number, one.drops))), one.is_newest)

    def leader(one: Leader) -> Leader:
        known, makes = nominations(one.known), nominations(one.makes)
        writes = tuple([write(each) for each in one.write])
        over = tuple(sorted(map(number, one.over)))
        asked = tuple(sorted([(number(id_), victim) for id_, victim in one.asked]))
        return one._replace(known=known, makes=makes, write=writes, over=over, asked=asked)

    def request(one: Late) -> Late:
        what = write(one.what) if one.kind == "record" else (number(one.what[0]), one.what[1])
        return Late(one.kind, what)

    record = nominations(world.record)
    leaders = tuple([leader(one) for one in world.leaders])
    return world._replace(record=record, leaders=leaders, late=tuple(sorted([request(one) for one in late])))


def _may_land(world: World, late: Late, rules: Rules) -> bool:
    if late.kind == "record":
        return late.what.is_newest or not rules.record_at_rv
    victim = late.what[1]
    pod = world.pods[victim.slot]
    return not rules.evicts_by_uid or (pod.serial == victim.serial and pod.life == LIVE)


class Surroundings:
    """What is not ours: kubelets, users, schedulers of others, crashes, and requests that land late."""

    def __init__(self, config: Config, recording: Recording, evicting: Evicting) -> None:
        self._config = config
        self._recording = recording
        self._evicting = evicting

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that may happen next."""
        for slot, pod in enumerate(world.pods):
            yield from self._pod(world, slot, pod)
        if world.left.foreigners:
            for node, capacity in enumerate(self._config.nodes):
                if free(world, node, capacity) > 0:
                    taken = (*world.foreign[:node], world.foreign[node] + 1, *world.foreign[node + 1 :])
                    after = spend(world, "foreigners")._replace(foreign=taken)
                    yield ("!others", "take a place of", f"n{node}"), after
        if world.left.crashes:
            for number, leader in enumerate(world.leaders):
                yield from self._crash(world, number, leader)
        for late in world.late:
            yield from self._late(world, late)

    def _pod(self, world: World, slot: int, pod: Pod) -> Iterator[Step]:
        name, left = "ABCDEFGH"[slot], world.left
        if pod.life == LEAVING and slot not in self._config.stayers:
            yield ("kubelet", "ends", name), put_pod(world, slot, pod._replace(life=GONE))
        if pod.life == LIVE and waits(pod) and left.goes:
            after = put_pod(spend(world, "goes"), slot, pod._replace(life=GONE))
            yield ("!user", "deletes", name), after
        if pod.life == LIVE and not waits(pod) and left.finishes:
            yield ("!pod", name, "finishes"), put_pod(spend(world, "finishes"), slot, pod._replace(life=GONE))
        if pod.life == GONE and left.recreates:
            after = put_pod(spend(world, "recreates"), slot, Pod(serial=pod.serial + 1))
            yield ("!user", "makes again", name), after

    def _crash(self, world: World, number: int, leader: Leader) -> Iterator[Step]:
        """A process dies, and another one begins: its requests are lost, or all still on their way."""
        fresh = put_leader(spend(world, "crashes"), number, Leader())
        yield ("!crash of leader", number), fresh
        late = [Late("evict", one) for one in leader.asked] + [Late("record", one) for one in leader.write]
        if late and world.left.lates:
            after = spend(fresh, "lates")
            yield ("!crash of leader", number, "its requests land later"), after._replace(late=(*after.late, *late))

    def _late(self, world: World, late: Late) -> Iterator[Step]:
        rest = list(world.late)
        rest.remove(late)
        without = world._replace(late=tuple(rest))
        yield ("late request", late.kind, "is given up"), without
        if late.kind == "evict":
            yield ("late eviction lands", "ABCDEFGH"[late.what[1].slot]), self._evicting.lands(without, *late.what)
        elif (landed := self._recording.lands(without, late.what)) is not None:
            yield ("late write of the record lands",), landed


class Room:
    """Preemption in one configuration, by one set of rules."""

    def __init__(self, config: Config, rules: Rules = BUILT) -> None:
        self.rests = config.rests
        self._config = config
        self._rules = rules
        self._deciding = Deciding(config, rules)
        self._recording = Recording(rules)
        self._evicting = Evicting(config, rules)
        self._surroundings = Surroundings(config, self._recording, self._evicting)

    def first(self) -> World:
        """Nobody has decided anything."""
        return self._config.world()

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that may happen next."""
        for number, leader in enumerate(world.leaders):
            yield from self._recording.steps(world, number)
            if self._recording.may_act(leader):
                yield from self._deciding.steps(world, number)
                yield from self._evicting.steps(world, number)
            yield from self._evicting.answers(world, number)
        yield from self._surroundings.steps(world)

    def canonical(self, world: World) -> tuple[World, Hashable]:
        """Nominations are numbered as they appear; requests that can do nothing any more are gone."""
        renamed = named_anew(world, self._rules)
        return renamed, renamed

    def violation(self, world: World) -> str:
        """S1, S7, S13 and S14: what a step did, what the record says, and who is being asked."""
        return world.broken or _taken_twice(world) or self._asked_for_none(world)

    def _asked_for_none(self, world: World) -> str:
        """Where one leader acts at a time, each pod whose eviction is asked for is named by a nomination on record."""
        on_record = {(one.id, victim) for one in world.record for victim in one.victims}
        asked = [one for leader in world.leaders for one in leader.asked]
        if self._config.is_fenced and any(one not in on_record for one in asked):
            return "S7: a pod is being evicted, and no nomination on record names it"
        return ""

    def is_at_rest(self, world: World) -> bool:
        """No nomination stands, nothing is charged or on its way, and nobody waits who can be helped."""
        if world.record or world.late or any(map(_is_busy, world.leaders)):
            return False
        for slot, pod in enumerate(world.pods):
            if pod.life == LEAVING and slot not in self._config.stayers:
                return False
        groups = range(len(self._config.groups))
        return not any(self._deciding.can_be_helped(world, group) or self._is_in_part(world, group) for group in groups)

    def _is_in_part(self, world: World, group: int) -> bool:
        pods = [world.pods[slot] for slot in self._config.members(group)]
        bound = [pod for pod in pods if pod.life == LIVE and not waits(pod)]
        return len(pods) > 1 and 0 < len(bound) < len(pods)

    def told(self, path: Sequence[World]) -> list[str]:
        """One line a step, and the last state."""
        last = path[-1]
        return [*lines_of(self, path), *(f"= {part}" for part in (*last.pods, *last.record, *last.leaders, *last.late))]


def explore_preemption(config: Config, rules: Rules = BUILT, *, limit: int = 10_000_000) -> Result:
    """Explore preemption: until a violation is found, everything was seen, or ``limit`` states are known."""
    return explored(Room(config, rules), limit=limit)


def _taken_twice(world: World) -> str:
    named = [victim for nomination in world.record for victim in nomination.victims]
    if len(set(named)) < len(named):
        return "S13: a pod is named by two nominations"
    groups = [nomination.group for nomination in world.record]
    return "S13: room is made twice for one group" if len(set(groups)) < len(groups) else ""


def _is_busy(leader: Leader) -> bool:
    return bool(leader.known or leader.over or leader.makes or leader.write or leader.asked)
