"""Objects whose controllers create other manifests, which are read instead: workflows, AppWrappers, CronJobs.

Of an Argo Workflow also the pods with which it begins are made, with the values of its input parameters. Later steps
depend on how earlier ones end, so they are not made; nor are those that a step takes from another object
(``templateRef``). Facts: argoproj/argo-workflows, field reference, workflow variables, workflow templates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from gpu.translation import shown
from simulator.controllers.pods import (
    MOST_PODS,
    Charge,
    Json,
    Malformed,
    Placed,
    Template,
    child,
    identity,
    named,
    number,
    objects,
    placed,
    read_template,
)
from wire.yaml_text import why_not_yaml

#: No workflow nests its templates deeper; this ends one that calls itself.
_DEEPEST: Final = 32
_VARIABLE: Final = re.compile(r"\{\{\s*([\w.-]{1,256})\s*\}\}")
_ENDLESS: Final = "spec.templates call each other without end, or make more pods than are allowed"
#: What makes a template one that runs a pod or creates an object.
_DOES: Final = ("container", "script", "containerSet", "resource")

#: Most characters of a text with its values, and of all manifests of one Workflow.
MOST_CHARS: Final = 2**20
#: Most characters of the values of all calls together; a value takes some work even if it is short.
MOST_VALUES: Final = 2**22
_LEAST_OF_VALUE: Final = 8

Values = Mapping[str, str]


class Call(msgspec.Struct, frozen=True):
    """A template that runs first. ``values``: of variables, by the name between the braces."""

    name: str
    at: int
    template: Json
    values: Values = {}


def first(workflow: Json) -> list[Call]:
    """Return the calls that wait for no other, in their order. Raises Malformed."""
    spec = child(workflow, "spec")
    if child(spec, "suspend") is True or child(spec, "workflowTemplateRef") is not None:
        return []
    listed = objects(child(spec, "templates"), "spec.templates")
    templates = {named(each, f"spec.templates[{at}]"): (at, each) for at, each in enumerate(listed)}
    given = dict(_parameters(child(spec, "arguments"), {}))
    known = {f"workflow.parameters.{name}": value for name, value in given.items()}
    return list(_Walk(templates, known).calls(str(child(spec, "entrypoint") or ""), given, _DEEPEST))


def rendered(text: str, values: Values) -> str:
    """Put values in place of their variables; one that is known only while the workflow runs stays.

    Raises Malformed for a text that becomes too long.
    """
    size = len(text) + sum(len(values.get(found[1], "")) for found in _VARIABLE.finditer(text))
    if size > MOST_CHARS:
        raise Malformed(f"a text with the values of its variables has {size} characters; allowed: {MOST_CHARS}")
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


class _Walk:
    """Follows calls. ``known``: values that hold everywhere."""

    def __init__(self, templates: Mapping[str, tuple[int, Json]], known: Values) -> None:
        self._templates = templates
        self._known = known
        self._left = MOST_PODS
        self._values_left = MOST_VALUES

    def calls(self, name: str, given: Values, depth: int) -> Iterator[Call]:
        """Yield what a template does itself, and the calls with which it begins."""
        self._take(1)
        if depth == 0:
            raise Malformed(_ENDLESS)
        if name in self._templates:
            yield from self._run(Call(name, *self._templates[name], given), depth)

    def _called(self, step: Json, at: int, given: Values, depth: int) -> Iterator[Call]:
        """Yield the calls of a step: of the template that it names, or of the one that it brings along (``inline``)."""
        inline = step.get("inline")
        if not isinstance(inline, Mapping):
            yield from self.calls(str(step.get("template") or ""), given, depth)
            return
        self._take(1)
        if depth == 0:
            raise Malformed(_ENDLESS)
        yield from self._run(Call(named(step, f"spec.templates[{at}]: a step"), at, inline, given), depth)

    def _run(self, called: Call, depth: int) -> Iterator[Call]:
        """Yield what a template does itself, and the calls with which it begins. ``called``: with its arguments."""
        at, template = called.at, called.template
        values = {**self._known, **_inputs(template, called.values)}
        self._spend(values)
        if any(template.get(field) is not None for field in _DOES):
            yield Call(called.name, at, template, values)
        for step in _beginning(template, f"spec.templates[{at}]"):
            for scope in self._scopes(step, values):
                arguments = dict(_parameters(step.get("arguments"), scope))
                yield from self._called(step, at, arguments, depth - 1)

    def _scopes(self, step: Json, values: Values) -> Iterator[Values]:
        """Yield the values that each call of a step may name: with ``withItems`` there is one for each item."""
        items = step.get("withItems")
        for item in items if isinstance(items, list) else [None]:
            self._take(1)
            self._spend(values)
            yield values if item is None else {**values, **_of_item(item)}

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise Malformed(_ENDLESS)

    def _spend(self, values: Values) -> None:
        """Count values that are copied for a call, so that this is no work without end."""
        self._values_left -= _LEAST_OF_VALUE * len(values) + sum(map(len, values.values()))
        if self._values_left < 0:
            raise Malformed(f"parameters of all steps together have {MOST_VALUES} characters at most")


def _inputs(template: Json, given: Values) -> dict[str, str]:
    """Values of a template's inputs: as given, else their default."""
    inputs = dict(_parameters(template.get("inputs"), {}))
    return {f"inputs.parameters.{name}": value for name, value in {**inputs, **given}.items()}


