"""Having claims bound as a system to explore (verification/model/explorer.py), and the configurations."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from verification.model.explorer import Result, explored
from verification.model.preparing.deciding import Deciding
from verification.model.preparing.state import BUILT, NONE, Choice, Config, Left, Rules, Step, World, node_of
from verification.model.preparing.surroundings import controllers, faults


@dataclass(frozen=True, slots=True)
class NamedPreparing:
    """A configuration with its name."""

    name: str
    config: Config


ONE: Final = Config()
#: A volume on each node, and nothing is provisioned.
STATIC: Final = Config(volumes=(0, 1), provisions=False)
GANG: Final = Config(groups=((0, 1),))
#: Two pods alone that want the same volume.
RIVALS: Final = Config(places=(2, 1), groups=((0,), (1,)), volumes=(0,))
_ALL: Final = Left(crashes=1, lost_answers=1, lates=1, fails=1, foreigners=1, deletions=1, timeouts=1)

PREPARING: Final = (
    NamedPreparing("volumes: one pod, all that can go wrong", Config(left=_ALL)),
    NamedPreparing(
        "volumes: made by people, all that can go wrong", Config(volumes=(0, 1), provisions=False, left=_ALL)
    ),
    NamedPreparing("volumes: two pods, one volume, a crash", Config(
        places=(2, 1), groups=((0,), (1,)), volumes=(0,), left=Left(crashes=1, lates=1, foreigners=1))),
    NamedPreparing("volumes: a gang, a failure, a crash", Config(
        groups=((0, 1),), left=Left(crashes=1, fails=1, timeouts=1, deletions=1))),
    NamedPreparing("volumes: a gang, another scheduler", Config(
        groups=((0, 1),), volumes=(0,), left=Left(foreigners=1, lates=1))),
    NamedPreparing("volumes: two leaders at once", Config(schedulers=2, left=Left(lates=1, fails=1))),
    NamedPreparing("volumes: two leaders at once, a gang", Config(groups=((0, 1),), schedulers=2)),
)  # fmt: skip


class Preparing:
    """Having claims bound in one configuration, by one set of rules."""

    rests = True

    def __init__(self, config: Config, rules: Rules = BUILT) -> None:
        self._config = config
        self._deciding = Deciding(config, rules)

    def first(self) -> World:
        """Nobody has decided anything."""
        return self._config.world()

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that may happen next."""
        for number in range(len(world.attempts)):
            yield from self._deciding.steps(world, number)
        yield from self._deciding.land(world)
        yield from controllers(self._config, world)
        yield from faults(self._config, world)

    def canonical(self, world: World) -> tuple[World, Hashable]:
        """Versions are the newest or older ones."""
        same = world._replace(
            claims=tuple(claim._replace(rv=0) for claim in world.claims),
            volumes=tuple(volume._replace(rv=0) for volume in world.volumes),
            attempts=tuple(
                attempt and attempt._replace(choices=tuple(_seen(world, one) for one in attempt.choices))
                for attempt in world.attempts
            ),
            late=tuple(sorted(_seen(world, one) for one in world.late)),
        )
        return same, same

    def violation(self, world: World) -> str:
        """P1 to P4 (docs/design/volumes.md)."""
        bound = [(pod, node) for pod, node in enumerate(world.pods) if node >= 0]
        for pod, node in bound:
            volume = world.claims[pod].volume
            if volume == NONE or node_of(world, volume) != node:
                return "P1: a pod is bound where its volume is not"
        static = [claim.volume for claim in world.claims if 0 <= claim.volume < len(world.volumes)]
        if len(set(static)) < len(static):
            return "P2: a volume is bound to two claims"
        for group in self._config.groups:
            are_bound = any(world.pods[pod] >= 0 for pod in group)
            if are_bound and any(world.pods[pod] == NONE and world.claims[pod].volume == NONE for pod in group):
                return "P3: a member is bound before the claims of its gang are"
        return world.broken

    def is_at_rest(self, world: World) -> bool:
        """Nothing is on its way, and no pod waits that could be placed."""
        is_busy = any(world.attempts) or world.late or next(controllers(self._config, world), None) is not None
        return not is_busy and next(self._deciding.decisions(world), None) is None

    def told(self, path: Sequence[World]) -> list[str]:
        """One line a step, and the last state."""
        lines = []
        for world, wanted in pairwise(path):
            found = (label for label, after in self.steps(world) if self.canonical(after)[0] == wanted)
            lines.append(" ".join(map(str, next(found))))
        last = path[-1]
        return [*lines, *(f"= {part}" for part in (*last.claims, *last.volumes, last.pods, *last.attempts))]


def explore_preparing(config: Config, rules: Rules = BUILT, *, limit: int = 10_000_000) -> Result:
    """Explore: until a violation is found, everything was seen, or ``limit`` states are known."""
    return explored(Preparing(config, rules), limit=limit)


def _seen(world: World, choice: Choice) -> Choice:
    """``seen`` as 0 if it is the version that the object has, else -1."""
    current = world.claims[choice.pod].rv if choice.volume == NONE else world.volumes[choice.volume].rv
    is_read = choice.stage == 1
    return choice._replace(seen=0 if not is_read or choice.seen == current else -1)
