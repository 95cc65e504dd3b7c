"""Kubeflow's training jobs, and MPIJob of the MPI operator (API references of both operators)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from simulator.controllers import jobs
from simulator.controllers.pods import (
    Charge,
    Json,
    Malformed,
    Placed,
    Template,
    child,
    number,
    placed,
    read_template,
    reference,
    stored,
)
from wire import gangs

_OPERATOR: Final = "training.kubeflow.org/operator-name"
_LEADERS: Final = ("Master", "Chief", "Launcher")
_POLICIES: Final = ("Always", "OnFailure", "Never")
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


def expand(job: Json, charge: Charge) -> Iterator[Placed]:
    """Yield a pod for each replica of each type; with `suspend` none. Raises Malformed."""
    spec = child(job, "spec")
    if child(child(spec, "runPolicy"), "suspend") is True:
        return
    field = REPLICAS[job["kind"]]
    roles = child(spec, field)
    if not isinstance(roles, Mapping) or not roles:
        raise Malformed(f"spec.{field} has to be a mapping of replica types")
    for role, written in roles.items():
        yield from _pods(job, str(role), written, path=f"spec.{field}.{role}", charge=charge)


def _pods(job: Json, role: str, written: object, *, path: str, charge: Charge) -> Iterator[Placed]:
    count = number(written, "replicas", path, 0 if (job["kind"], role) == ("MPIJob", "Worker") else 1)
    template = read_template(child(written, "template"), f"{path}.template")
    charge(count, f"{path}.replicas", template)
    name, kind = job["metadata"]["name"], job["kind"]
    policy = child(written, "restartPolicy") or ("OnFailure" if kind == "PyTorchJob" else "Never")
    # A launcher is a Job, which knows no policy Always.
    is_allowed = policy in _POLICIES and (policy != "Always" or role != "Launcher")
    extra: dict[str, Any] = {"restartPolicy": policy if is_allowed else "Never"}
    if role == "Launcher" and job["apiVersion"].endswith("/v2beta1"):
        yield from _launcher(job, msgspec.structs.replace(template, raw=_with(template.raw, extra)), count)
        return
    for index in range(count):
        labels = _labels(job, role, index)
        yield placed([job], template, name=f"{name}-{role.lower()}-{index}", labels=labels, extra=extra)


def _launcher(job: Json, template: Template, count: int) -> Iterator[Placed]:
    """Yield the Job of a launcher and its pod."""
    name = f"{job['metadata']['name']}-launcher"
    namespace = {"namespace": job["metadata"]["namespace"]} if job["metadata"].get("namespace") else {}
    meta = {"name": name, **namespace, "ownerReferences": [reference(job)]}
    labels = {**(child(template.raw.get("metadata"), "labels") or {}), **_labels(job, "Launcher", 0)}
    marked = {**template.raw, "metadata": {**(template.raw.get("metadata") or {}), "labels": labels}}
    spec = {"parallelism": count, "completions": count, "template": marked}
    owners = [stored("batch/v1", "Job", name, above=job), job]
    for made in jobs.of_job({"metadata": meta, "spec": spec}, msgspec.structs.replace(template, raw=marked)):
        yield Placed(made, owners if made.job else (), template.path if made.job else "")


def _with(template: Json, extra: Json) -> Json:
    return {**template, "spec": {**template["spec"], **extra}}


def _labels(job: Json, role: str, index: int) -> dict[str, str]:
    return {
        gangs.KUBEFLOW_JOB_NAME: job["metadata"]["name"],
        gangs.KUBEFLOW_REPLICA_TYPE: role.lower(),
        gangs.KUBEFLOW_REPLICA_INDEX: str(index),
        _OPERATOR: f"{job['kind'].lower()}-controller",
        **({gangs.KUBEFLOW_JOB_ROLE: "master"} if role in _LEADERS else {}),
    }