def _parameters(holder: Any, values: Values) -> Iterator[tuple[str, str]]:
    listed = child(holder, "parameters")
    for each in listed if isinstance(listed, list) else ():
        name, value = child(each, "name"), child(each, "value")
        if isinstance(name, str) and value is not None:
            yield name, rendered(str(value), values)


def _of_item(item: Any) -> dict[str, str]:
    if isinstance(item, Mapping):
        return {f"item.{name}": str(value) for name, value in item.items()}
    return {"item": str(item)}


def _beginning(template: Json, path: str) -> list[Json]:
    """Return the steps of the first group, and the tasks of a graph that depend on no other."""
    steps = template.get("steps")
    group = steps[0] if isinstance(steps, list) and steps else []
    found = list(objects(group if isinstance(group, list) else [group], f"{path}.steps[0]"))
    tasks = objects(child(template.get("dag"), "tasks"), f"{path}.dag.tasks")
    return found + [task for task in tasks if not task.get("dependencies") and not task.get("depends")]


_GROUP: Final = "argoproj.io"
_OF_NAMESPACE: Final = "WorkflowTemplate"
_OF_CLUSTER: Final = "ClusterWorkflowTemplate"
_REF: Final = "workflowTemplateRef"
_DEFAULT_NAMESPACE: Final = "default"


def refers(obj: Json) -> bool:
    """Whether an object is a Workflow that has the templates of another object."""
    return _is_of(obj, "Workflow") and child(child(obj, "spec"), _REF) is not None


class WorkflowTemplates:
    """The objects that have templates of Workflows (``workflowTemplateRef``), by kind, namespace and name.

    The Workflow's own fields win, and its arguments by their names.
    """

    def __init__(self) -> None:
        self._specs: dict[tuple[str, str, str], Json] = {}

    def note(self, obj: Json) -> None:
        """Take an object, if it is of these kinds."""
        for kind in (_OF_NAMESPACE, _OF_CLUSTER):
            spec, meta = child(obj, "spec"), child(obj, "metadata")
            if _is_of(obj, kind) and isinstance(spec, Mapping):
                namespace = _namespace(meta) if kind == _OF_NAMESPACE else ""
                self._specs[kind, namespace, str(child(meta, "name"))] = spec

    def resolved(self, workflow: Json) -> Json | str:
        """Return a Workflow with the templates that it refers to, or the object that is missing. Raises Malformed."""
        spec = workflow["spec"]
        ref = spec[_REF]
        name = child(ref, "name")
        if not isinstance(name, str) or not name:
            raise Malformed(f"spec.{_REF}.name is {shown(repr(name))}; the name of a {_OF_NAMESPACE} is allowed")
        kind = _OF_CLUSTER if child(ref, "clusterScope") is True else _OF_NAMESPACE
        namespace = "" if kind == _OF_CLUSTER else _namespace(workflow.get("metadata"))
        found = self._specs.get((kind, namespace, name))
        if found is None:
            return f"{kind} {shown(name)}"
        own = {field: value for field, value in spec.items() if field != _REF}
        inherited = {field: value for field, value in found.items() if field != _REF}
        return {**workflow, "spec": {**inherited, **own, "arguments": _arguments(found, own)}}


def _arguments(found: Json, own: Json) -> dict[str, Any]:
    """Parameters of the templates' object, those of the Workflow in place of them."""
    named = {str(each.get("name")): each for spec in (found, own) for each in _template_parameters(spec)}
    return {"parameters": [*named.values()]}


def _template_parameters(spec: Json) -> Iterator[Json]:
    yield from objects(child(spec.get("arguments"), "parameters"), "spec.arguments.parameters")


