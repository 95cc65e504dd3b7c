"""The Job and the kinds made of Jobs or of lists of replicated pods: CronJob, JobSet, training jobs, Volcano's Job.

Each kind yields what its controller makes at the start, as its project's API reference and code say. Of a Job also the
Job is made, whose metadata the scheduler reads; a TrainJob becomes the JobSet of its runtime first. Left out of
TrainJob: ``runtimePatches`` and ``podTemplateOverrides``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu.translation import shown
from kube.client.resources import JOBS
from simulator.controllers.pods import (
    Charge,
    Json,
    Made,
    Malformed,
    Placed,
    Template,
    child,
    count_of,
    job_spec_of,
    later_count_of,
    make,
    mapping,
    marks,
    named,
    number,
    objects,
    owner_of,
    placed,
    read_template,
    reference,
    stored,
)
from wire import gangs
from wire.core import ObjectMeta

INDEX: Final = "batch.kubernetes.io/job-completion-index"
_UID_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
_NAME_LABELS: Final = ("batch.kubernetes.io/job-name", "job-name")
_POLICIES: Final = ("Never", "OnFailure")
_MODES: Final = ("NonIndexed", "Indexed")
_INDEX_VARIABLE: Final = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}},
}


def of_job(job: Mapping[str, Any], template: Template) -> Iterator[Made]:
    """Yield the Job and its pods, those that are made later last. Raises Malformed."""
    _check(job["spec"], template)
    meta = job["metadata"]
    try:
        msgspec.convert(meta, ObjectMeta)
    except msgspec.ValidationError as error:
        raise Malformed(f"metadata of the Job: {error}") from error
    yield Made({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job["spec"]}, JOBS)
    first = count_of("Job", job["spec"])[0]
    for place, pod in enumerate(_pods(job, template)):
        yield msgspec.structs.replace(pod, is_later=place >= first)


def of_cron_job(cron: Mapping[str, Any], template: Template) -> Iterator[Made]:
    """Yield one Job of a CronJob, named after the start of time, and its pods. Raises Malformed."""
    meta = cron["metadata"]
    namespace = {"namespace": meta["namespace"]} if meta.get("namespace") else {}
    job = job_of_cron_job(cron, name=meta["name"])
    yield from of_job({**job, "metadata": {"name": f"{meta['name']}-0", **namespace, **job["metadata"]}}, template)


def job_of_cron_job(cron: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """Return the Job that a CronJob of this name makes, without name and namespace. Raises Malformed.

    Of the template's metadata it gets labels and annotations only.
    """
    written = child(child(child(cron, "spec"), "jobTemplate"), "metadata") or {}
    spec = job_spec_of("CronJob", child(cron, "spec"))
    for field, value in (("metadata", written), ("spec", spec)):
        if not isinstance(value, Mapping):
            raise Malformed(f"spec.jobTemplate.{field} is {shown(str(value))}; allowed: a mapping")
    copied = {field: written[field] for field in ("labels", "annotations") if written.get(field)}
    return {"metadata": {**copied, "ownerReferences": [owner_of("batch/v1", "CronJob", name)]}, "spec": spec}


def owned(pod: Mapping[str, Any], job_uid: str) -> dict[str, Any]:
    """Return a pod of a Job with the UID that the API server gave the Job."""
    meta = pod["metadata"]
    owners = [{**owner, "uid": job_uid} for owner in meta["ownerReferences"]]
    labels = {**meta["labels"], **dict.fromkeys(_UID_LABELS, job_uid)}
    return {**pod, "metadata": {**meta, "labels": labels, "ownerReferences": owners}}


def _check(spec: Mapping[str, Any], template: Template) -> None:
    policy = template.raw["spec"].get("restartPolicy")
    if policy not in _POLICIES:
        said = f"{template.path}.spec.restartPolicy is {shown(repr(policy))}"
        raise Malformed(f"{said}; of a Job, {' and '.join(_POLICIES)} are allowed")
    for field in ("backoffLimit", "backoffLimitPerIndex"):
        number(spec, field, "spec", 0)
    mode = spec.get("completionMode") or _MODES[0]
    if mode not in _MODES:
        raise Malformed(f"spec.completionMode is {shown(repr(mode))}; {' and '.join(_MODES)} are allowed")
    if mode == "Indexed" and spec.get("completions") is None:
        raise Malformed("spec.completions is not set, and has to be with completionMode Indexed")


def _pods(job: Mapping[str, Any], template: Template) -> Iterator[Made]:
    spec, name = job["spec"], job["metadata"]["name"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True, "blockOwnerDeletion": True}
    labels = dict.fromkeys(_NAME_LABELS, name)
    count = count_of("Job", spec)[0] + later_count_of("Job", spec)
    if spec.get("completionMode") != "Indexed":
        for _ in range(count):
            yield make(template, owner, generate_name=f"{name}-", labels=labels, job=name)
        return
    containers = {field: _with_index(template.raw["spec"].get(field)) for field in ("containers", "initContainers")}
    for index in range(count):
        yield make(
            template,
            owner,
            generate_name=f"{name}-{index}-",
            labels={**labels, INDEX: str(index)},
            annotations={INDEX: str(index)},
            extra={**containers, "hostname": f"{name}-{index}"},
            job=name,
        )


def _with_index(containers: list[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Containers with the variable, unless they set it themselves."""
    return [
        {**each, "env": [*(each.get("env") or ()), _INDEX_VARIABLE]}
        if not any(child(one, "name") == _INDEX_VARIABLE["name"] for one in each.get("env") or ())
        else dict(each)
        for each in containers or ()
    ]


