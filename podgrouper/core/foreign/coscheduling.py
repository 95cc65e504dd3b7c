"""PodGroup of the coscheduling plug-in (scheduling.x-k8s.io/v1alpha1).

`minResources` and `scheduleTimeoutSeconds` have no effect here: a gang is placed whole, and nothing is held for it
while it waits.
"""

from __future__ import annotations

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.rule_input import Case


def shape(group: Json, _: Case) -> Shape:
    """`spec.minMember`, else 1."""
    return Shape(minimum=fields.count(group, "spec.minMember") or 1)
