"""Which pods the controllers of other projects make, with their names, labels, owners and PodGroups."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import JOBS, POD_GROUPS, PODS
from scheduler.core.convert.pod_groups import pod_group_record
from simulator.controllers.jobs import INDEX, of_cron_job, owned
from simulator.controllers.kubernetes import Expander
from simulator.controllers.pods import MOST_PODS, Malformed, Template
from simulator.controllers.registry import Workload, expand, is_known
from simulator.manifests import MalformedManifest, Reader
from wire import gangs, names

TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


def workload(api_version: str, kind: str, spec: Any, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w", **meta}, "spec": spec}


def kubeflow(kind: str, field: str, version: str = "v1", **roles: Any) -> dict[str, Any]:
    specs = {role: {"template": TEMPLATE, **({} if n is None else {"replicas": n})} for role, n in roles.items()}
    return workload(f"kubeflow.org/{version}", kind, {field: specs})


def rays(**group: Any) -> dict[str, Any]:
    worker = {"groupName": "small", "template": TEMPLATE, **group}
    return {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [worker]}


def replicated(**more: Any) -> dict[str, Any]:
    return {"name": "j", "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}, **more}


def lws(**template: Any) -> dict[str, Any]:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE, **template}}
    return workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def volcano(**spec: Any) -> dict[str, Any]:
    tasks = [{"name": "ps", "replicas": 1, "template": TEMPLATE}, {"replicas": 2, "template": TEMPLATE}]
    return workload("batch.volcano.sh/v1alpha1", "Job", {"tasks": tasks, **spec})


def spark(**spec: Any) -> dict[str, Any]:
    return workload("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"image": "x", **spec})


def argo(entry: Any, **spec: Any) -> dict[str, Any]:
    work = {"name": "work", "container": {"image": "x"}}
    return workload(
        "argoproj.io/v1alpha1",
        "Workflow",
        {"entrypoint": "main", "templates": [{"name": "main", **entry}, work], **spec},
    )


def made(obj: dict[str, Any]) -> Workload:
    return expand(obj, "team", Expander().charge)


def pods(of: Workload) -> list[dict[str, Any]]:
    return [dict(each.body) for each in of.made() if each.resource is PODS]


def called(of: Workload) -> list[str]:
    return [pod["metadata"].get("name") or pod["metadata"]["generateName"] for pod in pods(of)]


@pytest.mark.parametrize(
    ("obj", "expected", "minimums"),
    [
        (
            kubeflow("PyTorchJob", "pytorchReplicaSpecs", Master=None, Worker=2),
            ["w-master-0", "w-worker-0", "w-worker-1"],
            [3],
        ),
        (kubeflow("TFJob", "tfReplicaSpecs", Chief=1, PS=2), ["w-chief-0", "w-ps-0", "w-ps-1"], [3]),
        (kubeflow("MPIJob", "mpiReplicaSpecs", Launcher=1, Worker=1), ["w-launcher-0", "w-worker-0"], [2]),
        (kubeflow("MPIJob", "mpiReplicaSpecs", "v2beta1", Launcher=1, Worker=1), ["w-launcher-", "w-worker-0"], [2]),
        (
            workload("ray.io/v1", "RayCluster", rays(replicas=1, numOfHosts=2)),
            ["w-head", "w-small-worker-", "w-small-worker-"],
            [3],
        ),
        (workload("ray.io/v1", "RayCluster", rays(minReplicas=2)), ["w-head", *["w-small-worker-"] * 2], [3]),
        (workload("ray.io/v1", "RayCluster", rays(replicas=9, maxReplicas=1)), ["w-head", "w-small-worker-"], [2]),
        (workload("ray.io/v1", "RayCluster", {**rays(replicas=9), "suspend": True}), [], []),
        (
            workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [replicated(replicas=2)]}),
            ["w-j-0-0-", "w-j-0-1-", "w-j-1-0-", "w-j-1-1-"],
            [4],
        ),
        (workload("jobset.x-k8s.io/v1", "JobSet", {"replicatedJobs": [replicated()]}), ["w-j-0-0-", "w-j-0-1-"], [2]),
        (workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [replicated()], "suspend": True}), [], []),
        (lws(), ["w-0", "w-0-1", "w-1", "w-1-1"], [2, 2]),
        (volcano(), ["w-ps-0", "w-default1-0", "w-default1-1"], [3]),
        (volcano(minAvailable=2), ["w-ps-0", "w-default1-0", "w-default1-1"], [2]),
        (
            kubeflow("MXJob", "mxReplicaSpecs", Scheduler=1, Worker=2),
            ["w-scheduler-0", "w-worker-0", "w-worker-1"],
            [1],
        ),
        (argo({"container": {"image": "x"}}), ["w"], []),
        (spark(executor={"instances": 2}), ["w-driver", "w-exec-1", "w-exec-2"], [1]),
        (spark(executor={"instances": 2}, suspend=True), [], []),
    ],
)
def test_a_workload_has_the_pods_that_its_controller_makes_and_their_pod_groups(
    obj: dict[str, Any], expected: list[str], minimums: list[int]
) -> None:
    assert is_known(obj["apiVersion"], obj["kind"])
    found = made(obj)
    assert called(found) == expected
    assert [pod_group_record(each).minimum for each in found.pod_groups] == minimums
    groups = {each.metadata.name for each in found.pod_groups}
    named = {(pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_NAME) for pod in pods(found)} - {None}
    assert named == groups


POD = TEMPLATE["spec"]
SERVED = {
    "model": {"modelFormat": {"name": "vllm"}, "resources": {"limits": {"nvidia.com/gpu": "1"}}},
    "minReplicas": 2,
}
SCALED = {**TEMPLATE, "metadata": {"annotations": {"autoscaling.knative.dev/min-scale": "3"}}}
TOO_LONG = {**TEMPLATE, "metadata": {"annotations": {"autoscaling.knative.dev/min-scale": "9" * 5000}}}
STORM = {"replicas": 2, "template": {"spec": {"roles": [{"name": "p", "replicas": 3, "template": TEMPLATE}]}}}


@pytest.mark.parametrize(
    ("obj", "names_of", "minimums"),
    [
        (workload("kubeflow.org/v1", "Notebook", {"template": TEMPLATE}), ["w-0"], [1]),
        (workload("kubeflow.org/v1beta1", "Notebook", {"template": TEMPLATE}), ["w-0"], [1]),
        (workload("argoproj.io/v1alpha1", "Rollout", {"replicas": 2, "template": TEMPLATE}), ["w-"] * 2, []),
        (workload("argoproj.io/v1alpha1", "Rollout", {"replicas": 2, "workloadRef": {"name": "d"}}), [], []),
        (
            workload(
                "kubeflow.org/v1",
                "Notebook",
                {"template": TEMPLATE},
                annotations={"kubeflow-resource-stopped": "2026-01-01T00:00:00Z"},
            ),
            [],
            [],
        ),
        (workload("apps.kruise.io/v1alpha1", "CloneSet", {"replicas": 2, "template": TEMPLATE}), ["w-"] * 2, []),
        (workload("serving.knative.dev/v1", "Service", {"template": TEMPLATE}), ["w-"], [1]),
        (workload("serving.knative.dev/v1", "Service", {"template": SCALED}), ["w-"] * 3, [3]),
        (workload("serving.knative.dev/v1", "Service", {"template": TOO_LONG}), ["w-"], []),
        (workload("serving.kserve.io/v1beta1", "InferenceService", {"predictor": SERVED}), ["w-predictor-"] * 2, []),
        (
            workload("serving.kserve.io/v1beta1", "InferenceService", {"predictor": POD, "transformer": POD}),
            ["w-predictor-", "w-transformer-"],
            [],
        ),
        (
            workload(
                "serving.kserve.io/v1alpha1", "LLMInferenceService", {"template": POD, "prefill": {"template": POD}}
            ),
            ["w-", "w-prefill-"],
            [],
        ),
        (workload("orchestration.aibrix.ai/v1alpha1", "StormService", STORM), ["w-p-"] * 6, []),
    ],
)
def test_a_kind_with_templates_is_expanded_by_its_row_of_the_table_of_kinds(
    obj: dict[str, Any], names_of: list[str], minimums: list[int]
) -> None:
    found = made(obj)
    pods = [each.made.body for each in found.members]
    assert [pod["metadata"].get("name") or pod["metadata"]["generateName"] for pod in pods] == names_of
    assert [group.spec.min_member for group in found.pod_groups] == minimums
    assert all(pod["spec"]["containers"][0]["name"] for pod in pods)


def test_the_model_of_an_inference_service_is_its_main_container() -> None:
    (pod, _) = made(workload("serving.kserve.io/v1beta1", "InferenceService", {"predictor": SERVED})).members
    (container,) = pod.made.body["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert "model" not in pod.made.body["spec"]


@pytest.mark.parametrize(
    ("obj", "labels"),
    [
        # The controller takes no metadata of a Notebook's template.
        (workload("kubeflow.org/v1", "Notebook", {"template": TEMPLATE}, labels={"q": "own"}), {"q": "own"}),
        (
            workload("serving.kserve.io/v1alpha1", "LLMInferenceService", {"template": POD, "labels": {"q": "own"}}),
            {"q": "own"},
        ),
    ],
)
def test_pods_have_the_labels_that_their_controller_copies(obj: dict[str, Any], labels: dict[str, str]) -> None:
    (pod,) = made(obj).members
    assert pod.made.body["metadata"]["labels"] == labels


def test_pods_of_an_inference_service_have_its_labels_and_those_of_their_part() -> None:
    part = {**SERVED, "labels": {"a": "part"}, "annotations": {"c": "part"}, "containers": [{"name": "proxy"}]}
    service = workload("serving.kserve.io/v1beta1", "InferenceService", {"predictor": part})
    service["metadata"] |= {"labels": {"a": "all", "b": "all"}}
    meta = (pod := made(service).members[0].made.body)["metadata"]
    assert (meta["labels"], meta["annotations"]) == ({"a": "part", "b": "all"}, {"c": "part"})
    assert [each["name"] for each in pod["spec"]["containers"]] == ["main", "proxy"]


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (
            workload("argoproj.io/v1alpha1", "Rollout", {"replicas": -1, "template": TEMPLATE}),
            "spec.replicas is -1; a number of 0 or more is allowed",
        ),
        (workload("argoproj.io/v1alpha1", "Rollout", {}), "spec.template has to be a pod template"),
        (
            workload(
                "orchestration.aibrix.ai/v1alpha1",
                "StormService",
                {"template": {"spec": {"roles": [{"name": "p", "replicas": "3", "template": TEMPLATE}]}}},
            ),
            "spec.template.spec.roles[0].replicas is '3'; a number of 0 or more is allowed",
        ),
    ],
)
def test_what_a_row_of_the_table_cannot_read_is_refused_with_its_field(obj: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed) as caught:
        made(obj)
    assert str(caught.value).startswith(message)


def test_a_ray_job_makes_a_cluster_and_is_the_owner_of_its_group() -> None:
    found = made(workload("ray.io/v1", "RayJob", {"rayClusterSpec": rays(replicas=1)}))
    head, worker = pods(found)
    cluster = head["metadata"]["ownerReferences"][0]
    assert cluster["kind"] == "RayCluster"
    assert head["metadata"]["labels"][gangs.RAY_CLUSTER] == cluster["name"] != "w"
    assert worker["metadata"]["labels"][names.SUBGROUP_LABEL] == "small"
    (group,) = found.pod_groups
    assert group.metadata.name.startswith("pg-w-")


def test_a_ray_job_that_uses_another_cluster_makes_none() -> None:
    assert called(made(workload("ray.io/v1", "RayJob", {"clusterSelector": {"ray.io/cluster": "other"}}))) == []


def test_a_job_set_makes_its_jobs_before_their_pods() -> None:
    found = list(made(workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [replicated()]})).made())
    assert [each.resource for each in found] == [POD_GROUPS, JOBS, PODS, PODS]
    assert found[1].body["spec"]["completionMode"] == "Indexed"
    assert [each.job for each in found[2:]] == ["w-j-0", "w-j-0"]
    labels = found[2].body["metadata"]["labels"]
    assert (labels[gangs.JOBSET_NAME], labels[gangs.JOBSET_REPLICATED_JOB]) == ("w", "j")
    assert labels[names.SUBGROUP_LABEL] == "j-replica-0"
    assert labels["app"] == "a"


def test_the_groups_of_a_leader_worker_set_are_pod_groups_of_their_own() -> None:
    other = {**TEMPLATE, "metadata": {"labels": {"role": "leader"}}}
    found = made(lws(leaderTemplate=other))
    groups = [pod["metadata"]["annotations"][names.POD_GROUP_NAME] for pod in pods(found)]
    assert [group.rpartition("-")[2] for group in groups] == ["0", "0", "1", "1"]
    assert [pod["metadata"]["labels"][names.SUBGROUP_LABEL] for pod in pods(found)[:2]] == ["leader", "workers"]
    assert [pod["metadata"]["labels"].get("role") for pod in pods(found)[:2]] == ["leader", None]


def test_pods_of_spark_ask_for_what_is_written_and_the_overhead_that_spark_adds() -> None:
    """Memory is Java's: 4g are 4 GiB. A tenth of it is added, 384 MiB at least, or what is written."""
    driver = {"cores": 2, "memory": "8g", "gpu": {"name": "nvidia.com/gpu", "quantity": 1}, "schedulerName": "s"}
    executor = {"coreRequest": "500m", "memory": "1g", "memoryOverhead": "512m", "labels": {"a": "b"}}
    first, second = pods(made(spark(driver=driver, executor=executor)))
    asked, less = (pod["spec"]["containers"][0]["resources"] for pod in (first, second))
    assert asked["requests"] == {"cpu": "2", "memory": str(8 * 1024**3 * 11 // 10)}
    assert asked["limits"]["nvidia.com/gpu"] == 1
    assert less["requests"] == {"cpu": "500m", "memory": str(1536 * 1024**2)}
    assert (first["spec"]["schedulerName"], second["metadata"]["labels"]["a"]) == ("s", "b")
    small = pods(made(spark(driver={"memory": "512m"})))[0]["spec"]["containers"][0]["resources"]
    assert small["requests"]["memory"] == str((512 + 384) * 1024**2)


def test_memory_that_spark_does_not_know_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(Malformed, match=r"spec\.driver\.memory is '1Gi'; a whole number with k, m, g or t"):
        made(spark(driver={"memory": "1Gi"}))


def test_a_volcano_job_that_names_no_scheduler_is_left_to_volcano() -> None:
    assert {pod["spec"]["schedulerName"] for pod in pods(made(volcano()))} == {"volcano"}
    assert {pod["spec"]["schedulerName"] for pod in pods(made(volcano(schedulerName="x")))} == {"x"}


@pytest.mark.parametrize(
    ("entry", "count"),
    [
        ({"steps": [[{"template": "work"}, {"template": "work"}], [{"template": "work"}]]}, 2),
        ({"steps": [[{"template": "work", "withItems": [1, 2, 3]}]]}, 3),
        ({"dag": {"tasks": [{"template": "work"}, {"template": "work", "dependencies": ["a"]}]}}, 1),
        ({"dag": {"tasks": [{"template": "work", "depends": "a"}]}}, 0),
        ({"steps": [[{"templateRef": {"name": "elsewhere"}}]]}, 0),
        ({"script": {"image": "x", "source": "true"}}, 1),
    ],
)
def test_a_workflow_begins_with_the_steps_that_wait_for_no_other(entry: dict[str, Any], count: int) -> None:
    assert len(pods(made(argo(entry)))) == count


def test_the_queue_of_a_workflow_is_that_of_its_pods() -> None:
    obj = argo({"container": {"image": "x"}})
    obj["metadata"]["labels"] = {names.QUEUE_LABEL: "team-a"}
    (group,) = made(obj).pod_groups
    assert (group.spec.queue, group.spec.min_member) == ("team-a", 1)


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (argo({"steps": [[{"template": "main"}]]}), "spec.templates call each other without end"),
        (argo({"steps": [[{"template": "work", "withItems": [0] * 20_000}]]}), "spec.templates call each other"),
        (kubeflow("TFJob", "tfReplicaSpecs", Worker=10**9), f"make {MOST_PODS} pods at most"),
        (kubeflow("TFJob", "tfReplicaSpecs", Worker="2"), "spec.tfReplicaSpecs.Worker.replicas is '2'"),
        (kubeflow("TFJob", "tfReplicaSpecs"), "spec.tfReplicaSpecs has to be a mapping of replica types"),
        (workload("ray.io/v1", "RayCluster", {}), "spec.headGroupSpec.template has to be a pod template"),
        (workload("ray.io/v1", "RayCluster", rays(replicas=10**6, numOfHosts=10**6)), "pods at most"),
        (workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": 3}]}), "replicatedJobs[0].name"),
        (
            workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [replicated(replicas=5000)]}),
            "10000 pods in 5001 parts; at most 1000000",
        ),
        (
            volcano(tasks=[{"replicas": 5000 if at == 0 else 0, "template": TEMPLATE} for at in range(300)]),
            "5000 pods in 300 parts",
        ),
        (lws(size=-1), "spec.leaderWorkerTemplate.size is -1"),
        (volcano(tasks="x"), "spec.tasks is 'x'; a list of objects is allowed"),
    ],
)
def test_what_cannot_be_expanded_is_refused_with_its_field(obj: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed) as caught:
        made(obj)
    assert message in str(caught.value)


