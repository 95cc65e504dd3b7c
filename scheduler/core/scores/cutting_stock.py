"""The value of a piece of a device: duals of the cutting-stock problem of the shares that pods ask for.

At least how many devices do shares of these sizes take, if devices may be cut in any pattern? The linear relaxation's
dual gives each size a price, and a free piece is worth the best total price of sizes that fit in it: nothing for one
that no usual share fits (Gilmore and Gomory, 1961, column generation).

Doubles, added in a fixed order and without BLAS, so that every machine finds the same last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_EPSILON: Final = 1e-9
#: Some five columns a size are usual.
MOST_COLUMNS: Final = 1_000

_Matrix = list[list[float]]


def piece_values(sizes: Sequence[int], demand: Sequence[int], capacity: int) -> list[float]:
    """Return the value of a free piece of 0, 1, ... ``capacity`` units; a whole device is worth 1.

    ``sizes``: distinct, from 1 to ``capacity`` units. ``demand``: how many pods ask for each, above 0. Effort:
    (columns) x (``capacity`` x sizes + sizes squared); columns are bounded, and what a bound leaves is scaled to be
    valid duals (Farley, 1990). Raises ValueError for sizes that fit no device.
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
