"""A gang's plan as it is written on its PodGroup, before the first member joins a book or is bound.

One annotation, written with the PodGroup's resourceVersion and only where there is none or a spent one, so that two
schedulers can't start two halves of one gang (docs/design/protocol.md, Gangs).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpu.handover import PlannedDevice
from scheduler.core.plan import Placement


class PlannedMember(msgspec.Struct, frozen=True, gc=False):
    """Where one pod goes."""

    node: str
    devices: tuple[PlannedDevice, ...] = ()


class GangPlan(msgspec.Struct, frozen=True, gc=False):
    """``id`` is fresh for each plan; ``members`` by pod UID."""

    id: str
    members: dict[str, PlannedMember]


def make(plan_id: str, placements: Sequence[Placement]) -> GangPlan:
    """The plan of these placements."""
    return GangPlan(plan_id, {p.pod_uid: PlannedMember(p.node, p.devices) for p in placements})


def render(plan: GangPlan) -> str:
    """Write the annotation."""
    return msgspec.json.encode(plan).decode()