def test_pods_that_name_their_pod_group_keep_it() -> None:
    template = {**TEMPLATE, "metadata": {"annotations": {names.POD_GROUP_NAME: "mine"}}}
    found = made(volcano(tasks=[{"name": "t", "template": template}]))
    assert found.pod_groups == []
    assert pods(found)[0]["metadata"]["annotations"] == {names.POD_GROUP_NAME: "mine"}


def test_a_workload_that_cannot_be_grouped_says_why() -> None:
    found = made(volcano(tasks=[{"name": "T", "template": TEMPLATE, "minAvailable": 1}]))
    assert "subGroups.name" in found.why
    assert len(pods(found)) == 1


# Objects that bring manifests along: an AppWrapper, and what runs Jobs and Workflows by a clock.

WRAPPERS_TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
WORKFLOW: dict[str, Any] = {"entrypoint": "a", "templates": [{"name": "a", "container": {"image": "x"}}]}
POD_TEXT = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}'
CREATES: dict[str, Any] = {
    "entrypoint": "a",
    "templates": [{"name": "a", "resource": {"action": "create", "manifest": POD_TEXT}}],
}
JOB: dict[str, Any] = {"tasks": [{"name": "t", "replicas": 2, "template": WRAPPERS_TEMPLATE}]}


def wrapper(*components: Any) -> dict[str, Any]:
    meta = {"name": "w", "namespace": "team"}
    spec = {"components": list(components)}
    return {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": meta, "spec": spec}


def cron(**spec: Any) -> dict[str, Any]:
    meta = {"name": "c", "namespace": "team"}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": meta, "spec": spec}


def cron_workflow(**spec: Any) -> dict[str, Any]:
    meta = {"name": "c", "namespace": "team"}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "CronWorkflow", "metadata": meta, "spec": spec}


