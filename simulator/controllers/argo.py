"""Argo Workflow: the pods with which it begins (argoproj/argo-workflows: field reference).

Later steps depend on how earlier ones end, so they are not made; nor are those of templates of other objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from simulator.controllers.parts import Charge, Json, Placed, named, objects, placed
from simulator.podmaking import MOST_PODS, Malformed, Template, child, identity, read_template

#: Fields that a template and the Workflow have for the spec of pods; those of the template win.
_SPEC: Final = (
    "nodeSelector", "tolerations", "affinity", "schedulerName", "priorityClassName", "serviceAccountName",
    "securityContext", "hostAliases", "imagePullSecrets", "hostNetwork", "dnsPolicy", "dnsConfig",
)  # fmt: skip
_LABEL: Final = "workflows.argoproj.io/workflow"
#: No workflow nests its templates deeper; this ends one that calls itself.
_DEEPEST: Final = 32


def expand(workflow: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of the first steps, and of tasks that wait for no other. Raises Malformed."""
    spec = child(workflow, "spec")
    if child(spec, "suspend") is True or child(spec, "workflowTemplateRef") is not None:
        return
    listed = objects(child(spec, "templates"), "spec.templates")
    templates = {named(each, f"spec.templates[{at}]"): (at, each) for at, each in enumerate(listed)}
    names = list(_first(str(child(spec, "entrypoint") or ""), templates, _DEEPEST, [MOST_PODS]))
    pods: dict[str, Template] = {}
    for called, count in Counter(names).items():
        at, written = templates[called]
        pods[called] = _pod(workflow, written, f"spec.templates[{at}]")
        charge(count, "the number of steps", pods[called])
    name = workflow["metadata"]["name"]
    for number, called in enumerate(names):
        alone = len(names) == 1 and called == child(spec, "entrypoint")
        pod = name if alone else f"{name}-{called}-{identity(f'{called}/{number}')}"
        yield placed([workflow], pods[called], name=pod, labels={_LABEL: name})


def _first(called: str, templates: Mapping[str, tuple[int, Json]], depth: int, left: list[int]) -> Iterator[str]:
    """Yield the names of the templates whose pods come first; ``left``: how many more may be looked at."""
    left[0] -= 1
    if depth == 0 or left[0] < 0:
        raise Malformed("spec.templates call each other without end, or make more pods than are allowed")
    if called not in templates:
        return
    at, template = templates[called]
    path = f"spec.templates[{at}]"
    if any(template.get(field) is not None for field in ("container", "script", "containerSet")):
        yield called
    for step in _beginning(template, path):
        items = step.get("withItems")
        count = len(items) if isinstance(items, list) else 1
        for _ in range(count):
            yield from _first(str(step.get("template") or ""), templates, depth - 1, left)


def _beginning(template: Json, path: str) -> list[Json]:
    """Return the steps of the first group, and the tasks of a graph that depend on no other."""
    steps = template.get("steps")
    first = steps[0] if isinstance(steps, list) and steps else []
    found = list(objects(first if isinstance(first, list) else [first], f"{path}.steps[0]"))
    tasks = objects(child(template.get("dag"), "tasks"), f"{path}.dag.tasks")
    return found + [task for task in tasks if not task.get("dependencies") and not task.get("depends")]


def _pod(workflow: Json, template: Json, path: str) -> Template:
    spec = workflow["spec"]
    one = template.get("container") or template.get("script")
    several = child(template.get("containerSet"), "containers")
    containers = [{"name": "main", **one}] if isinstance(one, Mapping) else several
    pod: dict[str, Any] = {"restartPolicy": "Never"}
    for source in (spec, template):
        pod |= {field: source[field] for field in _SPEC if source.get(field) is not None}
    sidecars = template.get("sidecars")
    pod["containers"] = [*(containers or []), *(sidecars if isinstance(sidecars, list) else [])]
    if template.get("initContainers"):
        pod["initContainers"] = template["initContainers"]
    volumes = [each for source in (spec, template) for each in objects(source.get("volumes"), f"{path}.volumes")]
    if volumes:
        pod["volumes"] = volumes
    meta: dict[str, Any] = {}
    for source in (child(spec, "podMetadata"), template.get("metadata")):
        for field in ("labels", "annotations"):
            added = child(source, field)
            if isinstance(added, Mapping):
                meta[field] = {**meta.get(field, {}), **added}
    return read_template({"metadata": meta, "spec": pod}, path)
