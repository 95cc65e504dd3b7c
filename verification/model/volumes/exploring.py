"""Having claims bound as a system to explore (verification/model/explorer.py), and the configurations.

Who else acts: the PV controller, a provisioner, another scheduler, users, and what ends processes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from verification.model.explorer import Result, explored
from verification.model.volumes.deciding import Deciding
from verification.model.volumes.state import (
    BUILT,
    FOREIGN,
    GONE,
    MADE,
    NONE,
    Choice,
    Config,
    Left,
    Rules,
    Step,
    World,
    changed,
    node_of,
)


def controllers(config: Config, world: World) -> Iterator[Step]:
    """Claims are bound: to the volume that names them, or to one that is made for the selected node."""
    for number, claim in enumerate(world.claims):
        if claim.volume != NONE:
            continue
        named = [at for at, volume in enumerate(world.volumes) if volume.claim == number]
        if named:
            bound = claim._replace(volume=named[0], rv=claim.rv + 1)
            yield ("PV controller binds", number), world._replace(claims=changed(world.claims, number, bound))
        elif claim.selected != NONE and config.provisions:
            bound = claim._replace(volume=MADE + claim.selected, rv=claim.rv + 1)
            yield ("provisioner makes", number), world._replace(claims=changed(world.claims, number, bound))


def faults(config: Config, world: World) -> Iterator[Step]:
    """What may go wrong, as often as is left."""
    left = world.left
    for number, claim in enumerate(world.claims):
        if left.fails and claim.volume == NONE and claim.selected != NONE:
            after = world._replace(left=left._replace(fails=left.fails - 1))
            free = claim._replace(selected=NONE, rv=claim.rv + 1)
            yield ("!provisioner fails", number), after._replace(claims=changed(world.claims, number, free))
        if left.foreigners and claim.volume == NONE and claim.selected == NONE and config.provisions:
            after = world._replace(left=left._replace(foreigners=left.foreigners - 1))
            for node in range(len(config.places)):
                taken = claim._replace(selected=node, rv=claim.rv + 1)
                yield ("!another selects", number, node), after._replace(claims=changed(world.claims, number, taken))
    yield from _endings(world)


def _endings(world: World) -> Iterator[Step]:
    left = world.left
    for number, volume in enumerate(world.volumes):
        if left.foreigners and volume.claim == NONE:
            after = world._replace(left=left._replace(foreigners=left.foreigners - 1))
            taken_volume = volume._replace(claim=FOREIGN, rv=volume.rv + 1)
            yield ("!another takes", number), after._replace(volumes=changed(world.volumes, number, taken_volume))
    for number, pod in enumerate(world.pods):
        if left.deletions and pod == NONE:
            after = world._replace(left=left._replace(deletions=left.deletions - 1))
            yield ("!user deletes", number), after._replace(pods=changed(world.pods, number, GONE))
    for number, attempt in enumerate(world.attempts):
        if left.crashes and attempt is not None:
            after = world._replace(left=left._replace(crashes=left.crashes - 1))
            yield ("!crash of", f"s{number}"), after._replace(attempts=changed(world.attempts, number, None))


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
