"""Groups whose device a first share on its way will make known, and the further shares that wait for that.

A further share on a known device needs no binder: three writes instead of five (protocol.md, Writes). So while the
first share is at the binder, further ones are charged and held here; when it has landed, well or badly, or takes too
long, they are decided on again.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.assumed.attempt_table import AttemptTable


class Openings:
    """Who opens which group, and who waits for it: of the records of attempts, by group."""

    __slots__ = ("_attempts", "_awaited_by", "_opener")

    def __init__(self, attempts: AttemptTable) -> None:
        self._attempts = attempts
        #: Group -> the pod that opens it.
        self._opener: dict[str, str] = {}
        #: Group -> pods that wait.
        self._awaited_by: dict[str, dict[str, None]] = {}

    def open(self, uid: str, groups: Iterable[str]) -> None:
        """A first share is on its way. Who opens a group first is its opener."""
        opened = tuple(group for group in groups if group not in self._opener)
        self._attempts.change(uid, opens=opened)
        self._opener.update(dict.fromkeys(opened, uid))

    def is_opening(self, group: str) -> bool:
        """Whether the device of a group is about to be known."""
        return group in self._opener

    def hold(self, uid: str, groups: Iterable[str]) -> None:
        """A further share waits until one of these groups, all of them opening, is known or given up."""
        awaited = tuple(groups)
        self._attempts.change(uid, awaits=awaited)
        for group in awaited:
            self._awaited_by.setdefault(group, {})[uid] = None

    def landed(self, uid: str) -> list[str]:
        """This pod is on its way no more, or too long; returns those that waited for the groups it was to open."""
        # Itself it waits no more: what it does next must not end with an opening that it once waited for.
        known = self._attempts.of(uid)
        if not (known.opens or known.awaits):
            return []
        self._attempts.change(uid, opens=(), awaits=())
        for group in known.awaits:
            self._awaited_by.get(group, {}).pop(uid, None)
        freed: dict[str, None] = {}
        for group in known.opens:
            del self._opener[group]
            freed.update(self._awaited_by.pop(group, {}))
        return list(freed)
