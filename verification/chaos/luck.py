"""What befalls requests on their way through the proxy (tools/faultyproxy.py): chance, until it is switched off."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import msgspec

from simulator.apiserver.faults import NOTHING, End, Fault
from tools.faultyproxy import Kind, catalogue

#: How many in a thousand requests go wrong. A watch is one request, and its end the usual thing.
_PERMILLE: Final = {Kind.READ: 30, Kind.WRITE: 30, Kind.WATCH: 700}
#: How many in a thousand of the others are late.
_LATE_PERMILLE: Final = 300
_LATEST_S: Final = 0.15
_LATEST_LINE_S: Final = 0.02
_MOST_LINES: Final = 200


class Luck:
    """A Fate (tools/faultyproxy.py) without plan or end. ``counts``: what has happened, by name."""

    def __init__(self, rng: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._is_calm = True

    def turn_bad(self) -> None:
        """Let things go wrong from now on."""
        self._is_calm = False

    def turn_good(self) -> None:
        """Let nothing go wrong with requests that come from now on."""
        self._is_calm = True

    def deal(self, kind: Kind) -> Fault:
        """What is to happen to a request that has just come."""
        if self._is_calm:
            return NOTHING
        if self._rng.randrange(1000) < _PERMILLE[kind]:
            return self._fault(kind)
        if self._rng.randrange(1000) < _LATE_PERMILLE:
            return Fault(name="late", delay_s=self._rng.uniform(0.0, _LATEST_S))
        return NOTHING

    def struck(self, fault: Fault) -> None:
        """It has happened."""
        self.counts[fault.name] += 1

    def _fault(self, kind: Kind) -> Fault:
        # A watch that falls silent is found out after 90 s: stopped servers play that here, for a shorter time.
        choices = [fault for fault in catalogue(self._rng)[kind] if fault.end is not End.FALLS_SILENT]
        fault = self._rng.choice(choices)
        if fault.line_delay_s:
            return msgspec.structs.replace(fault, line_delay_s=self._rng.uniform(0.0, _LATEST_LINE_S))
        if fault.end is not End.NOT:
            return msgspec.structs.replace(fault, after_lines=self._rng.randrange(_MOST_LINES))
        return fault
