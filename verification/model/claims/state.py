"""Allocating and reserving ResourceClaims, as values: claims, pods, and what schedulers do (docs/design/claims.md).

Devices are numbered, each on one node. Versions of objects count only as equal or not, the order of allocations only as
earlier or later.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

#: No node, no device.
NONE: Final = -1
#: A pod that is gone.
GONE: Final = -2
#: A pod of another scheduler.
FOREIGN: Final = -3


class Report(enum.IntEnum):
    """What a driver says of an allocated device."""

    READY = 0
    PENDING = 1
    FAILED = 2


class Claim(NamedTuple):
    """``device``: what is allocated; ``reserved``: pods in ``reservedFor``; ``at``: when the allocation was written."""

    device: int = NONE
    reserved: tuple[int, ...] = ()
    at: int = 0
    rv: int = 0
    report: Report = Report.READY


class Pod(NamedTuple):
    """``node``: where it is bound, NONE or GONE."""

    node: int = NONE
    rv: int = 0


class Stage(enum.IntEnum):
    """How far the write for one pod is."""

    CHOSEN = 0
    READ = 1
    FENCED = 2
    WRITTEN = 3


class Kind(enum.IntEnum):
    """What a scheduler does for a group: allocate and reserve, bind, or leave and clear."""

    PREPARE = 0
    BIND = 1
    WITHDRAW = 2


class Choice(NamedTuple):
    """A pod, decided on at version ``pod_rv``, and the device of its claim. ``seen``: the claim's version, as read."""

    kind: Kind
    pod: int
    device: int
    pod_rv: int
    stage: Stage = Stage.CHOSEN
    seen: int = 0


class Attempt(NamedTuple):
    """What a scheduler does for one group."""

    kind: Kind
    choices: tuple[Choice, ...]


class Scheduler(NamedTuple):
    """``own``: pods for which it has reserved claims itself, each with the version that it decided on."""

    attempt: Attempt | None = None
    own: tuple[tuple[int, int], ...] = ()


class Left(NamedTuple):
    """How often each of these may still happen."""

    crashes: int = 0
    lost_answers: int = 0
    lates: int = 0
    foreigners: int = 0
    deletions: int = 0
    edits: int = 0
    timeouts: int = 0
    failures: int = 0


NEVER: Final = Left()


class World(NamedTuple):
    """``late``: writes on their way that nobody waits for. ``broken``: what a step has violated."""

    claims: tuple[Claim, ...]
    pods: tuple[Pod, ...]
    schedulers: tuple[Scheduler, ...]
    left: Left
    late: tuple[Choice, ...] = ()
    broken: str = ""


Step: TypeAlias = tuple[tuple[Any, ...], World]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """``places``: pods that each node takes. ``devices``: the node of each. ``uses``: the claim of each pod.

    ``groups``: pods that start together. ``others``: claims of another scheduler, which does not look at ours.
    ``awaits``: a device is not ready before its driver says so, once it is allocated.
    """

    places: tuple[int, ...] = (1, 1)
    devices: tuple[int, ...] = (0, 1)
    uses: tuple[int, ...] = (0,)
    groups: tuple[tuple[int, ...], ...] = ((0,),)
    others: int = 0
    awaits: bool = False
    schedulers: int = 1
    left: Left = NEVER

    @property
    def fresh(self) -> Report:
        """What is said of a device that was just allocated."""
        return Report.PENDING if self.awaits else Report.READY

    @property
    def ours(self) -> int:
        """How many claims are of our pods; those of others follow."""
        return max(self.uses) + 1

    def world(self) -> World:
        """Nobody has decided anything."""
        return World(
            claims=(Claim(),) * (self.ours + self.others),
            pods=(Pod(),) * len(self.uses),
            schedulers=(Scheduler(),) * self.schedulers,
            left=self.left,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each a line of docs/design/claims.md, "Rules of the writes"."""

    #: A claim is written at exactly the version that was read.
    at_rv: bool = True
    #: No pod is bound before it is in ``reservedFor``.
    reserves: bool = True
    #: No member of a gang is bound before the claims of all are reserved.
    whole: bool = True
    #: Pods are bound by a decision that has seen what was written for their claims.
    decides_again: bool = True
    #: Of two claims with one device the later one gives back.
    gives_back: bool = True
    #: A pod is bound by reservations of this process for this version of the pod; others are withdrawn.
    own_only: bool = True
    #: A pod is fenced before its claims are left.
    fences: bool = True
    #: A withdrawal writes the version of the claim that it read before the fence.
    reads_first: bool = True
    #: An allocation is cleared only if nobody is left.
    clears_alone: bool = True
    #: Claims of pods that don't fit are withdrawn.
    withdraws: bool = True
    #: No pod is bound before the devices of its claims are ready.
    waits: bool = True


BUILT: Final = Rules()


def changed(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    """The same with another item at a place."""
    return (*items[:at], item, *items[at + 1 :])


def is_later_double(world: World, number: int) -> bool:
    """Whether an earlier claim has this claim's device."""
    claim = world.claims[number]
    return claim.device != NONE and any(
        other.device == claim.device and other.at < claim.at for other in world.claims if other is not claim
    )
