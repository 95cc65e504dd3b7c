"""Which nodes a search may use: one bool a position. None: all of them.

Each restriction of a search is a mask, and masks are joined by ``both``: nodes where a pod failed, nodes that owe an
answer, and what else comes (a domain, a pool, a node kept for somebody).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from scheduler.core.nodes.table import Bools

NodeMask: TypeAlias = Bools | None


def all_but(names: Iterable[str], position_of: Mapping[str, int]) -> NodeMask:
    """All nodes but these; names that are no node's are passed over."""
    out = [position_of[name] for name in names if name in position_of]
    if not out:
        return None
    mask = np.ones(len(position_of), np.bool_)
    mask[out] = False
    return mask


def only(names: Iterable[str], position_of: Mapping[str, int]) -> Bools:
    """These nodes and no others; names that are no node's are passed over."""
    mask = np.zeros(len(position_of), np.bool_)
    mask[[position_of[name] for name in names if name in position_of]] = True
    return mask


def both(one: NodeMask, other: NodeMask) -> NodeMask:
    """Nodes that both let through."""
    if one is None or other is None:
        return other if one is None else one
    joined: Bools = one & other
    return joined
