"""What free GPUs, CPU and memory are worth: an input of decisions, made from the pods that a cluster usually gets.

A free piece of a GPU is worth what usual shares it can still hold (cutting_stock.py). CPU and memory are worth the GPUs
that they can still serve, at the amounts that usual GPU pods ask beside a GPU. Prices only order nodes and devices that
fit; no ledger reads them.
"""

from __future__ import annotations

from math import gcd
from typing import Final

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_kind import LEAST_PODS, WHOLE_MILLI
from scheduler.core.scores.cutting_stock import piece_values
from scheduler.core.scores.typical import Typical

#: The most usual sizes of shares; the time for values grows faster than their number.
MOST_SIZES: Final = 24
MILLI_PER_CORE: Final = 1_000
MIB_PER_GIB: Final = 1_024
#: No price is above this: 1,000 GPUs for a core, or for a GiB.
_MOST: Final = 1_000 * NANO_PER_DEVICE
_NANO_PER_MILLI: Final = NANO_PER_DEVICE // WHOLE_MILLI


class Prices(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Values in nano-GPU.

    ``pieces_nano``: of a free piece of 0, 1, ... 1,000 milli-GPU on one device, never falling. ``core_nano``,
    ``gib_nano``: of a free core and a free GiB of memory; 0: CPU or memory does not count.
    """

    pieces_nano: tuple[int, ...]
    core_nano: int = 0
    gib_nano: int = 0


def _with_tie_break(pieces_nano: list[int]) -> tuple[int, ...]:
    """Add a value too small to outweigh a difference, by which the tighter of equal devices is taken."""
    return tuple(nano + milli * milli for milli, nano in enumerate(pieces_nano))


#: Every milli-GPU is worth as much as every other.
PROPORTIONAL: Final = _with_tie_break([milli * _NANO_PER_MILLI for milli in range(WHOLE_MILLI + 1)])


def prices_of(typical: Typical) -> Prices | None:
    """Return the prices for these usual pods; None where there are fewer than ``LEAST_PODS`` of them."""
    if typical.pods < LEAST_PODS:
        return None
    return Prices(
        pieces_nano=_pieces_nano(typical),
        core_nano=_price(typical.gpu_milli, typical.cpu_milli, MILLI_PER_CORE),
        gib_nano=_price(typical.gpu_milli, typical.mem_mib, MIB_PER_GIB),
    )


def _price(gpu_milli: int, amount: int, unit: int) -> int:
    """Return the nano-GPU of one ``unit``, where so much GPU goes with ``amount``; 0 if either is nothing."""
    return min(gpu_milli * _NANO_PER_MILLI * unit // amount, _MOST) if amount else 0


def _pieces_nano(typical: Typical) -> tuple[int, ...]:
    """Return the values of pieces; proportional ones where nobody asks for shares."""
    most_usual = sorted(typical.shares.items(), key=lambda each: (-each[1], each[0]))[:MOST_SIZES]
    sizes, demand = [size for size, _ in most_usual], [count for _, count in most_usual]
    if not sizes:
        return PROPORTIONAL
    unit = gcd(WHOLE_MILLI, *sizes)
    values = piece_values([size // unit for size in sizes], demand, WHOLE_MILLI // unit)
    nano = [round(NANO_PER_DEVICE * values[milli // unit]) for milli in range(WHOLE_MILLI + 1)]
    return _with_tie_break(nano)
