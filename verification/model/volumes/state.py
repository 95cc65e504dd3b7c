"""Having claims bound, as values: claims, volumes, pods, and the attempts of schedulers (docs/design/volumes.md).

Pod n mounts claim n. Versions of objects count only as equal or not.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

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
