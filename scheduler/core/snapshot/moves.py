"""Pods that a decision has moved, and those of them that a matcher takes: each is compared with a matcher once.

A move that is taken back is one more move, in the other direction.
"""

from __future__ import annotations

from scheduler.core.filters.pod_rule import Matcher
from scheduler.core.filters.pod_terms import LabelsOf
from scheduler.core.model.records import PodRecord


class Moves:
    """All moves, in order: a pod, the position of a node, and 1 if the pod comes or -1 if it leaves.

    ``compared``: how many comparisons of moved pods with selectors were made.
    """

    __slots__ = ("_taken", "all", "compared", "labels_of")

    def __init__(self, labels_of: LabelsOf) -> None:
        self.labels_of = labels_of
        self.all: list[tuple[PodRecord, int, int]] = []
        self.compared = 0
        self._taken: dict[Matcher, Taken] = {}

    def taken_by(self, matcher: Matcher) -> Taken:
        """Those of the pods that a matcher takes; one object for equal matchers."""
        known = self._taken.get(matcher)
        if known is None:
            known = self._taken[matcher] = Taken(matcher, self)
        return known


class Taken:
    """Moves of the pods that one matcher takes."""

    __slots__ = ("_effort", "_known", "_matcher", "_moves", "_seen")

    def __init__(self, matcher: Matcher, moves: Moves) -> None:
        self._matcher = matcher
        self._moves = moves
        self._effort = matcher.effort()
        self._known: list[tuple[int, int]] = []
        #: How many of all moves were compared.
        self._seen = 0

    def up_to_now(self) -> list[tuple[int, int]]:
        """Positions, each with 1 or -1, in order. Not to be written."""
        moves, seen = self._moves, self._seen
        if seen < len(moves.all):
            takes, labels_of = self._matcher.takes, moves.labels_of
            for pod, at, by in moves.all[seen:]:  # one move, as a rule
                if takes(pod, labels_of):
                    self._known.append((at, by))
            self._seen = len(moves.all)
            moves.compared += (self._seen - seen) * self._effort
        return self._known
