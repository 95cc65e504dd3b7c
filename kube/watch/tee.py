"""Feeds several sinks from one watch, so that the API server serves it once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from typing_extensions import override

from kube.watch.reflector import Sink

T = TypeVar("T", bound=msgspec.Struct)


class Tee(Sink[T, tuple[Any, ...]]):
    """Gives each sink what it would be given alone, in the order of the sinks."""

    def __init__(self, *sinks: Sink[T, Any]) -> None:
        self._sinks = sinks

    @override
    def keep(self, obj: T) -> tuple[Any, ...]:
        return tuple(sink.keep(obj) for sink in self._sinks)

    @override
    async def replace(self, kept: Sequence[tuple[Any, ...]]) -> None:
        for number, sink in enumerate(self._sinks):
            await sink.replace([each[number] for each in kept])

    @override
    def upsert(self, obj: T) -> None:
        for sink in self._sinks:
            sink.upsert(obj)

    @override
    def delete(self, obj: T) -> None:
        for sink in self._sinks:
            sink.delete(obj)
