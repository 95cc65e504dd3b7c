"""What is known of the attempts to bind one pod: one record, from the first attempt until the pod is bound or gone.

An attempt of ours is asked (DIRECT), held, handed over (AT_BINDER) or taken back (TAKEN_BACK). It has departed when
nobody speaks of it any more and it may still come. When it has landed, that is, its pod is seen bound, nothing is left.
"""

from __future__ import annotations

import enum
from collections.abc import Container
from typing import Final

import msgspec

from scheduler.core.assumed.backoff import Setback
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import BindRequestRecord
from scheduler.core.nodes.node_usage import Charge


class State(enum.Enum):
    """Where a commit is."""

    #: The scheduler writes the Binding itself: a pod alone, a share that joins known devices, a member of a gang.
    DIRECT = "direct"
    #: Handed over to the binder, which makes its devices known.
    AT_BINDER = "at the binder"
    #: Written nowhere: it waits for a device that another one makes known.
    HELD = "held"
    #: Its claims are being bound: nothing is written for the pod itself.
    PREPARING = "preparing"
    #: The binder is asked to give it up.
    TAKEN_BACK = "taken back"


#: What is written for a pod in these states can't come late, for nothing is.
UNWRITTEN: Final = frozenset({State.HELD, State.PREPARING})


class Flight(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One commit. ``settled``: the write was answered well, the API has yet to show it."""

    placement: Placement
    state: State
    charge: Charge
    settled: bool = False

    def waits_for(self, groups: Container[str]) -> bool:
        """Whether it is a share alone, not taken back yet, on a device of one of these groups."""
        may_move = self.state in {State.AT_BINDER, State.HELD}
        return may_move and any(device.group in groups for device in self.placement.devices)


class PodAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """One pod's. ``own``: our commit that is under way; ``next_number``: of the next one.

    ``departed``: what departed, ours or another's, as the hand-over that it is or may become; it may be there beside a
    commit of ours whose BindRequest is gone before its end is known. ``opens``: groups whose devices the pod makes
    known. ``awaits``: groups of which it waits for one. ``setback``: what went wrong so far; it outlives each attempt.
    """

    next_number: int = 0
    own: Flight | None = None
    departed: BindRequestRecord | None = None
    opens: tuple[str, ...] = ()
    awaits: tuple[str, ...] = ()
    setback: Setback | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not (self.next_number or self.own or self.departed or self.opens or self.awaits or self.setback)


#: Of a pod that was never tried.
NONE_YET: Final = PodAttempts()
