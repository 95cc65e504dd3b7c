"""The history of one resource type and who follows it.

A change is encoded at most once for each form in which it is sent (added, modified, deleted), however many watchers
there are. Watchers are pushed to, so that one whose selector does not match is not even woken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from simulator.apiserver.calls import Call
from simulator.apiserver.faults import REPEATED_MOST

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
