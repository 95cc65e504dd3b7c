"""The rules of making room that the model runs by. ``Rules()`` is what docs/design/room.md says.

A test that wants to know what a rule is for explores with one of them replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each a line of docs/design/room.md, "Orders that must hold"."""

    #: A victim is asked only once the record has the intent.
    record_first: bool = True
    #: What an intent freed is kept for its holders.
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
    #: An intent leaves the record only when none of its victims is being asked.
    waits_for_answers: bool = True
    #: A victim is asked only while its holders wait.
    looks_at_holders: bool = True
    #: A victim is asked only while its intent's holders will fit when all its victims are gone.
    looks_at_room: bool = True
    #: The oldest intent has its places first.
    oldest_first: bool = True
    #: No pod is taken that another intent takes.
    spares_victims: bool = True
    #: A victim is evicted by its UID.
    evicts_by_uid: bool = True
    #: No group has a second intent.
    one_for_each: bool = True


BUILT: Final = Rules()
