"""Definitions of other projects' kinds, and objects of them as their users and controllers make them.

Written after the API reference of each project; of their schemas only what Moorage reads is filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]

QUEUE: Final = "kai.scheduler/queue"


def definition(group: str, kind: str, plural: str, *versions: str) -> Json:
    """A CustomResourceDefinition that takes any fields. Groups of Kubernetes' own need an approval."""
    approval = {"api-approved.kubernetes.io": "https://example.com/approval"} if group.endswith(".k8s.io") else {}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"{plural}.{group}", "annotations": approval},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": not number, "schema": schema}
                for number, version in enumerate(versions)
            ],
        },
    }


#: Group, kind, plural, versions.
DEFINED: Final[Sequence[tuple[str, ...]]] = (
    *(
        ("kubeflow.org", kind, f"{kind.lower()}s", "v1")
        for kind in ("JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")
    ),
    ("kubeflow.org", "MPIJob", "mpijobs", "v1", "v2beta1"),
    ("kubeflow.org", "Notebook", "notebooks", "v1beta1"),
    ("kubeflow.org", "ScheduledWorkflow", "scheduledworkflows", "v1alpha1"),
    ("trainer.kubeflow.org", "TrainJob", "trainjobs", "v1alpha1"),
    *(("ray.io", kind, f"{kind.lower()}s", "v1") for kind in ("RayCluster", "RayJob", "RayService")),
    ("jobset.x-k8s.io", "JobSet", "jobsets", "v1alpha2"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", "v1"),
    ("batch.volcano.sh", "Job", "jobs", "v1alpha1"),
    ("scheduling.x-k8s.io", "PodGroup", "podgroups", "v1alpha1"),
    ("scheduling.sigs.k8s.io", "PodGroup", "podgroups", "v1alpha1"),
    ("scheduling.volcano.sh", "PodGroup", "podgroups", "v1beta1"),
    *(("serving.knative.dev", kind, f"{kind.lower()}s", "v1") for kind in ("Service", "Configuration", "Revision")),
    ("machinelearning.seldon.io", "SeldonDeployment", "seldondeployments", "v1"),
    *(
        ("grove.io", kind, f"{kind.lower()}s", "v1alpha1")
        for kind in ("PodGangSet", "PodCliqueSet", "PodClique", "PodCliqueScalingGroup")
    ),
    ("scheduler.grove.io", "PodGang", "podgangs", "v1alpha1"),
    ("nvidia.com", "DynamoGraphDeployment", "dynamographdeployments", "v1alpha1"),
    ("argoproj.io", "Workflow", "workflows", "v1alpha1"),
    ("tekton.dev", "PipelineRun", "pipelineruns", "v1"),
    ("tekton.dev", "TaskRun", "taskruns", "v1"),
    ("workload.codeflare.dev", "AppWrapper", "appwrappers", "v1beta2"),
    ("kubevirt.io", "VirtualMachineInstance", "virtualmachineinstances", "v1"),
    ("workspace.devfile.io", "DevWorkspace", "devworkspaces", "v1alpha2"),
    ("run.ai", "RunaiJob", "runaijobs", "v1"),
    *(
        ("run.ai", f"{kind}Workload", f"{kind.lower()}workloads", "v2")
        for kind in ("Training", "Interactive", "Inference", "Distributed", "DistributedInference")
    ),
    ("egx.nvidia.io", "SPOTRequest", "spotrequests", "v1"),
    ("amlarc.azureml.com", "AmlJob", "amljobs", "v1alpha1"),
)
#: What every API server has.
BUILT_IN: Final = {
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "CronJob"): "cronjobs",
    ("batch", "Job"): "jobs",
}
PLURALS: Final = {**BUILT_IN, **{(group, kind): plural for group, kind, plural, *_ in DEFINED}}


def owner(api_version: str, kind: str, name: str, spec: Json | None = None, **meta: Any) -> Json:
    """An object; all of them name a queue, so that even kinds whose pods are scheduled alone are grouped."""
    metadata = {"name": name, "labels": {QUEUE: "kinds"}, **meta}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec or {}}


def replicas(field: str, **roles: int) -> Json:
    """The spec of a job of Kubeflow's."""
    return {field: {role: {"replicas": number} for role, number in roles.items()}}


def of_role(job: str, role: str) -> dict[str, str]:
    """Labels of its pods."""
    return {"training.kubeflow.org/job-name": job, "training.kubeflow.org/replica-type": role}


