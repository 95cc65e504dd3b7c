"""What is counted in queues: CPU, memory and GPUs, each as an exact integer in a unit of its own."""

from __future__ import annotations

from typing import Final, NamedTuple

from wire.crds.queue import TOO_MANY_UNITS
from wire.crds.queue import UNITS as UNITS_OF_QUEUES

#: ``quota`` and ``limit`` without end. Sums of what pods use stay far below.
UNLIMITED: Final = TOO_MANY_UNITS

#: The name of each dimension in a Queue's ``spec.resources``, in the order of ``Resources``.
DIMENSIONS: Final = tuple(UNITS_OF_QUEUES)
#: What is given as one piece: a whole GPU, and single millicores and bytes.
UNITS: Final = (1, 1, 10**9)


class Resources(NamedTuple):
    """Amounts of all dimensions. GPUs count in billionths of one (nano), memory in bytes without rounding."""

    cpu_milli: int = 0
    mem_bytes: int = 0
    gpu_nano: int = 0

    def plus(self, other: Resources) -> Resources:
        """The sum of both."""
        return Resources(self[0] + other[0], self[1] + other[1], self[2] + other[2])

    def times(self, count: int) -> Resources:
        """Each amount times a number."""
        return Resources(self[0] * count, self[1] * count, self[2] * count)

    def minus(self, other: Resources) -> Resources:
        """What is left of it without the other; below zero where the other is larger."""
        return Resources(self[0] - other[0], self[1] - other[1], self[2] - other[2])


NOTHING: Final = Resources()
WITHOUT_END: Final = Resources(UNLIMITED, UNLIMITED, UNLIMITED)
