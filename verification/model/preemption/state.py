"""A state of the model of preemption, the rules that it runs by, and the configurations that are explored.

A state is nested tuples of small integers. Pods have slots (their names), nodes have numbers, and every pod takes one
place of its node. Of resourceVersions only matters whether they are the record's newest: ``is_newest``, false for good
once somebody else has written. Small configurations are explored in every run of the tests, larger ones on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from verification.model.config import Named

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


NOTHING: Final = Left()
#: What a group may do: have room made, be evicted for others, or neither.
TAKES: Final = "takes"
GIVES: Final = "gives"
PLAIN: Final = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """``nodes``: places of each. ``groups``: what each may do. ``pods``: (group, node) of each, NOWHERE if it waits.

    ``leaders``: schedulers that take themselves for the leader, all the time. ``stayers``: pods that never end once
    they are evicted. ``refused``: pods of which every eviction is refused. ``rests``: whether it is checked that all
    comes to an end.
    """

    nodes: tuple[int, ...]
    groups: tuple[str, ...]
    pods: tuple[tuple[int, int], ...]
    leaders: int = 1
    stayers: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    left: Left = NOTHING
    rests: bool = True

    @property
    def is_fenced(self) -> bool:
        """Whether one leader acts at a time: each request is over before its lease is (kube/client/fence.py)."""
        return self.leaders == 1

    def members(self, group: int) -> tuple[int, ...]:
        """Slots of a group's pods."""
        return tuple(slot for slot, (of, _) in enumerate(self.pods) if of == group)

    def world(self) -> World:
        """The first state: nobody has decided anything."""
        return World(
            pods=tuple(Pod(node) for _, node in self.pods),
            foreign=(0,) * len(self.nodes),
            plans=((),) * len(self.groups),
            record=(),
            leaders=(Leader(),) * self.leaders,
            late=(),
            left=self.left,
        )


#: A pod for which room is made by the one that is there, and a third that would take what becomes free.
ONE: Final = Config(nodes=(1,), groups=(TAKES, GIVES, PLAIN), pods=((0, NOWHERE), (1, 0), (2, NOWHERE)))
#: Two pods, each of which wants a place of the same node.
TWO: Final = Config(nodes=(2,), groups=(TAKES, TAKES, GIVES, GIVES), pods=((0, NOWHERE), (1, NOWHERE), (2, 0), (3, 0)))
#: Two pods that want the only place.
BOTH: Final = Config(nodes=(1,), groups=(TAKES, TAKES, GIVES), pods=((0, NOWHERE), (1, NOWHERE), (2, 0)))
#: A gang on two nodes, and a pod that would take what becomes free.
GANG: Final = Config(
    nodes=(1, 1),
    groups=(TAKES, GIVES, GIVES, PLAIN),
    pods=((0, NOWHERE), (0, NOWHERE), (1, 0), (2, 1), (3, NOWHERE)),
)
#: Two nodes, and who may go from either.
EITHER: Final = Config(
    nodes=(1, 1), groups=(TAKES, GIVES, GIVES, PLAIN), pods=((0, NOWHERE), (1, 0), (2, 1), (3, NOWHERE))
)
#: A leader that dies, or loses its lease, with requests on their way.
CRASH: Final = Left(crashes=1, lates=1)

#: Complete, each in a second or two.
PREEMPTION: Final = (
    Named("room for one", ONE),
    Named("room for one, its leader crashes", replace(ONE, left=CRASH)),
    Named("room for one, two crashes", replace(ONE, left=Left(crashes=2, lates=2))),
    Named(
        "room for one, all that can go wrong",
        replace(ONE, left=Left(crashes=1, lates=1, lost_answers=1, failed_writes=1, refusals=1, goes=1)),
    ),
    Named("room for one, a victim ends and is made again", replace(ONE, left=Left(1, 1, finishes=1, recreates=1))),
    Named("a victim that stays", replace(EITHER, stayers=(1,), left=CRASH)),
    Named("a victim that is never evicted", replace(EITHER, refused=(1,), left=CRASH)),
    Named("room for two on one node, a crash", replace(TWO, left=CRASH)),
    Named("room for two on one node, others take a place, a crash", replace(TWO, left=Left(1, 1, foreigners=1))),
    Named("room for a gang, a member goes, a crash", replace(GANG, left=Left(1, 1, goes=1))),
    Named("room for a gang, others take a place, a crash", replace(GANG, left=Left(1, foreigners=1))),
    Named("two leaders at once, room for one, a crash", replace(ONE, leaders=2, left=CRASH)),
    Named("two leaders at once, two want one place", replace(BOTH, leaders=2)),
)

PREEMPTION_LARGE: Final = (
    Named("two leaders at once, room for two on one node", replace(TWO, leaders=2)),
    Named(
        "room for two on one node, all that can go wrong",
        replace(TWO, left=Left(crashes=1, lates=1, lost_answers=1, refusals=1, goes=1, foreigners=1)),
    ),
    Named(
        "room for a gang, all that can go wrong",
        replace(GANG, left=Left(crashes=1, lates=1, lost_answers=1, refusals=1, goes=1, foreigners=1)),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each a line of docs/design/preemption.md, "Orders that must hold".

    A test that wants to know what a rule is for explores with one of them replaced.
    """

    #: A victim is asked only once the record has the nomination.
    record_first: bool = True
    #: What a nomination freed is kept for its nominated pods.
    charges: bool = True
    #: ... until the record has its end, if its nominated pods still wait.
    charges_until_written: bool = True
    #: Nothing is decided before the record was read.
    reads_first: bool = True
    #: A new leader writes the record before it acts: requests that name an older version fail from then on.
    takes_over: bool = True
    #: A leader that had no answer to a write does so, too: reading is not enough, the write may still land.
    writes_after_doubt: bool = True
    #: The record is written at exactly the version that is known.
    record_at_rv: bool = True
    #: A nomination leaves the record only when none of its victims is being asked.
    waits_for_answers: bool = True
    #: A victim is asked only while its nominated pods wait.
    looks_at_nominees: bool = True
    #: A victim is asked only while its nomination's nominated pods will fit when all its victims are gone.
    looks_at_room: bool = True
    #: The oldest nomination has its places first.
    oldest_first: bool = True
    #: No pod is taken that another nomination takes.
    spares_victims: bool = True
    #: A victim is evicted by its UID.
    evicts_by_uid: bool = True
    #: No group has a second nomination.
    one_for_each: bool = True


BUILT: Final = Rules()
