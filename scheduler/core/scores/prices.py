"""What free GPUs, CPU and memory are worth: an input of decisions, made from the pods that a cluster usually gets.

Prices only order nodes and devices that fit; no ledger reads them. CPU and memory are worth the GPUs that they can
still serve, at the amounts that usual GPU pods ask beside a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Final

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_kind import LEAST_PODS, WHOLE_MILLI, Kind, most_frequent, usual

_EPSILON: Final = 1e-9
#: Some five columns a size are usual.
MOST_COLUMNS: Final = 1_000

_Matrix = list[list[float]]


def piece_values(sizes: Sequence[int], demand: Sequence[int], capacity: int) -> list[float]:
    """Return the value of a free piece of 0, 1, ... ``capacity`` units; a whole device is worth 1.

    ``sizes``: distinct, from 1 to ``capacity`` units. ``demand``: how many pods ask for each, above 0. Effort:
    (columns) x (``capacity`` x sizes + sizes squared); columns are bounded, and what a bound leaves is scaled to be
    valid duals (Farley, 1990). Raises ValueError for sizes that fit no device.

    A free piece is worth what usual shares it can still hold: at least how many devices do shares of these sizes take,
    if devices may be cut in any pattern? The linear relaxation's dual of that cutting-stock problem gives each size a
    price, and a free piece is worth the best total price of sizes that fit in it: nothing for one that no usual share
    fits (Gilmore and Gomory, 1961, column generation). Doubles, added in a fixed order and without BLAS, so that every
    machine finds the same last bit.
    """
    if not sizes or min(sizes) < 1 or max(sizes) > capacity:
        raise ValueError(f"sizes {list(sizes)}: none, or not from 1 to {capacity} units")
    inverse: _Matrix = [[1.0 / (capacity // size) if i == j else 0.0 for j in range(len(sizes))]
                        for i, size in enumerate(sizes)]  # fmt: skip
    amounts = [wanted * row[i] for i, (wanted, row) in enumerate(zip(demand, inverse, strict=True))]
    values, last = _knapsack(sizes, _prices(inverse), capacity)
    for _ in range(MOST_COLUMNS):
        if values[capacity] <= 1.0 + _EPSILON:
            break
        _enter(_pattern(sizes, last, capacity), inverse, amounts)
        values, last = _knapsack(sizes, _prices(inverse), capacity)
    return [value / values[capacity] for value in values]


def _prices(inverse: _Matrix) -> list[float]:
    """Return the dual of each size: every pattern of the basis is worth 1."""
    return [sum(row[i] for row in inverse) for i in range(len(inverse))]


def _knapsack(sizes: Sequence[int], prices: Sequence[float], capacity: int) -> tuple[list[float], list[int]]:
    """Return the best total price for each number of units, and the size that was added last there, -1 for none."""
    values, last = [0.0] * (capacity + 1), [-1] * (capacity + 1)
    items = sorted((size, price, i) for i, (size, price) in enumerate(zip(sizes, prices, strict=True)))
    for units in range(1, capacity + 1):
        best, which = values[units - 1], -1
        for size, price, i in items:
            if size > units:
                break
            worth = values[units - size] + price
            if worth > best + 1e-12:
                best, which = worth, i
        values[units], last[units] = best, which
    return values, last


def _pattern(sizes: Sequence[int], last: Sequence[int], capacity: int) -> list[int]:
    """Return how often each size is in the best pattern."""
    pattern, units = [0] * len(sizes), capacity
    while units > 0:
        if last[units] < 0:
            units -= 1
        else:
            pattern[last[units]] += 1
            units -= sizes[last[units]]
    return pattern


def _enter(pattern: Sequence[int], inverse: _Matrix, amounts: list[float]) -> None:
    """Put a pattern into the basis in the place of the one that reaches zero first, and write the new inverse."""
    column = [sum(row[j] * pattern[j] for j in range(len(pattern)) if pattern[j]) for row in inverse]
    out, least = -1, 0.0
    for i, part in enumerate(column):
        if part > _EPSILON:
            ratio = max(amounts[i], 0.0) / part
            if out < 0 or ratio < least:
                out, least = i, ratio
    pivot = column[out]
    inverse[out] = [each / pivot for each in inverse[out]]
    amounts[out] /= pivot
    for i, part in enumerate(column):
        if i != out and part:
            inverse[i] = [mine - part * theirs for mine, theirs in zip(inverse[i], inverse[out], strict=True)]
            amounts[i] -= part * amounts[out]


MOST_KINDS: Final = 4_096
#: What one arrival adds: halving keeps it for ten periods.
ARRIVAL: Final = 1 << 10


class Typical(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Usual pods.

    ``pods``: how many are known. ``shares``: of sizes in milli-GPU, how often each is asked. ``gpu_milli``,
    ``cpu_milli``, ``mem_mib``: sums over usual pods, weighted alike.
    """

    pods: int = 0
    shares: Mapping[int, int] = {}
    gpu_milli: int = 0
    cpu_milli: int = 0
    mem_mib: int = 0


class Arrivals:
    """Counts of arrivals by kind. A pod counts when it is first seen on a node, older ones for less.

    Who names a node in a pod's spec can have it counted: prices move the order of nodes only, never what fits. There
    are ``MOST_KINDS`` kinds at most, so that nobody fills memory with pods that differ.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Kind, int] = {}

    def add(self, kind: Kind) -> None:
        """Count one more."""
        self._counts[kind] = self._counts.get(kind, 0) + ARRIVAL
        if len(self._counts) > MOST_KINDS:
            self._counts = dict(most_frequent(self._counts)[: MOST_KINDS // 2])

    def halve(self) -> None:
        """A period is over: what came before counts half."""
        self._counts = {kind: count // 2 for kind, count in self._counts.items() if count > 1}

    def counts(self) -> Mapping[Kind, int]:
        """Return a copy of the counts, in parts of ``ARRIVAL``."""
        return dict(self._counts)


def typical_of(counts: Mapping[Kind, int]) -> Typical:
    """Return the usual pods of these counts."""
    total, kinds = sum(counts.values()), usual(counts)
    shares: dict[int, int] = {}
    for kind, count in kinds:
        if kind.milli < WHOLE_MILLI:
            shares[kind.milli] = shares.get(kind.milli, 0) + count * kind.devices
    return Typical(
        pods=total // ARRIVAL,
        shares=shares,
        gpu_milli=sum(kind.devices * kind.milli * count for kind, count in kinds),
        cpu_milli=sum(kind.cpu_milli * count for kind, count in kinds),
        mem_mib=sum(kind.mem_mib * count for kind, count in kinds),
    )


def moved_percent(before: Mapping[Kind, int], now: Mapping[Kind, int]) -> int:
    """Return how far the mix has moved: half of the sum of differences of parts, in percent, rounded down."""
    all_before, all_now = sum(before.values()), sum(now.values())
    if not all_before or not all_now:
        return 100 if all_before or all_now else 0
    kinds: Iterable[Kind] = before.keys() | now.keys()
    apart = sum(abs(before.get(kind, 0) * all_now - now.get(kind, 0) * all_before) for kind in kinds)
    return apart * 50 // (all_before * all_now)


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
