"""All objects, one resourceVersion counter, and the history of each type with those who follow it: the server's etcd.

Stored objects are never changed in place: every write puts a new dict, which may share parts with the old one. So a
reader may keep what it was given, and history costs no copies. A change is encoded at most once for each form in which
it is sent (added, modified, deleted), however many watchers there are. Watchers are pushed to, so that one whose
selector does not match is not even woken.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from simulator.apiserver.calls import Call
from simulator.apiserver.faults import REPEATED_MOST
from simulator.apiserver.selectors import field_of
from simulator.apiserver.types import ResourceType

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True, frozen=True)
class Stored:
    """An object as stored: decoded, encoded, and its version as a number."""

    obj: dict[str, Any]
    raw: bytes
    rv: int


@dataclass(slots=True)
class Change:
    """One write: ``old`` is None for a creation, ``new`` for a deletion (then ``gone`` is the last state)."""

    rv: int
    key: str
    old: Stored | None
    new: Stored | None
    gone: Stored | None = None
    _lines: dict[str, bytes] = field(default_factory=dict)

    def line(self, matches: Callable[[dict[str, Any]], bool]) -> bytes | None:
        """Return the watch event that a watcher with this selector sees, or None.

        An object that leaves the selection is reported as deleted, in its last matching state under the new version.
        """
        was = self.old is not None and matches(self.old.obj)
        if self.new is None:
            return self._line("DELETED") if was else None
        if matches(self.new.obj):
            return self._line("MODIFIED" if was else "ADDED")
        return self._line("LEFT") if was else None

    def _line(self, form: str) -> bytes:
        line = self._lines.get(form)
        if line is None:
            line = self._lines[form] = self._render(form)
        return line

    def _render(self, form: str) -> bytes:
        if form == "LEFT":
            return event_line("DELETED", self._left())
        stored = self.new or self.gone
        if stored is None:  # a change has one of them
            raise AssertionError(self)
        return event_line(form, stored.raw)

    def _left(self) -> bytes:
        if self.old is None:  # only what was there can leave
            raise AssertionError(self)
        meta = {**self.old.obj["metadata"], "resourceVersion": str(self.rv)}
        return _encode({**self.old.obj, "metadata": meta})


def event_line(form: str, raw: bytes) -> bytes:
    """Return one line of a watch stream."""
    return b'{"type":"%s","object":%s}' % (form.encode(), raw)


def _never(_call: Call, _line: bytes) -> int:
    return 0


@dataclass(slots=True, eq=False)
class Watcher:
    """One open watch: lines wait here until the stream takes them."""

    call: Call
    matches: Callable[[dict[str, Any]], bool]
    #: Seconds by which a line is held back; a fault point.
    delay_s: Callable[[Call, bytes], float]
    #: How many of the newest lines are sent again after a line; a fault point.
    repeats: Callable[[Call, bytes], int] = _never
    lines: deque[tuple[float, bytes]] = field(default_factory=deque)
    #: Set when there is something new; the task that waited replaces it.
    news: anyio.Event = field(default_factory=anyio.Event)
    #: The stream breaks off (Unreachable) as soon as it looks.
    cut: bool = False
    #: The stream ends after the lines that are queued.
    over: bool = False
    _newest: deque[bytes] = field(default_factory=lambda: deque(maxlen=REPEATED_MOST))

    def offer(self, change: Change, now: float) -> None:
        """Take a change in if it is of interest."""
        line = change.line(self.matches)
        if line is not None:
            self.push(line, now)

    def push(self, line: bytes, now: float) -> None:
        """Queue a line, later than those before it by order, held back by its delay."""
        due = now + self.delay_s(self.call, line)
        if self.lines:
            due = max(due, self.lines[-1][0])
        self._newest.append(line)
        self.lines.append((due, line))
        if again := self.repeats(self.call, line):
            self.lines.extend((due, old) for old in list(self._newest)[-again:])
        self.news.set()

    def break_off(self) -> None:
        """Break the stream."""
        self.cut = True
        self.news.set()


class Log:
    """The changes of one type since the last compaction, and its watchers in the order in which they came."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque()
        self.watchers: dict[Watcher, None] = {}

    def append(self, change: Change) -> None:
        """Add a change."""
        self._changes.append(change)

    def notify(self, change: Change) -> None:
        """Offer a change to all watchers."""
        now = anyio.current_time()
        for watcher in self.watchers:
            watcher.offer(change, now)

    def forget(self, rv: int) -> None:
        """Drop the changes up to and including ``rv``."""
        while self._changes and self._changes[0].rv <= rv:
            self._changes.popleft()

    def has_after(self, rv: int) -> bool:
        """Say whether anything changed after ``rv``."""
        return bool(self._changes) and self._changes[-1].rv > rv

    def after_backwards(self, rv: int) -> Iterator[Change]:
        """Yield the changes after ``rv``, newest first."""
        for change in reversed(self._changes):
            if change.rv <= rv:
                return
            yield change

    def after(self, rv: int) -> list[Change]:
        """Return the changes after ``rv`` in order."""
        return list(self.after_backwards(rv))[::-1]


Object = dict[str, Any]

#: By so much versions go on above a restore, as in docs/operate.md.
_BUMP: Final = 1_000_000_000


