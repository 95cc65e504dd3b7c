"""A state of the model of preemption: nested tuples of small integers.

Pods have slots (their names), nodes have numbers, and every pod takes one place of its node. Of resourceVersions only
matters whether they are the record's newest: ``is_newest``, false for good once somebody else has written.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

#: Where a pod is that was not bound.
NOWHERE: Final = -1
LIVE, LEAVING, GONE = 0, 1, 2


class Pod(NamedTuple):
    """``serial``: how often a pod of its name was made before; with the slot it is the UID.

    ``life``: LIVE, LEAVING (its containers still run) or GONE.
    """

    node: int = NOWHERE
    life: int = LIVE
    serial: int = 0


class Victim(NamedTuple):
    """A pod that is to go: slot and serial are its UID."""

    slot: int
    serial: int
    node: int


class Nomination(NamedTuple):
    """``places``: (slot, node) of each pod of the group that room is made for."""

    id: int
    group: int
    places: tuple[tuple[int, int], ...]
    victims: tuple[Victim, ...]


class Write(NamedTuple):
    """A write of the record that is on its way. ``drops``: nominations (id) that its writer means to take out."""

    nominations: tuple[Nomination, ...]
    drops: tuple[int, ...]
    is_newest: bool


class Leader(NamedTuple):
    """A scheduler that takes itself for the leader, and what it remembers.

    ``has_read``: whether what it knows of the record was read, or written, by this leader. ``has_taken``: whether it
    has written it since it began, or since it last lost an answer (``has_doubts``). ``known``: the record as it knows
    it, at a version that may be the newest. ``over``: nominations (id) that it has given up. ``makes``: a nomination
    that it has decided and not written yet. ``asked``: evictions on their way, (id, victim). ``shuns``: pods (slot,
    serial) that it was refused.
    """

    has_read: bool = False
    has_taken: bool = False
    has_doubts: bool = False
    is_newest: bool = False
    known: tuple[Nomination, ...] = ()
    over: tuple[int, ...] = ()
    makes: tuple[Nomination, ...] = ()
    write: tuple[Write, ...] = ()
    asked: tuple[tuple[int, Victim], ...] = ()
    shuns: tuple[tuple[int, int], ...] = ()


class Late(NamedTuple):
    """A request whose sender died or waits for it no more; it may still land. ``what``: a Write, or (id, victim)."""

    kind: str
    what: Any


class Left(NamedTuple):
    """What may still go wrong, or be done by others."""

    crashes: int = 0
    lates: int = 0
    lost_answers: int = 0
    refusals: int = 0
    failed_writes: int = 0
    foreigners: int = 0
    goes: int = 0
    finishes: int = 0
    recreates: int = 0


class World(NamedTuple):
    """Everything. ``plans``: per group the places that its plan names, () for none.

    ``foreign``: how many pods of others each node has. ``leaders``: schedulers that take themselves for the leader.
    ``broken``: what a step did that must not be.
    """

    pods: tuple[Pod, ...]
    foreign: tuple[int, ...]
    plans: tuple[tuple[tuple[int, int], ...], ...]
    record: tuple[Nomination, ...]
    leaders: tuple[Leader, ...]
    late: tuple[Late, ...]
    left: Left
    broken: str = ""


Step = tuple[tuple[Any, ...], World]
"""A label, and the world after it. A label that begins with "!" is a fault or an accident, no progress."""


def put_pod(world: World, slot: int, pod: Pod) -> World:
    """One pod changed."""
    return world._replace(pods=(*world.pods[:slot], pod, *world.pods[slot + 1 :]))


def put_leader(world: World, number: int, leader: Leader) -> World:
    """One leader changed."""
    return world._replace(leaders=(*world.leaders[:number], leader, *world.leaders[number + 1 :]))


def spend(world: World, what: str) -> World:
    """The world with one accident less to come."""
    return world._replace(left=world.left._replace(**{what: getattr(world.left, what) - 1}))


def breaking(world: World, why: str) -> World:
    """The world in which something was done that must not be; the first one counts."""
    return world._replace(broken=world.broken or why)


def is_there(world: World, victim: Victim) -> bool:
    """Whether a victim still holds its place."""
    pod = world.pods[victim.slot]
    return pod.serial == victim.serial and pod.life != GONE and pod.node == victim.node


def free(world: World, node: int, capacity: int) -> int:
    """Places of a node that nobody has."""
    ours = sum(pod.node == node and pod.life != GONE for pod in world.pods)
    return capacity - ours - world.foreign[node]


def unplanned(world: World, nomination: Nomination, node: int) -> int:
    """Places of a nomination on a node whose pods are there, unbound, and in no plan."""
    planned = {slot for slot, _ in world.plans[nomination.group]}
    return sum(at == node and slot not in planned and waits(world.pods[slot]) for slot, at in nomination.places)


def waits(pod: Pod) -> bool:
    """Whether it is there, and not bound."""
    return pod.life == LIVE and pod.node == NOWHERE


def kept(world: World, nomination: Nomination, node: int) -> int:
    """What a nomination charges a node: its places, less what its victims still hold there."""
    held = sum(victim.node == node and is_there(world, victim) for victim in nomination.victims)
    return max(0, unplanned(world, nomination, node) - held)


def freed(world: World, nomination: Nomination, node: int) -> int:
    """What its victims have left of its places on a node."""
    gone = sum(victim.node == node and not is_there(world, victim) for victim in nomination.victims)
    return min(gone, kept(world, nomination, node))


def has_all(world: World, members: tuple[int, ...]) -> bool:
    """Whether a group waits, all of it."""
    return all(waits(world.pods[slot]) for slot in members)


def will_fit(world: World, nomination: Nomination, capacities: tuple[int, ...]) -> bool:
    """Whether a nomination's pods have their places once its victims are gone, even if other pods have come."""
    for node in {node for _, node in nomination.places}:
        held = sum(victim.node == node and is_there(world, victim) for victim in nomination.victims)
        if unplanned(world, nomination, node) > free(world, node, capacities[node]) + held:
            return False
    return True
