"""Many snapshots, compared one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.settings import Settings
from tools.kubeoracle.comparing import Coverage, differences
from tools.kubeoracle.drawing import Drawn, draw
from tools.kubeoracle.ours import SETTINGS, answer
from tools.kubeoracle.program import Oracle

#: Snapshots that are asked at once: few enough for a pipe, enough for the oracle to work while we do.
_AT_ONCE: Final = 16


@dataclass(slots=True)
class Found:
    """What was compared, and in what the answers differ: the number of the snapshot, and words."""

    coverage: Coverage = field(default_factory=Coverage)
    differences: list[str] = field(default_factory=list)


def run(
    oracle: Oracle,
    seeds: Iterable[int],
    *,
    most: int = 10,
    filters: Filters = FILTERS,
    settings: Settings = SETTINGS,
) -> Found:
    """Compare the snapshots of these seeds; stop after ``most`` that differ."""
    found = Found()
    for drawn in _batches(seeds):
        asked = oracle.ask(each.question for _, each in drawn)
        ours = [answer(each.question, filters, settings) for _, each in drawn]
        for (seed, each), mine, theirs in zip(drawn, ours, asked, strict=True):
            found.coverage.note(each, theirs)
            words = "; ".join(differences(each, theirs, mine))
            if words:
                found.differences.append(f"snapshot {seed}: {words}")
        if len(found.differences) >= most:
            break
    return found


def _batches(seeds: Iterable[int]) -> Iterator[list[tuple[int, Drawn]]]:
    left = iter(seeds)
    while batch := list(islice(left, _AT_ONCE)):
        yield [(seed, draw(seed)) for seed in batch]
