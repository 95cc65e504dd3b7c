"""The form of a recorded run: a line is an object as a watch brought it, or the name of one that is gone, as JSON.

The first line says what file this is, and when it was begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, TypeVar

import msgspec

from ui.page.objects import Key, Objects
from ui.page.values import EventLine
from wire.core import Node, ObjectMeta, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import UNLIMITED, Queue, QueueResource, QueueResources, QueueSpec

_T = TypeVar("_T")

FORM: Final = "moorage-run-1"
#: No run is longer (31 years), and what is asked of it has no more digits (ui/page/replay.py).
_MOST_MS: Final = 10**12 - 1
#: The last day that a browser's clock knows.
_LAST_MS: Final = 8_640_000_000_000_000


class EarlierQueue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Queue in files of before its numbers were counted: amounts of GPUs as text, "" for none written."""

    name: str
    display_name: str = ""
    parent: str = ""
    priority: str = ""
    gpu_quota: str = ""
    gpu_limit: str = ""
    gpu_weight: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that happened, ``at_ms`` after the beginning. ``is_in_step``: all before it is how it was found.

    ``began_ms``: the wall clock at the beginning, since the epoch; 0 in files of before it was written down.
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
    queue: EarlierQueue | None = None
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
    _if(line.queue, lambda queue: objects.put_queue(_of_earlier(queue)))
    _if(line.written_queue, objects.put_queue)
    _if(line.gone_node, objects.drop_node)
    _if(line.gone_pod, objects.drop_pod)
    _if(line.gone_request, objects.drop_request)
    _if(line.gone_group, objects.drop_group)
    _if(line.gone_event, objects.drop_event)
    _if(line.gone_queue, objects.drop_queue)


def _of_earlier(queue: EarlierQueue) -> Queue:
    """The Queue as far as it is in the file: CPU and memory are not, and count as without end."""
    gpu = QueueResource(
        quota=_number(queue.gpu_quota),
        limit=_number(queue.gpu_limit),
        over_quota_weight=_number(queue.gpu_weight),
    )
    every = QueueResource(quota=UNLIMITED, limit=UNLIMITED)
    priority = _number(queue.priority)
    return Queue(
        metadata=ObjectMeta(name=queue.name),
        spec=QueueSpec(
            display_name=queue.display_name,
            parent_queue=queue.parent,
            priority=None if priority is None else int(priority),
            resources=QueueResources(cpu=every, memory=every, gpu=gpu),
        ),
    )


def _number(text: str) -> float | None:
    """A number as it was written down; None for none."""
    try:
        return float(text)
    except ValueError:
        return None


def _if(there: _T | None, tell: Callable[[_T], None]) -> None:
    if there:
        tell(there)
