"""Which pods belong to a gang, and what a PodGroup demands. Pods and PodGroups in, values out."""

from __future__ import annotations

from wire.core import OwnerReference, Pod

#: API group -> kinds whose pods start together: without a PodGroup they would be bound piecemeal.
_GANG_KINDS = {
    "kubeflow.org": {"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "MPIJob", "JAXJob"},
    "trainer.kubeflow.org": {"TrainJob"},
    "ray.io": {"RayCluster", "RayJob", "RayService"},
    "jobset.x-k8s.io": {"JobSet"},
    "leaderworkerset.x-k8s.io": {"LeaderWorkerSet"},
    "batch.volcano.sh": {"Job"},
    "workload.codeflare.dev": {"AppWrapper"},
    "grove.io": {"PodCliqueSet", "PodGangSet", "PodClique", "PodCliqueScalingGroup"},
    "sparkoperator.k8s.io": {"SparkApplication"},
    "amlarc.azureml.com": {"AmlJob"},
}
#: Labels of pods whose gang stands above their direct owner (a Job of a JobSet, a StatefulSet of a LeaderWorkerSet).
_GANG_LABELS = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "training.kubeflow.org/job-name": "Kubeflow job",
    "ray.io/cluster": "RayCluster",
    "volcano.sh/job-name": "Volcano Job",
    "grove.io/podgang": "PodGang",
    "spark-app-selector": "Spark application",
}


def gang_kind(pod: Pod) -> str:
    """Kind of the gang that ``pod`` is a part of by its owner or labels, "" if it is a pod alone.

    Pods of a Job, ReplicaSet or StatefulSet are pods alone.
    """
    for owner in pod.metadata.owner_references or ():
        if is_gang_kind(_api_group(owner), owner.kind):
            return owner.kind
    labels = pod.metadata.labels or {}
    return next((kind for label, kind in _GANG_LABELS.items() if labels.get(label)), "")


def is_gang_kind(group: str, kind: str) -> bool:
    """Whether pods of an owner of this kind start together."""
    return kind in _GANG_KINDS.get(group, ())


def _api_group(owner: OwnerReference) -> str:
    return owner.api_version.partition("/")[0]
