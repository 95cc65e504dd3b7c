"""A GPU of this machine, as its driver describes it: what the parts of the node agent tell each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card. ``uuid``, ``product`` and ``index`` are NVML's.

    ``minor`` is the N of /dev/nvidiaN; ``mem_mib`` is rounded down; ``numa`` is the NUMA node. None: the driver does
    not tell. ``slices``: the UUIDs of its MIG slices; ``has_mig``: its MIG mode is on.
    """

    uuid: str
    index: int
    product: str = ""
    minor: int | None = None
    mem_mib: int | None = None
    numa: int | None = None
    has_mig: bool = False
    slices: tuple[str, ...] = ()
