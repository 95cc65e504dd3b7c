"""Parts of rules that close a node or a domain as soon as one pod of some is there."""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.core.filters.pod_rule import Asked, Counts, Limits, Matcher, Tally, Watched

_NOBODY: Final = Limits(0, 0)


class AnyInDomain(msgspec.Struct, frozen=True):
    """Domains of a label with a pod that a matcher takes."""

    key: str
    matcher: Matcher

    @property
    def closes_others(self) -> bool:
        """A node without the label is in no domain."""
        return False

    @property
    def watched(self) -> Watched:
        """Such a pod that goes."""
        return Watched(self.matcher, comes=False)

    @property
    def counts(self) -> Asked:
        """Such pods."""
        return Asked(self.matcher, self.key)

    def limits(self, counts: Counts, tally: Tally) -> Limits:
        """One is too many."""
        del counts, tally
        return _NOBODY


class AnyOnNode(msgspec.Struct, frozen=True):
    """Nodes with a pod that a matcher takes."""

    matcher: Matcher

    @property
    def key(self) -> None:
        """Each node is judged alone."""
        return

    @property
    def closes_others(self) -> bool:
        """There are none."""
        return False

    @property
    def watched(self) -> Watched:
        """Such a pod that goes."""
        return Watched(self.matcher, comes=False)

    @property
    def counts(self) -> Asked:
        """Such pods."""
        return Asked(self.matcher, None)

    def limits(self, counts: Counts, tally: Tally) -> Limits:
        """One is too many."""
        del counts, tally
        return _NOBODY
