"""A recorded run, wound to any moment: what it was made of then, drawn when somebody asks for it.

Some places in the run are drawn at a time. Who goes on from where he was is given one that stands there, and what
differs is put in and drawn: so playing costs what happens. Readers do not disturb each other, since a place is a moment
and nobody's; who comes from elsewhere costs a drawing of all that differs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Final

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskStatus

from runtime.text import BadInput
from ui.page.index import FORM, GONE, Index, Line, Marker, Name, decode, marks, take
from ui.page.objects import Objects
from ui.page.stream import Frames
from ui.page.values import Changes, Mark, Run

#: Lines that are read, and nodes that are drawn, before other tasks get a turn (some ms).
_LINES_PER_TURN: Final = 64
_NODES_PER_TURN: Final = 4
#: The most places that are drawn at a time: each is as large as a page of the cluster.
MOST_PLACES: Final = 4
#: After this many changes a drawn place is of no use: most of what a large cluster shows has changed.
FAR: Final = 2000


class FileChanged(Exception):
    """Raised when the file is not what was read when it was opened."""


class Moment(msgspec.Struct, frozen=True):
    """``frames`` draw it. ``changes``: since the moment that the reader knew; None: he has to be told the whole."""

    at_ms: int
    frames: Frames
    changes: Changes | None


class Recorded:
    """The run in a file, to be closed. What is written to it later is not looked at.

    Raises BadInput for a file that is none.
    """

    def __init__(self, path: Path) -> None:
        self._index = Index()
        self._marked: list[Mark] = []
        self._trouble = ""
        self.is_in_step = False
        self.from_ms = 0
        self.to_ms = 0
        try:
            with path.open("rb") as lines:
                first = decode(next(lines, b"{}"))
        except (OSError, msgspec.DecodeError) as error:
            raise BadInput(f"--open {path}: {error}") from error
        if first.form != FORM:
            raise BadInput(f"--open {path}: not a recorded run; allowed: a file that --record made")
        self._file: IO[bytes] = path.open("rb")
        self.began_ms = first.began_ms
        self._places = anyio.Semaphore(MOST_PLACES)
        #: Those that nobody asks now, the one that was asked last at the end.
        self._idle = [_Place(self._index, self._read) for _ in range(MOST_PLACES)]

    async def read(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Read it once, and note where what is. It is in step then."""
        index, marker = self._index, Marker()
        found_until: int | None = None
        for number, line in enumerate(self._lines(), 1):
            index.at_ms = max(index.at_ms, line.at_ms)
            marker.take(line, index.at_ms)
            take(index, line)
            if line.is_in_step and found_until is None:
                found_until = index.at_ms
            if number % _LINES_PER_TURN == 0:
                index.take_marks()
                await anyio.lowlevel.checkpoint()
        self.to_ms = index.at_ms
        self.from_ms = self.to_ms if found_until is None else found_until
        self._marked = marks(marker.warnings, self.from_ms, self.to_ms)
        index.forget_objects()
        self.is_in_step = True
        task_status.started()

    def close(self) -> None:
        """Nothing more is asked."""
        self._file.close()

    def troubles(self) -> tuple[str, ...]:
        """What of the file can't be read."""
        return (self._trouble,) if self._trouble else ()

    def silent_s(self) -> int:
        """A file is never late."""
        return 0

    def idle(self) -> tuple[str, ...]:
        """Nothing is known of what works now."""
        return ()

    def about(self, speed: float) -> Run:
        """What a reader receives about the run itself."""
        return Run(
            began_ms=self.began_ms, from_ms=self.from_ms, to_ms=self.to_ms, speed=speed, marks=tuple(self._marked)
        )

    @asynccontextmanager
    async def at(self, at_ms: int, known_ms: int | None = None) -> AsyncIterator[Moment]:
        """Draw a moment; the nearest one that there is. Nobody else has it as long as the context is open.

        Raises FileChanged.
        """
        at_ms = max(self.from_ms, min(at_ms, self.to_ms))
        aim = self._index.place(at_ms)
        known = -1 if known_ms is None else self._index.place(known_ms)
        async with self._places:
            place = self._choose(aim, known)
            is_known = place.number == known
            self._idle.remove(place)
            before = place.frames.id
            try:
                for number, _ in enumerate(place.move(aim), 1):
                    if number % _NODES_PER_TURN == 0:
                        await anyio.lowlevel.checkpoint()
            except BaseException:
                self._idle.insert(0, _Place(self._index, self._read))  # it stands between two moments
                raise
            try:
                missed = place.frames.since(before) or []
                changes = missed[-1].changes if missed else Changes()
                yield Moment(at_ms, place.frames, changes if is_known else None)
            finally:
                self._idle.append(place)

    def _choose(self, aim: int, known: int) -> _Place:
        """The place that a reader knows; if it is far, one that is near; else the one that was asked longest ago.

        So who goes far leaves what is drawn where he was, and is soon back.
        """
        there = next((each for each in self._idle if each.number == known), None)
        if there is None:
            return self._idle[0]
        nearest = min((there, *self._idle), key=lambda each: abs(each.number - aim))
        near = (each for each in (there, nearest) if abs(each.number - aim) <= FAR)
        return next(near, self._idle[0])

    def _lines(self) -> Iterator[Line]:
        """Up to the end, or to the first line that can't be read: the last one may have been cut."""
        self._index.offset = len(self._file.readline())
        for number, text in enumerate(self._file, 2):
            try:
                yield decode(text)
            except msgspec.DecodeError as error:
                self._trouble = f"the recording from line {number} on: {error}"
                return
            self._index.offset += len(text)

    def _read(self, offset: int) -> Line:
        self._file.seek(offset)
        try:
            return decode(self._file.readline())
        except msgspec.DecodeError as error:
            raise FileChanged("the file of the recorded run was changed after it was opened") from error


class _Place:
    """What the run was made of at one place of its index, which is where ``number`` says."""

    def __init__(self, index: Index, read: Callable[[int], Line]) -> None:
        self._index = index
        self._read = read
        self.objects = Objects()
        self.frames = Frames(self.objects, "place", most=1)
        self.number = 0

    def move(self, to: int) -> Iterator[None]:
        """Put in what differs there, and draw it as one revision; yields now and then, so that others get a turn."""
        index, objects = self._index, self.objects
        offsets = {name: index.offset_at(name, to) for name in index.between(self.number, to)}
        for name, offset in offsets.items():
            if offset == GONE:
                _drop(objects, name)
        for number, offset in enumerate(sorted(filter(None, offsets.values()))):
            take(objects, self._read(offset))
            if number % _LINES_PER_TURN == 0:
                yield
        if to < self.number:
            objects.events = index.in_order(objects.events, to)
        yield from self.frames.draw()
        self.number = to


def _drop(objects: Objects, name: Name) -> None:
    key: Any = name.key
    drops: dict[str, Callable[[Any], None]] = {
        "node": objects.drop_node,
        "pod": objects.drop_pod,
        "request": objects.drop_request,
        "group": objects.drop_group,
        "event": objects.drop_event,
        "queue": objects.drop_queue,
    }
    drops[name.kind](key)
