"""No, and proven: why no evictions that are permitted make room for a need (batch.md 5.4).

*Proof.* Each asks whether the need could fit if **all** units of a set were gone at once. Whatever is evicted, if it is
some of that set, leaves no more free on any node than that, and a node holds no more pods of a class than ``slots``
says; so if those are too few, no evictions of the set help. Bound B takes all units of pods that may be preempted at
all, C those that may be taken for this need: by the rules with nobody taken before (what a queue has left only
shrinks), by priority, protection, and budgets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.core.model.records import PodClass
from scheduler.core.model.resources import NOTHING, Resources
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Bools, Int64s
from scheduler.core.room.counting import freed
from scheduler.core.room.need import Need
from scheduler.core.room.slots import asked, slots
from scheduler.core.room.trial import Trial

_NOTHING: Final[Mapping[int, Int64s]] = {}


@dataclass(frozen=True, slots=True)
class Least:
    """What a need takes at least, however its members are chosen: ``pods`` by class, ``count`` and claim of all."""

    pods: dict[PodClass, int]
    count: int
    claim: Resources


def least(need: Need, trial: Trial) -> Least:
    """The least that a need takes."""
    counts, wanted = Counter(pod.cls for pod in need.pods), _wanted(need)
    others = len(need.pods) - wanted
    pods = {cls: count - others for cls, count in counts.items() if count > others}
    of = [trial.queues.least(cls) for cls in counts]
    claim = NOTHING
    for cls, count in pods.items():
        claim = claim.plus(trial.queues.least(cls).times(count))
    rest = wanted - sum(pods.values())
    return Least(pods, wanted, claim.plus(Resources(*map(min, *of, of[0])).times(rest)))


def _wanted(need: Need) -> int:
    """How many of its pods it needs at least."""
    if need.quorum is None:
        return 1
    return min(len(need.pods), max(need.quorum.of_all, need.quorum.costs(need.pods)[0]))


def reach(trial: Trial, wanted: Least, more: Mapping[int, Int64s] = _NOTHING) -> bool:
    """Whether nodes hold a need as the statement stands, as far as counting tells. ``more``: free besides, by row."""
    for cls, count in wanted.pods.items():
        if int(np.minimum(slots(trial.statement, cls, more), count).sum()) < count:
            return False
    return len(wanted.pods) < 2 or all(_rows_suffice(trial, wanted, more))


def _rows_suffice(trial: Trial, wanted: Least, more: Mapping[int, Int64s]) -> Iterator[bool]:
    """For each resource, whether there is enough of it for all classes together."""
    asked, statement = Counter[int](), trial.statement
    for cls, count in wanted.pods.items():
        ways = [dict(statement.amounts(way.demand)) for way in cls.ways()]
        for row in set.intersection(*(set(way) for way in ways)):
            asked[row] += count * min(way[row] for way in ways)
    for row, amount in asked.items():
        free = statement.table.free[row] + more.get(row, 0)
        back = statement.table.extra[IDLE] + statement.table.extra[LEAVING] if row == GPUS else 0
        yield int(np.maximum(free + back, 0).sum()) >= amount


def reaches_without(trial: Trial, wanted: Least, gone: Bools) -> bool:
    """The same with the units of these rows gone."""
    statement = trial.statement
    mark = statement.checkpoint()
    rows = {row for cls in wanted.pods for way in cls.ways() for row, _ in asked(statement, way)} | {GPUS}
    found = reach(trial, wanted, freed(trial, trial.residents, gone, sorted(rows)))
    statement.rollback(mark)
    return found
