"""policy/v1: the part of PodDisruptionBudgets that says whom they are for, and how many of them may go."""

from __future__ import annotations

from wire.core import LabelSelector, ObjectMeta, WireStruct


class PodDisruptionBudgetSpec(WireStruct, frozen=True, gc=False):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(WireStruct, frozen=True, gc=False):
    disruptions_allowed: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
