"""Argo Workflow: the pods and objects with which it begins (argoproj/argo-workflows: field reference).

Later steps depend on how earlier ones end, so they are not made; nor are those that a step takes from another object
(``templateRef``). A Workflow that has all its templates from one comes here with them (argotemplates.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from gpu.translation import shown
from simulator.controllers import argosteps
from simulator.controllers.parts import Charge, Json, Placed, objects, placed
from simulator.podmaking import Malformed, Template, child, identity, read_template
from wire.yaml_text import why_not_yaml

#: Fields of a template that runs a pod.
_RUNS: Final = ("container", "script", "containerSet")
#: Actions of a ``resource`` template after which the object exists.
_CREATES: Final = ("create", "apply")
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Fields that a template and the Workflow have for the spec of pods; those of the template win.
_SPEC: Final = (
    "nodeSelector", "tolerations", "affinity", "schedulerName", "priorityClassName", "serviceAccountName",
    "securityContext", "hostAliases", "imagePullSecrets", "hostNetwork", "dnsPolicy", "dnsConfig",
)  # fmt: skip
_LABEL: Final = "workflows.argoproj.io/workflow"


def expand(workflow: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of the first steps, and of tasks that wait for no other. Raises Malformed.

    Objects that ``resource`` templates create are read beside them (wrapping.py).
    """
    calls = [call for call in argosteps.first(workflow) if any(call.template.get(each) is not None for each in _RUNS)]
    pods: dict[tuple[str, int], Template] = {}
    # Templates that steps bring along may have the same name in templates that differ.
    by_name = {(call.name, call.at): call for call in calls}
    for called, count in Counter((call.name, call.at) for call in calls).items():
        one = by_name[called]
        pods[called] = _pod(workflow, one.template, f"spec.templates[{one.at}]")
        charge(count, "the number of steps", pods[called])
    name = workflow["metadata"]["name"]
    entrypoint = child(workflow["spec"], "entrypoint") if calls else None
    for number, call in enumerate(calls):
        alone = len(calls) == 1 and call.name == entrypoint
        pod = name if alone else f"{name}-{call.name}-{identity(f'{call.name}/{number}')}"
        yield placed([workflow], pods[call.name, call.at], name=pod, labels={_LABEL: name})


def created(workflow: Json) -> list[Json]:
    """Return the objects that ``resource`` templates of the first steps create, without owner. Raises Malformed."""
    found: list[Json] = []
    size = 0
    for call in argosteps.first(workflow):
        resource, path = call.template.get("resource"), f"spec.templates[{call.at}].resource"
        manifest = child(resource, "manifest")
        if child(resource, "action") not in _CREATES or manifest is None:
            continue
        text = argosteps.rendered(str(manifest), {**call.values, **_of_workflow(workflow)})
        size += len(text)
        if size > argosteps.MOST_CHARS:
            raise Malformed(f"{path}.manifest: all together have {argosteps.MOST_CHARS} characters at most")
        found += _objects(text, path)
    return found


def _of_workflow(workflow: Json) -> dict[str, str]:
    meta = workflow["metadata"]
    name = str(meta.get("name") or meta.get("generateName"))
    return {"workflow.name": name, "workflow.uid": name, "workflow.namespace": str(meta.get("namespace") or "default")}


def _objects(text: str, path: str) -> Iterator[Json]:
    try:
        documents = [each for each in yaml.load_all(text, Loader=_LOADER) if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Malformed(f"{path}.manifest: not YAML: {why_not_yaml(error)}") from error
    for each in documents:
        meta = child(each, "metadata")
        if not isinstance(each, Mapping) or not isinstance(meta, Mapping):
            raise Malformed(f"{path}.manifest is {shown(repr(each))}; an object with metadata is allowed")
        # The Workflow is no object here, and an object whose owner is missing is deleted.
        yield {**each, "metadata": {field: value for field, value in meta.items() if field != "ownerReferences"}}


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
