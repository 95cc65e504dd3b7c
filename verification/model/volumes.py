"""Having claims bound as a system to explore (verification/model/explorer.py): docs/design/volumes.md.

Pod n mounts claim n. Versions of objects count only as equal or not. Schedulers decide, write for claims, wait until
they are bound, and bind pods. Who else acts: the PV controller, a provisioner, another scheduler, users, and what ends
processes.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

from verification.model.config import Named
from verification.model.explorer import Result, explored, lines_of

#: No node, no volume, no claim.
NONE: Final = -1
#: A pod that is gone.
GONE: Final = -2
#: A claim of somebody else.
FOREIGN: Final = -3
#: From this number on volumes are made by the provisioner: one for each node.
MADE: Final = 100


class Claim(NamedTuple):
    """``selected``: the node for which it is provisioned; ``volume``: to which it is bound."""

    selected: int = NONE
    volume: int = NONE
    rv: int = 0


class Volume(NamedTuple):
    """A volume that a person made, on a node; ``claim``: the one that it names."""

    node: int
    claim: int = NONE
    rv: int = 0


class Stage(enum.IntEnum):
    """How far the write for one claim is."""

    CHOSEN = 0
    READ = 1
    WRITTEN = 2


class Choice(NamedTuple):
    """For a pod: its node, and a volume there; NONE to provision. ``seen``: the version that was read."""

    pod: int
    node: int
    volume: int = NONE
    stage: Stage = Stage.CHOSEN
    seen: int = 0


class Attempt(NamedTuple):
    """What a scheduler does for one group. ``binds``: all claims are bound, and pods are being bound."""

    choices: tuple[Choice, ...]
    binds: bool = False


class Left(NamedTuple):
    """How often each of these may still happen."""

    crashes: int = 0
    lost_answers: int = 0
    lates: int = 0
    fails: int = 0
    foreigners: int = 0
    deletions: int = 0
    timeouts: int = 0


NEVER: Final = Left()


class World(NamedTuple):
    """``late``: writes on their way that nobody waits for. ``broken``: what a step has violated."""

    claims: tuple[Claim, ...]
    volumes: tuple[Volume, ...]
    pods: tuple[int, ...]
    attempts: tuple[Attempt | None, ...]
    left: Left
    late: tuple[Choice, ...] = ()
    broken: str = ""


Step: TypeAlias = tuple[tuple[Any, ...], World]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """``places``: pods that each node takes. ``groups``: pods that start together. ``volumes``: nodes of volumes."""

    places: tuple[int, ...] = (1, 1)
    groups: tuple[tuple[int, ...], ...] = ((0,),)
    volumes: tuple[int, ...] = ()
    provisions: bool = True
    schedulers: int = 1
    left: Left = NEVER

    def world(self) -> World:
        """Nobody has decided anything."""
        pods = sum(map(len, self.groups))
        return World(
            claims=(Claim(),) * pods,
            volumes=tuple(map(Volume, self.volumes)),
            pods=(NONE,) * pods,
            attempts=(None,) * self.schedulers,
            left=self.left,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each a line of docs/design/volumes.md, "Rules of the writes"."""

    #: Claims and volumes are written at exactly the version that was read.
    at_rv: bool = True
    #: No pod is bound before its claims are.
    waits: bool = True
    #: No member of a gang is bound before the claims of all are.
    whole: bool = True
    #: Once claims are bound, their pods are decided on again.
    decides_again: bool = True
    #: An attempt ends when what it wrote is taken back.
    gives_up: bool = True


BUILT: Final = Rules()


def node_of(world: World, volume: int) -> int:
    """Where a volume is."""
    return volume - MADE if volume >= MADE else world.volumes[volume].node


