"""Whether a change that helps no more did so a short time ago: the cluster is taken back change by change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from verification.hostile.suggested.history import Change
from verification.hostile.suggested.reference import Reference
from verification.hostile.suggested.sentences import Claim, WaitUntil


@dataclass(slots=True)
class Past:
    """``reference``: the cluster as it is now, which is taken back. ``changes``: all, the oldest first.

    ``wall_s``: the wall clock's second at a time of the event loop.
    """

    reference: Reference
    changes: Sequence[Change]
    wall_s: Callable[[float], int]

    def has_helped(self, claim: Claim, *, earliest_s: float, now_s: float) -> bool:
        """Whether a change helped at any moment of a time (event loop's)."""
        ends_s, is_new = now_s, True
        for past in reversed(self.changes):
            # The reference is as the cluster was from ``past.at_s`` until ``ends_s``.
            if is_new and self._helped(claim, max(past.at_s, earliest_s), ends_s):
                return True
            if past.at_s < earliest_s:
                return False
            is_new = self.reference.undo(past) or isinstance(claim.change, WaitUntil)
            ends_s = past.at_s
        return is_new and self._helped(claim, earliest_s, ends_s)

    def _helped(self, claim: Claim, from_s: float, to_s: float) -> bool:
        """Whether it helped while nothing changed: at the end, and where time alone counts at the start."""
        times = (from_s, to_s) if isinstance(claim.change, WaitUntil) else (to_s,)
        return any(self.reference.helps(claim, self.wall_s(each)) for each in times)
