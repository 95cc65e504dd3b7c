"""How much memory a component still holds when everything that it worked on is gone (root cause R10 of the field)."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
from collections.abc import Iterable
from types import CodeType, CoroutineType, FrameType, FunctionType, ModuleType
from typing import Any, Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.server_time import ServerClock

#: Not the component's own: code, what it talks to, and what it runs on.
_BORDERS: Final = (
    type,
    ModuleType,
    FunctionType,
    CodeType,
    CoroutineType,
    FrameType,
    Api,
    ServerClock,
    logging.Logger,
    random.Random,
    asyncio.AbstractEventLoop,
    asyncio.Future,
    anyio.CancelScope,
    msgspec.json.Decoder,
)


def weight_bytes(component: object) -> int:
    """Sum up all objects that are reached from a component, each once."""
    total = 0
    seen: set[int] = set()
    todo: list[Any] = [component]
    while todo:
        found = todo.pop()
        if id(found) in seen or isinstance(found, _BORDERS):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        todo.extend(_parts(found))
    return total


def _parts(found: Any) -> Iterable[Any]:
    if isinstance(found, msgspec.Struct):
        # Some kinds of structs are hidden from the garbage collector.
        return [getattr(found, name) for name in found.__struct_fields__]
    return gc.get_referents(found)
