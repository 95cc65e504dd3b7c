"""The rows of a recorded run, and an index of them by object and moment. Pure.

A row is an object as a watch brought it, or the name of a deleted one, as JSON. The first row names the format and the
time at which the recording began. The state at a moment is the last row of each object up to there, so it is found
without playing what came before. A change takes 24 bytes and an object of any size some hundred, so an index is small
beside its file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from typing_extensions import override

from ui.page.objects import Key, Objects, placed
from ui.page.values import EventLine, Mark
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

_T = TypeVar("_T")

FORM: Final = "moorage-run-1"
#: No run is longer (31 years), and what is asked of it has no more digits (ui/commands/page.py).
_MOST_MS: Final = 10**12 - 1
#: The last day that a browser's clock knows.
_LAST_MS: Final = 8_640_000_000_000_000


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that happened, ``at_ms`` after the beginning. ``is_in_step``: all before it is how it was found.

    ``began_ms``: the wall clock at the beginning, since the epoch, in the first row.
    """

    at_ms: Annotated[int, msgspec.Meta(ge=0, le=_MOST_MS)] = 0
    form: str = ""
    began_ms: Annotated[int, msgspec.Meta(ge=0, le=_LAST_MS)] = 0
    is_in_step: bool = False
    node: Node | None = None
    pod: Pod | None = None
    request: BindRequest | None = None
    group: PodGroup | None = None
    event: EventLine | None = None
    written_queue: Queue | None = None
    gone_node: str = ""
    gone_pod: str = ""
    gone_request: Key | None = None
    gone_group: Key | None = None
    gone_event: str = ""
    gone_queue: str = ""


_decoder: Final = msgspec.json.Decoder(Line)


def decode(text: bytes) -> Line:
    """Read a line. Raises msgspec.DecodeError, for bytes that are no text and nesting without end, too."""
    try:
        return _decoder.decode(text)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


def take(objects: Objects, line: Line) -> None:
    """Tell objects what a line says."""
    _if(line.node, objects.put_node)
    _if(line.pod, objects.put_pod)
    _if(line.request, objects.put_request)
    _if(line.group, objects.put_group)
    _if(line.event, objects.put_event)
    _if(line.written_queue, objects.put_queue)
    _if(line.gone_node, objects.drop_node)
    _if(line.gone_pod, objects.drop_pod)
    _if(line.gone_request, objects.drop_request)
    _if(line.gone_group, objects.drop_group)
    _if(line.gone_event, objects.drop_event)
    _if(line.gone_queue, objects.drop_queue)


def _if(there: _T | None, tell: Callable[[_T], None]) -> None:
    if there:
        tell(there)


#: An entry that says that its object is gone. The first line of a file is no object, so none is there.
GONE: Final = 0
_EVENT: Final = "event"


class Name(msgspec.Struct, frozen=True):
    """An object of a run: ``kind`` node, pod, request, group, event, queue, and its key (ui/page/objects.py)."""

    kind: str
    key: Hashable


