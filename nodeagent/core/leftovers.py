"""How long a tenant's folder or file stays after its pod has left all books. Pure: times are passed in.

A container that was started with a folder or file can't be given another one. A pod may be out of all books for longer
than a minute, while a lost reservation is made again, and come back. So what it mounts stays for a day: no pod runs
that long without a book, since healing moves it. Nothing here knows whether the pod's control group is there, and the
agent has no right to see that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

KEPT_S: Final = 86_400.0
#: Of more the ones that were left first go.
MOST: Final = 1_024


class Leftovers:
    """Remembers since when each of them has been left, as far as it was seen since the agent was started.

    ``most``: how many stay.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._since_s: dict[str, float] = {}

    def expired(self, left: Collection[str], now_s: float) -> frozenset[str]:
        """Take in which are left now, and return those that are to be removed."""
        self._since_s = {name: self._since_s.get(name, now_s) for name in sorted(left)}
        oldest_first = sorted(self._since_s, key=self._since_s.__getitem__)
        too_many = oldest_first[: max(len(oldest_first) - self._most, 0)]
        return frozenset(too_many) | {name for name, at_s in self._since_s.items() if now_s - at_s >= KEPT_S}
