"""What is decided on a small cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.core.model.plan import Alone, Explain, Placement
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import cluster


def decided(*objects: Any, settings: Settings | None = None) -> tuple[dict[str, Placement], list[Explain]]:
    """Decide on a cluster whose ledger has to equal a recount: placements of pods alone by name, and who waits."""
    made = cluster(*objects, settings=settings)
    plan = made.decide(0)
    assert made.validate() == []
    placed = {entry.placement.name: entry.placement for entry in plan.entries if isinstance(entry, Alone)}
    return placed, [entry for entry in plan.entries if isinstance(entry, Explain)]


def groups_of(placed: Mapping[str, Placement]) -> dict[str, str]:
    """The group of each pod's first device."""
    return {name: placement.devices[0].group for name, placement in placed.items()}