class Index(Objects):
    """Objects that note where they were found: ``offset`` is that of the line which is taken in now.

    They are kept as long as the run is read, since it is they who know what else a line does away with: an older event,
    or a pod whose name another one has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.offset = GONE
        #: Of the moment that is read, in ms after the beginning. Never less than before.
        self.at_ms = 0
        self._ats = array("q")
        self._offsets = array("Q")
        self._of = array("I")
        self._numbers: dict[Name, int] = {}
        self._names: list[Name] = []
        #: By the number of a name: its entries, in order.
        self._entries: list[array[int]] = []

    # --- what is asked of it -----------------------------------------------------------------------------------------

    def place(self, at_ms: int) -> int:
        """How many entries there are up to a moment, those of the moment among them."""
        return bisect_right(self._ats, at_ms)

    def between(self, one: int, other: int) -> Iterable[Name]:
        """All objects that may differ between two places."""
        low, high = sorted((one, other))
        return [self._names[number] for number in dict.fromkeys(self._of[low:high])]

    def offset_at(self, name: Name, place: int) -> int:
        """Where the line is that holds an object at a place; GONE: it is not there."""
        entries = self._entries[self._numbers[name]]
        before = bisect_left(entries, place)
        return self._offsets[entries[before - 1]] if before else GONE

    def in_order(self, events: Mapping[str, EventLine], place: int) -> dict[str, EventLine]:
        """Events in the order in which they had come by a place."""
        return {key: events[key] for key in sorted(events, key=lambda key: self.offset_at(Name(_EVENT, key), place))}

    # --- what the lines tell -----------------------------------------------------------------------------------------

    def forget_objects(self) -> None:
        """All is read: the objects themselves are not needed any more."""
        Objects.__init__(self)

    @override
    def put_node(self, node: Node) -> None:
        super().put_node(node)
        self._note(Name("node", node.metadata.name), self.offset)

    @override
    def drop_node(self, name: str) -> None:
        super().drop_node(name)
        self._note(Name("node", name), GONE)

    @override
    def put_pod(self, pod: Pod) -> None:
        super().put_pod(pod)
        self._note(Name("pod", pod.metadata.uid), self.offset)

    @override
    def drop_pod(self, uid: str) -> None:
        super().drop_pod(uid)
        self._note(Name("pod", uid), GONE)

    @override
    def put_request(self, request: BindRequest) -> None:
        super().put_request(request)
        self._note(Name("request", placed(request.metadata)), self.offset)

    @override
    def drop_request(self, key: Key) -> None:
        super().drop_request(key)
        self._note(Name("request", key), GONE)

    @override
    def put_group(self, group: PodGroup) -> None:
        super().put_group(group)
        self._note(Name("group", placed(group.metadata)), self.offset)

    @override
    def drop_group(self, key: Key) -> None:
        super().drop_group(key)
        self._note(Name("group", key), GONE)

    @override
    def put_event(self, event: EventLine) -> None:
        super().put_event(event)
        self._note(Name(_EVENT, event.key), self.offset)

    @override
    def drop_event(self, key: str) -> None:
        super().drop_event(key)
        self._note(Name(_EVENT, key), GONE)

    @override
    def put_queue(self, queue: Queue) -> None:
        super().put_queue(queue)
        self._note(Name("queue", queue.metadata.name), self.offset)

    @override
    def drop_queue(self, name: str) -> None:
        super().drop_queue(name)
        self._note(Name("queue", name), GONE)

    def _note(self, name: Name, offset: int) -> None:
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
            self._entries.append(array("I"))
        entries = self._entries[number]
        if offset == GONE and not (entries and self._offsets[entries[-1]]):
            return  # it was not there before
        entries.append(len(self._ats))
        self._ats.append(self.at_ms)
        self._offsets.append(offset)
        self._of.append(number)


#: What is warned of again within such a part of a run is one mark: two could not be told apart on a slider.
_PARTS: Final = 128
#: Reasons are anybody's words, so there may be any number of them.
MOST_MARKS: Final = 400
_WARNING: Final = "Warning"


class Marker:
    """Looks at lines as they come."""

    def __init__(self) -> None:
        #: One for each time that something was warned of, in order.
        self.warnings: list[Mark] = []
        self._counts: dict[str, int] = {}

    def take(self, line: Line, at_ms: int) -> None:
        """Look at a line of a moment."""
        event = line.event
        if event is not None and event.type == _WARNING and self._counts.get(event.key) != event.count:
            self._counts[event.key] = event.count
            self.warnings.append(Mark(at_ms=at_ms, reason=event.reason, namespace=event.namespace, pod=event.pod))


def marks(warnings: Sequence[Mark], from_ms: int, to_ms: int) -> list[Mark]:
    """Those of a part of a run as one mark for each reason, at the first of them. What was there before is left out."""
    there = [each for each in warnings if each.at_ms > from_ms]
    parts = _PARTS
    while True:
        made = _merged(there, from_ms, max(1, -(-(to_ms - from_ms + 1) // parts)))
        if len(made) <= MOST_MARKS or parts == 1:
            return made[:MOST_MARKS]
        parts //= 2


def _merged(warnings: Sequence[Mark], from_ms: int, part_ms: int) -> list[Mark]:
    found: dict[tuple[int, str], Mark] = {}
    times: dict[tuple[int, str], int] = {}
    for each in warnings:
        key = (each.at_ms - from_ms) // part_ms, each.reason
        found.setdefault(key, each)
        times[key] = times.get(key, 0) + 1
    return [
        Mark(at_ms=mark.at_ms, reason=mark.reason, namespace=mark.namespace, pod=mark.pod, times=times[key])
        for key, mark in found.items()
    ]