def disaggregated(*roles: Any, **spec: Any) -> dict[str, Any]:
    meta = {"name": "d", "namespace": "team"}
    spec = {"roles": list(roles), **spec}
    return {"apiVersion": "disaggregatedset.x-k8s.io/v1", "kind": "DisaggregatedSet", "metadata": meta, "spec": spec}


def role(name: str, **spec: Any) -> dict[str, Any]:
    return {"name": name, "spec": {"leaderWorkerTemplate": {"size": 1, "workerTemplate": WRAPPERS_TEMPLATE}, **spec}}


def wrappers_made(obj: dict[str, Any]) -> list[tuple[str, str]]:
    found = Reader().read([obj], origin="f")
    return [(each.namespace, each.body["metadata"]["name"]) for each in found if each.resource is PODS]


def pod(**meta: Any) -> dict[str, Any]:
    return {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **meta}, **WRAPPERS_TEMPLATE}}


def scheduled_spark(**spec: Any) -> dict[str, Any]:
    meta = {"name": "s", "namespace": "team"}
    version = "sparkoperator.k8s.io/v1beta2"
    return {"apiVersion": version, "kind": "ScheduledSparkApplication", "metadata": meta, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (scheduled_spark(template={"image": "x"}), [("team", "s-0-driver"), ("team", "s-0-exec-1")]),
        (scheduled_spark(template={"image": "x"}, suspend=True), []),
        (wrapper(pod(), pod(name="q", namespace="other")), [("team", "p"), ("other", "q")]),
        (wrapper(), []),
        (cron(jobTemplate={"spec": JOB}), [("team", "c-0-t-0"), ("team", "c-0-t-1")]),
        (cron(jobTemplate={"spec": JOB}, suspend=True), []),
        (cron(template=JOB), [("team", "c-0-t-0"), ("team", "c-0-t-1")]),
        (wrapper({"template": wrapper(pod())}), []),
        (cron_workflow(schedules=["* * * * *"], workflowSpec=WORKFLOW), [("team", "c-0")]),
        (cron_workflow(workflowSpec=WORKFLOW, suspend=True), []),
        (cron_workflow(workflowSpec=CREATES), [("team", "p")]),
        (disaggregated(role("a", replicas=2), role("b")), [("team", "d-a-0"), ("team", "d-a-1"), ("team", "d-b-0")]),
        (disaggregated(role("a"), slices=2), [("team", "d-0-a-0"), ("team", "d-1-a-0")]),
    ],
)
def test_what_the_controller_creates_is_read_in_the_namespace_of_the_wrapper(
    obj: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert wrappers_made(obj) == expected


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (wrapper("x"), r"AppWrapper: spec.components is \['x'\]; a list of objects with a template"),
        (cron(jobTemplate="x"), "CronJob: spec.jobTemplate is 'x'; an object is allowed"),
        (disaggregated(role("")), r"DisaggregatedSet: spec.roles\[0\].name is ''; a name is allowed"),
        (
            disaggregated(role("a"), role("b"), slices=10**9),
            "DisaggregatedSet: spec.slices is 1000000000 with 2 roles; 10000 as a product are allowed",
        ),
        (cron_workflow(workflowSpec="x"), "CronWorkflow: spec.workflowSpec is 'x'; an object is allowed"),
    ],
)
def test_a_wrapper_that_holds_no_manifest_is_refused_with_what_is_allowed(obj: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedManifest, match=message):
        wrappers_made(obj)


