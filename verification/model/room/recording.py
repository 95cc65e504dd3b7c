"""The record: how a leader reads and writes it, and what comes of the write."""

from __future__ import annotations

from collections.abc import Iterator

from verification.model.room.rules import Rules
from verification.model.room.state import Late, Leader, Step, World, Write, breaking, put_leader, spend


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
            over = tuple(id_ for id_ in leader.over if any(intent.id == id_ for intent in world.record))
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
        left = tuple(intent for intent in leader.known if intent.id not in drops)
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
            done = knowing._replace(known=write.intents, over=over, makes=(), write=())
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
        lost = {one.id for one in world.record} - {one.id for one in write.intents} - set(write.drops)
        after = world._replace(record=write.intents, leaders=tuple(_older(one) for one in world.leaders))
        late = tuple(one._replace(what=_stale(one.what)) if one.kind == "record" else one for one in after.late)
        after = after._replace(late=late)
        return breaking(after, "S7: an intent was lost from the record that nobody gave up") if lost else after


def _older(leader: Leader) -> Leader:
    """Somebody wrote the record: what this one knows is not the newest any more."""
    return leader._replace(is_newest=False, write=tuple(_stale(write) for write in leader.write))


def _stale(write: Write) -> Write:
    return write._replace(is_newest=False)