def _is_of(obj: Json, kind: str) -> bool:
    return obj.get("kind") == kind and str(obj.get("apiVersion")).startswith(f"{_GROUP}/")


def _namespace(meta: object) -> str:
    return str(child(meta, "namespace") or _DEFAULT_NAMESPACE)


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
#: Fields whose values are read, and may be variables.
_WITH_VALUES: Final = frozenset({"labels", "annotations", "limits", "requests", "nodeSelector"})
_LABEL: Final = "workflows.argoproj.io/workflow"


def expand(workflow: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of the first steps, and of tasks that wait for no other. Raises Malformed.

    Objects that ``resource`` templates create are read beside them.
    """
    calls = [call for call in first(workflow) if any(call.template.get(each) is not None for each in _RUNS)]
    pods: dict[tuple[str, int], Template] = {}
    # Templates that steps bring along may have the same name in templates that differ.
    by_name = {(call.name, call.at): call for call in calls}
    for called, count in Counter((call.name, call.at) for call in calls).items():
        one = by_name[called]
        place = f"spec.templates[{one.at}]"
        pods[called] = read_template(_pod(workflow["spec"], one.template, place), place)
        charge(count, "the number of steps", pods[called])
    name = workflow["metadata"]["name"]
    entrypoint = child(workflow["spec"], "entrypoint") if calls else None
    for at, call in enumerate(calls):
        alone = len(calls) == 1 and call.name == entrypoint
        pod = name if alone else f"{name}-{call.name}-{identity(f'{call.name}/{at}')}"
        yield placed([workflow], pods[call.name, call.at], name=pod, labels={_LABEL: name})


def created(workflow: Json) -> list[Json]:
    """Return the objects that ``resource`` templates of the first steps create, without owner. Raises Malformed."""
    found: list[Json] = []
    size = 0
    for call in first(workflow):
        resource, path = call.template.get("resource"), f"spec.templates[{call.at}].resource"
        manifest = child(resource, "manifest")
        if child(resource, "action") not in _CREATES or manifest is None:
            continue
        text = rendered(str(manifest), {**call.values, **_of_workflow(workflow)})
        size += len(text)
        if size > MOST_CHARS:
            raise Malformed(f"{path}.manifest: all together have {MOST_CHARS} characters at most")
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


def templates(spec: Json, path: str) -> Iterator[tuple[str, Json]]:
    """Yield the pods of all templates that run one, with their paths. ``spec``: of a Workflow. Raises Malformed."""
    for at, template in enumerate(objects(spec.get("templates"), f"{path}.templates")):
        if any(template.get(each) is not None for each in _RUNS):
            place = f"{path}.templates[{at}]"
            yield place, _without_variables(_pod(spec, template, place))


def _without_variables(value: Any) -> Any:
    """The same without labels, annotations and amounts that have a variable in them: known only when it runs."""
    if isinstance(value, list):
        return [_without_variables(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    kept: dict[str, Any] = {}
    for key, inner in value.items():
        if key in _WITH_VALUES and isinstance(inner, Mapping):
            kept[key] = {name: text for name, text in inner.items() if "{{" not in f"{name}{text}"}
        else:
            kept[key] = _without_variables(inner)
    return kept


def _pod(spec: Json, template: Json, path: str) -> Json:
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
    for said in (child(spec, "podMetadata"), template.get("metadata")):
        for field in ("labels", "annotations"):
            added = child(said, field)
            if isinstance(added, Mapping):
                meta[field] = {**meta.get(field, {}), **added}
    return {"metadata": meta, "spec": pod}


def inner(wrapper: Json) -> Sequence[Json] | None:
    """Return the manifests that an object's controller creates; None if it is of no such kind. Raises Malformed."""
    group, _, _ = str(wrapper.get("apiVersion")).rpartition("/")
    unwrap = _WRAPPERS.get((group, str(wrapper.get("kind"))))
    return None if unwrap is None else unwrap(wrapper)


def _components(wrapper: Json) -> Sequence[Json]:
    """What an AppWrapper holds; in its namespace where none is written."""
    listed = child(child(wrapper, "spec"), "components") or []
    found = [child(each, "template") for each in listed] if isinstance(listed, list) else [None]
    manifests = [each for each in found if isinstance(each, Mapping)]
    if len(manifests) < len(found):
        raise Malformed(f"spec.components is {shown(repr(listed))}; a list of objects with a template is allowed")
    return [_placed(each, wrapper) for each in manifests]


def _roles(wrapper: Json) -> Sequence[Json]:
    """The LeaderWorkerSets of a DisaggregatedSet: one a role in each slice, with one replica unless it says more."""
    spec, name = child(wrapper, "spec"), child(child(wrapper, "metadata"), "name")
    slices = number(spec, "slices", "spec", 1)
    roles = objects(child(spec, "roles"), "spec.roles")
    if slices * len(roles) > MOST_PODS:
        raise Malformed(f"spec.slices is {slices} with {len(roles)} roles; {MOST_PODS} as a product are allowed")
    found = []
    for at, role in enumerate(roles):
        called = named(role, f"spec.roles[{at}]")
        meta = {field: value for field in ("labels", "annotations") if (value := child(role.get("metadata"), field))}
        made = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "spec": role.get("spec")}
        for one in range(slices):
            suffix = called if slices == 1 else f"{one}-{called}"
            found.append(_placed({**made, "metadata": {**meta, "name": f"{name}-{suffix}"}}, wrapper))
    return found


