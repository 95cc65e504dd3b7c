"""Units that a name can't say: how many of the small one are in the large one."""

from __future__ import annotations

from typing import Final

#: Nanoseconds in a second.
SECOND_NS: Final = 1_000_000_000
