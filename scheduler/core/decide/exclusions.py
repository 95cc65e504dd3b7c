"""Pods that exclude devices: an exclusion chooses between devices, it opens none.

A pod of the smallest share that excludes every device in use would open another one, and the next such pod one more: it
would keep whole GPUs from others and be charged next to nothing. So such a pod takes no more devices that nobody uses
than it would take without its exclusions, on any node. Else it waits, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.core.devices.device_choice import choose_devices
from scheduler.core.nodes.table import Device
from scheduler.core.scores.binpack import BINPACK
from scheduler.core.scores.ranking import Ranking
from scheduler.core.snapshot.statement import Part, Statement


def opens_by_exclusion(statement: Statement, ranking: Ranking, position: int, parts: Sequence[Part]) -> bool:
    """Whether devices in use on any node would serve more of the shares than ``parts``, if none were excluded."""
    unused = _unused(parts, statement.table.devices[position])
    return bool(unused) and any(_least_unused(statement, ranking, other) < unused for other in ranking.in_use())


def _least_unused(statement: Statement, ranking: Ranking, position: int) -> int:
    """How many devices that nobody uses the shares would take on a node, if none were excluded."""
    devices, node = statement.table.devices[position], statement.nodes[position]
    numbers = (str(number) for number in count())
    found = choose_devices(
        ranking.asks,
        devices,
        node,
        room=statement.room(position, ranking.cls.demand, [node.resource_of(ask.profile) for ask in ranking.asks]),
        order=BINPACK,
        rule=msgspec.structs.replace(ranking.rule, not_uuids=()),
        new_group=lambda _: next(numbers),
    )
    return len(ranking.asks) if found is None else _unused(found, devices)


def _unused(parts: Sequence[Part], devices: tuple[Device, ...]) -> int:
    return sum(part.slot is None or devices[part.slot].free_nano == NANO_PER_DEVICE for part in parts)
