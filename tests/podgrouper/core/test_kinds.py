"""One row of a table for each kind of kai-contract 3.2."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podgrouper.core.answers import Group, Nothing, Refusal, Why
from podgrouper.core.grouping import group
from podgrouper.core.kinds import KINDS
from podgrouper.core.owner_chain import Absent, Read
from tests.podgrouper.objects import NAMESPACE, chained, obj, pod
from wire import gangs

TRAINING = "training.kubeflow.org"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "work"}]}}


def kubeflow(kind: str, field: str, version: str = "v1", more: Any = None, **roles: int) -> dict[str, Any]:
    specs = {role: {"replicas": count, "template": TEMPLATE} for role, count in roles.items()}
    return obj(f"kubeflow.org/{version}", kind, "job", spec={field: specs, **(more or {})})


def ray_cluster(api: str = "v1", **more: Any) -> dict[str, Any]:
    groups = [
        {"groupName": "small", "replicas": 4, "minReplicas": 2, "template": TEMPLATE},
        {"groupName": "hosts", "replicas": 2, "minReplicas": 0, "numOfHosts": 4, "template": TEMPLATE},
        {"groupName": "none", "replicas": 0, "template": TEMPLATE},
    ]
    spec = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": groups}
    return obj(f"ray.io/{api}", "RayCluster", "rays", spec=spec, **more)


def jobset(**more: Any) -> dict[str, Any]:
    job = {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 4, "template": TEMPLATE}}}
    leader = {"name": "leader", "template": {"spec": {"template": TEMPLATE}}}
    return obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": [leader, job], **more})


def lws(size: int = 4, more: Any = None, **template: Any) -> dict[str, Any]:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": size, "workerTemplate": TEMPLATE, **template}}
    return obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", spec={**spec, **(more or {})})


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
JOBSET_POD = pod(labels={gangs.JOBSET_REPLICATED_JOB: "workers", gangs.JOBSET_JOB_INDEX: "1"})
SPARK = {gangs.SPARK_APP_NAME: "pi", gangs.SPARK_APP_SELECTOR: "spark-1f2e"}
RAYS = {"headgroup": 1, "small": 2, "hosts": 8}
SEGMENTS = {"kai.scheduler/segment-size": "4"}

#: (pod, its owners from the direct one up) -> name of the PodGroup, minimum, parts, part of the pod.
ROWS: list[tuple[str, dict[str, Any], list[dict[str, Any]], tuple[str, Any, dict[str, Any], str]]] = [
    ("spark driver", pod(labels=SPARK), [], ("spark-1f2e", 1, {}, "")),
    ("spark executor", pod(labels=SPARK), [pod(name="driver", labels=SPARK)], ("spark-1f2e", 1, {}, "")),
    ("Deployment", PLAIN, [REPLICAS, obj("apps/v1", "Deployment", "d", **QUEUED)], ("pg-p-pod-p", 1, {}, "")),
    ("ReplicaSet", PLAIN, [obj("apps/v1", "ReplicaSet", "r", **QUEUED)], ("pg-r-replicaset-r", 1, {}, "")),
    ("StatefulSet", PLAIN, [obj("apps/v1", "StatefulSet", "s", **QUEUED)], ("pg-s-statefulset-s", 1, {}, "")),
    ("Job", PLAIN, [JOB], ("pg-inner-job-inner", 1, {}, "")),
    (
        "Job with a minimum",
        PLAIN,
        [obj("batch/v1", "Job", "j", annotations={"kai.scheduler/batch-min-member": "5"})],
        ("pg-j-job-j", 5, {}, ""),
    ),
    ("CronJob", PLAIN, [JOB, obj("batch/v1", "CronJob", "c")], ("pg-inner-job-inner", 1, {}, "")),
    (
        "TFJob",
        PLAIN,
        [kubeflow("TFJob", "tfReplicaSpecs", Chief=1, PS=2, Worker=4)],
        ("pg-job-tfjob-job", 7, {}, ""),
    ),
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
        [kubeflow("TFJob", "tfReplicaSpecs", more={"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}}, Worker=9)],
        ("pg-job-tfjob-job", 3, {}, ""),
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
        (
            "pg-job-pytorchjob-job",
            8,
            {"master": 1, "worker": "2 parts", "worker-0": 4, "worker-1": 3},
            "worker-1",
        ),
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
    ("RayCluster v1alpha1", RAY_POD, [ray_cluster("v1alpha1")], ("pg-rays-raycluster-rays", 11, RAYS, "small")),
    ("RayJob", RAY_POD, [ray_cluster(), obj("ray.io/v1", "RayJob", "j")], ("pg-j-rayjob-j", 11, RAYS, "small")),
    (
        "submitter of a RayJob",
        PLAIN,
        [JOB, obj("ray.io/v1", "RayJob", "j", spec={"rayClusterSpec": ray_cluster()["spec"]})],
        ("pg-j-rayjob-j", 11, RAYS, ""),
    ),
    (
        "RayService",
        RAY_POD,
        [ray_cluster(), obj("ray.io/v1", "RayService", "s")],
        ("pg-s-rayservice-s", 11, RAYS, "small"),
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
        ("pg-lws-leaderworkerset-lws-group-1", 1, {}, ""),
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
    (
        "Argo Workflow",
        PLAIN,
        [obj("argoproj.io/v1alpha1", "Workflow", "w", **QUEUED)],
        ("pg-p-pod-p", 1, {}, ""),
    ),
    ("PipelineRun", PLAIN, [obj("tekton.dev/v1", "PipelineRun", "r")], ("pg-r-pipelinerun-r", 1, {}, "")),
    ("TaskRun", PLAIN, [obj("tekton.dev/v1", "TaskRun", "r")], ("pg-r-taskrun-r", 1, {}, "")),
    (
        "AppWrapper",
        PLAIN,
        [
            kubeflow("JAXJob", "jaxReplicaSpecs", Worker=3),
            obj("workload.codeflare.dev/v1beta2", "AppWrapper", "a"),
        ],
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


@pytest.mark.parametrize("exists", [True, False])
def test_an_mpi_job_that_waits_for_its_workers_counts_the_launcher_once_it_exists(exists: bool) -> None:
    job = kubeflow(
        "MPIJob", "mpiReplicaSpecs", "v2beta1", {"launcherCreationPolicy": "WaitForWorkersReady"}, Launcher=1, Worker=4
    )
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
        (PLAIN, jobset(replicatedJobs=[{"name": "A"}]), "subGroups.name"),
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
