"""How much of a device's memory each tenant may use, as the device's book says it to who ends over-use on the node.

A part of a device stays a part here, since a pod may join before anybody knows its card; memory stays memory. The cap
is what the pod may use on the device in all: its containers there are not told apart.
"""

from __future__ import annotations

import enum

import msgspec

from gpu.request import MemoryAsk
from gpu.translation import Translation


class MemoryCaps(enum.Enum):
    """Which tenants' caps are written into books."""

    #: None: entries are as versions without caps read them.
    NONE = "none"
    #: Those of pods that wish a memory cap.
    WISHED = "wished"
    #: Those of all pods with shares.
    ALL = "all"


class Cap(msgspec.Struct, frozen=True, gc=False):
    """At most this on one device: ``mib`` of its memory, or ``nano`` of it. Both 0: no cap."""

    mib: int = 0
    nano: int = 0


NO_CAP = Cap()


def caps(taken: Translation | None, which: MemoryCaps) -> tuple[Cap, ...]:
    """Return the cap on each device of ``taken.request.shared``; empty where none is written."""
    if taken is None or which is MemoryCaps.NONE or not (taken.wishes.memory_cap or which is MemoryCaps.ALL):
        return ()
    return tuple(
        Cap(mib=ask.limit_mib or ask.mem_mib) if isinstance(ask, MemoryAsk) else Cap(nano=ask.limit_nano or ask.nano)
        for ask in taken.request.shared
    )
