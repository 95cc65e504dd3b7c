"""How much work something is, without a clock: how many functions are called, of Python and of C."""

from __future__ import annotations

import cProfile
from collections.abc import Callable


def calls(work: Callable[[], object]) -> int:
    """Return how many functions ``work`` calls: the same number on every machine.

    The profiler of the standard library counts in C, in a third of the time of a function given to sys.setprofile.
    """
    profile = cProfile.Profile()
    profile.runcall(work)
    end_of_counting = 1
    return sum(entry.callcount for entry in profile.getstats()) - end_of_counting
