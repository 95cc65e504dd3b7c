"""What is remembered of deleted objects for as long as anybody may still speak of them, and which version is older.

A UID that is deleted never returns, but an answer of the API server tells how things were when it was given, and may be
taken in after the watch has told of the deletion. That can be late by no more than a request may take
(kube/client/api.py: 10 s and a second). So what is gone is remembered for two periods at least, and no table grows with
what there once was.

Periods are counted by their ends, not by a clock: a process that is stopped for an hour and goes on sees one end, not
120, and an answer that had waited in its sockets still finds what it has to find. resourceVersions are compared as
decimal integers (KEP-5504).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

#: At 10,000 writes a second a server takes three hours for this number; a watch brings a version once a minute. A
#: restored etcd goes on 1,000,000,000 above its snapshot (``--bump-revision``, as its documentation has it).
_JUMP: Final = 100_000_000


def is_older(rv: str, than: str) -> bool:
    """Whether ``rv`` came before ``than``. Versions that are no numbers can't be compared: then it is not older."""
    return rv.isascii() and rv.isdigit() and than.isascii() and than.isdigit() and int(rv) < int(than)


def has_jumped(rv: str, since: str) -> bool:
    """Whether ``rv`` is further from ``since`` than a server can write: it was restored in between."""
    return rv.isascii() and rv.isdigit() and since.isascii() and since.isdigit() and int(rv) - int(since) >= _JUMP


V = TypeVar("V")

#: Seconds between two calls of ``Recent.age``, by the event loop's clock.
PERIOD_S: Final = 30.0


class Recent(Generic[V]):
    """Values by key, for two to three periods."""

    __slots__ = ("_last", "_now", "_oldest")

    def __init__(self) -> None:
        self._now: dict[str, V] = {}
        self._last: dict[str, V] = {}
        self._oldest: dict[str, V] = {}

    def put(self, key: str, value: V) -> None:
        """Remember; a known key is as good as new."""
        self.forget(key)
        self._now[key] = value

    def forget(self, key: str) -> None:
        """Forget a key, known or not."""
        for period in (self._now, self._last, self._oldest):
            period.pop(key, None)

    def get(self, key: str) -> V | None:
        """Return what is remembered, or None."""
        for period in (self._now, self._last, self._oldest):
            if key in period:
                return period[key]
        return None

    def age(self, is_needed: Callable[[str, V], bool]) -> None:
        """A period is over: forget what has seen two others end, but for what is needed still."""
        needed = {key: value for key, value in self._oldest.items() if is_needed(key, value)}
        self._oldest = self._last | needed
        self._last = self._now
        self._now = {}

    def __contains__(self, key: object) -> bool:
        return key in self._now or key in self._last or key in self._oldest

    def __len__(self) -> int:
        return len(self._now) + len(self._last) + len(self._oldest)
