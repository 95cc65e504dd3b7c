"""What the API server shows in the status of objects, as it was seen last: statuses are written where it differs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

import msgspec

from wire.versions import is_older

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")


class Shown(msgspec.Struct, Generic[S], frozen=True, gc=False):
    """One object at one version. ``what``: the part of it that is kept."""

    uid: str
    rv: str
    what: S


class ShownObjects(Generic[K, S]):
    """The newest version of each object. ``on_change`` is called with the key of one that is new, different or gone."""

    def __init__(self) -> None:
        self._by_key: dict[K, Shown[S]] = {}
        self.on_change: Callable[[K], None] = _ignore

    def get(self, key: K) -> Shown[S] | None:
        """The object of this key."""
        return self._by_key.get(key)

    def known(self) -> list[K]:
        """Keys of all objects, in no order."""
        return [*self._by_key]

    def note(self, key: K, shown: Shown[S]) -> None:
        """Take an object from a watch, or as the answer to a write; what is older than known changes nothing."""
        known = self._by_key.get(key)
        if known is not None and known.uid == shown.uid and is_older(shown.rv, known.rv):
            return
        self._by_key[key] = shown
        self.on_change(key)

    def drop(self, key: K) -> None:
        """It is gone."""
        if self._by_key.pop(key, None) is not None:
            self.on_change(key)

    def replace(self, listed: Mapping[K, Shown[S]]) -> None:
        """Take a list: what is not in it is gone."""
        for key in [key for key in self._by_key if key not in listed]:
            self.drop(key)
        for key, shown in listed.items():
            self.note(key, shown)


def _ignore(_: object) -> None:
    return
