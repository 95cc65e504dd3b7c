"""Images of the pod that a node has already, by size and by how many nodes have them (ImageLocality).

Off by default: seconds of pulling are worth less than a node that is packed well.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import numpy as np

from scheduler.core.model.pod_class import PodClass, PodPreferences, Weights
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.table import Int64s
from scheduler.core.scores.preferences.preference import MOST, Fixed, Seen

_MIB: Final = 1024 * 1024
#: Below this nothing is gained, and above the other, which is for each container, nothing more.
_LEAST_BYTES: Final = 23 * _MIB
_MOST_BYTES: Final = 1000 * _MIB


class Images:
    """An image that few nodes have counts less, so that a few nodes do not get all pods."""

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
