"""PodGroup of the coscheduling plug-in (scheduling.x-k8s.io/v1alpha1).

`minResources` and `scheduleTimeoutSeconds` have no effect here: a gang is placed whole, and nothing is held for it
while it waits.
"""

from __future__ import annotations

from workloads.core import fields
from workloads.core.case import Case
from workloads.core.values import Json, Shape


def shape(group: Json, _: Case) -> Shape:
    """`spec.minMember`, else 1."""
    return Shape(minimum=fields.count(group, "spec.minMember") or 1)
