"""What a preference of Kubernetes is, and those about nodes alone: a score of 0 to 100 for each node that fits.

Scores are equal to kube-scheduler's 1.36. A preference is a class with its test, and one line of the list in
preferred.py. It has no state. What it reads of nodes and of pods on them are arrays by position, kept up to date by the
decision. Scores are normalised over the nodes that fit, by the arithmetic of kube-scheduler; where that is in floating
point, it is here, and made an integer at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Protocol, TypeAlias

import numpy as np

from scheduler.core.filters.node_affinity import effort_of, holds
from scheduler.core.filters.pod_rule import Counts
from scheduler.core.filters.taints import PREFER_NO_SCHEDULE, tolerates
from scheduler.core.model.pod_class import PodClass, PodPreferences, WeightedNodeTerm, Weights
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.node_numbers import Numbering
from scheduler.core.nodes.table import Bools, Int64s
from wire.core import Toleration

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
        """Return that no score has changed."""
        return UNCHANGED


def of_largest(amounts: Int64s, fits: Bools) -> Int64s:
    """Amounts, none below 0, as parts of the largest of nodes that fit, rounded down; all 0 if that is 0."""
    largest = int(np.where(fits, amounts, 0).max())
    found: Int64s = amounts * MOST // largest if largest else np.zeros(len(amounts), np.int64)
    return found


_MIB: Final = 1024 * 1024
#: Below this nothing is gained, and above the other, which is for each container, nothing more.
_LEAST_BYTES: Final = 23 * _MIB
_MOST_BYTES: Final = 1000 * _MIB


class Images:
    """ImageLocality: images that a node has already, by size and by how many nodes have them.

    An image that few nodes have counts less, so that a few nodes do not get all pods. Off by default: seconds of
    pulling are worth less than a node that is packed well.
    """

    name = "images"
    depends_on_pods = False

    def weight(self, weights: Weights) -> int:
        """As set."""
        return weights.images

    def scorer(self, cls: PodClass, seen: Seen) -> Fixed | None:
        """By the bytes that are there. Not normalised: a node's score depends on no other's."""
        prefers = cls.prefers
        if prefers is None or not prefers.images:
            return None
        return Fixed(len(prefers.images), lambda fits: _by_bytes(prefers, seen, len(fits)))


def _by_bytes(prefers: PodPreferences, seen: Seen, nodes: int) -> Int64s:
    found = np.zeros(nodes, np.int64)
    for image in prefers.images:
        sizes = seen.numbers(_SIZE, image)
        has = int((sizes > 0).sum())
        found += (sizes * (has / nodes)).astype(np.int64)
    most = _MOST_BYTES * prefers.containers
    scores: Int64s = MOST * (np.clip(found, _LEAST_BYTES, most) - _LEAST_BYTES) // (most - _LEAST_BYTES)
    return scores


class _Size:
    """Bytes of an image on a node, 0 if it is not there."""

    kind = "image-bytes"

    def reads(self, node: NodeRecord, asked: str) -> Hashable:
        """The very node: no two have the same images."""
        del asked
        return node.name

    def number(self, node: NodeRecord, asked: str) -> int:
        """Look it up."""
        return next((size for name, size in node.images if name == asked), 0)

    def effort(self, asked: str) -> int:
        """A few names a node."""
        del asked
        return 3


_SIZE = _Size()


class NodeAffinity:
    """A term without expressions holds nowhere."""

    name = "node-affinity"
    depends_on_pods = False

    def weight(self, weights: Weights) -> int:
        """As set."""
        return weights.node_affinity

    def scorer(self, cls: PodClass, seen: Seen) -> Fixed | None:
        """The best where the sum is the largest."""
        terms = () if cls.prefers is None else cls.prefers.node_terms
        return Fixed(1, lambda fits: of_largest(seen.numbers(_SUM, terms), fits)) if terms else None


class _Sum:
    """The sum of weights."""

    kind = "preferred-node-terms"

    def reads(self, node: NodeRecord, asked: tuple[WeightedNodeTerm, ...]) -> Hashable:
        """The labels that terms name, and the node's name if one asks for it."""
        keys = dict.fromkeys(requirement.key for each in asked for requirement in each.term.labels)
        name = node.name if any(each.term.fields for each in asked) else ""
        return (name, *map(node.labels.get, keys))

    def number(self, node: NodeRecord, asked: tuple[WeightedNodeTerm, ...]) -> int:
        """Add them up."""
        return sum(each.weight for each in asked if holds(each.term, node))

    def effort(self, asked: tuple[WeightedNodeTerm, ...]) -> int:
        """As for required terms."""
        return effort_of(each.term for each in asked)


_SUM = _Sum()


class PreferNoSchedule:
    """Where no node has such a taint, nothing is looked at."""

    name = "prefer-no-schedule"
    depends_on_pods = False

    def weight(self, weights: Weights) -> int:
        """As set."""
        return weights.prefer_no_schedule

    def scorer(self, cls: PodClass, seen: Seen) -> Fixed | None:
        """The best for nodes without one."""
        if not seen.has_soft_taints:
            return None
        asked = tuple(each for each in cls.constraints.tolerations if each.effect in {"", PREFER_NO_SCHEDULE})
        return Fixed(1, lambda fits: MOST - of_largest(seen.numbers(_UNTOLERATED, asked), fits))


class _Untolerated:
    """How many such taints a node has."""

    kind = "untolerated"

    def reads(self, node: NodeRecord, asked: tuple[Toleration, ...]) -> Hashable:
        """The taints."""
        del asked
        return node.taints

    def number(self, node: NodeRecord, asked: tuple[Toleration, ...]) -> int:
        """Count them."""
        soft = (taint for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE)
        return sum(not tolerates(asked, taint) for taint in soft)

    def effort(self, asked: tuple[Toleration, ...]) -> int:
        """Nodes mostly have the same taints."""
        return 1 + len(asked) // 10


_UNTOLERATED = _Untolerated()
