"""Which standing intents a decision looks at: those about which something has changed since they were looked at last.

An intent whose holders wait for victims *rests*. What its outcome depends on wakes it: its holders and victims, its
gang, its nodes, and terms of other pods. So a decision costs what has changed, however many intents stand.
"""

from __future__ import annotations

from collections.abc import Iterable


class Resting:
    """Ids of intents that are awake; at first that are all."""

    __slots__ = ("_awake",)

    def __init__(self) -> None:
        #: None: all.
        self._awake: dict[str, None] | None = None

    @property
    def awake(self) -> Iterable[str] | None:
        """Ids of those to be looked at, and of some that stand no more; None: all."""
        return self._awake

    def wake(self, ids: Iterable[str]) -> None:
        """Something that these depend on has changed."""
        if self._awake is not None:
            self._awake.update(dict.fromkeys(ids))

    def wake_all(self) -> None:
        """Something that any of them may depend on has changed."""
        self._awake = None

    def looked(self, awake: Iterable[str]) -> None:
        """All that were awake were looked at. ``awake``: those that are to be looked at again in any case."""
        self._awake = dict.fromkeys(awake)
