"""Volcano's Job, as its own scheduler starts it (API reference of batch.volcano.sh/v1alpha1).

The pods of a task with `dependsOn` are made once those tasks run, so these can't wait for its own. Tasks with the same
`dependsOn` are made together, and have a PodGroup for themselves.
"""

from __future__ import annotations

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.fields import bounded
from podgrouper.core.rule_input import Case
from wire import gangs
from wire.crds.podgroup import SubGroup


def shape(case: Case) -> Shape:
    """`minAvailable`, at most the sum of `replicas`, of tasks with the same `dependsOn`; parts if a task has one."""
    tasks = list(enumerate(fields.mappings(case.top, "spec.tasks")))
    bounded(case.top, (), len(tasks))
    awaited = {_name(at, task): _awaited(case.top, at, task) for at, task in tasks}
    task_name = fields.labels_of(case.pod).get(gangs.VOLCANO_TASK, "")
    own = awaited.get(task_name, frozenset())
    together = [(at, task) for at, task in tasks if awaited[_name(at, task)] == own]
    total, parts, has_minimums = 0, [], False
    for at, task in together:
        place = f"spec.tasks[{at}]"
        replicas = fields.checked_count(case.top, f"{place}.replicas", task.get("replicas"), 1) or 0
        least = fields.checked_count(case.top, f"{place}.minAvailable", task.get("minAvailable"))
        has_minimums = has_minimums or least is not None
        total += replicas
        parts.append(SubGroup(name=_name(at, task), min_member=replicas if least is None else min(least, replicas)))
    # Volcano's own webhook refuses a larger number; without it nobody makes more pods than these.
    minimum = min(fields.count(case.top, "spec.minAvailable", total) or 0, total)
    suffix = f"-{_name(*together[0])}" if own else ""
    if not has_minimums:
        return Shape(minimum=minimum, suffix=suffix)
    return Shape(minimum=minimum, parts=tuple(parts), part=task_name, suffix=suffix)


def _name(at: int, task: Json) -> str:
    return fields.text(task, "name") or f"default{at}"


def _awaited(job: Json, at: int, task: Json) -> frozenset[str]:
    """Return the names of tasks whose pods have to run before those of this one are made."""
    named = fields.at(task, "dependsOn.name") or []
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise fields.malformed(job, f"spec.tasks[{at}].dependsOn.name", named, "a list of names of tasks")
    return frozenset(named)
