"""Evictions, one by one: what is asked, and what is answered."""

from __future__ import annotations

from collections.abc import Iterator

from verification.model.room.config import Config
from verification.model.room.rules import Rules
from verification.model.room.state import (
    LEAVING,
    LIVE,
    Intent,
    Step,
    Victim,
    World,
    breaking,
    has_all,
    put_leader,
    put_pod,
    spend,
    will_fit,
)


class Evicting:
    """Evictions of one leader."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules

    def steps(self, world: World, number: int) -> Iterator[Step]:
        """Everything that it may ask next."""
        leader = world.leaders[number]
        intents = leader.known if self._rules.record_first else (*leader.known, *leader.makes)
        for intent in intents:
            if intent.id in leader.over or not self._may_ask(world, intent):
                continue
            for victim in intent.victims:
                if self._is_due(world, number, intent, victim):
                    asked = tuple(sorted((*leader.asked, (intent.id, victim))))
                    after = put_leader(world, number, leader._replace(asked=asked))
                    yield ("leader", number, "asks", "ABCDEFGH"[victim.slot]), self._judged(after, intent)

    def _may_ask(self, world: World, intent: Intent) -> bool:
        if self._rules.looks_at_holders and not self._is_waited_for(world, intent):
            return False
        return not self._rules.looks_at_room or will_fit(world, intent, self._config.nodes)

    def _is_due(self, world: World, number: int, intent: Intent, victim: Victim) -> bool:
        leader = world.leaders[number]
        pod = world.pods[victim.slot]
        is_same = pod.serial == victim.serial or not self._rules.evicts_by_uid
        is_asked = any(one[:2] == (intent.id, victim) for one in leader.asked)
        return is_same and pod.life == LIVE and pod.node == victim.node and not is_asked and (
            (victim.slot, victim.serial) not in leader.shuns
        )  # fmt: skip

    def _judged(self, world: World, intent: Intent) -> World:
        if not self._is_waited_for(world, intent):
            return breaking(world, "S13: a pod is evicted for one that is gone")
        if not will_fit(world, intent, self._config.nodes):
            return breaking(world, "S7: a pod is evicted, and who it is evicted for will not fit")
        return world

    def _is_waited_for(self, world: World, intent: Intent) -> bool:
        return has_all(world, self._config.members(intent.group)) and not world.plans[intent.group]

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
            world = breaking(world, "S13: a pod is evicted that no intent names, by the name of a victim")
        return put_pod(world, victim.slot, pod._replace(life=LEAVING))
