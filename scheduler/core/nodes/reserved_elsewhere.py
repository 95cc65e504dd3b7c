"""How long a reservation is left alone that another process wrote for a pod.

It is no reservation to bind the pod by, so it is given back (docs/design/claims.md, rule 5). One of a leader that died
is given back at once, as nobody waits for it. But where several schedulers work without an election, each would give
back what the others are about to bind with, or wait for until its devices are ready, for ever. So from the second time
on it is left alone for a while first, twice as long each time, until one of them has come to its end.
"""

from __future__ import annotations

from typing import Final

#: Of the second time.
_FIRST_S: Final = 1
#: As long as a scheduler waits for devices to get ready.
READY_WITHIN_S: Final = 600


class ReservedElsewhere:
    """Pods by UID."""

    def __init__(self) -> None:
        #: For how long the next one is left alone; none: it was the first.
        self._pauses_s: dict[str, int] = {}
        self._left_alone: set[str] = set()

    def pause_s(self, uid: str) -> int:
        """For how many seconds what another process reserved for a pod is left alone before it is given back."""
        return self._pauses_s.get(uid, 0)

    def note_given_back(self, uid: str) -> None:
        """What another process reserved for a pod was given back."""
        self._pauses_s[uid] = min(READY_WITHIN_S, max(_FIRST_S, 2 * self.pause_s(uid)))

    def leave_alone(self, uid: str) -> None:
        """The pause of a pod begins."""
        self._left_alone.add(uid)

    def end(self, uid: str) -> None:
        """The pause of a pod is over."""
        self._left_alone.discard(uid)

    def is_left_alone(self, uid: str) -> bool:
        """Whether a pod is left to another process: a write of its status would end what that one waits for."""
        return uid in self._left_alone

    def drop(self, uid: str) -> None:
        """A pod is gone, or has a node."""
        self._pauses_s.pop(uid, None)
