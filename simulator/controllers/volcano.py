"""Volcano's Job (volcano-sh/volcano: API reference, labels and annotations)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.controllers.pods import Charge, Json, Placed, child, named, number, objects, placed, read_template
from wire import gangs

#: What Volcano writes where a Job names no scheduler.
_SCHEDULER: Final = "volcano"


def expand(job: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of all tasks. Raises Malformed."""
    spec, name = child(job, "spec"), job["metadata"]["name"]
    for at, task in enumerate(objects(child(spec, "tasks"), "spec.tasks")):
        path = f"spec.tasks[{at}]"
        count, called = number(task, "replicas", path, 1), named(task, path, default=f"default{at}")
        template = read_template(task.get("template"), f"{path}.template")
        charge(count, f"{path}.replicas", template)
        scheduler = template.raw["spec"].get("schedulerName") or child(spec, "schedulerName") or _SCHEDULER
        for index in range(count):
            labels = {
                gangs.VOLCANO_JOB_NAME: name,
                gangs.VOLCANO_TASK: called,
                gangs.VOLCANO_TASK_INDEX: str(index),
            }
            extra = {"schedulerName": scheduler}
            yield placed([job], template, name=f"{name}-{called}-{index}", labels=labels, extra=extra)
