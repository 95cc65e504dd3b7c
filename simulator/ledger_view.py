"""A look into running schedulers, for the checker only: what their ledgers hold just now, as plain numbers.

Counting what has changed is what the next decision would begin with, so looking changes no decision.
"""

from __future__ import annotations

from typing import Final

from gpu.node_resources import is_device_resource
from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from scheduler.core.nodes.table import CPU, MEMORY, PODS
from simulator.checks.ledgers import Ledger, Row

#: What a scheduler follows, by plural.
FOLLOWED: Final = ("nodes", "podgroups", "bindrequests", "pods")


def ledger(name: str, scheduler: object) -> Ledger | None:
    """Read a scheduler's ledger; None of a stand-in that has none."""
    if not isinstance(scheduler, Scheduler):
        return None
    cluster = scheduler.cache.cluster
    is_busy = not cluster.commits.are_settled
    caps = cluster.slice_caps.of
    return Ledger(scheduler=name, is_busy=is_busy, rows={} if is_busy else _rows(cluster), caps=caps)


def decisions(scheduler: object) -> int:
    """How many decisions a scheduler has made since it started; 0 of a stand-in that makes none."""
    return scheduler.cache.cluster.decisions if isinstance(scheduler, Scheduler) else 0


def _rows(cluster: Cluster) -> dict[str, Row]:
    counted = cluster.refresh()
    table = counted.table
    free_of = table.free.T.tolist()
    kinds = [(at, name) for at, name in enumerate(table.resources) if is_device_resource(name)]
    rows = {}
    for node, row in counted.row_of.items():
        free = free_of[row]
        shared = {device.group: device.free_nano for device in table.devices[row]}
        rows[node] = Row(free[CPU], free[MEMORY], free[PODS], {name: free[at] for at, name in kinds}, shared)
    return rows
