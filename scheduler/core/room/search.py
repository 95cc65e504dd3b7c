"""Which pods go for a need, or why none do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from scheduler.core.model.room import Action, Found, NoRoom
from scheduler.core.room.need import Need
from scheduler.core.room.trial import Trial

ACTIONS: Final = (Action.RECLAIM, Action.PREEMPT)
#: Says who has to go, by one of these actions; leaves statement and accounts of the trial as they were.
FindRoom: TypeAlias = Callable[[Need, Trial, Sequence[Action]], Found | NoRoom]


def find_room(need: Need, trial: Trial, actions: Sequence[Action] = ACTIONS) -> Found | NoRoom:
    """Find who has to go so that a need fits; statement and accounts are left as they were.

    So far nobody is looked at, and nothing is claimed to be proven.
    """
    del need, trial, actions
    return NoRoom()
