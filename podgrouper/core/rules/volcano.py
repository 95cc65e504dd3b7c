"""Volcano's Job, as its own scheduler starts it (API reference of batch.volcano.sh/v1alpha1)."""

from __future__ import annotations

from podgrouper.core import fields
from podgrouper.core.answers import Shape
from podgrouper.core.case import Case
from podgrouper.core.fields import bounded
from wire import gangs
from wire.crds.podgroup import SubGroup


def shape(case: Case) -> Shape:
    """`minAvailable`, else the sum of `replicas`; a part for each task if a task has a `minAvailable`."""
    tasks = fields.mappings(case.top, "spec.tasks")
    total, parts, own = 0, [], False
    bounded(case.top, (), len(tasks))
    for at, task in enumerate(tasks):
        place = f"spec.tasks[{at}]"
        replicas = fields.checked_count(case.top, f"{place}.replicas", task.get("replicas"), 1) or 0
        least = fields.checked_count(case.top, f"{place}.minAvailable", task.get("minAvailable"))
        own = own or least is not None
        total += replicas
        name = fields.text(task, "name") or f"default{at}"
        parts.append(SubGroup(name=name, min_member=replicas if least is None else least))
    minimum = fields.count(case.top, "spec.minAvailable", total)
    if not own:
        return Shape(minimum=minimum)
    task_name = fields.labels_of(case.pod).get(gangs.VOLCANO_TASK, "")
    return Shape(minimum=minimum, parts=tuple(parts), part=task_name)
