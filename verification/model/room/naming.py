"""One representative for states that differ in the numbers of intents only."""

from __future__ import annotations

from verification.model.room.rules import Rules
from verification.model.room.state import LIVE, Intent, Late, Leader, World, Write


def named_anew(world: World, rules: Rules) -> World:
    """Intents numbered in the order of the record, then of leaders and late requests; late ones that can land."""
    late = tuple(one for one in world.late if _may_land(world, one, rules))
    ids: dict[int, int] = {}

    def number(id_: int) -> int:
        return ids.setdefault(id_, len(ids) + 1)

    def intents(listed: tuple[Intent, ...]) -> tuple[Intent, ...]:
        return tuple([one._replace(id=number(one.id)) for one in listed])

    def write(one: Write) -> Write:
        return Write(intents(one.intents), tuple(sorted(map(number, one.drops))), one.is_newest)

    def leader(one: Leader) -> Leader:
        known, makes = intents(one.known), intents(one.makes)
        writes = tuple([write(each) for each in one.write])
        over = tuple(sorted(map(number, one.over)))
        asked = tuple(sorted([(number(id_), victim) for id_, victim in one.asked]))
        return one._replace(known=known, makes=makes, write=writes, over=over, asked=asked)

    def request(one: Late) -> Late:
        what = write(one.what) if one.kind == "record" else (number(one.what[0]), one.what[1])
        return Late(one.kind, what)

    record = intents(world.record)
    leaders = tuple([leader(one) for one in world.leaders])
    return world._replace(record=record, leaders=leaders, late=tuple(sorted([request(one) for one in late])))


def _may_land(world: World, late: Late, rules: Rules) -> bool:
    if late.kind == "record":
        return late.what.is_newest or not rules.record_at_rv
    victim = late.what[1]
    pod = world.pods[victim.slot]
    return not rules.evicts_by_uid or (pod.serial == victim.serial and pod.life == LIVE)
