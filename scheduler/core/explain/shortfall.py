"""How much more the devices of a node would have to have free for a pod, as its verdict tells (explain.py)."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np

from gpu.request import FractionAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.devices.device_fit import Pool, largest_fit
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.ledger import MOST_ASKED
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.snapshot.statement import Statement


def missing(statement: Statement, cls: PodClass, pool: Pool, short: Bools) -> Int64s:
    """All that is missing at each position where it is ``short``, in the unit of the first ask.

    The largest ask has the best device, and so on; GPUs that could be opened are among them.
    """
    first = pool.asks[0]
    wanted = sorted((_amount(ask) for ask in pool.asks if type(ask) is type(first)), reverse=True)
    spare = pool.spare(statement.table, slice(None), dict(statement.amounts(cls.demand))) if len(wanted) > 1 else None
    found = np.zeros(len(statement.nodes), np.int64)
    for position in np.flatnonzero(short).tolist():
        node = statement.nodes[position]
        left = [
            largest_fit(first, device, node)
            for device in statement.table.devices[position]
            if device.is_open and device.is_gpu
        ]
        if spare is not None:
            whole = NANO_PER_DEVICE if isinstance(first, FractionAsk) else node.largest_card_mib
            left += [whole] * min(max(int(spare[position]), 0), len(wanted))
        left.sort(reverse=True)
        more = sum(max(ask - has, 0) for ask, has in zip_longest(wanted, left[: len(wanted)], fillvalue=0))
        found[position] = min(more, MOST_ASKED)
    return found


def _amount(ask: SharedAsk) -> int:
    return ask.nano if isinstance(ask, FractionAsk) else min(ask.mem_mib, MOST_ASKED)
