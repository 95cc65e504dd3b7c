"""The same as ``whole`` with pods that prefer: soft spread over three zones, and preferred anti-affinity on hosts.

As each pod that is bound changes what the next one prefers, this measures what counts of pods cost a decision.
"""

from __future__ import annotations

from bench import objects, whole
from bench.result import Figures, Sizes

_ZONES = 3


def measure(sizes: Sizes) -> Figures:
    """All sizes, one control plane each."""
    return whole.measure_with(objects.preferring, sizes.preferring, zones=_ZONES)
