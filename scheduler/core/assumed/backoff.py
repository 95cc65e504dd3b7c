"""Failed attempts: how long a pod waits, and which nodes are out for it.

Both times double with each failure, so that a bad pod or a bad node costs less and less and never wins every cycle
(no livelock, invariant L2). No clock here: the time is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from scheduler.core.model.settings import Settings

#: Keeps numbers short; the longest time is reached before.
_MOST_DOUBLINGS: Final = 40


@dataclass(slots=True)
class Setback:
    """What went wrong with one pod so far."""

    failures: int = 0
    #: How often the pod had been changed by somebody else when it was to be bound.
    overtaken: int = 0
    #: How often the pod was moved away from a node that didn't answer.
    moved: int = 0
    until_ns: int = 0
    reason: str = ""
    #: Node -> (failures there, excluded until).
    excluded: dict[str, tuple[int, int]] = field(default_factory=dict)

    def fail(self, node: str, reason: str, *, now_ns: int, settings: Settings) -> None:
        """Note a failure on ``node`` ("" when the node is not to blame)."""
        self.failures += 1
        self.reason = reason
        longest_ns = settings.longest_back_off_ns if node else settings.longest_blameless_back_off_ns
        self.until_ns = now_ns + _doubled(settings.back_off_ns, self.failures, longest_ns)
        if node:
            self._exclude(node, now_ns=now_ns, settings=settings)

    def move(self, node: str, *, now_ns: int, settings: Settings) -> None:
        """Note that the pod was taken back from a node that did not answer: it goes elsewhere, and at once."""
        self.moved += 1
        self._exclude(node, now_ns=now_ns, settings=settings)

    def keep_off(self, node: str, times: int, *, now_ns: int, settings: Settings) -> None:
        """Note that a node has refused pods like this one so often, and that this one need not wait elsewhere."""
        self._exclude(node, now_ns=now_ns, settings=settings, times=times)

    def _exclude(self, node: str, *, now_ns: int, settings: Settings, times: int = 1) -> None:
        count = self.excluded.get(node, (0, 0))[0] + times
        lasts_ns = _doubled(settings.exclusion_ns, count, settings.longest_exclusion_ns)
        self.excluded[node] = (count, now_ns + lasts_ns)

    def overtake(self, *, because: str, now_ns: int, settings: Settings) -> None:
        """Note that an attempt was for an old version of something: nobody's fault, but not for ever at once."""
        self.overtaken += 1
        if self.overtaken > settings.free_overtakings:
            self.fail("", because, now_ns=now_ns, settings=settings)

    def forgive(self, node: str) -> None:
        """Let the pod try a node again at once, as if it had not failed there."""
        self.excluded.pop(node, None)
        self.until_ns = 0

    def excluded_at(self, now_ns: int) -> tuple[str, ...]:
        """Nodes that are out now, sorted."""
        return tuple(sorted(node for node, (_, until_ns) in self.excluded.items() if now_ns < until_ns))

    def next_change_ns(self, now_ns: int) -> int | None:
        """When time alone changes something, None if never."""
        times = [self.until_ns, *(until_ns for _, until_ns in self.excluded.values())]
        return min((t for t in times if t > now_ns), default=None)


def _doubled(first_ns: int, times: int, longest_ns: int) -> int:
    return min(longest_ns, first_ns << min(times - 1, _MOST_DOUBLINGS))
