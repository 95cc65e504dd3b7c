"""Objects that bring other manifests along and whose controllers create those: what is created is read instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpu.translation import shown
from simulator.controllers import argo
from simulator.controllers.pods import MOST_PODS, Malformed, child, named, number, objects

Json = Mapping[str, Any]


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
    return [workflow, *(_placed(each, workflow) for each in argo.created(workflow))]


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
