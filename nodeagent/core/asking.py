"""When kubelet is asked about which reservation pod: often at first, then seldom, and not at all once it is settled.

A table of the node's reservation pods, without clock: ``now_s`` is passed in. It is asked again after a change of the
pod's annotations by somebody else, and about all pods when another kubelet listens: after a reboot, or the loss of its
notes, it may have given another device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from nodeagent.core.witness import Held, Outcome

#: (for so long after the first question, a question each), in seconds; after all of them, the last pause.
PACE: Final = ((5.0, 0.05), (60.0, 1.0))
SELDOM_S: Final = 10.0
#: A kubelet that starts admits its pods once more, and may refuse one that has been given a device by then already. A
#: pod that was admitted before this kubelet, as far as is known, gets no new device within that time.
SETTLES_S: Final = 10.0
#: After a write that failed, doubled each time, up to SELDOM_S. Where a right is missing, which a person has to give,
#: up to LONGEST_FORBIDDEN_S.
FAILED_S: Final = 0.5
LONGEST_FORBIDDEN_S: Final = 300.0
#: More would be no number that a float can hold.
_MOST_DOUBLINGS: Final = 60


@dataclass(slots=True)
class _Entry:
    """A pod; ``since_s``: when its questions began; ``next_s``: when the next is due, infinite for never."""

    held: Held
    since_s: float
    next_s: float
    #: Its device may be told from then on.
    tell_s: float
    #: What its annotations are once what we wrote is seen; None: it is not settled.
    settled: tuple[str, bool] | None = None
    #: How often in a row a write failed.
    failures: int = 0


class Asking:
    """The node's reservation pods that kubelet has admitted and not ended, by UID."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        #: Seen before their admission, under this kubelet.
        self._new: set[str] = set()
        self._kubelet_since_s = -math.inf

    def see(self, held: Held, now_s: float) -> None:
        """Take a pod as it is now."""
        if held.is_over:
            self.forget(held.uid)
            return
        if not held.has_started:
            self._new.add(held.uid)
            return
        entry = self._entries.get(held.uid)
        if entry is None:
            tell_s = now_s if held.uid in self._new else self._kubelet_since_s + SETTLES_S
            self._entries[held.uid] = _Entry(held, now_s, now_s, tell_s)
            self._new.discard(held.uid)
            return
        entry.held = held
        if entry.settled is not None and entry.settled != _told(held):
            self._again(entry, now_s)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._entries.pop(uid, None)
        self._new.discard(uid)

    def get(self, uid: str) -> Held | None:
        """Return a pod as it was seen last; None: it is not asked about."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.held

    def uids(self) -> frozenset[str]:
        """Return all pods, those too that kubelet has not admitted."""
        return frozenset(self._entries) | self._new

    def another_kubelet(self, now_s: float) -> None:
        """Ask about all of them again; called for the first kubelet as well."""
        self._kubelet_since_s = now_s
        self._new.clear()
        for entry in self._entries.values():
            self._again(entry, now_s)
            entry.tell_s = now_s + SETTLES_S

    def may_tell(self, uid: str, now_s: float) -> bool:
        """Whether a pod's device may be told now."""
        entry = self._entries.get(uid)
        return entry is not None and now_s >= entry.tell_s

    def due(self, now_s: float) -> list[Held]:
        """Return the pods whose question is due."""
        return [entry.held for entry in self._entries.values() if entry.next_s <= now_s]

    def next_s(self) -> float:
        """Return when the next question is due; infinite: none is."""
        return min((entry.next_s for entry in self._entries.values()), default=math.inf)

    def asked_for_s(self, uid: str, now_s: float) -> float:
        """Return for how long a pod has been asked about."""
        entry = self._entries.get(uid)
        return 0.0 if entry is None else now_s - entry.since_s

    def answered(self, uid: str, outcome: Outcome, now_s: float, *, uuid: str = "") -> None:
        """Note what came of a question, after what was to be written is written.

        ``uuid``: the device that was told with TOLD.
        """
        entry = self._entries.get(uid)
        if entry is None:
            return
        if not outcome.is_settled:
            self.postpone(uid, now_s)
            return
        entry.failures = 0
        entry.next_s = math.inf
        entry.settled = (uuid, True) if outcome is Outcome.TOLD else _told(entry.held)

    def postpone(self, uid: str, now_s: float) -> None:
        """No answer came, or the pod was changed before it could be written: ask again at the usual pace."""
        if (entry := self._entries.get(uid)) is not None:
            entry.next_s = now_s + _pause_s(now_s - entry.since_s)

    def failed(self, uid: str, now_s: float, *, is_forbidden: bool) -> None:
        """What was to be written could not be: ask again after a pause."""
        if (entry := self._entries.get(uid)) is not None:
            entry.failures += 1
            longest_s = LONGEST_FORBIDDEN_S if is_forbidden else SELDOM_S
            entry.next_s = now_s + min(FAILED_S * (1 << min(entry.failures, _MOST_DOUBLINGS)), longest_s)

    @staticmethod
    def _again(entry: _Entry, now_s: float) -> None:
        entry.since_s = entry.next_s = now_s
        entry.settled = None


def _told(held: Held) -> tuple[str, bool]:
    return held.uuid, held.is_witnessed


def _pause_s(asked_for_s: float) -> float:
    return next((pause for until, pause in PACE if asked_for_s < until), SELDOM_S)