@dataclass(slots=True)
class Table:
    """The objects of one type, by key, and their history."""

    kind: ResourceType
    objects: dict[str, Stored] = field(default_factory=dict)
    #: The keys of ``objects``, sorted: the order of lists and pages.
    keys: list[str] = field(default_factory=list)
    log: Log = field(default_factory=Log)
    #: Field -> value -> keys of the objects that have it, of fields by which somebody asked.
    _by_field: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def keys_having(self, path: str, value: str) -> list[str]:
        """Return the keys of the objects whose field has this value, in order: a node's pods among thousands."""
        index = self._by_field.get(path)
        if index is None:
            index = self._by_field[path] = {}
            for key, stored in self.objects.items():
                index.setdefault(field_of(stored.obj, path.split(".")), set()).add(key)
        return sorted(index.get(value, ()))

    def reindex(self, key: str, old: Stored | None, new: Stored | None) -> None:
        """Take in that the object under a key has changed."""
        for path, index in self._by_field.items():
            parts = path.split(".")
            before = None if old is None else field_of(old.obj, parts)
            after = None if new is None else field_of(new.obj, parts)
            if before == after:
                continue
            if before is not None:
                index[before].discard(key)
                if not index[before]:
                    del index[before]
            if after is not None:
                index.setdefault(after, set()).add(key)

    def keys_within(self, prefix: str, start: str = "") -> list[str]:
        """Return the keys that begin with ``prefix`` and are not before ``start``, in order."""
        return within(self.keys, prefix, start)

    def at(self, rv: int) -> dict[str, Stored]:
        """Return the objects as they were at a resourceVersion, by undoing what came after it."""
        objects = dict(self.objects)
        for change in self.log.after_backwards(rv):
            if change.old is None:
                del objects[change.key]
            else:
                objects[change.key] = change.old
        return objects


def _is_same(one: Stored, other: Stored | None) -> bool:
    """Whether both are states of one object, and not of two that have their name in common."""
    return other is not None and one.obj["metadata"]["uid"] == other.obj["metadata"]["uid"]


def within(keys: list[str], prefix: str, start: str = "") -> list[str]:
    """Return the sorted keys that begin with ``prefix`` and are not before ``start``."""
    low = bisect_left(keys, max(prefix, start))
    high = bisect_left(keys, prefix + "\U0010ffff") if prefix else len(keys)
    return keys[low:high]


class Store:
    """The objects of all types under one counter."""

    def __init__(self, types: Iterable[ResourceType], *, history: int) -> None:
        self.tables: dict[tuple[str, str, str], Table] = {each.root: Table(each) for each in types}
        #: The newest resourceVersion.
        self.rv = 0
        #: Changes up to and including this one can't be read any more.
        self.compacted_rv = 0
        self._history = history
        self._listeners: list[Callable[[Table, Change], None]] = []

    def add(self, kind: ResourceType) -> None:
        """Store objects of another type."""
        self.tables[kind.root] = Table(kind)

    def listen(self, listener: Callable[[Table, Change], None]) -> None:
        """Call ``listener`` after every change, in the order of registration."""
        self._listeners.append(listener)

    def table(self, kind: ResourceType) -> Table:
        """Return the table of a type."""
        return self.tables[kind.root]

    def get(self, kind: ResourceType, key: str) -> Stored | None:
        """Return the current object under a key."""
        return self.tables[kind.root].objects.get(key)

    def objects(self, kind: ResourceType) -> Iterator[Object]:
        """Yield the objects of a type in the order of their keys."""
        table = self.tables[kind.root]
        return (table.objects[key].obj for key in list(table.keys))

    def put(self, kind: ResourceType, key: str, obj: Object) -> Stored:
        """Create or replace an object. ``obj`` and its metadata belong to the store from here on."""
        table = self.tables[kind.root]
        old = table.objects.get(key)
        new = self._stamp(obj)
        table.objects[key] = new
        table.reindex(key, old, new)
        if old is None:
            insort(table.keys, key)
        self._record(table, Change(rv=new.rv, key=key, old=old, new=new))
        return new

    def remove(self, kind: ResourceType, key: str) -> Stored:
        """Delete an object and return its last state under the version of the deletion."""
        table = self.tables[kind.root]
        old = table.objects.pop(key)
        del table.keys[bisect_left(table.keys, key)]
        table.reindex(key, old, None)
        gone = self._stamp({**old.obj, "metadata": {**old.obj["metadata"]}})
        self._record(table, Change(rv=gone.rv, key=key, old=old, new=None, gone=gone))
        return gone

    def compact(self) -> None:
        """Forget all history up to and including the current version."""
        self.compacted_rv = self.rv
        for table in self.tables.values():
            table.log.forget(self.compacted_rv)

    def restore(self, rv: int) -> None:
        """Set all objects back to what they were at ``rv``, as a restored etcd has them; the counter goes on far above.

        Each has the version that it had then, which is older than the one that was seen last. Nothing can be watched or
        listed from before the restore (``etcdutl snapshot restore --bump-revision --mark-compacted``).
        """
        self.rv += _BUMP
        for table in self.tables.values():
            before = table.at(max(rv, self.compacted_rv))
            for key in [key for key in table.keys if not _is_same(table.objects[key], before.get(key))]:
                self.remove(table.kind, key)
            for key, stored in before.items():
                if table.objects.get(key) is not stored:
                    self._put_back(table, key, stored)
        self.compact()

    def _put_back(self, table: Table, key: str, stored: Stored) -> None:
        old = table.objects.get(key)
        table.objects[key] = stored
        table.reindex(key, old, stored)
        if old is None:
            insort(table.keys, key)
        self.rv += 1
        self._record(table, Change(rv=self.rv, key=key, old=old, new=stored))

    def _stamp(self, obj: Object) -> Stored:
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        return Stored(obj=obj, raw=_encode(obj), rv=self.rv)

    def _record(self, table: Table, change: Change) -> None:
        table.log.append(change)
        if self.rv - self._history > self.compacted_rv:
            self.compacted_rv = self.rv - self._history
            table.log.forget(self.compacted_rv)
        table.log.notify(change)
        for listener in self._listeners:
            listener(table, change)