JOB_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {"name": "main", "image": "work", "env": [{"name": "A", "value": "b"}]},
            {"name": "own", "image": "work", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]},
        ],
    },
}


def job(**spec: Any) -> dict[str, Any]:
    meta = {"name": "train", "annotations": {"kai.scheduler/batch-min-member": "2"}}
    return {"kind": "Job", "metadata": meta, "spec": {"template": JOB_TEMPLATE, **spec}}


def test_a_job_comes_before_its_pods_with_its_annotations() -> None:
    first, second = Expander().expand(job())
    assert first.resource is JOBS
    assert first.body["metadata"]["annotations"] == {"kai.scheduler/batch-min-member": "2"}
    assert second.job == "train"
    assert "annotations" not in second.body["metadata"]


def test_a_pod_of_a_job_has_its_names_and_once_it_is_known_its_uid() -> None:
    pod = owned(Expander().expand(job())[1].body, "uid-1")
    assert pod["metadata"]["labels"] == {
        "app": "a",
        "batch.kubernetes.io/job-name": "train",
        "job-name": "train",
        "batch.kubernetes.io/controller-uid": "uid-1",
        "controller-uid": "uid-1",
    }
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": "uid-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_a_pod_of_an_indexed_job_knows_its_index() -> None:
    pod = Expander().expand(job(completions=3, parallelism=3, completionMode="Indexed"))[2].body
    assert pod["metadata"]["annotations"] == {INDEX: "1"}
    assert pod["metadata"]["labels"][INDEX] == "1"
    assert pod["spec"]["hostname"] == "train-1"
    main, own = pod["spec"]["containers"]
    path = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    added = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    assert main["env"] == [{"name": "A", "value": "b"}, added]
    assert own["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]
    assert "initContainers" not in pod["spec"]


def test_a_cron_job_makes_one_job_that_it_owns() -> None:
    wanted = {"metadata": {"labels": {"of": "night"}, "annotations": {"a": "b"}}, "spec": {"template": JOB_TEMPLATE}}
    made = Expander().expand({"kind": "CronJob", "metadata": {"name": "night"}, "spec": {"jobTemplate": wanted}})
    meta = made[0].body["metadata"]
    assert (meta["name"], meta["labels"], meta["annotations"]) == ("night-0", {"of": "night"}, {"a": "b"})
    assert (meta["ownerReferences"][0]["kind"], meta["ownerReferences"][0]["name"]) == ("CronJob", "night")
    assert made[1].job == "night-0"


@pytest.mark.parametrize("field", ["metadata", "spec"])
@pytest.mark.parametrize("value", [5, "text", [1]])
def test_a_job_template_that_is_none_is_refused_by_its_field(field: str, value: object) -> None:
    wanted = {"spec": {"template": {"spec": {"containers": []}}}, field: value}
    cron = {"metadata": {"name": "night"}, "spec": {"jobTemplate": wanted}}
    with pytest.raises(Malformed, match=rf"spec\.jobTemplate\.{field} is .*; allowed: a mapping"):
        list(of_cron_job(cron, Template("spec", {}, 0)))