def _volcano_job(cron: Json) -> Sequence[Json]:
    """One Job of Volcano's CronJob. Early versions had the spec of the Job in ``template``."""
    spec = child(cron, "spec")
    early = child(spec, "template")
    template = child(spec, "jobTemplate") or ({"spec": early} if isinstance(early, Mapping) else None)
    if child(spec, "suspend") is True:
        return []
    if not isinstance(template, Mapping):
        raise Malformed(f"spec.jobTemplate is {shown(repr(template))}; an object is allowed")
    meta = {field: value for field in ("labels", "annotations") if (value := child(template.get("metadata"), field))}
    name = child(child(cron, "metadata"), "name") or child(child(cron, "metadata"), "generateName")
    job = {"apiVersion": cron["apiVersion"], "kind": "Job", "metadata": {**meta, "name": f"{name}-0"}}
    return [_placed({**job, "spec": template.get("spec")}, cron)]


def _workflow(workflow: Json) -> Sequence[Json]:
    """A Workflow of Argo, which makes pods itself, and the objects that its first steps create."""
    return [workflow, *(_placed(each, workflow) for each in created(workflow))]


def _one_workflow(cron: Json) -> Sequence[Json]:
    """One Workflow of Argo's CronWorkflow, with what its first steps create."""
    spec, meta = child(cron, "spec"), child(cron, "metadata")
    if child(spec, "suspend") is True:
        return []
    if not isinstance(child(spec, "workflowSpec"), Mapping):
        raise Malformed(f"spec.workflowSpec is {shown(repr(child(spec, 'workflowSpec')))}; an object is allowed")
    name = child(meta, "name") or child(meta, "generateName")
    given = child(spec, "workflowMetadata")
    copied = {field: value for field in ("labels", "annotations") if (value := child(given, field))}
    one = {"apiVersion": cron["apiVersion"], "kind": "Workflow", "metadata": {**copied, "name": f"{name}-0"}}
    return _workflow(_placed({**one, "spec": spec["workflowSpec"]}, cron))


def _spark(scheduled: Json) -> Sequence[Json]:
    """One SparkApplication of a ScheduledSparkApplication."""
    spec, meta = child(scheduled, "spec"), child(scheduled, "metadata")
    if child(spec, "suspend") is True:
        return []
    if not isinstance(child(spec, "template"), Mapping):
        raise Malformed(f"spec.template is {shown(repr(child(spec, 'template')))}; an object is allowed")
    name = child(meta, "name") or child(meta, "generateName")
    one = {"apiVersion": scheduled["apiVersion"], "kind": "SparkApplication", "metadata": {"name": f"{name}-0"}}
    return [_placed({**one, "spec": spec["template"]}, scheduled)]


def _placed(obj: Json, wrapper: Json) -> Json:
    namespace = child(child(wrapper, "metadata"), "namespace")
    meta = child(obj, "metadata")
    if not namespace or not isinstance(meta, Mapping) or meta.get("namespace"):
        return obj
    return {**obj, "metadata": {**meta, "namespace": namespace}}


#: API group and kind -> what gives its manifests.
_WRAPPERS: Final[Mapping[tuple[str, str], Callable[[Json], Sequence[Json]]]] = {
    ("workload.codeflare.dev", "AppWrapper"): _components,
    ("disaggregatedset.x-k8s.io", "DisaggregatedSet"): _roles,
    ("batch.volcano.sh", "CronJob"): _volcano_job,
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): _spark,
    ("argoproj.io", "CronWorkflow"): _one_workflow,
    ("argoproj.io", "Workflow"): _workflow,
}
