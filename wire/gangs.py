"""Kinds whose pods start together, and the labels that their controllers write on pods.

The scheduler and the grouping of workloads both read these, and neither may import the other.
Sources: the API reference of each project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from wire import gangwords

#: API group -> kinds whose pods start together: without a PodGroup they would be bound piecemeal.
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "kubeflow.org": frozenset({"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "MPIJob", "JAXJob"}),
    "trainer.kubeflow.org": frozenset({"TrainJob"}),
    "ray.io": frozenset({"RayCluster", "RayJob", "RayService"}),
    "jobset.x-k8s.io": frozenset({"JobSet"}),
    "leaderworkerset.x-k8s.io": frozenset({"LeaderWorkerSet"}),
    "batch.volcano.sh": frozenset({"Job"}),
    "workload.codeflare.dev": frozenset({"AppWrapper"}),
    "grove.io": frozenset({"PodCliqueSet", "PodGangSet", "PodClique", "PodCliqueScalingGroup"}),
    "sparkoperator.k8s.io": frozenset({"SparkApplication"}),
    "amlarc.azureml.com": frozenset({"AmlJob"}),
}

#: API group and kind of direct owners whose PodGroup is named by themselves, as a rule, with pods in no part of it:
#: admission can tell the name from the pod alone. Where something stands above the owner, the name is put right later.
NAMED_BY_OWNER: Final = frozenset(
    {
        ("batch", "Job"),
        ("kubeflow.org", "TFJob"),
        ("kubeflow.org", "XGBoostJob"),
        ("kubeflow.org", "JAXJob"),
        ("kubeflow.org", "PaddleJob"),
        ("kubeflow.org", "MPIJob"),
        ("kubeflow.org", "Notebook"),
    }
)

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
#: An annotation: the number of pods of a group.
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
#: Of pods of an Indexed Job.
JOB_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
KUBEFLOW_JOB_NAME: Final = "training.kubeflow.org/job-name"
KUBEFLOW_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
KUBEFLOW_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
KUBEFLOW_JOB_ROLE: Final = "training.kubeflow.org/job-role"
RAY_CLUSTER: Final = "ray.io/cluster"
RAY_GROUP: Final = "ray.io/group"
RAY_NODE_TYPE: Final = "ray.io/node-type"
VOLCANO_JOB_NAME: Final = "volcano.sh/job-name"
VOLCANO_TASK: Final = "volcano.sh/task-spec"
VOLCANO_TASK_INDEX: Final = "volcano.sh/task-index"
GROVE_POD_GANG: Final = "grove.io/podgang"
GROVE_POD_CLIQUE: Final = "grove.io/podclique"
SPARK_APP_SELECTOR: Final = "spark-app-selector"
SPARK_APP_NAME: Final = "spark-app-name"
KNATIVE_REVISION: Final = "serving.knative.dev/revision"

#: Labels of pods whose gang stands above their direct owner (a Job of a JobSet, a StatefulSet of a LeaderWorkerSet).
LABELS: Final[Mapping[str, str]] = {
    JOBSET_NAME: "JobSet",
    LWS_NAME: "LeaderWorkerSet",
    KUBEFLOW_JOB_NAME: "Kubeflow job",
    RAY_CLUSTER: "RayCluster",
    VOLCANO_JOB_NAME: "Volcano Job",
    GROVE_POD_GANG: "PodGang",
    SPARK_APP_SELECTOR: "Spark application",
}


def told_group(
    owners: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    spec: Mapping[str, Any],
) -> str:
    """Return the PodGroup that a pod will have, as far as its references to owners tell; "" where they don't.

    ``owners`` are as they are written in the pod, of any form. Labels of controllers name a gang above the owner, and
    words of other schedulers one of theirs, unless pods of the owner's kind start together.
    """
    if len(owners) != 1:
        return ""
    api_version, kind, name, uid = (owners[0].get(key) for key in ("apiVersion", "kind", "name", "uid"))
    if not all(isinstance(each, str) and each for each in (api_version, kind, name, uid)):
        return ""
    group = str(api_version).partition("/")[0]
    own = KUBEFLOW_JOB_NAME if group == "kubeflow.org" else ""
    is_below = any(labels.get(label) for label in LABELS if label != own)
    words = [*gangwords.written(labels, annotations), spec.get("schedulingGroup"), spec.get("workloadRef")]
    is_foreign = str(kind) not in KINDS.get(group, ()) and any(words)
    return f"pg-{name}-{uid}" if (group, kind) in NAMED_BY_OWNER and not (is_below or is_foreign) else ""
