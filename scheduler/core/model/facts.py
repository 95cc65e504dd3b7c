"""Small tables of what is known: records by key, fed from watches, that report what changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, KeysView
from copy import copy
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")


def copied(thing: T, **parts: Any) -> T:
    """Copy an object, with these attributes in the place of its own; it shares all others."""
    made = copy(thing)
    for name, part in parts.items():
        setattr(made, name, part)
    return made


K = TypeVar("K", bound=Hashable)


class Membership(Generic[K]):
    """Keys by place, as pods by node: one node is counted without a look at all pods. Place "" is nowhere.

    They are in the order in which they came there, each in at most one place: what is counted or done for one key after
    the other must not depend on the hash seed of the process.
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


K_co = TypeVar("K_co", bound=Hashable, covariant=True)


class Keyed(Protocol[K_co]):
    """A record that says what it is known by."""

    @property
    def key(self) -> K_co:
        """What it is known by."""
        ...


R = TypeVar("R", bound=Keyed[Hashable])


class Facts(Generic[K, R]):
    """Records of one kind. ``changed`` is called with a record that is new, different or gone.

    ``is_read``: all objects of the kind were read at least once. ``is_current``: changes come in, so that a record that
    is not here does not exist. ``read_changed`` is called when one of the two has changed.
    """

    __slots__ = ("_by_key", "_changed", "_read_changed", "is_current", "is_read")

    def __init__(self, changed: Callable[[R], None], *, read_changed: Callable[[], None]) -> None:
        self._by_key: dict[Hashable, R] = {}
        self._changed = changed
        self._read_changed = read_changed
        self.is_read = self.is_current = True

    def expect(self) -> None:
        """Say that nothing was read yet."""
        self.is_read = self.is_current = False
        self._read_changed()

    def note_in_step(self, is_in_step: bool) -> None:
        """Say whether changes come in. Records that are known stay when they don't."""
        before = self.is_read, self.is_current
        self.is_current = is_in_step
        self.is_read |= is_in_step
        if (self.is_read, self.is_current) != before:
            self._read_changed()

    def get(self, key: K) -> R | None:
        """The record of this key."""
        return self._by_key.get(key)

    def all(self) -> Collection[R]:
        """All records, in no order."""
        return self._by_key.values()

    def __contains__(self, key: K) -> bool:
        """Whether there is a record of this key."""
        return key in self._by_key

    def copy(self, changed: Callable[[R], None], *, read_changed: Callable[[], None]) -> Self:
        """The same records, told to somebody else."""
        return copied(self, _by_key=dict(self._by_key), _changed=changed, _read_changed=read_changed)

    def put(self, record: R) -> None:
        """Take a record as it is now; one that says nothing new costs nothing."""
        if self._by_key.get(record.key) != record:
            self._by_key[record.key] = record
            self._changed(record)

    def drop(self, record: R) -> None:
        """It is gone."""
        if self._by_key.pop(record.key, None) is not None:
            self._changed(record)

    def replace(self, records: Iterable[R]) -> None:
        """Take the whole truth as of a list."""
        listed = {record.key: record for record in records}
        for record in [record for key, record in self._by_key.items() if key not in listed]:
            self.drop(record)
        for record in listed.values():
            self.put(record)
