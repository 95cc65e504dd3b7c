"""Shells on small clusters."""

from __future__ import annotations

from typing import Any

from scheduler.core.model.settings import Settings
from simulator.offline.shell import Shell
from tests.scheduler.core.objects import cluster
from wire.core import Pod

WALL_S = 1_800_000_000
JOB = ("batch/v1", "Job")


def shell(*objects: Any, settings: Settings | None = None) -> Shell:
    """A shell on a cluster that has seen these objects. Nobody is evicted for others unless settings are given."""
    made = cluster(*objects, settings=settings)
    return Shell(made, [each for each in objects if isinstance(each, Pod)], wall_s=WALL_S)


def places(made: Shell) -> dict[str, str]:
    """Names of pods and their nodes, "" for those that wait; without reservations."""
    records = made.cluster.snapshot().pods.records.values()
    return {pod.name: pod.node for pod in sorted(records, key=lambda pod: pod.name) if not pod.is_reservation}


def tenants(made: Shell) -> dict[str, list[str]]:
    """By reservation (UID): its tenants."""
    held = made.cluster.snapshot().pods.reservations.values()
    return {each.uid: sorted(each.book.entries) for each in held if each.book is not None}
