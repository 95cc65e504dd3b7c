"""How long a test of a real cluster waits before it looks again.

A look costs requests, and a test run has thousands of them: with 20 looks a second, however long the wait, they were
a third of what API servers and test processes had to do.
"""

from __future__ import annotations

from typing import Final

_LEAST_S: Final = 0.05
_MOST_S: Final = 0.5
#: Looking that much later is seen in no test: what it waits for takes as long on a machine that is a little busier.
_PART: Final = 0.1


def pause_s(waited_s: float) -> float:
    """Return the seconds until the next look, a tenth of the seconds waited so far, between 0.05 and 0.5."""
    return min(_MOST_S, max(_LEAST_S, _PART * waited_s))
