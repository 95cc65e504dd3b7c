"""Snapshots of hostile runs, taken at random moments, come to rest: no node or device is promised twice on the way."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from cli.snapshots.cluster import cluster_of
from gpu.share import NANO_PER_DEVICE
from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.model.plan import Plan
from scheduler.core.model.settings import Settings
from simulator.components import Parts
from simulator.offline.shell import Shell, settle
from tests.simulation.test_snapshots import Stored
from tests.whole import IS_WHOLE
from verification.hostile.run import run
from verification.hostile.scenario import scenario_of

pytestmark = pytest.mark.thorough

SEEDS = range(1, 41) if IS_WHOLE else (1, 2, 5, 8)
#: Of all decisions, this part is looked at.
_LOOKED_AT = 0.02


class Looked(Cluster):
    """A live cluster of which snapshots are taken further."""

    def __init__(self, settings: Settings, stored: Stored, rng: random.Random, counts: Counter[str]) -> None:
        super().__init__(settings)
        self.stored = stored
        self.rng = rng
        self.counts = counts

    @override
    def decide(self, now_ns: int, limits: Limits = LIMITS, *, wall_s: int = 0) -> Plan:
        if self.rng.random() < _LOOKED_AT:
            self.take_further(wall_s)
        return super().decide(now_ns, limits, wall_s=wall_s)

    def take_further(self, wall_s: int) -> None:
        found = self.stored.saved(wall_s)
        cluster, _ = cluster_of(found, self.settings)
        shell = Shell(cluster, found.pods, wall_s=wall_s)
        shell.finish_what_is_under_way()
        if cluster.node_names() and self.rng.random() < 0.5:
            shell.drain(self.rng.choice(cluster.node_names()))
            self.counts["drained"] += 1
        before = shortest(cluster)
        waiting = waits(cluster)
        assert settle(shell).is_at_rest
        assert cluster.validate() == []
        after = shortest(cluster)
        assert all(after[name] >= min(0, free) for name, free in before.items() if name in after), (before, after)
        assert all(used <= NANO_PER_DEVICE for used in books(cluster))
        self.counts["looked"] += 1
        self.counts["placed"] += len(waiting - waits(cluster))
        self.counts["waiting"] += len(waits(cluster))
        self.counts["evicted"] += shell.evictions


def shortest(cluster: Cluster) -> dict[str, int]:
    """By node: of what it has left of anything the least, below zero where more is used than it has."""
    ledger = cluster.refresh()
    return {name: int(np.min(ledger.table.free[:, row])) for name, row in ledger.row_of.items()}


def books(cluster: Cluster) -> list[int]:
    held = cluster.snapshot().pods.reservations.values()
    return [sum(entry.nano for entry in each.book.entries.values()) for each in held if each.book is not None]


def waits(cluster: Cluster) -> set[str]:
    return set(cluster.snapshot().pods.unbound)


def test_snapshots_come_to_rest_and_nothing_is_promised_twice() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        stored, rng = Stored(), random.Random(seed)

        def scheduler(api: Any, *, settings: Any, **rest: Any) -> Scheduler:
            cluster = Looked(settings.decisions, stored, rng, counts)  # noqa: B023 - called within this round
            return Scheduler(api, settings=settings, cluster=cluster, **rest)

        run(scenario_of(seed), parts=Parts(scheduler=scheduler), show=stored.show, limit_cpu_s=120.0)
    assert counts["looked"] > 10, counts
    assert counts["drained"] > 4, counts
    assert counts["placed"] > 20, counts
    assert counts["waiting"] > 20, counts
