"""Writes of status that nothing depends on: each object at most once in a while, all at a bounded rate, in turns.

Commits come first, so there are few at a time. A write that failed is repeated, less and less often. While the API
server fails or forbids them, no object is written at all. Namespaces take turns, and some reasons of waiting pods have
a bounded rate: where many pods have the same passing reason at once, most have started before their turn comes.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, Generic, TypeVar

import anyio
import anyio.lowlevel

from kube.client.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from kube.client.retry import doubled_s
from kube.watch.signal import Signal

K = TypeVar("K", bound=Hashable)


class ByNamespace(Generic[K]):
    """Objects: those of a namespace in the order in which they came, and one of each namespace in turn.

    So a namespace with thousands of them holds up its own, and no others.
    """

    def __init__(self) -> None:
        #: The namespace that is next comes first.
        self._keys: OrderedDict[str, dict[K, None]] = OrderedDict()
        self._namespace_of: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._namespace_of)

    def put(self, key: K, namespace: str) -> None:
        """Queue an object; one that is queued keeps its place."""
        if key not in self._namespace_of:
            self._namespace_of[key] = namespace
            self._keys.setdefault(namespace, {})[key] = None

    def discard(self, key: K) -> None:
        """Take an object out, if it is queued."""
        namespace = self._namespace_of.pop(key, None)
        if namespace is None:
            return
        keys = self._keys[namespace]
        del keys[key]
        if not keys:
            del self._keys[namespace]

    def pop(self) -> K:
        """Take the next object out. Raises StopIteration where none is queued."""
        namespace = next(iter(self._keys))
        key = next(iter(self._keys[namespace]))
        self.discard(key)
        if namespace in self._keys:
            self._keys.move_to_end(namespace)
        return key

    def clear(self) -> None:
        """Take all out."""
        self._keys.clear()
        self._namespace_of.clear()


class Turns:
    """Pods (UIDs) in the order in which they may speak. ``per_s``: turns a second at most, by the event loop's time."""

    def __init__(self, per_s: int) -> None:
        self._each_s = 1 / per_s
        self._pods = ByNamespace[str]()
        self._next_at = -math.inf

    def put(self, uid: str, namespace: str) -> None:
        """Queue a pod; one that is queued keeps its place."""
        self._pods.put(uid, namespace)

    @property
    def next_at(self) -> float:
        """When the next pod has its turn; infinite where none is queued."""
        return self._next_at if self._pods else math.inf

    def take(self, now: float, is_due: Callable[[str], bool]) -> str | None:
        """Return the pod whose turn it is, or None. Pods that are not due any more leave without a turn."""
        if now < self._next_at:
            return None
        while self._pods:
            uid = self._pods.pop()
            if is_due(uid):
                self._next_at = now + self._each_s
                return uid
        return None


_log: Final = logging.getLogger(__name__)

#: Writes side by side, and how many start a second at most; after a rest as many as of one second start together.
IN_FLIGHT: Final = 4
PER_S: Final = 50
#: Pauses after failures: the first, and the longest.
_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 300.0
#: Objects that are looked at without a pause.
_LOOKS: Final = 25


