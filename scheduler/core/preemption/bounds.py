"""No, and proven: why no evictions that are permitted make room for a need (docs/design/preemption.md).

*Proof.* Each asks whether the need could fit if **all** units of a set were gone at once. Any eviction of
some of that set leaves no more free on any node than that, and a node holds no more pods of a class than ``slots``
says; so if those are too few, no evictions of the set help. Bound B takes all units of pods that may be preempted at
all, C those that may be taken for this need: by the rules with nobody taken before (what a queue has left only
shrinks), by priority, protection, and budgets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.nodes.table import GPUS, Bools, Device
from scheduler.core.preemption.capacity import Counting, KeptSlots, asked, free_now, slots
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import Tenants
from scheduler.core.preemption.victim_units import EMPTY


@dataclass(frozen=True, slots=True)
class Least:
    """What a need takes at least, however its members are chosen: ``pods`` by class, ``count`` and claim of all."""

    pods: dict[PodClass, int]
    count: int
    claim: Resources


def least(need: Need, trial: Trial) -> Least:
    """The least that a need takes, and all that are equal to it."""
    one, times = _least_of_one(need, trial), len(need.all)
    return Least({cls: count * times for cls, count in one.pods.items()}, one.count * times, one.claim.times(times))


def _least_of_one(need: Need, trial: Trial) -> Least:
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


def reach(trial: Trial, wanted: Least, kept: KeptSlots | None = None) -> bool:
    """Whether nodes hold a need as the statement stands, as far as counting tells. ``kept``: of that statement."""
    for cls, count in wanted.pods.items():
        held = slots(trial.statement, cls) if kept is None else kept.of(cls)
        if int(np.minimum(held, count).sum()) < count:
            return False
    return len(wanted.pods) < 2 or all(_suffice(trial, wanted, None))


def reaches_without(trial: Trial, wanted: Least, gone: Bools, devices: Tenants) -> bool:
    """The same with the units of these rows gone."""
    for cls, count in wanted.pods.items():
        ways = (Counting(trial, trial.residents, way, devices).without(gone) for way in cls.ways())
        held = np.maximum.reduce(list(ways))
        if int(np.minimum(held, count).sum()) < count:
            return False
    return len(wanted.pods) < 2 or all(_suffice(trial, wanted, gone))


def _suffice(trial: Trial, wanted: Least, gone: Bools | None) -> Iterator[bool]:
    """For each resource, whether there is enough of it for all classes together: what is free, and what units hold."""
    needed = Counter[int]()
    for cls, count in wanted.pods.items():
        ways = [dict(asked(trial.statement, way)) for way in cls.ways()]
        for row in set.intersection(*(set(way) for way in ways)):
            needed[row] += count * min(way[row] for way in ways)
    rows = sorted(needed.keys() | {GPUS})
    has = np.maximum(free_now(trial, rows), 0).sum(axis=1)
    if gone is not None:
        unit = trial.residents.pods.of["unit"]
        has += trial.residents.demands(trial, rows)[:, (unit != EMPTY) & gone[unit]].sum(axis=1)
        has[rows.index(GPUS)] += sum(map(_come_back, trial.statement.table.devices))
    for row, amount in needed.items():
        yield int(has[rows.index(row)]) >= amount


def _come_back(devices: Iterable[Device]) -> int:
    """Shared GPUs that come back at most when all tenants go; those that are idle or on their way back are free."""
    return sum(device.is_gpu and not (device.is_idle or device.is_leaving) for device in devices)
