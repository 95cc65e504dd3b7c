"""How long changes are gathered before they are decided on together.

After a quiet time that is a few milliseconds. While changes keep coming, one decision on many of them costs much less
than one on each: a node is counted once, and the cost that each decision has is paid once. So decisions take
a bounded part of the process's time, and the rest is left to the writes of what was decided and to the watches.
"""

from __future__ import annotations

import math
from typing import Final

#: The next decision comes no sooner than this many times the time that one took,
TIMES: Final = 3
#: and at most this long, after its end.
MOST_S: Final = 0.1


class Gathering:
    """``least_s``: from the first change to the decision. Times are the event loop's."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._rests_until = -math.inf

    def decided(self, began_s: float, ended_s: float) -> None:
        """Note when a decision was made that left no work to the next one."""
        self._rests_until = ended_s + min(TIMES * (ended_s - began_s), MOST_S)

    def left_s(self, now_s: float) -> float:
        """How long to wait for what comes with a change that came now."""
        return max(self._least_s, self._rests_until - now_s)