def changed(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    """The same with another item at a place."""
    return (*items[:at], item, *items[at + 1 :])


class Deciding:
    """Schedulers in one configuration, by one set of rules."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules

    def steps(self, world: World, number: int) -> Iterator[Step]:
        """What a scheduler may do next."""
        attempt = world.attempts[number]
        if attempt is None:
            for choices in self.decisions(world):
                binds = all(self._is_bound(world, choice) for choice in choices)
                yield self._with(
                    world, number, Attempt(choices, binds), f"s{number} decides", *(tuple(one[:3]) for one in choices)
                )
        elif attempt.binds:
            yield from self._bind(world, number, attempt)
        else:
            yield from self._prepare(world, number, attempt)

    # --- deciding ----------------------------------------------------------------------------------------------------
    def decisions(self, world: World) -> Iterator[tuple[Choice, ...]]:
        """All ways to place the pods of a group that have no node, where there is one for each."""
        for group in self._config.groups:
            waiting = [pod for pod in group if world.pods[pod] == NONE]
            for nodes in product(range(len(self._config.places)), repeat=len(waiting)) if waiting else ():
                free = [most - world.pods.count(node) for node, most in enumerate(self._config.places)]
                if any(nodes.count(node) > free[node] for node in set(nodes)):
                    continue
                choices = self._choices(world, dict(zip(waiting, nodes, strict=True)))
                if choices is not None:
                    yield choices

    def _choices(self, world: World, nodes: dict[int, int]) -> tuple[Choice, ...] | None:
        taken: set[int] = set()
        found = []
        for pod, node in nodes.items():
            choice = self._choice(world, pod, node, taken)
            if choice is None:
                return None
            taken.add(choice.volume)
            found.append(choice)
        return tuple(found)

    def _choice(self, world: World, pod: int, node: int, taken: set[int]) -> Choice | None:
        claim = world.claims[pod]
        if claim.volume != NONE:
            return Choice(pod, node) if node_of(world, claim.volume) == node else None
        named = [number for number, volume in enumerate(world.volumes) if volume.claim == pod]
        if named:
            return Choice(pod, node, named[0]) if world.volumes[named[0]].node == node else None
        if claim.selected != NONE:
            return Choice(pod, node) if claim.selected == node else None
        free = [
            number
            for number, volume in enumerate(world.volumes)
            if volume.node == node and volume.claim == NONE and number not in taken
        ]
        if free:
            return Choice(pod, node, free[0])
        return Choice(pod, node) if self._config.provisions else None

    # --- claims ------------------------------------------------------------------------------------------------------
    def _prepare(self, world: World, number: int, attempt: Attempt) -> Iterator[Step]:
        if all(self._is_bound(world, choice) or world.pods[choice.pod] != NONE for choice in attempt.choices):
            then = None if self._rules.decides_again else attempt._replace(binds=True)
            yield self._with(world, number, then, f"s{number} has all claims bound")
            return
        for at, choice in enumerate(attempt.choices):
            if not self._rules.whole and self._is_bound(world, choice) and world.pods[choice.pod] == NONE:
                bound = world._replace(pods=changed(world.pods, choice.pod, choice.node))
                yield self._with(bound, number, attempt, f"s{number} binds", choice.pod)
            if world.claims[choice.pod].volume == NONE and world.pods[choice.pod] == NONE:
                yield from self._write(world, number, attempt, at)
        if world.left.timeouts:
            left = world.left._replace(timeouts=world.left.timeouts - 1)
            yield self._with(world._replace(left=left), number, None, "!time is over for", f"s{number}")

    def _write(self, world: World, number: int, attempt: Attempt, at: int) -> Iterator[Step]:
        choice = attempt.choices[at]
        wanted, has = _said(world, choice)
        match choice.stage:
            case Stage.CHOSEN if has == wanted:
                yield self._to(world, number, at, (choice._replace(stage=Stage.WRITTEN), "finds written"))
            case Stage.CHOSEN if has != NONE:
                yield self._with(world, number, None, f"s{number} is overtaken", choice.pod)
            case Stage.CHOSEN:
                read = choice._replace(stage=Stage.READ, seen=_version(world, choice))
                yield self._to(world, number, at, (read, "reads"))
            case Stage.READ:
                yield from self._written(world, number, at, choice)
            case Stage.WRITTEN if has != wanted and self._rules.gives_up:
                yield self._with(world, number, None, f"s{number} sees taken back", choice.pod)

    def _written(self, world: World, number: int, at: int, choice: Choice) -> Iterator[Step]:
        again = choice._replace(stage=Stage.CHOSEN, seen=0)
        if self._rules.at_rv and _version(world, choice) != choice.seen:
            yield self._to(world, number, at, (again, "conflicts"))
            return
        after = apply(world, choice)
        yield self._to(after, number, at, (choice._replace(stage=Stage.WRITTEN, seen=0), "writes"))
        left = world.left
        if left.lost_answers:
            spent = after._replace(left=left._replace(lost_answers=left.lost_answers - 1))
            yield self._to(spent, number, at, (again, "!writes, no answer to"))
        if left.lates:
            spent = world._replace(left=left._replace(lates=left.lates - 1), late=(*world.late, choice))
            yield self._to(spent, number, at, (again, "!writes late for"))

    def land(self, world: World) -> Iterator[Step]:
        """Writes that nobody waits for any more land, or are refused."""
        for at, choice in enumerate(world.late):
            rest = world._replace(late=(*world.late[:at], *world.late[at + 1 :]))
            is_current = _version(world, choice) == choice.seen or not self._rules.at_rv
            yield ("late write lands", tuple(choice[:3])), apply(rest, choice) if is_current else rest

    def _is_bound(self, world: World, choice: Choice) -> bool:
        is_written = not self._rules.waits and choice.stage is Stage.WRITTEN
        return is_written or world.claims[choice.pod].volume != NONE

    # --- pods --------------------------------------------------------------------------------------------------------
    def _bind(self, world: World, number: int, attempt: Attempt) -> Iterator[Step]:
        left = [choice for choice in attempt.choices if world.pods[choice.pod] == NONE]
        if not left:
            yield self._with(world, number, None, f"s{number} is done")
        for choice in left:
            pods = changed(world.pods, choice.pod, choice.node)
            yield self._with(world._replace(pods=pods), number, attempt, f"s{number} binds", choice.pod, choice.node)

    def _to(self, world: World, number: int, at: int, step: tuple[Choice, str]) -> Step:
        """The attempt with a choice one stage further; a fault's name begins with "!"."""
        choice, what = step
        attempt = world.attempts[number]
        choices = changed(attempt.choices if attempt is not None else (), at, choice)
        fault = "!" if what.startswith("!") else ""
        return self._with(world, number, Attempt(choices), f"{fault}s{number} {what.removeprefix('!')}", choice.pod)

    @staticmethod
    def _with(world: World, number: int, attempt: Attempt | None, *label: object) -> Step:
        return label, world._replace(attempts=changed(world.attempts, number, attempt))


def _said(world: World, choice: Choice) -> tuple[int, int]:
    """What the claim or the volume is to name, and what it names."""
    if choice.volume != NONE:
        return choice.pod, world.volumes[choice.volume].claim
    return choice.node, world.claims[choice.pod].selected


def _version(world: World, choice: Choice) -> int:
    return world.claims[choice.pod].rv if choice.volume == NONE else world.volumes[choice.volume].rv


def apply(world: World, choice: Choice) -> World:
    """The write for a claim, carried out. What another has written must not be lost."""
    wanted, has = _said(world, choice)
    if has not in {NONE, wanted}:
        world = world._replace(broken="P4: what another scheduler has written is overwritten")
    if choice.volume != NONE:
        volume = world.volumes[choice.volume]
        volume = volume._replace(claim=choice.pod, rv=volume.rv + 1)
        return world._replace(volumes=changed(world.volumes, choice.volume, volume))
    claim = world.claims[choice.pod]
    return world._replace(
        claims=changed(world.claims, choice.pod, claim._replace(selected=choice.node, rv=claim.rv + 1))
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


ONE: Final = Config()
#: A volume on each node, and nothing is provisioned.
STATIC: Final = Config(volumes=(0, 1), provisions=False)
GANG: Final = Config(groups=((0, 1),))
#: Two pods alone that want the same volume.
RIVALS: Final = Config(places=(2, 1), groups=((0,), (1,)), volumes=(0,))
_ALL: Final = Left(crashes=1, lost_answers=1, lates=1, fails=1, foreigners=1, deletions=1, timeouts=1)

PREPARING: Final = (
    Named("volumes: one pod, all that can go wrong", Config(left=_ALL)),
    Named(
        "volumes: made by people, all that can go wrong", Config(volumes=(0, 1), provisions=False, left=_ALL)
    ),
    Named("volumes: two pods, one volume, a crash", Config(
        places=(2, 1), groups=((0,), (1,)), volumes=(0,), left=Left(crashes=1, lates=1, foreigners=1))),
    Named("volumes: a gang, a failure, a crash", Config(
        groups=((0, 1),), left=Left(crashes=1, fails=1, timeouts=1, deletions=1))),
    Named("volumes: a gang, another scheduler", Config(
        groups=((0, 1),), volumes=(0,), left=Left(foreigners=1, lates=1))),
    Named("volumes: two leaders at once", Config(schedulers=2, left=Left(lates=1, fails=1))),
    Named("volumes: two leaders at once, a gang", Config(groups=((0, 1),), schedulers=2)),
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
        last = path[-1]
        return [
            *lines_of(self, path),
            *(f"= {part}" for part in (*last.claims, *last.volumes, last.pods, *last.attempts)),
        ]


def explore_preparing(config: Config, rules: Rules = BUILT, *, limit: int = 10_000_000) -> Result:
    """Explore: until a violation is found, everything was seen, or ``limit`` states are known."""
    return explored(Preparing(config, rules), limit=limit)


def _seen(world: World, choice: Choice) -> Choice:
    """``seen`` as 0 if it is the version that the object has, else -1."""
    current = world.claims[choice.pod].rv if choice.volume == NONE else world.volumes[choice.volume].rv
    is_read = choice.stage == 1
    return choice._replace(seen=0 if not is_read or choice.seen == current else -1)
