"""Making room as a system to explore (verification/model/explorer.py): its steps, what must hold, and where it ends."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

from verification.model.explorer import Result, explored
from verification.model.room.config import Config
from verification.model.room.deciding import Deciding
from verification.model.room.evicting import Evicting
from verification.model.room.naming import named_anew
from verification.model.room.recording import Recording
from verification.model.room.rules import BUILT, Rules
from verification.model.room.state import LEAVING, LIVE, Leader, Step, World, waits
from verification.model.room.surroundings import Surroundings


class Room:
    """Making room in one configuration, by one set of rules."""

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
        """Intents are numbered as they appear; requests that can do nothing any more are gone."""
        renamed = named_anew(world, self._rules)
        return renamed, renamed

    def violation(self, world: World) -> str:
        """S1, S7, S13 and S14: what a step did, what the record says, and who is being asked."""
        return world.broken or _taken_twice(world) or self._asked_for_none(world)

    def _asked_for_none(self, world: World) -> str:
        """Where one leader acts at a time, each pod whose eviction is asked for is named by an intent on record."""
        on_record = {(one.id, victim) for one in world.record for victim in one.victims}
        asked = [one for leader in world.leaders for one in leader.asked]
        if self._config.is_fenced and any(one not in on_record for one in asked):
            return "S7: a pod is being evicted, and no intent on record names it"
        return ""

    def is_at_rest(self, world: World) -> bool:
        """No intent stands, nothing is charged or on its way, and nobody waits who can be helped."""
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
        lines = []
        for world, wanted in pairwise(path):
            for label, after in self.steps(world):
                if self.canonical(after)[0] == wanted:
                    lines.append(" ".join(map(str, label)))
                    break
        last = path[-1]
        return [*lines, *(f"= {part}" for part in (*last.pods, *last.record, *last.leaders, *last.late))]


def explore_room(config: Config, rules: Rules = BUILT, *, limit: int = 10_000_000) -> Result:
    """Explore making room: until a violation is found, everything was seen, or ``limit`` states are known."""
    return explored(Room(config, rules), limit=limit)


def _taken_twice(world: World) -> str:
    named = [victim for intent in world.record for victim in intent.victims]
    if len(set(named)) < len(named):
        return "S13: a pod is named by two intents"
    groups = [intent.group for intent in world.record]
    return "S13: room is made twice for one group" if len(set(groups)) < len(groups) else ""


def _is_busy(leader: Leader) -> bool:
    return bool(leader.known or leader.over or leader.makes or leader.write or leader.asked)
