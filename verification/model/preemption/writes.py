"""Evictions, one by one: what is asked, and what is answered.

The record: how a leader reads and writes it, and what comes of the write.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model.preemption.config import Config, Rules
from verification.model.preemption.state import (
    LEAVING,
    LIVE,
    Late,
    Leader,
    Nomination,
    Step,
    Victim,
    World,
    Write,
    breaking,
    has_all,
    put_leader,
    put_pod,
    spend,
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
        if self._rules.looks_at_holders and not self._is_waited_for(world, nomination):
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
