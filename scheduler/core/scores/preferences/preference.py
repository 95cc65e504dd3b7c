"""What a preference of Kubernetes is: a score of 0 to 100 for each node that fits, equal to kube-scheduler's 1.36.

A preference is one file and its test, and one line of the list in preferred.py. It has no state. What it reads of
nodes and of pods on them are arrays by position, kept up to date by the decision. Scores are normalised over the nodes
that fit, by the arithmetic of kube-scheduler; where that is in floating point, it is here, and made an integer at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Protocol, TypeAlias

import numpy as np

from scheduler.core.filters.pod_rule import Counts
from scheduler.core.model.pod_class import PodClass, Weights
from scheduler.core.nodes.node_numbers import Numbering
from scheduler.core.nodes.table import Bools, Int64s

#: The best score.
MOST: Final = 100


class Seen(Counts, Protocol):
    """What preferences read: pods on nodes as a decision has placed them so far, and numbers of nodes."""

    def numbers(self, numbering: Numbering, asked: Hashable) -> Int64s:
        """The number of each node for what is asked. Not to be written."""
        ...

    @property
    def has_soft_taints(self) -> bool:
        """Whether a node has a taint PreferNoSchedule."""
        ...


#: Positions whose score may be another one, few, and these scores.
Changed: TypeAlias = Mapping[int, int]
UNCHANGED: Final[Changed] = {}


class Scorer(Protocol):
    """A preference of one class, for as long as a decision lasts."""

    @property
    def asked(self) -> int:
        """How much is asked, in looks at all nodes."""
        ...

    def scores(self, fits: Bools) -> Int64s:
        """The score of each node that fits, of at least one; of others any number. Equal ``fits`` are one object."""
        ...

    @property
    def key(self) -> str | None:
        """A label whose domains alone decide; None if there is none."""
        ...

    def by_domain(self, fits: Bools) -> Int64s:
        """As ``scores``, of each domain of this label; the last one is of nodes without it. Not to be written.

        It is the same object as long as nothing has changed.
        """
        ...

    def again(self) -> Changed | None:
        """What has changed since it was asked last, for the same ``fits``; None: all have to be asked."""
        ...


class Preference(Protocol):
    """One of Kubernetes' preferences."""

    @property
    def name(self) -> str:
        """A name that no other has."""
        ...

    @property
    def depends_on_pods(self) -> bool:
        """Whether scores change with pods that are placed."""
        ...

    def weight(self, weights: Weights) -> int:
        """What its score is multiplied by; 0: it does not count."""
        ...

    def scorer(self, cls: PodClass, seen: Seen) -> Scorer | None:
        """What scores nodes for a class; None if it has no such preference, so that all nodes are equal."""
        ...


class Fixed:
    """Scores that depend on nodes alone, by a function of those that fit."""

    def __init__(self, asked: int, scores: Callable[[Bools], Int64s]) -> None:
        self.asked = asked
        self._scores = scores

    def scores(self, fits: Bools) -> Int64s:
        """As the function says."""
        return self._scores(fits)

    @property
    def key(self) -> None:
        """Nodes are scored one by one."""
        return

    def by_domain(self, fits: Bools) -> Int64s:
        """There is no label."""
        raise NotImplementedError

    def again(self) -> Changed:
        """Nothing."""
        return UNCHANGED


def of_largest(amounts: Int64s, fits: Bools) -> Int64s:
    """Amounts, none below 0, as parts of the largest of nodes that fit, rounded down; all 0 if that is 0."""
    largest = int(np.where(fits, amounts, 0).max())
    found: Int64s = amounts * MOST // largest if largest else np.zeros(len(amounts), np.int64)
    return found
