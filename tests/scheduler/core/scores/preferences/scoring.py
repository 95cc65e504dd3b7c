"""Scores of nodes by one preference, for the tests of preferences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from scheduler.core.decide.placer import Placer
from scheduler.core.model.pod_class import Weights
from scheduler.core.model.settings import Settings
from scheduler.core.scores.preferences.preferred import preferred_of
from tests.scheduler.core.filters.beside import APP_A, NODES, waiting
from tests.scheduler.core.objects import cluster
from wire.core import ContainerImage, Node, Pod

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
#: Each counts once, so that a score is 0 to 100.
ONCE = Weights(prefer_no_schedule=1, node_affinity=1, pod_affinity=1, soft_spread=1, images=1)


def pods_preferred(*terms: tuple[int, str], selector: Any = APP_A, kind: str = "podAffinity") -> dict[str, Any]:
    """Preferred terms of pods, as (weight, key)."""
    drawn = [
        {"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector}} for weight, key in terms
    ]
    return {"affinity": {kind: {PREFERRED: drawn}}}


def soft(key: str, skew: int = 1, **more: Any) -> dict[str, Any]:
    """A spread constraint that need not hold."""
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": APP_A, **more}


def scores(
    preference: str,
    *running: Pod,
    spec: Mapping[str, Any],
    nodes: tuple[Node, ...] = NODES,
    only: str = "",
    weights: Weights = ONCE,
    app: str = "w",
) -> dict[str, int]:
    """Scores of nodes by a waiting pod of this spec, if only those of ``only`` fit; {} if it has no such preference."""
    made = cluster(*nodes, *running, waiting(spec, app=app), settings=Settings(weights=weights))
    record = made.pod("uid-w")
    assert record is not None
    snapshot = made.snapshot()
    statement = Placer(snapshot).statement
    found = preferred_of(snapshot.judged(record, 0).cls, statement.counts, weights)
    listed = [node.name for node in statement.nodes]
    fits = np.array([not only or name in only for name in listed])
    columns = {} if found is None else found.by_preference(fits)
    if preference not in columns:
        return {}
    scored = zip(listed, columns[preference], strict=True)
    return {name: int(score) for name, score in scored if not only or name in only}


def with_images(of: Node, **sizes_mib: int) -> Node:
    """A node that has images of this size."""
    listed = [{"names": [f"{name}:latest"], "sizeBytes": mib * 1024 * 1024} for name, mib in sizes_mib.items()]
    status = msgspec.structs.replace(of.status, images=msgspec.convert(listed, list[ContainerImage]))
    return msgspec.structs.replace(of, status=status)
