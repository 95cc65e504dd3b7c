"""Kinds whose pods start together, labels of their controllers, and labels that ask other schedulers for the same.

The scheduler and the podgrouper both read these, and neither may import the other. Sources: the API reference of each
project; coscheduling of kubernetes-sigs/scheduler-plugins, volcano.sh/apis (scheduling/v1beta1), koordinator.sh
(apis/extension), YuniKorn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from wire import names

#: A label. It names a PodGroup of scheduling.x-k8s.io.
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"

#: Annotations. They name a PodGroup of scheduling.volcano.sh.
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
VOLCANO_OWN_GROUP: Final = "scheduling.volcano.sh/group-name"
#: An annotation of owners: the minimum of the PodGroup that Volcano makes for them.
VOLCANO_LEAST: Final = "scheduling.volcano.sh/group-min-member"
#: An annotation: the name of a gang.
KOORDINATOR_NAME: Final = "gang.scheduling.koordinator.sh/name"
#: An annotation: the number of pods that start together, at which the pods themselves define the gang.
KOORDINATOR_LEAST: Final = "gang.scheduling.koordinator.sh/min-available"
#: Annotations of a pod, or of the PodGroup that it names.
KOORDINATOR_GROUPS: Final = "gang.scheduling.koordinator.sh/groups"
KOORDINATOR_MATCH_POLICY: Final = "gang.scheduling.koordinator.sh/match-policy"
KOORDINATOR_MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
KOORDINATOR_TOPOLOGY: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
#: A label. It names a PodGroup of scheduling.sigs.k8s.io, of Koordinator's or of early versions of coscheduling.
SIGS_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
#: Labels of lightweight coscheduling, which Koordinator reads as well: a gang without an object.
SIGS_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
SIGS_LEAST: Final = "pod-group.scheduling.sigs.k8s.io/min-available"

#: All of them that put a pod into a gang, in the order in which a reason names them.
ALL: Final = (
    VOLCANO_GROUP,
    VOLCANO_OWN_GROUP,
    VOLCANO_LEAST,
    KOORDINATOR_NAME,
    KOORDINATOR_LEAST,
    SIGS_GROUP,
    SIGS_NAME,
    SIGS_LEAST,
    COSCHEDULING_GROUP,
    "yunikorn.apache.org/task-group-name",
)
#: Those of them that name a gang, and are translated into a PodGroup (podgrouper/core/foreign).
TRANSLATED: Final = frozenset(
    {
        f"label {COSCHEDULING_GROUP}",
        f"label {SIGS_GROUP}",
        f"label {SIGS_NAME}",
        f"annotation {VOLCANO_GROUP}",
        f"annotation {VOLCANO_OWN_GROUP}",
        f"annotation {KOORDINATOR_NAME}",
    }
)


def written(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> Iterator[str]:
    """Yield the words of a pod with the place of each: "label scheduling.x-k8s.io/pod-group"."""
    for place, found in (("label", labels), ("annotation", annotations)):
        for name in ALL if found else ():
            if found and found.get(name):
                yield f"{place} {name}"


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

#: API group and kind of owners whose pods are scheduled alone, unless one of them says something more about the group.
#: Of all others only the podgrouper knows.
PLAIN: Final = frozenset(
    {
        ("apps", "DaemonSet"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("", "Node"),
        ("", "ReplicationController"),
    }
)
#: Labels and annotations by which owners say something about the group of their pods.
STATED_LABELS: Final = (
    names.QUEUE_LABEL,
    names.PRIORITY_CLASS_LABEL,
    names.PREEMPTIBILITY_LABEL,
    names.PROJECT_LABEL,
)
STATED_ANNOTATIONS: Final = (
    names.PREEMPTION_DELAY,
    names.STALENESS_GRACE_PERIOD,
    names.TOPOLOGY,
    names.TOPOLOGY_REQUIRED,
    names.TOPOLOGY_PREFERRED,
    names.SEGMENT_SIZE,
    names.SEGMENT_TOPOLOGY_REQUIRED,
    names.SEGMENT_TOPOLOGY_PREFERRED,
    names.BATCH_MIN_MEMBER,
)

#: What is allowed where a StatefulSet asks for pods that start together.
PARALLEL: Final = "Parallel"
IN_ORDER: Final = (
    f"1, or spec.podManagementPolicy: {PARALLEL}; with OrderedReady a pod is made when the one before it is ready, "
    "so they can't start together"
)

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
#: Annotations of a JobSet, or of the template of a replicated Job: each Job is alone in a domain. Without the second
#: one the pods of a Job, but for that of index 0, are made once that has a node.
JOBSET_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
#: An annotation: the number of pods of a group.
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
#: An annotation of a LeaderWorkerSet: each group is alone in a domain. Workers are made once their leader has a node.
LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
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


def is_plain(api_version: str, kind: str) -> bool:
    """Whether pods of owners of this kind are scheduled alone, unless one of them says something more."""
    return (api_version.rpartition("/")[0], kind) in PLAIN


#: The deepest owners that the scheduler follows itself: a pod's own one, and the Deployment of a ReplicaSet.
_FOLLOWED_ABOVE: Final = (("apps", "ReplicaSet"), ("apps", "Deployment"))


def is_plain_chain(kinds: Sequence[tuple[str, str]]) -> bool:
    """Whether the scheduler knows what the owners of a pod say. ``kinds``: apiVersion and kind, from its own one up."""
    groups = tuple((api_version.rpartition("/")[0], kind) for api_version, kind in kinds)
    return (len(groups) <= 1 or groups == _FOLLOWED_ABOVE) and all(each in PLAIN for each in groups)


def stated(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> frozenset[tuple[str, str]]:
    """What an owner says about the group of its pods, or a pod about its own: names with their values."""
    return frozenset(
        (name, value)
        for found, listed in ((labels, STATED_LABELS), (annotations, STATED_ANNOTATIONS))
        for name in listed
        if found and (value := found.get(name))
    )


def waits_for_itself(annotations: Mapping[str, str] | None, policy: object) -> bool:
    """Whether a StatefulSet asks for several pods at once and makes one after the other, by its podManagementPolicy."""
    text = (annotations or {}).get(names.BATCH_MIN_MEMBER)
    return text is not None and text.lstrip("0") != "1" and policy != PARALLEL


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
    words = [*written(labels, annotations), spec.get("schedulingGroup"), spec.get("workloadRef")]
    is_foreign = str(kind) not in KINDS.get(group, ()) and any(words)
    return f"pg-{name}-{uid}" if (group, kind) in NAMED_BY_OWNER and not (is_below or is_foreign) else ""
