"""Who is on which node: the reverse index that lets one node be counted without looking at all pods."""

from __future__ import annotations

from collections.abc import Hashable, KeysView, Set
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_NOBODY: frozenset[object] = frozenset()


class Membership(Generic[K]):
    """Keys by place; each key is in at most one place. Place "" is nowhere."""

    __slots__ = ("_at", "_place")

    def __init__(self) -> None:
        self._at: dict[str, set[K]] = {}
        self._place: dict[K, str] = {}

    def move(self, key: K, place: str) -> None:
        """Put ``key`` at ``place`` and nowhere else."""
        old = self._place.get(key, "")
        if old == place:
            return
        if old:
            del self._place[key]
            members = self._at[old]
            members.discard(key)
            if not members:
                del self._at[old]
        if place:
            self._place[key] = place
            self._at.setdefault(place, set()).add(key)

    def place(self, key: K) -> str:
        """Where ``key`` is, "" if nowhere."""
        return self._place.get(key, "")

    def everybody(self) -> KeysView[K]:
        """All keys that are somewhere, in no order."""
        return self._place.keys()

    def has(self, place: str) -> bool:
        """Whether anything is at ``place``."""
        return place in self._at

    def at(self, place: str) -> Set[K]:
        """Everybody at ``place``, in no order."""
        return self._at.get(place, _NOBODY)  # type: ignore[arg-type]  # nobody is of every type
