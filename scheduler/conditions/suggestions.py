"""Searches for what would let waiting groups start, for the last sentence of their pods' conditions.

Between decisions, and never in their way: one bounded try (core/what_if/suggestions.py) at a time, only when another
decision would do nothing, with a pause after each of at least 20 times its duration. At most five groups are finished
in a second, and at most 20 pods are written. A group that waits is looked at after 30 seconds.

What was said is tried again before ``RENEWED_S`` are over. It is taken back if it no longer helps, if the reason is
another one, and if there was no time to try it again. So the number of groups that are told something is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeAlias

import anyio
import msgspec

from kube.client.clock import Clock, monotonic_ns
from kube.watch.signal import Signal
from scheduler.conditions.suggestion_messages import hint_text
from scheduler.core.decide.changes import UnknownObject
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import Code
from scheduler.core.what_if import known_ends
from scheduler.core.what_if.edits import Edit, NotPossible, Subject, subject_of_group, subject_of_uid
from scheduler.core.what_if.known_ends import Wait
from scheduler.core.what_if.suggestions import MOST_PODS, Ends, hint_helps, hint_search, hint_trying
from scheduler.watch.cache import Cache
from wire.units import SECOND_NS

_log: Final = logging.getLogger(__name__)

#: Reasons that a change of the group, or an end of another pod, can help against.
HOPEFUL: Final = frozenset({Code.NO_NODE_FITS, Code.GANG_INCOMPLETE, Code.OVER_LIMIT, Code.OVER_QUOTA})
#: A group is looked at after it has waited this long.
AFTER_S: Final = 30.0
#: The sentence says that it is tried again, or gone, within this time.
RENEWED_S: Final = 600
#: It is tried again this long after it was tried; a group of which nothing was found, too.
_AGAIN_S: Final = 300.0
#: Groups that are told something at one time: those that can be tried again within ``RENEWED_S - _AGAIN_S``.
_MOST_TOLD: Final = 500
#: The shortest pause between two tries, and the least multiple of the time that a try took: 5 % of the time at most.
_PAUSE_S: Final = 0.05
_PAUSE_PER_TRY: Final = 20
#: Between two groups; and for each pod that is written.
_GROUP_S: Final = 0.2
_POD_S: Final = 0.05
#: For how long the known ends of all pods are used.
_ENDS_S: Final = 60.0
#: How long is waited for a decision at most before what is too old is looked for.
_LOOK_S: Final = 1.0

#: Namespace and name of a PodGroup, or the UID of a pod alone.
_Key: TypeAlias = tuple[str, str] | str


class _Group(msgspec.Struct, kw_only=True):
    """A group that waits. ``since``: when it was first heard of; ``due``: when it is looked at.

    ``said``: the edits that its pods were told, and ``said_to``: these pods (UIDs).
    """

    code: Code
    since: float
    due: float
    said: tuple[Edit, ...] = ()
    said_to: tuple[str, ...] = ()
    tried_at: float = 0.0


class Suggesting:
    """Finds sentences. ``suggest`` takes pods (UIDs) and what their conditions end with, "" for nothing."""

    def __init__(self, cache: Cache, *, clock: Clock, suggest: Callable[[Iterable[str], str], None]) -> None:
        self._cache = cache
        self._clock = clock
        self._suggest = suggest
        self._groups: dict[_Key, _Group] = {}
        #: Groups by when they are due; those that were told something come first.
        self._new: list[tuple[float, int, _Key]] = []
        self._told: list[tuple[float, int, _Key]] = []
        #: Those that were told something, the one that was tried longest ago first.
        self._by_age: dict[_Key, None] = {}
        self._numbers = count()
        self._ends: Ends = ()
        self._ends_until = float("-inf")
        self._wake = Signal()
        self._decided = Signal()

    # --- what decisions say ------------------------------------------------------------------------------------------
    def decided(self, entries: Sequence[Explain]) -> None:
        """Take what one decision says of waiting pods."""
        for entry in entries:
            for key in (entry.pod_group,) if entry.pod_group is not None else entry.pods:
                self._take(key, entry.verdict.code)
        self._decided.set()

    def _take(self, key: _Key, code: Code) -> None:
        known, now = self._groups.get(key), anyio.current_time()
        if known is not None and known.code is code:
            return
        if known is not None:
            self._take_back(key, known)
            known.code = code
        elif code in HOPEFUL:
            known = self._groups[key] = _Group(code=code, since=now, due=now)
        if known is not None and code in HOPEFUL:
            self._put(key, known, max(known.since + AFTER_S, now))

    def _put(self, key: _Key, group: _Group, due: float) -> None:
        group.due = due
        line = self._told if group.said else self._new
        heappush(line, (due, next(self._numbers), key))
        self._wake.set()

    def _take_back(self, key: _Key, group: _Group) -> None:
        if group.said:
            self._suggest(group.said_to, "")
        group.said, group.said_to = (), ()
        self._by_age.pop(key, None)

    def _forget(self, key: _Key) -> None:
        group = self._groups.pop(key, None)
        if group is not None:
            self._take_back(key, group)

    # --- one group after the other -----------------------------------------------------------------------------------
    async def run(self) -> None:
        """Look at groups until cancelled."""
        while True:
            key = await self._next()
            began = anyio.current_time()
            pods = await self._guarded(key, self._groups[key])
            slot_s = max(_GROUP_S, pods * _POD_S)
            await anyio.sleep(max(0.0, began + slot_s - anyio.current_time()))

    async def _next(self) -> _Key:
        while True:
            self._take_back_what_is_old()
            now = anyio.current_time()
            heads = [head for line in (self._told, self._new) if (head := self._head(line)) is not None]
            for due, key in heads:
                if due <= now:
                    return key
            next_at = min((due for due, _ in heads), default=None)
            with anyio.move_on_after(None if next_at is None else next_at - now):
                await self._wake.wait()

    def _head(self, line: list[tuple[float, int, _Key]]) -> tuple[float, _Key] | None:
        """The first that is still in this line."""
        while line:
            due, _, key = line[0]
            group = self._groups.get(key)
            is_next = group is not None and group.due == due and bool(group.said) == (line is self._told)
            if is_next and group is not None and group.code in HOPEFUL:
                return due, key
            heappop(line)
        return None

    def _take_back_what_is_old(self) -> None:
        now = anyio.current_time()
        while self._by_age:
            key = next(iter(self._by_age))
            group = self._groups[key]
            if group.tried_at + RENEWED_S > now:
                return
            self._take_back(key, group)
            self._put(key, group, now)

    async def _guarded(self, key: _Key, group: _Group) -> int:
        """What goes wrong with one group stops nothing else: nothing depends on what is found."""
        try:
            return await self._look(key, group)
        except Exception:  # noqa: BLE001 - the edge of what may fail without harm
            _log.exception("no change was tried for %s", key)
            self._take_back(key, group)
            self._put(key, group, anyio.current_time() + _AGAIN_S)
            return 0

    async def _look(self, key: _Key, group: _Group) -> int:
        """Try what was said, or search; return how many pods are written."""
        code, said = group.code, group.said
        if not said and len(self._by_age) >= _MOST_TOLD:
            self._put(key, group, anyio.current_time() + _AGAIN_S)
            return 0
        subject = await self._settled(key)
        if subject is None or not subject.waiting:
            self._forget(key)
            return 0
        if len(subject.waiting) > MOST_PODS and not said:
            self._put(key, group, anyio.current_time() + _AGAIN_S)
            return 0
        found = await (self._still(key, said) if said else self._search(key, subject))
        if self._groups.get(key) is not group or group.code is not code or code not in HOPEFUL or group.said != said:
            return 0
        return self._say(key, group, subject, found)

    def _say(self, key: _Key, group: _Group, subject: Subject, found: tuple[Edit, ...]) -> int:
        now = anyio.current_time()
        uids = tuple(sorted(subject.uids))
        said_to = uids if found else ()
        written = 0
        if (found, said_to) != (group.said, group.said_to):
            written = len(uids)
            self._suggest((uid for uid in group.said_to if uid not in subject.uids), "")
            self._suggest(uids, hint_text(found, renewed_s=RENEWED_S) if found else "")
        group.said, group.said_to, group.tried_at = found, said_to, now
        self._by_age.pop(key, None)
        if found:
            self._by_age[key] = None
        again_s = AFTER_S if written and not found else _AGAIN_S
        self._put(key, group, now + min([again_s, *self._times_left(found)]))
        return written

    def _times_left(self, found: tuple[Edit, ...]) -> list[float]:
        """Seconds until each time that is named is over."""
        return [max(1.0, edit.until_s - self._wall_s()) for edit in found if isinstance(edit, Wait)]

    # --- tries -------------------------------------------------------------------------------------------------------
    async def _search(self, key: _Key, subject: Subject) -> tuple[Edit, ...]:
        search = hint_search(subject, self._known_ends(), self._wall_s())
        try:
            question = next(search)
            while True:
                question = search.send(await self._helps(key, question))
        except StopIteration as done:
            found: tuple[Edit, ...] = done.value
            return found

    async def _still(self, key: _Key, said: tuple[Edit, ...]) -> tuple[Edit, ...]:
        """What of it still helps: nothing if the group starts as it is."""
        if await self._helps(key, None):
            return ()
        return tuple([edit for edit in said if await self._helps(key, edit)])

    async def _helps(self, key: _Key, edit: Edit | None) -> bool:
        subject = await self._settled(key)
        if subject is None or not subject.waiting or len(subject.waiting) > MOST_PODS:
            return False
        began = anyio.current_time()
        tried = hint_trying(self._snapshot(), subject, monotonic_ns(), self._wall_s())
        try:
            helps = hint_helps(tried, edit)
        except (NotPossible, UnknownObject):
            helps = False  # what it is about has changed meanwhile
        took_s = anyio.current_time() - began
        await anyio.sleep(max(_PAUSE_S, _PAUSE_PER_TRY * took_s))
        return helps

    async def _settled(self, key: _Key) -> Subject | None:
        """Wait until another decision would do nothing; return the group as it is then."""
        cluster = self._cache.cluster
        while not cluster.is_decided(monotonic_ns()):
            with anyio.move_on_after(_LOOK_S):
                await self._decided.wait()
            self._take_back_what_is_old()
        snapshot = self._snapshot()
        return subject_of_uid(snapshot, key) if isinstance(key, str) else subject_of_group(snapshot, *key)

    def _snapshot(self) -> Snapshot:
        return self._cache.cluster.snapshot()

    def _known_ends(self) -> Ends:
        """Known ends, read once in a while: that takes longer the more pods there are."""
        now = anyio.current_time()
        if now >= self._ends_until:
            ends = known_ends.all_ends(self._snapshot().pods.records.values())
            self._ends = sorted(ends, key=lambda pair: (pair[0].at_s, pair[1]))
            self._ends_until = now + _ENDS_S
        return self._ends

    def _wall_s(self) -> int:
        return self._clock.now_ns() // SECOND_NS
