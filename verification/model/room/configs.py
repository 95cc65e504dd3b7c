"""The configurations of making room that are explored: small ones in every run of the tests, larger ones on demand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from verification.model.room.config import GIVES, PLAIN, TAKES, Config
from verification.model.room.state import NOWHERE, Left


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
