"""Parts of rules that close a node or a domain as soon as one pod of some is there."""

from __future__ import annotations

import msgspec

from scheduler.core.filters.pod_rule import Bools, Counts, Matcher, Watched


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

    def closed(self, counts: Counts) -> Bools:
        """Where such pods are."""
        found: Bools = counts.in_domains(self.matcher, self.key) > 0
        return found


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

    def closed(self, counts: Counts) -> Bools:
        """Where such pods are."""
        found: Bools = counts.per_node(self.matcher) > 0
        return found
