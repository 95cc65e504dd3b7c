"""The rules of preemption that the model runs by. ``Rules()`` is what docs/design/preemption.md says.

A test that wants to know what a rule is for explores with one of them replaced.

A configuration of the model of preemption: how much of everything there is, and what may go wrong.

The configurations of preemption that are explored: small ones in every run of the tests, larger ones on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from verification.model.preemption.state import NOWHERE, Leader, Left, Pod, World

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


@dataclass(frozen=True, slots=True)
class NamedRoom:
    """A configuration with its name."""

    name: str
    config: Config


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
ROOM: Final = (
    NamedRoom("room for one", ONE),
    NamedRoom("room for one, its leader crashes", replace(ONE, left=CRASH)),
    NamedRoom("room for one, two crashes", replace(ONE, left=Left(crashes=2, lates=2))),
    NamedRoom(
        "room for one, all that can go wrong",
        replace(ONE, left=Left(crashes=1, lates=1, lost_answers=1, failed_writes=1, refusals=1, goes=1)),
    ),
    NamedRoom("room for one, a victim ends and is made again", replace(ONE, left=Left(1, 1, finishes=1, recreates=1))),
    NamedRoom("a victim that stays", replace(EITHER, stayers=(1,), left=CRASH)),
    NamedRoom("a victim that is never evicted", replace(EITHER, refused=(1,), left=CRASH)),
    NamedRoom("room for two on one node, a crash", replace(TWO, left=CRASH)),
    NamedRoom("room for two on one node, others take a place, a crash", replace(TWO, left=Left(1, 1, foreigners=1))),
    NamedRoom("room for a gang, a member goes, a crash", replace(GANG, left=Left(1, 1, goes=1))),
    NamedRoom("room for a gang, others take a place, a crash", replace(GANG, left=Left(1, foreigners=1))),
    NamedRoom("two leaders at once, room for one, a crash", replace(ONE, leaders=2, left=CRASH)),
    NamedRoom("two leaders at once, two want one place", replace(BOTH, leaders=2)),
)

ROOM_LARGE: Final = (
    NamedRoom("two leaders at once, room for two on one node", replace(TWO, leaders=2)),
    NamedRoom(
        "room for two on one node, all that can go wrong",
        replace(TWO, left=Left(crashes=1, lates=1, lost_answers=1, refusals=1, goes=1, foreigners=1)),
    ),
    NamedRoom(
        "room for a gang, all that can go wrong",
        replace(GANG, left=Left(crashes=1, lates=1, lost_answers=1, refusals=1, goes=1, foreigners=1)),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each a line of docs/design/preemption.md, "Orders that must hold"."""

    #: A victim is asked only once the record has the nomination.
    record_first: bool = True
    #: What a nomination freed is kept for its holders.
    charges: bool = True
    #: ... until the record has its end, if its holders still wait.
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
    #: A victim is asked only while its holders wait.
    looks_at_holders: bool = True
    #: A victim is asked only while its nomination's holders will fit when all its victims are gone.
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
