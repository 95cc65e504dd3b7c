"""Groups whose device a first share on its way will make known, and the further shares that wait for that.

A further share on a known device needs no binder: three writes instead of five (protocol.md, Writes). So while the
first share is at the binder, further ones are charged and held here; when it has landed, well or badly, or takes too
long, they are decided on again.
"""

from __future__ import annotations

from collections.abc import Iterable


class Openings:
    """Who opens which group, and who waits for it, by pod UID."""

    __slots__ = ("_awaited_by", "_awaits", "_groups", "_opener")

    def __init__(self) -> None:
        #: Group -> the pod that opens it.
        self._opener: dict[str, str] = {}
        #: Pod -> groups that it opens.
        self._groups: dict[str, tuple[str, ...]] = {}
        #: Group -> pods that wait.
        self._awaited_by: dict[str, dict[str, None]] = {}
        #: Pod -> groups that it waits for.
        self._awaits: dict[str, tuple[str, ...]] = {}

    def open(self, uid: str, groups: Iterable[str]) -> None:
        """A first share is on its way. Who opens a group first is its opener."""
        opened = tuple(group for group in groups if group not in self._opener)
        self._groups[uid] = opened
        self._opener.update(dict.fromkeys(opened, uid))

    def is_opening(self, group: str) -> bool:
        """Whether the device of a group is about to be known."""
        return group in self._opener

    def hold(self, uid: str, groups: Iterable[str]) -> None:
        """A further share waits until one of these groups, all of them opening, is known or given up."""
        self._awaits[uid] = tuple(groups)
        for group in self._awaits[uid]:
            self._awaited_by.setdefault(group, {})[uid] = None

    def landed(self, uid: str) -> list[str]:
        """This pod is on its way no more, or too long; returns those that waited for the groups it was to open."""
        # Itself it waits no more: what it does next must not end with an opening that it once waited for.
        for group in self._awaits.pop(uid, ()):
            self._awaited_by.get(group, {}).pop(uid, None)
        freed: dict[str, None] = {}
        for group in self._groups.pop(uid, ()):
            del self._opener[group]
            freed.update(self._awaited_by.pop(group, {}))
        return list(freed)
