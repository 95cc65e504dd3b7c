"""What the shell knows of gangs that have fallen below their minimum, and what a decision remembers of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from wire.units import SECOND_NS

#: A PodGroup may have a shorter grace time than all others.
_LONGEST_BETWEEN_LOOKS_NS: Final = 10 * SECOND_NS

Key = tuple[str, str]
"""Namespace and name of a PodGroup."""


class Stale(msgspec.Struct, frozen=True, kw_only=True):
    """A gang below its minimum since ``since_ns``. Times are of the clock that decisions go by (``now_ns``).

    ``again_ns``: after a refusal, or no clear answer, it is not judged before. ``is_going``: what is left of it is
    being evicted.
    """

    since_ns: int
    again_ns: int | None = None
    is_going: bool = False


@dataclass(slots=True)
class StaleFacts:
    """``gangs``: all that are known. ``staleness_grace_ns``: for PodGroups that say nothing themselves.

    ``version`` is another one whenever anything is that the time of a gang depends on.
    """

    gangs: dict[Key, Stale] = field(default_factory=dict)
    staleness_grace_ns: int = 60 * SECOND_NS
    version: int = 0

    @property
    def interval_ns(self) -> int:
        """So often gangs are looked at whose time is over and that stay for now: a tenth of the grace time, or less."""
        return min(self.staleness_grace_ns // 10, _LONGEST_BETWEEN_LOOKS_NS)

    def over_ns(self, gang: Stale, own_grace_ns: int | None) -> int | None:
        """When a gang's time is over; None: never. ``own_grace_ns``: what its PodGroup says, None: nothing."""
        staleness_grace_ns = self.staleness_grace_ns if own_grace_ns is None else own_grace_ns
        return gang.since_ns + staleness_grace_ns if staleness_grace_ns >= 0 else None

    def note(self, key: Key, gang: Stale | None) -> bool:
        """Take how a gang is now, None: not below its minimum; return whether that is news."""
        if self.gangs.get(key) == gang:
            return False
        if gang is None:
            del self.gangs[key]
        else:
            self.gangs[key] = gang
        self.version += 1
        return True


class StaleMemo(msgspec.Struct, frozen=True):
    """As of the last look, at facts of this version. ``judged_ns``: when gangs were judged whose time was over.

    ``next_ns``: when there is something to judge, if the facts stay as they are; None: never.
    """

    version: int = -1
    judged_ns: int | None = None
    next_ns: int | None = None


NEVER_LOOKED: Final = StaleMemo()
