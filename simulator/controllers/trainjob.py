"""Kubeflow's TrainJob: the JobSet that it makes of its runtime (kubeflow/trainer: API types, plug-ins jobset and mpi).

``runtimePatches`` and ``podTemplateOverrides`` are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpu.translation import shown
from simulator.controllers.pods import Json, Malformed, child, mapping, marks, number, objects

_GROUP: Final = "trainer.kubeflow.org"
_CLUSTER_RUNTIME: Final = "ClusterTrainingRuntime"
_RUNTIMES: Final = (_CLUSTER_RUNTIME, "TrainingRuntime")
_STEP: Final = f"{_GROUP}/trainjob-ancestor-step"
_NODE: Final = "node"
_LAUNCHER: Final = "launcher"
#: What the trainer says in place of a container, beside its resources and variables.
_IN_PLACE: Final = ("image", "command", "args")


def refers(obj: Json) -> bool:
    """Whether an object has the template of a runtime."""
    return obj.get("kind") == "TrainJob" and str(obj.get("apiVersion")).startswith(f"{_GROUP}/")


class Runtimes:
    """The runtimes among manifests, by kind, namespace and name."""

    def __init__(self) -> None:
        self._specs: dict[tuple[str, str, str], Json] = {}

    def note(self, obj: Json) -> bool:
        """Take an object if it is a runtime; return whether it is one."""
        kind, spec, meta = str(obj.get("kind")), child(obj, "spec"), child(obj, "metadata")
        if kind not in _RUNTIMES or not str(obj.get("apiVersion")).startswith(f"{_GROUP}/"):
            return False
        self._specs[kind, _namespace(kind, meta), str(child(meta, "name"))] = spec if isinstance(spec, Mapping) else {}
        return True

    def resolved(self, train_job: Json) -> Json | str:
        """Return the JobSet of a TrainJob, or the runtime that is missing. Raises Malformed."""
        spec, meta = child(train_job, "spec"), train_job["metadata"]
        ref = child(spec, "runtimeRef")
        kind, name = child(ref, "kind") or _CLUSTER_RUNTIME, child(ref, "name")
        if kind not in _RUNTIMES or not isinstance(name, str):
            raise Malformed(
                f"spec.runtimeRef is {shown(repr(ref))}; allowed: the name of one of {', '.join(_RUNTIMES)}"
            )
        runtime = self._specs.get((kind, _namespace(kind, meta), name))
        if runtime is None:
            return f"{kind} {shown(name)}"
        template = child(runtime, "template")
        trainer, policy = child(spec, "trainer"), child(runtime, "mlPolicy")
        path = f"template.spec.replicatedJobs of {kind} {shown(name)}"
        listed = objects(child(child(template, "spec"), "replicatedJobs"), path)
        jobs = [_job(each, trainer, policy) for each in listed]
        made = {
            **mapping(template, "spec", "template"),
            "replicatedJobs": jobs,
            "suspend": child(spec, "suspend") is True,
        }
        copied = {field: value for field in ("name", "generateName", "namespace") if (value := meta.get(field))}
        written = child(template, "metadata")
        # Where the JobSet says nothing, grouping reads the TrainJob above it.
        both = marks((meta, "metadata"), (written, "template.metadata"))
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {**copied, **both},
            "spec": made,
        }


def _namespace(kind: str, meta: object) -> str:
    return "" if kind == _CLUSTER_RUNTIME else str(child(meta, "namespace") or "default")


def _job(replicated: Json, trainer: object, policy: object) -> dict[str, Any]:
    """Return a replicated Job with the number of nodes and the containers that the trainer asks for."""
    path = f"template of replicated Job {shown(repr(child(replicated, 'name')))}"
    template, name = mapping(replicated, "template", "replicatedJobs"), child(replicated, "name")
    mpi = child(policy, "mpi")
    is_step = child(child(child(template, "metadata"), "labels"), _STEP) == "trainer"
    runs_launcher = child(mpi, "runLauncherAsNode") is True
    nodes = number(trainer, "numNodes", "spec.trainer", number(policy, "numNodes", "spec.mlPolicy", 1))
    count: int | None = None
    if mpi is not None and name == _NODE and child(trainer, "numNodes") is not None:
        count = max(1, nodes - 1) if runs_launcher else nodes
    elif is_step:
        count = nodes if mpi is None else number(policy, "numNodes", "spec.mlPolicy", 1)
    changed = {_NODE, _LAUNCHER} if runs_launcher else {_NODE}
    spec = mapping(template, "spec", path)
    pods = mapping(spec, "template", f"{path}.spec")
    pod_spec = mapping(pods, "spec", f"{path}.spec.template")
    listed = objects(pod_spec.get("containers"), f"{path}.spec.template.spec.containers")
    containers = [_container(each, trainer) if str(child(each, "name")) in changed else each for each in listed]
    sized = {} if count is None else {"parallelism": count, "completions": count}
    made = {**spec, **sized, "template": {**pods, "spec": {**pod_spec, "containers": containers}}}
    one = {"replicas": 1} if is_step else {}
    return {**replicated, **one, "template": {**template, "spec": made}}


def _container(container: Json, trainer: object) -> Json:
    in_place = {field: value for field in _IN_PLACE if (value := child(trainer, field)) is not None}
    resources = child(trainer, "resourcesPerNode")
    if child(resources, "limits") or child(resources, "requests"):
        in_place["resources"] = resources
    written = (
        objects(child(of, "env"), f"{path}.env") for of, path in ((container, "container"), (trainer, "spec.trainer"))
    )
    variables = {str(child(each, "name")): each for listed in written for each in listed}
    return {**container, **in_place, **({"env": [*variables.values()]} if variables else {})}