_TEMPLATE: Final[Json] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "main", "image": "app"}]},
}
_NONE: Final[Json] = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
_JOB: Final[Json] = {"suspend": True, "template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}
_CRON: Final[Json] = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": _JOB}}
_RAY: Final[Json] = {"workerGroupSpecs": [{"groupName": "small", "replicas": 1}]}
_GANG: Final[Json] = {"podgroups": [{"name": "clique", "minReplicas": 1, "podReferences": []}]}
_MPI: Final[Json] = replicas("mpiReplicaSpecs", Launcher=1, Worker=1)


class Chain:
    """The owners of a pod, the direct one first, with labels of the pod; ``beside``: what a rule reads by name."""

    def __init__(self, *owners: Json, labels: Mapping[str, str] | None = None, beside: Json | None = None) -> None:
        self.owners, self.labels, self.beside = owners, dict(labels or {}), beside

    @property
    def name(self) -> str:
        """Of the kind at the top, to name the pod by."""
        top = self.owners[-1]
        return f"{top['kind']}-{top['apiVersion'].partition('/')[2]}".lower()


def _single(api_version: str, kind: str, spec: Json | None = None) -> Chain:
    return Chain(owner(api_version, kind, f"a-{kind.lower()}", spec))


def chains() -> list[Chain]:
    """One chain for each kind that may be read, or more."""
    return [
        _single("apps/v1", "ReplicaSet", _NONE),
        _single("apps/v1", "StatefulSet", {**_NONE, "serviceName": "s"}),
        Chain(owner("apps/v1", "ReplicaSet", "below-deployment", _NONE), owner("apps/v1", "Deployment", "d", _NONE)),
        _single("batch/v1", "Job", _JOB),
        Chain(owner("batch/v1", "Job", "of-cron", _JOB), owner("batch/v1", "CronJob", "cron", _CRON)),
        _single("kubeflow.org/v1", "TFJob", replicas("tfReplicaSpecs", Worker=1)),
        _single("kubeflow.org/v1", "PyTorchJob", replicas("pytorchReplicaSpecs", Master=1)),
        _single("kubeflow.org/v1", "XGBoostJob", replicas("xgbReplicaSpecs", Master=1)),
        _single("kubeflow.org/v1", "JAXJob", replicas("jaxReplicaSpecs", Worker=1)),
        _single("kubeflow.org/v1", "PaddleJob", replicas("paddleReplicaSpecs", Worker=1)),
        Chain(owner("kubeflow.org/v1", "MPIJob", "mpi-old", _MPI)),
        Chain(
            owner("kubeflow.org/v2beta1", "MPIJob", "mpi", {**_MPI, "launcherCreationPolicy": "WaitForWorkersReady"})
        ),
        _single("kubeflow.org/v1beta1", "Notebook"),
        _single("kubeflow.org/v1alpha1", "ScheduledWorkflow"),
        Chain(owner("batch/v1", "Job", "of-train", _JOB), owner("trainer.kubeflow.org/v1alpha1", "TrainJob", "train")),
        Chain(owner("ray.io/v1", "RayCluster", "ray", _RAY), labels={"ray.io/group": "headgroup"}),
        Chain(owner("ray.io/v1", "RayCluster", "of-job", _RAY), owner("ray.io/v1", "RayJob", "rj")),
        Chain(owner("ray.io/v1", "RayCluster", "of-service", _RAY), owner("ray.io/v1", "RayService", "rs")),
        _single("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": "a"}]}),
        Chain(
            owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", {"leaderWorkerTemplate": {"size": 1}}),
            labels={"leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/worker-index": "0"},
        ),
        _single("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "t", "replicas": 1}]}),
        Chain(
            owner("serving.knative.dev/v1", "Revision", "r"),
            owner("serving.knative.dev/v1", "Configuration", "c"),
            owner("serving.knative.dev/v1", "Service", "s"),
        ),
        _single("machinelearning.seldon.io/v1", "SeldonDeployment"),
        Chain(
            owner("grove.io/v1alpha1", "PodClique", "clique"),
            owner("grove.io/v1alpha1", "PodCliqueScalingGroup", "scaling"),
            owner("grove.io/v1alpha1", "PodCliqueSet", "set"),
            labels={"grove.io/podgang": "gang", "grove.io/podclique": "clique"},
            beside=owner("scheduler.grove.io/v1alpha1", "PodGang", "gang", _GANG),
        ),
        Chain(owner("grove.io/v1alpha1", "PodGangSet", "old"), labels={"grove.io/podgang": "gang"}),
        _single("nvidia.com/v1alpha1", "DynamoGraphDeployment"),
        _single("argoproj.io/v1alpha1", "Workflow"),
        Chain(owner("tekton.dev/v1", "TaskRun", "task"), owner("tekton.dev/v1", "PipelineRun", "pipeline")),
        _single("workload.codeflare.dev/v1beta2", "AppWrapper"),
        _single("kubevirt.io/v1", "VirtualMachineInstance"),
        _single("workspace.devfile.io/v1alpha2", "DevWorkspace"),
        _single("run.ai/v1", "RunaiJob"),
        *(
            _single("run.ai/v2", f"{kind}Workload")
            for kind in ("Training", "Interactive", "Inference", "Distributed", "DistributedInference")
        ),
        _single("egx.nvidia.io/v1", "SPOTRequest"),
        _single("amlarc.azureml.com/v1alpha1", "AmlJob"),
    ]
