"""Work in steps: between two of them its caller may do something else, or give it up.

A step ends where nothing that others read is half written. It yields how much was done since the one before, in
operations of about a microsecond (decide/allowance.py), so that a caller bounds its slices by work and not by a clock.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

#: Yields the operations of each step and returns the result.
Steps: TypeAlias = Generator[int, None, T]


def ended(steps: Steps[T]) -> T:
    """Do all of it at once; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
