"""Nodes that owe an answer: where a reservation pod was asked for and did not say in time which device it holds.

Dead can't be told from slow, only slow from quick. So there are two degrees, both about opening devices only; to join
a device that is known asks nothing of the node:

- **late**: it owes an answer whose time is over, while other nodes answer in time. Those come first, and who waits
  for the late one is moved to them. Where all are slow alike nobody is late.
- **on probation**: an attempt there ended for want of an answer, or was taken back for it. The node is the last choice,
  and while it owes an answer to one pod or gang nobody else is sent there.

Both end with the next answer of any reservation there. Time alone ends neither: the node is tried when a pod fits
nowhere else, which costs nobody anything. No clock here: the shell says when the time of an answer is over.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from gpu.reservation import Reservation


class Doubt(enum.Enum):
    """Why a node comes last when it would have to open a device."""

    LATE = "late"
    #: One attempt may be made there.
    ON_PROBATION = "on-probation"
    #: That attempt is under way.
    PROBED = "probed"


class Probation:
    """Nodes that owe something. ``changed`` is called with one whose decisions may change."""

    __slots__ = ("_changed", "_failed", "_overdue", "_prompt")

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        #: Reservation (UID) whose time to answer is over -> its node.
        self._overdue: dict[str, str] = {}
        #: Nodes whose latest answer came in time.
        self._prompt: set[str] = set()
        self._failed: set[str] = set()

    def see(self, held: Reservation, known: Reservation | None) -> None:
        """Take a reservation as it is now, and as it was known before: whether it has answered in between."""
        if not held.is_told or (known is not None and known.is_told):
            return
        self._failed.discard(held.node)
        if self._overdue.pop(held.uid, None) is None:
            self._prompt.add(held.node)
        self._changed(held.node)

    def note_late(self, held: Reservation) -> bool:
        """The time to answer is over; return whether an answer is owed: a kubelet that pulls the image is at work."""
        if held.is_told or held.deleting or held.is_terminal or held.is_being_started:
            return False
        self._overdue[held.uid] = held.node
        self._prompt.discard(held.node)
        self._changed(held.node)
        return True

    def fail(self, node: str) -> None:
        """An attempt there ended for want of an answer."""
        self._failed.add(node)
        self._prompt.discard(node)
        self._changed(node)

    def forget_reservation(self, uid: str) -> None:
        """A reservation is gone, and its answer won't come."""
        node = self._overdue.pop(uid, None)
        if node is not None:
            self._changed(node)

    def forget_node(self, node: str) -> None:
        """A node is gone, or has become ready again: what was seen of it says nothing any more."""
        self._failed.discard(node)
        self._prompt.discard(node)
        self._overdue = {uid: at for uid, at in self._overdue.items() if at != node}

    def overdue(self) -> frozenset[str]:
        """Reservations (UIDs) whose time to answer is over."""
        return frozenset(self._overdue)

    def doubts(self, owes: Callable[[str], bool]) -> dict[str, Doubt]:
        """Nodes that come last. ``owes`` says whether an attempt under way waits for a node's answer."""
        late = [node for node in self._overdue.values() if node not in self._prompt] if self._prompt else []
        found = dict.fromkeys(late, Doubt.LATE)
        for node in sorted(self._failed):
            found[node] = Doubt.PROBED if owes(node) else Doubt.ON_PROBATION
        return found