def expand_jobset(jobset: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the Jobs of all replicated Jobs, each before its pods; with `suspend` none. Raises Malformed."""
    spec = child(jobset, "spec")
    if child(spec, "suspend") is True:
        return
    total = 0
    for at, replicated in enumerate(objects(child(spec, "replicatedJobs"), "spec.replicatedJobs")):
        path = f"spec.replicatedJobs[{at}]"
        name, replicas = named(replicated, path), number(replicated, "replicas", path, 1)
        job_spec = child(child(replicated, "template"), "spec")
        if not isinstance(job_spec, Mapping):
            raise Malformed(f"{path}.template.spec has to be that of a Job")
        template = _template(job_spec, path)
        job_spec = _job_spec(job_spec, template)
        pods = count_of("Job", job_spec)[0] + later_count_of("Job", job_spec)
        # A Job is an object too, even one without pods.
        charge(replicas * max(1, pods), f"{path}.replicas", template)
        for index in range(replicas):
            labels = _jobset_labels(jobset, name, replicas, index)
            labels["jobset.sigs.k8s.io/job-global-index"] = str(total + index)
            yield from _jobset_job(jobset, replicated, template, spec=job_spec, labels=labels)
        total += replicas


def _jobset_job(
    jobset: Json, replicated: Json, template: Template, *, spec: Json, labels: Mapping[str, str]
) -> Iterator[Placed]:
    name = f"{jobset['metadata']['name']}-{replicated['name']}-{labels[gangs.JOBSET_JOB_INDEX]}"
    written = child(child(replicated, "template"), "metadata") or {}
    meta: dict[str, Any] = {
        "name": name,
        "labels": {**mapping(written, "labels", "spec.replicatedJobs.template.metadata"), **labels},
        "ownerReferences": [owner_of(jobset["apiVersion"], "JobSet", jobset["metadata"]["name"])],
    }
    if child(written, "annotations"):
        meta["annotations"] = written["annotations"]
    if jobset["metadata"].get("namespace"):
        meta["namespace"] = jobset["metadata"]["namespace"]
    full = msgspec.structs.replace(template, raw=_labelled(template.raw, labels))
    owners = [stored("batch/v1", "Job", name, above=jobset), jobset]
    for made in of_job({"metadata": meta, "spec": {**spec, "template": full.raw}}, full):
        # A pod's owner gets its UID when it is created: its reference has none until then.
        yield Placed(made, owners if made.job else (), template.path if made.job else "")


def _template(job_spec: Json, path: str) -> Template:
    """Return the pod template, restarted on failure unless it names another policy."""
    template = read_template(job_spec.get("template"), f"{path}.template.spec.template")
    spec = {"restartPolicy": "OnFailure", **template.raw["spec"]}
    return msgspec.structs.replace(template, raw={**template.raw, "spec": spec})


def _job_spec(spec: Json, template: Template) -> Json:
    """Return the spec of a Job with what JobSet adds: it is indexed, with as many completions as pods at once."""
    mode = spec.get("completionMode") or "Indexed"
    completions = {"completions": spec.get("parallelism") or 1} if mode == "Indexed" else {}
    given = {key: value for key, value in spec.items() if value is not None}
    return {**completions, **given, "completionMode": mode, "template": template.raw}


def _labelled(template: Json, labels: Mapping[str, str]) -> Json:
    meta = template.get("metadata") or {}
    return {**template, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **labels}}}


def _jobset_labels(jobset: Json, name: str, replicas: int, index: int) -> dict[str, str]:
    return {
        gangs.JOBSET_NAME: jobset["metadata"]["name"],
        gangs.JOBSET_REPLICATED_JOB: name,
        "jobset.sigs.k8s.io/replicatedjob-replicas": str(replicas),
        gangs.JOBSET_JOB_INDEX: str(index),
    }


_OPERATOR: Final = "training.kubeflow.org/operator-name"
_LEADERS: Final = ("Master", "Chief", "Launcher")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
#: Kinds -> the field that has their replica types.
REPLICAS: Final = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "MXJob": "mxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}


def expand_kubeflow(job: Json, charge: Charge) -> Iterator[Placed]:
    """Yield a pod for each replica of each type; with `suspend` none. Raises Malformed."""
    spec = child(job, "spec")
    if child(child(spec, "runPolicy"), "suspend") is True:
        return
    field = REPLICAS[job["kind"]]
    roles = child(spec, field)
    if not isinstance(roles, Mapping) or not roles:
        raise Malformed(f"spec.{field} has to be a mapping of replica types")
    for role, written in roles.items():
        yield from _kubeflow_pods(job, str(role), written, path=f"spec.{field}.{role}", charge=charge)


def _kubeflow_pods(job: Json, role: str, written: object, *, path: str, charge: Charge) -> Iterator[Placed]:
    count = number(written, "replicas", path, 0 if (job["kind"], role) == ("MPIJob", "Worker") else 1)
    template = read_template(child(written, "template"), f"{path}.template")
    charge(count, f"{path}.replicas", template)
    name, kind = job["metadata"]["name"], job["kind"]
    policy = child(written, "restartPolicy") or ("OnFailure" if kind == "PyTorchJob" else "Never")
    # A launcher is a Job, which knows no policy Always.
    is_allowed = policy in _RESTART_POLICIES and (policy != "Always" or role != "Launcher")
    extra: dict[str, Any] = {"restartPolicy": policy if is_allowed else "Never"}
    if role == "Launcher" and job["apiVersion"].endswith("/v2beta1"):
        yield from _launcher(job, msgspec.structs.replace(template, raw=_with(template.raw, extra)), count)
        return
    for index in range(count):
        labels = _kubeflow_labels(job, role, index)
        yield placed([job], template, name=f"{name}-{role.lower()}-{index}", labels=labels, extra=extra)


def _launcher(job: Json, template: Template, count: int) -> Iterator[Placed]:
    """Yield the Job of a launcher and its pod."""
    name = f"{job['metadata']['name']}-launcher"
    namespace = {"namespace": job["metadata"]["namespace"]} if job["metadata"].get("namespace") else {}
    meta = {"name": name, **namespace, "ownerReferences": [reference(job)]}
    labels = {**(child(template.raw.get("metadata"), "labels") or {}), **_kubeflow_labels(job, "Launcher", 0)}
    marked = {**template.raw, "metadata": {**(template.raw.get("metadata") or {}), "labels": labels}}
    spec = {"parallelism": count, "completions": count, "template": marked}
    owners = [stored("batch/v1", "Job", name, above=job), job]
    for made in of_job({"metadata": meta, "spec": spec}, msgspec.structs.replace(template, raw=marked)):
        yield Placed(made, owners if made.job else (), template.path if made.job else "")


def _with(template: Json, extra: Json) -> Json:
    return {**template, "spec": {**template["spec"], **extra}}


def _kubeflow_labels(job: Json, role: str, index: int) -> dict[str, str]:
    return {
        gangs.KUBEFLOW_JOB_NAME: job["metadata"]["name"],
        gangs.KUBEFLOW_REPLICA_TYPE: role.lower(),
        gangs.KUBEFLOW_REPLICA_INDEX: str(index),
        _OPERATOR: f"{job['kind'].lower()}-controller",
        **({gangs.KUBEFLOW_JOB_ROLE: "master"} if role in _LEADERS else {}),
    }


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


#: What Volcano writes where a Job names no scheduler.
_SCHEDULER: Final = "volcano"


def expand_volcano(job: Json, charge: Charge) -> Iterator[Placed]:
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
