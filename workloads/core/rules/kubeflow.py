"""Kubeflow's training jobs: TFJob, XGBoostJob, JAXJob, PaddleJob, MPIJob v1 (kai-contract 3.2)."""

from __future__ import annotations

from typing import Final

from workloads.core import fields
from workloads.core.case import Case
from workloads.core.values import Shape

MIN_AVAILABLE: Final = "spec.runPolicy.schedulingPolicy.minAvailable"


def shape(case: Case) -> Shape:
    """`runPolicy.schedulingPolicy.minAvailable`, else the sum of `replicas`."""
    least = fields.count(case.top, MIN_AVAILABLE)
    return Shape(minimum=sum(replicas(case).values()) if least is None else least)


def replicas(case: Case) -> dict[str, int]:
    """Return the replicas of each type, by its name as written. Raises Refused: none of them may be 0 or absent."""
    field = f"spec.{case.kind.replicas}"
    found: dict[str, int] = {}
    for role, spec in fields.mapping(case.top, field).items():
        place = f"{field}.{role}.replicas"
        number = fields.checked_count(case.top, place, fields.at(spec, "replicas"))
        if not number:
            raise fields.malformed(case.top, place, number, "a number above 0")
        found[str(role)] = number
    missing = [role for role in case.kind.required if role not in found]
    if missing or not found:
        raise fields.malformed(
            case.top, field, None, f"replica types {', '.join(case.kind.required) or 'with replicas'}"
        )
    return found
