"""One row of a table for each kind that KAI groups."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podgrouper.core import projection
from podgrouper.core.answers import Group, Nothing, Refusal, Why
from podgrouper.core.grouping import group
from podgrouper.core.kinds import KINDS
from podgrouper.core.owner_chain import Absent, Read
from podgrouper.core.projection import owner_as_read
from scheduler.core.convert.pod_groups import pod_group_record
from tests.podgrouper.objects import NAMESPACE, chained, obj, pod
from wire import gangs, names

TRAINING = "training.kubeflow.org"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "work"}]}}


def kubeflow(kind: str, field: str, version: str = "v1", more: Any = None, **roles: int) -> dict[str, Any]:
    specs = {role: {"replicas": count, "template": TEMPLATE} for role, count in roles.items()}
    return obj(f"kubeflow.org/{version}", kind, "job", spec={field: specs, **(more or {})})


def uncounted(kind: str, field: str, *roles: str) -> dict[str, Any]:
    """A job of Kubeflow whose roles have no ``replicas``."""
    return obj("kubeflow.org/v1", kind, "job", spec={field: {role: {"template": TEMPLATE} for role in roles}})


def ray_cluster(api: str = "v1", *, autoscaling: bool | None = None, **more: Any) -> dict[str, Any]:
    groups = [
        {"groupName": "small", "replicas": 4, "minReplicas": 2, "template": TEMPLATE},
        {"groupName": "hosts", "replicas": 2, "minReplicas": 0, "numOfHosts": 4, "template": TEMPLATE},
        {"groupName": "none", "replicas": 0, "template": TEMPLATE},
    ]
    scaling = {} if autoscaling is None else {"enableInTreeAutoscaling": autoscaling}
    spec = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": groups, **scaling}
    return obj(f"ray.io/{api}", "RayCluster", "rays", spec=spec, **more)


def jobset(**more: Any) -> dict[str, Any]:
    job = {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 4, "template": TEMPLATE}}}
    leader = {"name": "leader", "template": {"spec": {"template": TEMPLATE}}}
    return obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": [leader, job], **more})


def after(*jobs: str, status: str = "Complete") -> dict[str, Any]:
    """What makes a replicated Job wait for others."""
    return {"dependsOn": [{"name": name, "status": status} for name in jobs]}


def steps(*jobs: tuple[str, int, Any], **more: Any) -> dict[str, Any]:
    """A JobSet: name, pods and what it waits for of each of its Jobs."""
    listed = [
        {"name": name, "template": {"spec": {"parallelism": pods, "template": TEMPLATE}}, **waits}
        for name, pods, waits in jobs
    ]
    return obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": listed}, **more)


EXCLUSIVE_LWS = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}


def lws(size: int = 4, more: Any = None, annotations: Any = None, **template: Any) -> dict[str, Any]:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": size, "workerTemplate": TEMPLATE, **template}}
    meta = {"annotations": annotations} if annotations else {}
    return obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", spec={**spec, **(more or {})}, **meta)


def lws_pod(worker: int, group_index: int = 1, **spec: Any) -> dict[str, Any]:
    labels = {gangs.LWS_NAME: "lws", gangs.LWS_GROUP_INDEX: str(group_index), gangs.LWS_WORKER_INDEX: str(worker)}
    return pod(labels=labels, spec=spec or None)


def parts(made: Group) -> dict[str, Any]:
    """Sub-groups as text: the minimum of a leaf; of a level how many children it needs."""
    return {
        each.name: each.min_member if each.min_sub_group is None else f"{each.min_sub_group} parts"
        for each in made.pod_group.spec.sub_groups or ()
    }


JOB = obj("batch/v1", "Job", "inner")
SET = obj("apps/v1", "StatefulSet", "inner")
REPLICAS = obj("apps/v1", "ReplicaSet", "inner")
QUEUED: dict[str, Any] = {"labels": {"kai.scheduler/queue": "team-a"}}
PLAIN = pod()
RAY_POD = pod(labels={gangs.RAY_CLUSTER: "rays", gangs.RAY_GROUP: "small"})
WORKER = pod(labels={gangs.KUBEFLOW_REPLICA_TYPE: "worker", gangs.KUBEFLOW_REPLICA_INDEX: "5"})


def job_pod(name: str) -> dict[str, Any]:
    """A pod of the first Job of a JobSet that is made of this replicated one."""
    return pod(labels={gangs.JOBSET_REPLICATED_JOB: name, gangs.JOBSET_JOB_INDEX: "0"})


TRAINED = steps(("data", 1, {}), ("model", 1, {}), ("node", 2, after("data", "model")))
SERVED = steps(("driver", 1, {}), ("worker", 3, after("driver", status="Ready")))
THREE = steps(
    ("a", 1, {}), ("b", 2, after("a")), ("c", 3, after("a")), ("d", 4, after("a", status="Ready")), ("e", 5, after("d"))
)
JOBSET_POD = pod(labels={gangs.JOBSET_REPLICATED_JOB: "workers", gangs.JOBSET_JOB_INDEX: "1"})
SPARK = {gangs.SPARK_APP_NAME: "pi", gangs.SPARK_APP_SELECTOR: "spark-1f2e"}


def job_of(least: int, parallelism: int, *, succeeded: int = 0, **spec: Any) -> dict[str, Any]:
    made = obj(
        "batch/v1",
        "Job",
        "j",
        spec={"parallelism": parallelism, **spec},
        annotations={names.BATCH_MIN_MEMBER: str(least)},
    )
    return owner_as_read({**made, "status": {"succeeded": succeeded}})


def least_available(number: int) -> dict[str, Any]:
    return {"runPolicy": {"schedulingPolicy": {"minAvailable": number}}}


RAYS = {"headgroup": 1, "small": 2, "hosts": 8}
SEGMENTS = {"kai.scheduler/segment-size": "4"}

#: (pod, its owners from the direct one up) -> name of the PodGroup, minimum, parts, part of the pod.
ROWS: list[tuple[str, dict[str, Any], list[dict[str, Any]], tuple[str, Any, dict[str, Any], str]]] = [
    ("spark driver", pod(labels=SPARK), [], ("spark-1f2e", 1, {}, "")),
    ("spark executor", pod(labels=SPARK), [pod(name="driver", labels=SPARK)], ("spark-1f2e", 1, {}, "")),
    ("Deployment", PLAIN, [REPLICAS, obj("apps/v1", "Deployment", "d", **QUEUED)], ("pg-p-pod-p", 1, {}, "")),
    ("ReplicaSet", PLAIN, [obj("apps/v1", "ReplicaSet", "r", **QUEUED)], ("pg-r-replicaset-r", 1, {}, "")),
    (
        "StatefulSet that makes its pods at once",
        PLAIN,
        [
            obj(
                "apps/v1",
                "StatefulSet",
                "s",
                annotations={"kai.scheduler/batch-min-member": "3"},
                spec={"podManagementPolicy": "Parallel", "replicas": 3},
            )
        ],
        ("pg-s-statefulset-s", 3, {}, ""),
    ),
    ("StatefulSet", PLAIN, [obj("apps/v1", "StatefulSet", "s", **QUEUED)], ("pg-s-statefulset-s", 1, {}, "")),
    ("Job", PLAIN, [JOB], ("pg-inner-job-inner", 1, {}, "")),
    (
        "Job with a minimum",
        PLAIN,
        [job_of(5, 5)],
        ("pg-j-job-j", 5, {}, ""),
    ),
    ("Job that makes fewer pods than its minimum", PLAIN, [job_of(5, 3)], ("pg-j-job-j", 3, {}, "")),
    ("Job with fewer completions", PLAIN, [job_of(5, 5, completions=4)], ("pg-j-job-j", 4, {}, "")),
    ("Job that is almost over", PLAIN, [job_of(5, 5, completions=8, succeeded=6)], ("pg-j-job-j", 2, {}, "")),
    ("Job that may have no pods", PLAIN, [job_of(5, 0)], ("pg-j-job-j", 1, {}, "")),
    ("CronJob", PLAIN, [JOB, obj("batch/v1", "CronJob", "c")], ("pg-inner-job-inner", 1, {}, "")),
    ("TFJob", PLAIN, [kubeflow("TFJob", "tfReplicaSpecs", Chief=1, PS=2, Worker=4)], ("pg-job-tfjob-job", 7, {}, "")),
    (
        "XGBoostJob",
        PLAIN,
        [kubeflow("XGBoostJob", "xgbReplicaSpecs", Master=1, Worker=2)],
        ("pg-job-xgboostjob-job", 3, {}, ""),
    ),
    ("JAXJob", PLAIN, [kubeflow("JAXJob", "jaxReplicaSpecs", Worker=3)], ("pg-job-jaxjob-job", 3, {}, "")),
    ("PaddleJob", PLAIN, [kubeflow("PaddleJob", "paddleReplicaSpecs", Worker=2)], ("pg-job-paddlejob-job", 2, {}, "")),
    (
        "Kubeflow job with minAvailable",
        PLAIN,
        [kubeflow("TFJob", "tfReplicaSpecs", more=least_available(3), Worker=9)],
        ("pg-job-tfjob-job", 3, {}, ""),
    ),
    (
        "Kubeflow job with minAvailable above its replicas",
        PLAIN,
        [kubeflow("TFJob", "tfReplicaSpecs", more=least_available(12), PS=1, Worker=8)],
        ("pg-job-tfjob-job", 9, {}, ""),
    ),
    (
        "elastic PyTorchJob with minReplicas above its replicas",
        WORKER,
        [kubeflow("PyTorchJob", "pytorchReplicaSpecs", more={"elasticPolicy": {"minReplicas": 9}}, Master=1, Worker=4)],
        ("pg-job-pytorchjob-job", 5, {"master": 1, "worker": 4}, "worker"),
    ),
    (
        "MPIJob v1",
        PLAIN,
        [kubeflow("MPIJob", "mpiReplicaSpecs", Launcher=1, Worker=4)],
        ("pg-job-mpijob-job", 5, {}, ""),
    ),
    (
        "MPIJob v2beta1",
        PLAIN,
        [kubeflow("MPIJob", "mpiReplicaSpecs", "v2beta1", Launcher=1, Worker=4)],
        ("pg-job-mpijob-job", 5, {}, ""),
    ),
    (
        "MPIJob without workers",
        PLAIN,
        [kubeflow("MPIJob", "mpiReplicaSpecs", "v2beta1", Launcher=1)],
        ("pg-job-mpijob-job", 1, {}, ""),
    ),
    (
        "MPIJob that says nothing of how many",
        PLAIN,
        [uncounted("MPIJob", "mpiReplicaSpecs", "Launcher", "Worker")],
        ("pg-job-mpijob-job", 1, {}, ""),
    ),
    (
        "job that says nothing of how many",
        PLAIN,
        [uncounted("TFJob", "tfReplicaSpecs", "Chief", "Worker")],
        ("pg-job-tfjob-job", 2, {}, ""),
    ),
    (
        "job with a role that has no pod",
        PLAIN,
        [kubeflow("TFJob", "tfReplicaSpecs", PS=0, Worker=2)],
        ("pg-job-tfjob-job", 2, {}, ""),
    ),
    (
        "PyTorchJob",
        WORKER,
        [kubeflow("PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=7)],
        ("pg-job-pytorchjob-job", 8, {"master": 1, "worker": 7}, "worker"),
    ),
    (
        "PyTorchJob without a master",
        WORKER,
        [kubeflow("PyTorchJob", "pytorchReplicaSpecs", Worker=7)],
        ("pg-job-pytorchjob-job", 7, {"worker": 7}, "worker"),
    ),
    (
        "elastic PyTorchJob",
        WORKER,
        [kubeflow("PyTorchJob", "pytorchReplicaSpecs", more={"elasticPolicy": {"minReplicas": 3}}, Master=1, Worker=7)],
        ("pg-job-pytorchjob-job", 3, {"master": 1, "worker": 2}, "worker"),
    ),
    (
        "PyTorchJob in segments",
        {**WORKER, "metadata": {**WORKER["metadata"], "annotations": SEGMENTS}},
        [kubeflow("PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=7)],
        ("pg-job-pytorchjob-job", 8, {"master": 1, "worker": "2 parts", "worker-0": 4, "worker-1": 3}, "worker-1"),
    ),
    ("Notebook", PLAIN, [SET, obj("kubeflow.org/v1beta1", "Notebook", "n")], ("pg-n-notebook-n", 1, {}, "")),
    (
        "ScheduledWorkflow",
        PLAIN,
        [obj("kubeflow.org/v1alpha1", "ScheduledWorkflow", "w")],
        ("pg-w-scheduledworkflow-w", 1, {}, ""),
    ),
    (
        "TrainJob",
        JOBSET_POD,
        [JOB, jobset(), obj("trainer.kubeflow.org/v1alpha1", "TrainJob", "t")],
        (
            "pg-set-jobset-set",
            "2 parts",
            {
                "leader": "1 parts",
                "leader-replica-0": 1,
                "workers": "2 parts",
                "workers-replica-0": 4,
                "workers-replica-1": 4,
            },
            "workers-replica-1",
        ),
    ),
    ("RayCluster", RAY_POD, [ray_cluster()], ("pg-rays-raycluster-rays", 11, RAYS, "small")),
    (
        "RayCluster with the autoscaler",
        RAY_POD,
        [ray_cluster(autoscaling=True)],
        ("pg-rays-raycluster-rays", 3, {"headgroup": 1, "small": 2}, "small"),
    ),
    (
        "worker of a group that the autoscaler may scale to zero",
        pod(labels={gangs.RAY_CLUSTER: "rays", gangs.RAY_GROUP: "hosts"}),
        [ray_cluster(autoscaling=True), obj("ray.io/v1", "RayJob", "j")],
        ("pg-j-rayjob-j", 3, {"headgroup": 1, "small": 2}, ""),
    ),
    (
        "RayCluster with the autoscaler switched off",
        RAY_POD,
        [ray_cluster(autoscaling=False)],
        ("pg-rays-raycluster-rays", 11, RAYS, "small"),
    ),
    ("RayCluster v1alpha1", RAY_POD, [ray_cluster("v1alpha1")], ("pg-rays-raycluster-rays", 11, RAYS, "small")),
    ("RayJob", RAY_POD, [ray_cluster(), obj("ray.io/v1", "RayJob", "j")], ("pg-j-rayjob-j", 11, RAYS, "small")),
    (
        "submitter of a RayJob",
        PLAIN,
        [JOB, obj("ray.io/v1", "RayJob", "j", spec={"rayClusterSpec": ray_cluster()["spec"]})],
        ("pg-j-rayjob-j", 11, RAYS, ""),
    ),
    (
        "submitter of a RayJob for a RayCluster that is there",
        PLAIN,
        [JOB, obj("ray.io/v1", "RayJob", "j", spec={"clusterSelector": {gangs.RAY_CLUSTER: "rays"}})],
        ("pg-j-rayjob-j", 1, {}, ""),
    ),
    (
        "RayCluster that asks for more workers than its maximum",
        pod(labels={gangs.RAY_CLUSTER: "rays", gangs.RAY_GROUP: "many"}),
        [
            obj(
                "ray.io/v1",
                "RayCluster",
                "rays",
                spec={"workerGroupSpecs": [{"groupName": "many", "replicas": 5, "minReplicas": 0, "maxReplicas": 3}]},
            )
        ],
        ("pg-rays-raycluster-rays", 4, {"headgroup": 1, "many": 3}, "many"),
    ),
    (
        "RayService",
        RAY_POD,
        [ray_cluster(), obj("ray.io/v1", "RayService", "s")],
        ("pg-rays-raycluster-rays", 11, RAYS, "small"),
    ),
    (
        "JobSet in order",
        JOBSET_POD,
        [JOB, jobset(startupPolicy={"startupPolicyOrder": "InOrder"})],
        (
            "pg-set-jobset-set",
            "1 parts",
            {
                "leader": "1 parts",
                "leader-replica-0": 1,
                "workers": "2 parts",
                "workers-replica-0": 4,
                "workers-replica-1": 4,
            },
            "workers-replica-1",
        ),
    ),
    (
        "Jobs of a JobSet on which others depend",
        job_pod("model"),
        [JOB, TRAINED],
        (
            "pg-set-jobset-set",
            "2 parts",
            {"data": "1 parts", "data-replica-0": 1, "model": "1 parts", "model-replica-0": 1},
            "model-replica-0",
        ),
    ),
    (
        "Job of a JobSet that depends on complete ones, as Trainer 2 makes it",
        job_pod("node"),
        [JOB, TRAINED, obj("trainer.kubeflow.org/v1alpha1", "TrainJob", "t")],
        ("pg-set-jobset-set-node", "1 parts", {"node": "1 parts", "node-replica-0": 2}, "node-replica-0"),
    ),
    (
        "Job of a JobSet on which one depends when it is ready",
        job_pod("driver"),
        [JOB, SERVED],
        ("pg-set-jobset-set", "1 parts", {"driver": "1 parts", "driver-replica-0": 1}, "driver-replica-0"),
    ),
    (
        "Job of a JobSet that depends on a ready one",
        job_pod("worker"),
        [JOB, SERVED],
        ("pg-set-jobset-set-worker", "1 parts", {"worker": "1 parts", "worker-replica-0": 3}, "worker-replica-0"),
    ),
    (
        "Jobs of a JobSet that depend on the same are made together",
        job_pod("c"),
        [JOB, THREE],
        (
            "pg-set-jobset-set-b",
            "2 parts",
            {"b": "1 parts", "b-replica-0": 2, "c": "1 parts", "c-replica-0": 3},
            "c-replica-0",
        ),
    ),
    (
        "and not with one that depends on less",
        job_pod("d"),
        [JOB, THREE],
        ("pg-set-jobset-set-d", "1 parts", {"d": "1 parts", "d-replica-0": 4}, "d-replica-0"),
    ),
    (
        "JobSet with a minimum of more parts than it has",
        job_pod("d"),
        [JOB, steps(("d", 4, {}), annotations={"kai.scheduler/batch-min-member": "2"})],
        ("pg-set-jobset-set", "1 parts", {"d": "1 parts", "d-replica-0": 4}, "d-replica-0"),
    ),
    (
        "JobSet with a minimum of parts, of which no more are made at the same time",
        job_pod("node"),
        [JOB, {**TRAINED, "metadata": {**TRAINED["metadata"], "annotations": {"kai.scheduler/batch-min-member": "2"}}}],
        ("pg-set-jobset-set-node", "1 parts", {"node": "1 parts", "node-replica-0": 2}, "node-replica-0"),
    ),
    (
        "leader of a LeaderWorkerSet",
        lws_pod(0),
        [SET, lws()],
        ("pg-lws-leaderworkerset-lws-group-1", 4, {"leader": 1, "workers": 3}, "leader"),
    ),
    (
        "worker of a LeaderWorkerSet",
        lws_pod(3),
        [obj("apps/v1", "StatefulSet", "lws-1"), pod(name="leader"), SET, lws()],
        ("pg-lws-leaderworkerset-lws-group-1", 4, {"leader": 1, "workers": 3}, "workers"),
    ),
    (
        "LeaderWorkerSet of one pod a group",
        lws_pod(0, 0),
        [SET, lws(1)],
        ("pg-lws-leaderworkerset-lws-group-0", 1, {"leader": 1}, "leader"),
    ),
    (
        "LeaderWorkerSet in segments",
        lws_pod(4),
        [SET, lws(9, subGroupPolicy={"subGroupSize": 4})],
        ("pg-lws-leaderworkerset-lws-group-1", 9, {"segment-0": 5, "segment-1": 4}, "segment-0"),
    ),
    (
        "LeaderWorkerSet in segments without its leader",
        lws_pod(5),
        [SET, lws(9, subGroupPolicy={"subGroupSize": 4, "subGroupPolicyType": "LeaderExcluded"})],
        ("pg-lws-leaderworkerset-lws-group-1", 9, {"leader": 1, "segment-0": 4, "segment-1": 4}, "segment-1"),
    ),
    (
        "LeaderWorkerSet that waits for its leader",
        lws_pod(0),
        [SET, lws(more={"startupPolicy": "LeaderReady"})],
        ("pg-lws-leaderworkerset-lws-group-1", 1, {"leader": 1, "workers": 0}, "leader"),
    ),
    (
        "LeaderWorkerSet in segments that waits for its leader",
        lws_pod(0),
        [SET, lws(9, subGroupPolicy={"subGroupSize": 4}, more={"startupPolicy": "LeaderReady"})],
        ("pg-lws-leaderworkerset-lws-group-1", 1, {"segment-0": 1, "segment-1": 0}, "segment-0"),
    ),
    (
        "LeaderWorkerSet in segments that waits for its leader, which is in none of them",
        lws_pod(0),
        [
            SET,
            lws(
                9,
                subGroupPolicy={"subGroupSize": 4, "subGroupPolicyType": "LeaderExcluded"},
                more={"startupPolicy": "LeaderReady"},
            ),
        ],
        ("pg-lws-leaderworkerset-lws-group-1", 1, {"leader": 1, "segment-0": 0, "segment-1": 0}, "leader"),
    ),
    (
        "LeaderWorkerSet in exclusive domains that waits for its leader",
        lws_pod(0),
        [SET, lws(annotations=EXCLUSIVE_LWS)],
        ("pg-lws-leaderworkerset-lws-group-1", 1, {"leader": 1, "workers": 0}, "leader"),
    ),
    (
        "worker of a LeaderWorkerSet in exclusive domains",
        lws_pod(3),
        [
            obj("apps/v1", "StatefulSet", "lws-1"),
            pod(name="leader", spec={"nodeName": "n"}),
            SET,
            lws(annotations=EXCLUSIVE_LWS),
        ],
        ("pg-lws-leaderworkerset-lws-group-1", 4, {"leader": 1, "workers": 3}, "workers"),
    ),
    (
        "LeaderWorkerSet whose leader was placed",
        lws_pod(0, nodeName="n", containers=[]),
        [SET, lws(more={"startupPolicy": "LeaderReady"})],
        ("pg-lws-leaderworkerset-lws-group-1", 4, {"leader": 1, "workers": 3}, "leader"),
    ),
    (
        "Volcano Job",
        PLAIN,
        [obj("batch.volcano.sh/v1alpha1", "Job", "v", spec={"minAvailable": 3, "tasks": [{"replicas": 9}]})],
        ("pg-v-job-v", 3, {}, ""),
    ),
    (
        "Volcano Job with minimums above its replicas",
        pod(labels={gangs.VOLCANO_TASK: "ps"}),
        [
            obj(
                "batch.volcano.sh/v1alpha1",
                "Job",
                "v",
                spec={
                    "minAvailable": 8,
                    "tasks": [{"name": "ps", "replicas": 2, "minAvailable": 3}, {"name": "worker"}],
                },
            )
        ],
        ("pg-v-job-v", 3, {"ps": 2, "worker": 1}, "ps"),
    ),
    (
        "Volcano Job whose tasks have minimums",
        pod(labels={gangs.VOLCANO_TASK: "ps"}),
        [
            obj(
                "batch.volcano.sh/v1alpha1",
                "Job",
                "v",
                spec={"tasks": [{"name": "ps", "replicas": 2, "minAvailable": 1}, {"name": "worker", "replicas": 3}]},
            )
        ],
        ("pg-v-job-v", 5, {"ps": 1, "worker": 3}, "ps"),
    ),
    *(
        (
            f"Volcano Job with dependsOn, {task}",
            pod(labels={gangs.VOLCANO_TASK: task}),
            [
                obj(
                    "batch.volcano.sh/v1alpha1",
                    "Job",
                    "v",
                    spec={
                        "minAvailable": 6,
                        "tasks": [
                            {"name": "ps", "replicas": 1},
                            {"name": "worker", "replicas": 4, "dependsOn": {"name": ["ps"], "iteration": "any"}},
                            {"name": "check", "replicas": 1, "dependsOn": {"name": ["ps", "worker"]}},
                        ],
                    },
                )
            ],
            (group, least, {}, ""),
        )
        for task, group, least in (
            ("ps", "pg-v-job-v", 1),
            ("worker", "pg-v-job-v-worker", 4),
            ("check", "pg-v-job-v-check", 1),
        )
    ),
    (
        "Knative Service",
        PLAIN,
        [
            REPLICAS,
            obj("apps/v1", "Deployment", "d"),
            obj("serving.knative.dev/v1", "Revision", "v", annotations={"autoscaling.knative.dev/min-scale": "3"}),
            obj("serving.knative.dev/v1", "Configuration", "c"),
            obj("serving.knative.dev/v1", "Service", "s"),
        ],
        ("pg-v-revision-v", 3, {}, ""),
    ),
    (
        "SeldonDeployment",
        PLAIN,
        [obj("machinelearning.seldon.io/v1", "SeldonDeployment", "m")],
        ("pg-m-seldondeployment-m", 1, {}, ""),
    ),
    ("Argo Workflow", PLAIN, [obj("argoproj.io/v1alpha1", "Workflow", "w", **QUEUED)], ("pg-p-pod-p", 1, {}, "")),
    ("PipelineRun", PLAIN, [obj("tekton.dev/v1", "PipelineRun", "r")], ("pg-r-pipelinerun-r", 1, {}, "")),
    ("TaskRun", PLAIN, [obj("tekton.dev/v1", "TaskRun", "r")], ("pg-r-taskrun-r", 1, {}, "")),
    (
        "AppWrapper",
        PLAIN,
        [kubeflow("JAXJob", "jaxReplicaSpecs", Worker=3), obj("workload.codeflare.dev/v1beta2", "AppWrapper", "a")],
        ("pg-job-jaxjob-job", 3, {}, ""),
    ),
    (
        "VirtualMachineInstance",
        PLAIN,
        [obj("kubevirt.io/v1", "VirtualMachineInstance", "v")],
        ("pg-v-virtualmachineinstance-v", 1, {}, ""),
    ),
    (
        "DevWorkspace",
        PLAIN,
        [REPLICAS, obj("workspace.devfile.io/v1alpha2", "DevWorkspace", "w")],
        ("pg-w-devworkspace-w", 1, {}, ""),
    ),
    ("RunaiJob", PLAIN, [obj("run.ai/v1", "RunaiJob", "r")], ("pg-r-runaijob-r", 1, {}, "")),
    *[
        (kind, PLAIN, [JOB, obj("run.ai/v2alpha1", kind, "w")], ("pg-inner-job-inner", 1, {}, ""))
        for kind in (
            "TrainingWorkload",
            "InteractiveWorkload",
            "InferenceWorkload",
            "DistributedWorkload",
            "DistributedInferenceWorkload",
        )
    ],
    ("SPOTRequest", PLAIN, [obj("egx.nvidia.io/v1", "SPOTRequest", "s")], ("pg-s-spotrequest-s", 1, {}, "")),
    (
        "AmlJob",
        pod(spec={"containers": [{"name": "c", "env": [{"name": "AZUREML_NODE_COUNT", "value": "4"}]}]}),
        [obj("amlarc.azureml.com/v1alpha1", "AmlJob", "a")],
        ("pg-a-amljob-a", 4, {}, ""),
    ),
    (
        "DynamoGraphDeployment",
        PLAIN,
        [JOB, obj("nvidia.com/v1alpha1", "DynamoGraphDeployment", "d")],
        ("pg-inner-job-inner", 1, {}, ""),
    ),
    ("unknown kind", PLAIN, [JOB, obj("example.com/v3", "Batch", "b")], ("pg-b-batch-b", 1, {}, "")),
    ("known kind of an unknown version", PLAIN, [obj("kubeflow.org/v9", "TFJob", "t")], ("pg-t-tfjob-t", 1, {}, "")),
]


@pytest.mark.parametrize(("about", "bottom", "owners", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_a_pod_of_each_kind_is_grouped_as_the_contract_says(
    about: str, bottom: dict[str, Any], owners: list[dict[str, Any]], expected: tuple[str, Any, dict[str, Any], str]
) -> None:
    made = group(*chained(bottom, *owners))
    assert isinstance(made, Group), about
    spec = made.pod_group.spec
    minimum = spec.min_member if spec.min_sub_group is None else f"{spec.min_sub_group} parts"
    if about == "PyTorchJob in segments":
        # Written by parts: minMember of the whole would be beside minSubGroup below it.
        assert minimum is None
        minimum = 8
    assert (made.pod_group.metadata.name, minimum, parts(made), made.part) == expected
    assert made.pod_group.metadata.namespace == NAMESPACE


TWO_STEPS = {**TRAINED, "metadata": {**TRAINED["metadata"], "annotations": {names.BATCH_MIN_MEMBER: "2"}}}


@pytest.mark.parametrize(
    ("bottom", "top", "expected"),
    [
        (PLAIN, job_of(5, 5), "5"),
        (PLAIN, job_of(5, 3), "3"),
        (PLAIN, job_of(5, 0), "1"),
        (job_pod("data"), TWO_STEPS, "2"),
        (job_pod("node"), TWO_STEPS, "1"),
    ],
)
def test_the_annotation_of_a_pod_group_is_never_above_its_minimum(bottom: Any, top: Any, expected: str) -> None:
    made = group(*chained(bottom, top))
    assert isinstance(made, Group)
    assert (made.pod_group.metadata.annotations or {})[names.BATCH_MIN_MEMBER] == expected
    assert pod_group_record(made.pod_group).unsupported == ""


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
BY_SELECTOR = {"alpha.jobset.sigs.k8s.io/node-selector": "true"}


@pytest.mark.parametrize(
    ("of_jobset", "of_job", "expected"),
    [
        ({}, {}, 4),
        (EXCLUSIVE, {}, 1),
        ({}, EXCLUSIVE, 1),
        (EXCLUSIVE, EXCLUSIVE, 1),
        ({}, {**EXCLUSIVE, "kai.scheduler/batch-min-member": "4"}, 1),
        ({**EXCLUSIVE, **BY_SELECTOR}, {}, 4),
        ({}, {**EXCLUSIVE, **BY_SELECTOR}, 4),
        ({**EXCLUSIVE, **BY_SELECTOR}, EXCLUSIVE, 4),
        (EXCLUSIVE, BY_SELECTOR, 1),
    ],
)
def test_of_a_job_in_an_exclusive_domain_the_leader_starts_first(of_jobset: Any, of_job: Any, expected: int) -> None:
    spec = {"parallelism": 4, "template": TEMPLATE}
    job = {"name": "a", "replicas": 2, "template": {"metadata": {"annotations": of_job}, "spec": spec}}
    top = jobset(replicatedJobs=[job])
    top["metadata"]["annotations"] = of_jobset
    made = group(*chained(job_pod("a"), JOB, top))
    assert isinstance(made, Group)
    assert parts(made) == {"a": "2 parts", "a-replica-0": expected, "a-replica-1": expected}


IN_RACK = {"kai.scheduler/segment-topology-required-placement": "rack"}
NEAR_A_RACK = {"kai.scheduler/segment-topology-preferred-placement": "rack"}
OF_HALL, OF_ROOM = {"kai.scheduler/topology": "hall"}, {"kai.scheduler/topology": "room"}
NOWHERE: dict[str, str] = {}
#: Annotations of the pod, of the template of the workers and of the workload -> Topology and levels of each segment.
SEGMENT_TOPOLOGIES = [
    pytest.param(NOWHERE, {**OF_HALL, **IN_RACK}, NOWHERE, ("hall", "rack", ""), id="all on the template"),
    pytest.param(NOWHERE, IN_RACK, OF_HALL, ("hall", "rack", ""), id="the Topology on the workload"),
    pytest.param(NOWHERE, NEAR_A_RACK, OF_HALL, ("hall", "", "rack"), id="a preferred level"),
    pytest.param(NOWHERE, {**OF_HALL, **IN_RACK}, OF_ROOM, ("hall", "rack", ""), id="the template before the workload"),
    pytest.param(OF_ROOM, {**OF_HALL, **IN_RACK}, OF_HALL, ("room", "rack", ""), id="the pod before the template"),
    pytest.param({**OF_ROOM, **IN_RACK}, NOWHERE, NOWHERE, ("room", "rack", ""), id="all on the pod"),
    pytest.param(NOWHERE, NOWHERE, {**OF_HALL, **IN_RACK}, ("hall", "rack", ""), id="all on the workload"),
    pytest.param(NOWHERE, IN_RACK, NOWHERE, None, id="no Topology"),
    pytest.param(NOWHERE, OF_HALL, NOWHERE, None, id="no level"),
]


def of_segments(bottom: dict[str, Any], owners: list[dict[str, Any]]) -> dict[str, Any]:
    """What each part asks for."""
    made = group(*chained(bottom, *owners))
    assert isinstance(made, Group)
    found = {each.name: each.topology_constraint for each in made.pod_group.spec.sub_groups or ()}
    return {
        name: each and (each.topology, each.required_topology_level, each.preferred_topology_level)
        for name, each in found.items()
    }


@pytest.mark.parametrize(("of_pod", "of_template", "of_workload", "expected"), SEGMENT_TOPOLOGIES)
def test_each_segment_of_a_leader_worker_set_asks_for_its_topology(
    of_pod: Any, of_template: Any, of_workload: Any, expected: Any
) -> None:
    workers = {"metadata": {"annotations": of_template}, **TEMPLATE}
    policy = {"subGroupSize": 4, "subGroupPolicyType": "LeaderExcluded"}
    top = lws(9, subGroupPolicy=policy, workerTemplate=workers)
    bottom = lws_pod(5)
    top["metadata"]["annotations"], bottom["metadata"]["annotations"] = of_workload, of_pod
    found = of_segments(bottom, [SET, top])
    assert found == {"leader": None, "segment-0": expected, "segment-1": expected}


@pytest.mark.parametrize(("of_pod", "of_template", "of_workload", "expected"), SEGMENT_TOPOLOGIES)
def test_each_segment_of_a_pytorch_job_asks_for_its_topology(
    of_pod: Any, of_template: Any, of_workload: Any, expected: Any
) -> None:
    top = kubeflow("PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=8)
    worker = top["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["template"] = {"metadata": {"annotations": {**SEGMENTS, **of_template}}, **TEMPLATE}
    top["metadata"]["annotations"] = of_workload
    bottom = {**WORKER, "metadata": {**WORKER["metadata"], "annotations": of_pod}}
    found = of_segments(bottom, [top])
    assert found == {"master": None, "worker": None, "worker-0": expected, "worker-1": expected}


def grove() -> tuple[dict[str, Any], dict[str, Any], Read]:
    clique = obj("grove.io/v1alpha1", "PodClique", "clique")
    top = obj("grove.io/v1alpha1", "PodCliqueSet", "pcs")
    bottom, read = chained(pod(name="w-0", labels={gangs.GROVE_POD_GANG: "gang"}), clique, top)
    references = [{"name": "w-0", "namespace": NAMESPACE}]
    spec = {
        "podgroups": [
            {"name": "leader", "minReplicas": 1, "podReferences": []},
            {"name": "worker", "minReplicas": 3, "podReferences": references},
        ],
        "topologyConstraintGroupConfigs": [{"name": "both", "podGroupNames": ["leader", "worker"]}],
        "priorityClassName": "urgent",
    }
    gang = obj("scheduler.grove.io/v1alpha1", "PodGang", "gang", spec=spec)
    return bottom, gang, read


@pytest.mark.parametrize(
    ("asked", "spec", "expected"),
    [
        ({}, {}, 1),
        ({}, {"parallelism": 4}, 4),
        ({}, {"parallelism": 4, "completions": 5}, 4),
        ({}, {"parallelism": 4, "completions": 2}, 2),
        ({}, {"completions": 2}, 1),
        ({}, {"parallelism": 4, "completions": 0}, 0),
        ({}, {"parallelism": 0, "completions": 2}, 0),
        ({"kai.scheduler/batch-min-member": "2"}, {"parallelism": 4}, 2),
        ({"kai.scheduler/batch-min-member": "4"}, {"parallelism": 4, "completions": 2}, 2),
        ({"kai.scheduler/batch-min-member": "4"}, {"parallelism": 2}, 2),
    ],
)
def test_a_job_of_a_jobset_waits_for_no_more_pods_than_kubernetes_makes(asked: Any, spec: Any, expected: int) -> None:
    job = {"name": "a", "template": {"metadata": {"annotations": asked}, "spec": {"template": TEMPLATE, **spec}}}
    made = group(*chained(job_pod("a"), JOB, jobset(replicatedJobs=[job])))
    assert isinstance(made, Group)
    assert parts(made)["a-replica-0"] == expected


@pytest.mark.parametrize(
    ("kind", "spec", "status", "expected"),
    [
        (("batch/v1", "Job"), {"parallelism": 8}, {}, 4),
        (("batch/v1", "Job"), {"parallelism": 8, "completions": 8}, {}, 4),
        (("batch/v1", "Job"), {"parallelism": 2}, {}, 2),
        (("batch/v1", "Job"), {"parallelism": 8, "completions": 3}, {}, 3),
        (("batch/v1", "Job"), {"parallelism": 8, "completions": 8}, {"succeeded": 7}, 1),
        (("batch/v1", "Job"), {"parallelism": 8, "completions": 8}, {"succeeded": 9}, 1),
        (("batch/v1", "Job"), {"parallelism": 1, "suspend": True}, {}, 4),
        (("batch/v1", "Job"), {"completions": 8}, {}, 1),
        (("apps/v1", "ReplicaSet"), {"replicas": 2}, {}, 2),
        (("apps/v1", "ReplicaSet"), {}, {}, 1),
        (("apps/v1", "StatefulSet"), {"podManagementPolicy": "Parallel"}, {}, 1),
        (("apps/v1", "StatefulSet"), {"replicas": 2, "podManagementPolicy": "Parallel"}, {}, 2),
        (("apps/v1", "StatefulSet"), {"replicas": 0, "podManagementPolicy": "Parallel"}, {}, 1),
        (("example.com/v1", "Batch"), {"replicas": 2}, {}, 4),
    ],
)
def test_a_workload_waits_for_no_more_pods_than_its_controller_makes(
    kind: tuple[str, str], spec: Any, status: Any, expected: int
) -> None:
    owner = obj(*kind, "w", spec=spec, annotations={"kai.scheduler/batch-min-member": "4"})
    bottom, read = chained(pod(), {**owner, "status": status})
    kept = {uid: projection.owner_as_read(each) for uid, each in read.owners.items() if isinstance(each, dict)}
    made = group(bottom, msgspec.structs.replace(read, owners=kept))
    assert isinstance(made, Group)
    assert made.pod_group.spec.min_member == expected
    assert not pod_group_record(made.pod_group).unsupported


def test_a_minimum_of_an_owner_above_a_job_is_no_more_than_its_pods() -> None:
    above = obj("batch/v1", "CronJob", "c", annotations={"kai.scheduler/batch-min-member": "4"})
    bottom, read = chained(pod(), obj("batch/v1", "Job", "j", spec={"parallelism": 2}), above)
    kept = {uid: projection.owner_as_read(each) for uid, each in read.owners.items() if isinstance(each, dict)}
    made = group(bottom, msgspec.structs.replace(read, owners=kept))
    assert isinstance(made, Group)
    assert made.pod_group.spec.min_member == 2


def test_a_minimum_of_a_deployment_keeps_none_of_its_pods_waiting() -> None:
    deployment = obj("apps/v1", "Deployment", "d", annotations={"kai.scheduler/batch-min-member": "4"})
    made = group(*chained(pod(), obj("apps/v1", "ReplicaSet", "r"), deployment))
    assert isinstance(made, Group)
    assert not pod_group_record(made.pod_group).unsupported


@pytest.mark.parametrize(("succeeded", "expected"), [(None, 4), (0, 4), (6, 4), (8, 2), (11, 0)])
def test_a_job_of_a_jobset_waits_for_no_more_pods_than_it_has_left(succeeded: int | None, expected: int) -> None:
    job = {"name": "a", "replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 10}}}
    of_pod = {**JOB, "status": {"succeeded": succeeded}}
    made = group(*chained(job_pod("a"), of_pod, jobset(replicatedJobs=[job])))
    assert isinstance(made, Group)
    assert parts(made) == {"a": "2 parts", "a-replica-0": expected, "a-replica-1": 4}, (
        "of the other Job nothing is known"
    )


def test_grove_is_grouped_by_its_pod_gang() -> None:
    bottom, gang, read = grove()
    made = group(bottom, msgspec.structs.replace(read, named={("scheduler.grove.io", "PodGang", "gang"): gang}))
    assert isinstance(made, Group)
    assert made.pod_group.metadata.name == "pg-gang-podgang-gang"
    assert made.pod_group.spec.min_sub_group == 1
    assert parts(made) == {"both": "2 parts", "leader": 1, "worker": 3}
    assert [each.parent for each in made.pod_group.spec.sub_groups or ()] == [None, "both", "both"]
    assert made.part == "worker"
    assert made.pod_group.spec.priority_class_name == "urgent"


def test_a_pod_gang_of_another_namespace_is_refused() -> None:
    bottom, gang, read = grove()
    gang["spec"]["podgroups"][1]["podReferences"][0]["namespace"] = "other"
    made = group(bottom, msgspec.structs.replace(read, named={("scheduler.grove.io", "PodGang", "gang"): gang}))
    assert isinstance(made, Refusal)
    assert (made.field, made.value) == ("spec.podgroups[1].podReferences[0].namespace", "'other'")


def test_every_row_of_the_table_has_a_row_here() -> None:
    tested = {each["kind"] for _, bottom, owners, _ in ROWS for each in (bottom, *owners)} | {"PodCliqueSet"}
    # The older name of a PodCliqueSet, with the same rule.
    assert {row.kind for row in KINDS} - {"PodGangSet"} <= tested


@pytest.mark.parametrize("owners", [[], [REPLICAS], [SET], [REPLICAS, obj("apps/v1", "Deployment", "d")]])
def test_pods_that_say_all_of_it_themselves_need_no_object(owners: list[dict[str, Any]]) -> None:
    assert group(*chained(pod(**QUEUED), *owners)) == Nothing(Why.ALONE)
    assert group(*chained(PLAIN, *owners)) == Nothing(Why.ALONE)


@pytest.mark.parametrize(
    ("owner", "priority"),
    [
        (obj("batch/v1", "Job", "j"), "train"),
        (obj("kubeflow.org/v1beta1", "Notebook", "n"), "build"),
        (obj("egx.nvidia.io/v1", "SPOTRequest", "s"), "inference"),
        (obj("apps/v1", "Deployment", "d", **QUEUED), "inference"),
        (ray_cluster(labels={"ray.io/priority-class-name": "rays", "priorityClassName": "other"}), "rays"),
    ],
)
def test_priority_follows_from_the_kind(owner: dict[str, Any], priority: str) -> None:
    made = group(*chained(PLAIN, owner))
    assert isinstance(made, Group)
    assert made.pod_group.spec.priority_class_name == priority


@pytest.mark.parametrize("least", [{}, least_available(5)], ids=["all", "minAvailable"])
@pytest.mark.parametrize("exists", [True, False])
def test_an_mpi_job_that_waits_for_its_workers_counts_the_launcher_once_it_exists(
    exists: bool, least: dict[str, Any]
) -> None:
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", **least}
    job = kubeflow("MPIJob", "mpiReplicaSpecs", "v2beta1", spec, Launcher=1, Worker=4)
    launcher = ("batch", "Job", "job-launcher")
    bottom, read = chained(WORKER, job)
    found = msgspec.structs.replace(read, named={launcher: JOB if exists else Absent.NOT_FOUND})
    made = group(bottom, found)
    assert isinstance(made, Group)
    assert made.pod_group.spec.min_member == (5 if exists else 4)
    unread = group(bottom, read)
    assert isinstance(unread, Refusal)
    assert unread.needed is not None
    assert unread.needed.name == "job-launcher"
    by_launcher = group(*chained(PLAIN, JOB, job))
    assert isinstance(by_launcher, Group)
    assert by_launcher.pod_group.spec.min_member == 5


@pytest.mark.parametrize(
    ("bottom", "owner", "field"),
    [
        (PLAIN, kubeflow("TFJob", "tfReplicaSpecs", Worker=0), "spec.tfReplicaSpecs.Worker.replicas"),
        (PLAIN, kubeflow("TFJob", "tfReplicaSpecs"), "spec.tfReplicaSpecs"),
        (PLAIN, kubeflow("MPIJob", "mpiReplicaSpecs", Worker=2), "spec.mpiReplicaSpecs"),
        (PLAIN, obj("kubeflow.org/v1", "TFJob", "t", spec={"tfReplicaSpecs": ["x"]}), "spec.tfReplicaSpecs"),
        (PLAIN, jobset(replicatedJobs=[{"name": "a", "replicas": 10**9}]), "subGroups"),
        (PLAIN, jobset(replicatedJobs=[{"name": "a", "replicas": "2"}]), "spec.replicatedJobs[0].replicas"),
        (PLAIN, jobset(replicatedJobs=[{"name": "a"}, {"name": "a"}]), "subGroups.name"),
        (
            PLAIN,
            jobset(replicatedJobs=[{"name": "a", "template": {"spec": {"completions": "2"}}}]),
            "spec.replicatedJobs[0].template.spec.completions",
        ),
        (PLAIN, jobset(replicatedJobs=[{"name": "A"}]), "subGroups.name"),
        (PLAIN, jobset(replicatedJobs=[{"name": "a", "dependsOn": ["b"]}]), "spec.replicatedJobs[0].dependsOn"),
        (
            PLAIN,
            obj("batch.volcano.sh/v1alpha1", "Job", "v", spec={"tasks": [{"name": "a", "dependsOn": {"name": "b"}}]}),
            "spec.tasks[0].dependsOn.name",
        ),
        (PLAIN, lws(), f"metadata.labels[{gangs.LWS_GROUP_INDEX}]"),
        (
            lws_pod(0),
            lws(4, subGroupPolicy={"subGroupSize": 5}),
            "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize",
        ),
        (
            pod(annotations={"kai.scheduler/segment-size": "0"}),
            kubeflow("PyTorchJob", "pytorchReplicaSpecs", Worker=2),
            "metadata.annotations[kai.scheduler/segment-size]",
        ),
        (
            PLAIN,
            obj("ray.io/v1", "RayJob", "r", spec={"rayClusterSpec": {"workerGroupSpecs": [{"replicas": -1}]}}),
            "spec.rayClusterSpec.workerGroupSpecs[0].replicas",
        ),
        (
            PLAIN,
            obj("batch/v1", "Job", "j", annotations={"kai.scheduler/batch-min-member": "-1"}),
            "metadata.annotations[kai.scheduler/batch-min-member]",
        ),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_its_field(
    bottom: dict[str, Any], owner: dict[str, Any], field: str
) -> None:
    made = group(*chained(bottom, owner))
    assert isinstance(made, Refusal)
    assert made.field == field
