"""PodGroup of Kubernetes (scheduling.k8s.io/v1alpha2, as Kubernetes 1.36 serves it with the gate GenericWorkload)."""

from __future__ import annotations

from typing import Final

from workloads.core import fields
from workloads.core.case import Case
from workloads.core.values import Json, Shape

_POLICY: Final = "spec.schedulingPolicy"
_MIN_COUNT: Final = f"{_POLICY}.gang.minCount"


def shape(group: Json, _: Case) -> Shape:
    """`schedulingPolicy.gang.minCount`, or 1 with `basic`; its priority class."""
    _refuse_beyond_a_minimum(group)
    return Shape(minimum=_minimum(group), priority=fields.text(group, "spec.priorityClassName"))


def _minimum(group: Json) -> int:
    policy = fields.mapping(group, _POLICY)
    if policy.get("gang") is None and policy.get("basic") is not None:
        return 1
    minimum = fields.count(group, _MIN_COUNT)
    if not minimum:
        raise fields.malformed(group, _MIN_COUNT, minimum, "a number above 0, or schedulingPolicy.basic")
    return minimum


def _refuse_beyond_a_minimum(group: Json) -> None:
    constraints = fields.mapping(group, "spec.schedulingConstraints")
    if constraints:
        raise fields.not_carried_out(group, "spec.schedulingConstraints", ", ".join(map(str, constraints)), "none")
    if claims := fields.mappings(group, "spec.resourceClaims"):
        named = ", ".join(fields.text(each, "name") for each in claims[:4])
        raise fields.not_carried_out(group, "spec.resourceClaims", named, "none")
    mode = fields.at(group, "spec.disruptionMode")
    if mode is not None and mode != "Pod":
        raise fields.not_carried_out(group, "spec.disruptionMode", str(mode), "Pod")
