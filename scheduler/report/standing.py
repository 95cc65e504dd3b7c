"""How things stand, for whoever asks: why pods wait, and what of the GPUs is used. Only the leader knows both.

A replica that follows decides nothing, so it neither knows why pods wait nor counts its ledger; it says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from scheduler.core.model.verdict import Code
from scheduler.core.report.pool_use import Pool, Use, use_of_pools
from scheduler.watch.cache import Cache

#: In the place of a reason: a place was found, and it is being bound or waits for its device.
ON_ITS_WAY: Final = "OnItsWay"
#: In the place of a reason: it has just come.
UNDECIDED: Final = "Undecided"


class Standing:
    """Reads the cache. ``codes``: why pods wait, by UID. ``is_leading`` is set by the scheduler."""

    def __init__(self, cache: Cache, codes: Mapping[str, Code]) -> None:
        self._cache = cache
        self._codes = codes
        self.is_leading = False

    def waiting(self) -> Mapping[str, int]:
        """How many pods of ours wait, by the value of their verdict's code, ``ON_ITS_WAY`` or ``UNDECIDED``."""
        if not self.is_leading:
            return {}
        found = Counter(map(self._why, self._cache.waiting))
        return {code: found[code] for code in (*(code.value for code in Code), ON_ITS_WAY, UNDECIDED)}

    def _why(self, uid: str) -> str:
        if self._cache.cluster.is_in_flight(uid):
            return ON_ITS_WAY
        code = self._codes.get(uid)
        return UNDECIDED if code is None else code.value

    def pools(self) -> Mapping[Pool, Use]:
        """What is used of each pool of GPUs, and what is not, by the ledger as it is now."""
        return use_of_pools(self._cache.cluster.refresh()) if self.is_leading else {}
