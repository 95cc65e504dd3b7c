"""How late watches are, measured by what we have written ourselves.

Nothing in a watch says how old it is: times in objects are of other machines' clocks, in whole seconds. But the answer
to a write names the version that it made, and our own watch shows that very version some time later. What lies between
the two is the lag, on one monotonic clock. Watches of what nobody of us writes have none that could be measured.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import msgspec

from wire.core import ObjectMeta
from wire.versions import is_older

V = TypeVar("V")

#: Objects that are remembered on each side. Who is forgotten is not measured.
_MOST: Final = 1024

#: Resource (plural) and UID.
_Key = tuple[str, str]


class _Written(msgspec.Struct, frozen=True, gc=False):
    rv: str
    at: float


class WatchLag:
    """Told of writes by an Api and of events by its reflectors. ``observe`` gets a resource (plural) and seconds."""

    def __init__(self, observe: Callable[[str, float], None]) -> None:
        self._observe = observe
        self._followed: set[str] = set()
        self._written: OrderedDict[_Key, _Written] = OrderedDict()
        #: An event may come before the answer to its write does.
        self._shown: OrderedDict[_Key, str] = OrderedDict()

    def follow(self, resource: str) -> None:
        """Somebody watches these."""
        self._followed.add(resource)

    def wrote(self, resource: str, meta: ObjectMeta) -> None:
        """The answer to a write has come: the object as stored."""
        if resource not in self._followed:
            return
        key = (resource, meta.uid)
        if self._shown.get(key) == meta.resource_version:
            self._observe(resource, 0.0)
            return
        self._written[key] = _Written(meta.resource_version, anyio.current_time())
        _limit(self._written)

    def shown(self, resource: str, meta: ObjectMeta) -> None:
        """A watch shows an object that is new or changed.

        A version after the one that is waited for means that this one was shown before: the write changed nothing.
        """
        key = (resource, meta.uid)
        self._shown[key] = meta.resource_version
        self._shown.move_to_end(key)
        _limit(self._shown)
        written = self._written.get(key)
        if written is None or is_older(meta.resource_version, written.rv):
            return
        del self._written[key]
        if meta.resource_version == written.rv:
            self._observe(resource, anyio.current_time() - written.at)

    def listed(self, resource: str) -> None:
        """A new list was taken: what it held comes by no watch any more."""
        for key in [key for key in self._written if key[0] == resource]:
            del self._written[key]


def _limit(remembered: OrderedDict[_Key, V]) -> None:
    if len(remembered) > _MOST:
        remembered.popitem(last=False)
