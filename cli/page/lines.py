"""The form of a recorded run: a line is an object as a watch brought it, or the name of one that is gone, as JSON.

The first line says what file this is, and when it was begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, TypeVar

import msgspec

from cli.page.objects import Key, Objects
from cli.page.values import EventLine, QueueLine
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup

_T = TypeVar("_T")

FORM: Final = "moorage-run-1"
#: No run is longer (31 years), and what is asked of it has no more digits (cli/page/opened.py).
_MOST_MS: Final = 10**12 - 1
#: The last day that a browser's clock knows.
_LAST_MS: Final = 8_640_000_000_000_000


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
    queue: QueueLine | None = None
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
    _if(line.queue, objects.put_queue)
    _if(line.gone_node, objects.drop_node)
    _if(line.gone_pod, objects.drop_pod)
    _if(line.gone_request, objects.drop_request)
    _if(line.gone_group, objects.drop_group)
    _if(line.gone_event, objects.drop_event)
    _if(line.gone_queue, objects.drop_queue)


def _if(there: _T | None, tell: Callable[[_T], None]) -> None:
    if there:
        tell(there)