class PacedWrites(Generic[K]):
    """Looks at objects that may have to be written. ``is_due``: whether one does; it changes nothing, and is cheap.

    ``every_s``: between two writes of one object. ``gather_s``: from a change to the look at it, and between two looks
    at one object: what comes meanwhile is one write. ``what``: the writes' name in the log. ``namespace_of`` an object:
    namespaces take turns.
    """

    def __init__(
        self,
        what: str,
        *,
        is_due: Callable[[K], bool],
        write: Callable[[K], Awaitable[None]],
        every_s: float,
        gather_s: float = 0.0,
        namespace_of: Callable[[K], str] = lambda _: "",
    ) -> None:
        self._what = what
        self._namespace_of = namespace_of
        self._is_due = is_due
        self._write = write
        self._every_s = every_s
        self._gather_s = gather_s
        self._is_running = False
        #: Objects to be looked at.
        self._fresh = ByNamespace[K]()
        #: Objects to be looked at later, as a heap of (when, number, object).
        self._later: list[tuple[float, int, K]] = []
        self._put_off: set[K] = set()
        self._numbers = count()
        #: Object -> before when it is not written again (event loop's time), and how often in a row it was refused.
        self._not_before: dict[K, float] = {}
        self._refused: dict[K, int] = {}
        self._writing: set[K] = set()
        self._changed_meanwhile: set[K] = set()
        #: When the next write may start, by the rate; and when, as the API server took none. Failures in a row.
        self._next_at = self._shut_until = -inf
        self._failures = 0
        self._wake = Signal()

    def look_at(self, key: K) -> None:
        """Have an object written if it has to be. While nobody writes this does nothing."""
        if not self._is_running:
            return
        if key in self._writing:
            self._changed_meanwhile.add(key)
        elif self._gather_s:
            self._put_off_until(key, anyio.current_time() + self._gather_s)
        else:
            self._fresh.put(key, self._namespace_of(key))
            self._wake.set()

    def forget(self, key: K) -> None:
        """It is gone. One of its name may come again, and is written at once."""
        self._fresh.discard(key)
        self._not_before.pop(key, None)
        self._refused.pop(key, None)

    async def run(self, first: Iterable[K] = ()) -> None:
        """Write until cancelled; look at these first."""
        self._begin()
        for key in first:
            self.look_at(key)
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    self._take_those_due()
                    looked = 0
                    while looked < _LOOKS and self._may_start() and self._fresh:
                        looked += 1
                        key = self._fresh.pop()
                        if self._is_its_turn(key):
                            self._start(key)
                            tasks.start_soon(self._turn, key)
                    await self._rest(has_more=looked == _LOOKS)
        finally:
            self._is_running = False

    def _begin(self) -> None:
        self._is_running = True
        self._fresh.clear()
        for kept in (self._later, self._put_off, self._writing, self._changed_meanwhile):
            kept.clear()
        self._shut_until = -inf

    def _take_those_due(self) -> None:
        now = anyio.current_time()
        while self._later and self._later[0][0] <= now:
            _, _, key = heappop(self._later)
            self._put_off.discard(key)
            if key not in self._writing:
                self._fresh.put(key, self._namespace_of(key))

    def _may_start(self) -> bool:
        now = anyio.current_time()
        return len(self._writing) < IN_FLIGHT and self._next_at <= now and self._shut_until <= now

    def _is_its_turn(self, key: K) -> bool:
        """Whether an object is to be written now; one that has to wait is put off on the way."""
        if not self._is_due(key):
            return False
        at = self._not_before.get(key, -inf)
        if at <= anyio.current_time():
            return True
        self._put_off_until(key, at)
        return False

    def _put_off_until(self, key: K, at: float) -> None:
        if key in self._put_off:
            return
        self._put_off.add(key)
        heappush(self._later, (at, next(self._numbers), key))
        if self._later[0][2] == key:
            self._wake.set()

    def _start(self, key: K) -> None:
        now = anyio.current_time()
        self._next_at = max(self._next_at, now - 1.0) + 1 / PER_S
        self._not_before[key] = now + self._every_s
        self._writing.add(key)

    async def _rest(self, *, has_more: bool) -> None:
        """Wait for something to look at, or for the time of what waits; let others run at least."""
        if has_more:
            await anyio.lowlevel.checkpoint()
            return
        now = anyio.current_time()
        until = self._later[0][0] if self._later else inf
        if self._fresh and len(self._writing) < IN_FLIGHT:
            until = min(until, max(self._next_at, self._shut_until))
        with anyio.move_on_after(None if until == inf else max(0.0, until - now)):
            await self._wake.wait()

    async def _turn(self, key: K) -> None:
        try:
            await self._write(key)
        except NotFound:
            self.forget(key)  # what comes by its name is seen
        except Conflict:
            self._changed_meanwhile.add(key)
        except (BadRequest, Invalid) as error:
            self._refuse(key, error)
        except ApiError as error:
            self._shut(error)
            self._changed_meanwhile.add(key)
        else:
            self._failures = 0
            self._refused.pop(key, None)
        finally:
            self._writing.discard(key)
            if key in self._changed_meanwhile:
                self._changed_meanwhile.discard(key)
                self._fresh.put(key, self._namespace_of(key))
            self._wake.set()

    def _refuse(self, key: K, error: ApiError) -> None:
        failures = self._refused[key] = self._refused.get(key, 0) + 1
        pause_s = doubled_s(max(_PAUSE_S, self._every_s), failures, longest_s=_LONGEST_PAUSE_S)
        _log.warning("%s of %s was refused, again in %.0f s: %s", self._what, key, pause_s, error)
        self._not_before[key] = anyio.current_time() + pause_s
        self._changed_meanwhile.add(key)

    def _shut(self, error: ApiError) -> None:
        """Write nothing for a while. Writes that were under way together count as one failure."""
        now = anyio.current_time()
        if now < self._shut_until:
            return
        pause_s = doubled_s(_PAUSE_S, self._failures, longest_s=_LONGEST_PAUSE_S)
        self._failures += 1
        self._shut_until = now + pause_s
        because = "is forbidden" if isinstance(error, Forbidden) else "failed"
        _log.warning("%s %s, again in %.0f s: %s", self._what, because, pause_s, error)
