"""Who is on which node: the reverse index that lets one node be counted without looking at all pods."""

from __future__ import annotations

from collections.abc import Hashable, KeysView
from typing import Generic, Self, TypeVar

from scheduler.core.model.copying import copied

K = TypeVar("K", bound=Hashable)


class Membership(Generic[K]):
    """Keys by place, in the order in which they came there; each key is in at most one. Place "" is nowhere.

    What is counted or done for one key after the other must not depend on the hash seed of the process.
    """

    __slots__ = ("_at", "_place")

    def __init__(self) -> None:
        self._at: dict[str, dict[K, None]] = {}
        self._place: dict[K, str] = {}

    def move(self, key: K, place: str) -> None:
        """Put ``key`` at ``place`` and nowhere else."""
        old = self._place.get(key, "")
        if old == place:
            return
        if old:
            del self._place[key]
            members = self._at[old]
            del members[key]
            if not members:
                del self._at[old]
        if place:
            self._place[key] = place
            self._at.setdefault(place, {})[key] = None

    def copy(self) -> Self:
        """The same, to be changed apart."""
        return copied(self, _at={place: dict(members) for place, members in self._at.items()}, _place=dict(self._place))

    def place(self, key: K) -> str:
        """Where ``key`` is, "" if nowhere."""
        return self._place.get(key, "")

    def everybody(self) -> KeysView[K]:
        """All keys that are somewhere."""
        return self._place.keys()

    def has(self, place: str) -> bool:
        """Whether anything is at ``place``."""
        return place in self._at

    def at(self, place: str) -> KeysView[K]:
        """Everybody at ``place``, in the order in which they came."""
        return self._at.get(place, {}).keys()
