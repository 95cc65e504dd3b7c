"""A DaemonSet has a pod on each node that it may be on, and on no other."""

from __future__ import annotations

import re
from typing import Any

import pytest

from admission.policies import stateful_gangs
from kube.client.resources import JOBS, PODS
from podgrouper.core import answers
from podgrouper.core.answers import Nothing, Why
from simulator.controllers import registry
from simulator.controllers.kubernetes import MOST_BYTES, Expander
from simulator.controllers.pods import MOST_PODS, Made, Malformed
from simulator.controllers.registry import Member, Passed, Workload
from simulator.nodes import shape
from tests.steps import counted

INDEX = "batch.kubernetes.io/job-completion-index"
TEMPLATE: dict[str, Any] = {
    "metadata": {"name": "ignored", "labels": {"app": "a"}, "annotations": {"gpu-fraction": "0.5"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "work"}]},
}


def controller(kind: str, template: dict[str, Any] = TEMPLATE, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "work"}, "spec": {"template": template, **spec}}


def cron_job(**spec: Any) -> dict[str, Any]:
    wanted = {"metadata": {"labels": {"of": "night"}}, "spec": {"template": TEMPLATE, "parallelism": 2}}
    return {"kind": "CronJob", "metadata": {"name": "work"}, "spec": {"jobTemplate": wanted, **spec}}


def cron_job_of(**job: Any) -> dict[str, Any]:
    return cron_job(jobTemplate={"spec": {"template": TEMPLATE, **job}})


def pods(obj: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(made.body) for made in Expander().expand(obj) if made.resource is PODS]


def names(made: list[dict[str, Any]]) -> list[str]:
    return [pod["metadata"].get("name") or pod["metadata"]["generateName"] for pod in made]


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (controller("ReplicaSet"), ["work-"]),
        (controller("ReplicaSet", replicas=None), ["work-"]),
        (controller("ReplicaSet", replicas=0), []),
        (controller("ReplicationController", replicas=2), ["work-", "work-"]),
        (controller("StatefulSet", replicas=2), ["work-0", "work-1"]),
        (controller("StatefulSet", replicas=2, ordinals={"start": 5}), ["work-5", "work-6"]),
        (controller("Job"), ["work-"]),
        (controller("Job", parallelism=3), ["work-"] * 3),
        (controller("Job", completions=3), ["work-"] * 3),
        (controller("Job", completions=2, parallelism=5), ["work-"] * 2),
        (controller("Job", completions=9, parallelism=2, completionMode="Indexed"), [f"work-{n}-" for n in range(9)]),
        (controller("Job", parallelism=0), []),
        (controller("Job", suspend=True, parallelism=3), []),
        (cron_job(), ["work-0-"] * 2),
        (cron_job(suspend=True), []),
    ],
)
def test_controllers_make_as_many_pods_as_kubernetes_does(obj: dict[str, Any], expected: list[str]) -> None:
    assert names(pods(obj)) == expected


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_the_pods_of_a_job_beyond_its_parallelism_come_later(mode: str) -> None:
    job = controller("Job", completions=5, parallelism=2, completionMode=mode)
    assert [each.is_later for each in Expander().expand(job)] == [False, False, False, True, True, True]


def test_a_pod_of_a_deployment_is_one_of_its_replica_set() -> None:
    first, second = pods(controller("Deployment", replicas=2))
    (owner,) = first["metadata"]["ownerReferences"]
    made_hash = first["metadata"]["labels"]["pod-template-hash"]
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{10}", made_hash)
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("apps/v1", "ReplicaSet", f"work-{made_hash}")
    assert owner["controller"] is True
    assert owner["uid"]
    assert first == second
    assert first["metadata"] == {
        "generateName": f"work-{made_hash}-",
        "labels": {"app": "a", "pod-template-hash": made_hash},
        "annotations": {"gpu-fraction": "0.5"},
        "ownerReferences": [owner],
    }
    assert first["spec"] == TEMPLATE["spec"]
    other = {**TEMPLATE, "metadata": {"labels": {"app": "b"}}}
    assert pods(controller("Deployment", other))[0]["metadata"]["labels"]["pod-template-hash"] != made_hash


@pytest.mark.parametrize(
    ("policy", "after"),
    [
        ({}, ["", "work-5"]),
        ({"podManagementPolicy": "OrderedReady"}, ["", "work-5"]),
        ({"podManagementPolicy": "Parallel"}, ["", ""]),
    ],
)
def test_a_pod_of_a_stateful_set_comes_after_the_one_before_unless_they_are_managed_in_parallel(
    policy: dict[str, Any], after: list[str]
) -> None:
    made = Expander().expand(controller("StatefulSet", replicas=2, ordinals={"start": 5}, **policy))
    assert [each.after for each in made] == after


def test_a_pod_of_a_stateful_set_has_its_ordinal_its_host_name_and_its_claims() -> None:
    template = {
        **TEMPLATE,
        "spec": {**TEMPLATE["spec"], "volumes": [{"name": "data"}, {"name": "tmp", "emptyDir": {}}]},
    }
    claims = [{"metadata": {"name": "data"}}]
    spec = {"replicas": 2, "serviceName": "svc", "volumeClaimTemplates": claims}
    pod = pods(controller("StatefulSet", template, **spec))[1]
    labels = pod["metadata"]["labels"]
    assert re.fullmatch("work-[a-z0-9]{10}", labels.pop("controller-revision-hash"))
    assert labels == {"app": "a", "apps.kubernetes.io/pod-index": "1", "statefulset.kubernetes.io/pod-name": "work-1"}
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("work-1", "svc")
    assert pod["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-work-1"}},
        {"name": "tmp", "emptyDir": {}},
    ]


def test_a_controller_without_name_gets_one_and_the_next_another() -> None:
    expander, nameless = Expander(), {**controller("Job"), "metadata": {"generateName": "run-"}}
    made = [expander.expand(nameless)[0].body["metadata"]["name"] for _ in range(2)]
    assert all(re.fullmatch("run-[a-z0-9]{5}", name) for name in made)
    assert made[0] != made[1]
    assert Expander().expand(nameless)[0].body["metadata"]["name"] == made[0]


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (
            controller("ReplicaSet", replicas=1_000_000_000),
            f"spec.replicas is 1000000000; all controllers together make {MOST_PODS} pods at most",
        ),
        (controller("ReplicaSet", replicas=-1), "spec.replicas is -1; a number of 0 or more is allowed"),
        (controller("ReplicaSet", replicas=True), "spec.replicas is True; a number of 0 or more is allowed"),
        (controller("ReplicaSet", replicas="3"), "spec.replicas is '3'; a number of 0 or more is allowed"),
        (controller("Job", parallelism=10**9), "spec.parallelism is 1000000000; all controllers"),
        (controller("Job", completions=10**8, parallelism=10**9), "spec.completions is 100000000; all controllers"),
        (controller("Job", completions=10**8, parallelism=2), "spec.completions is 100000000; all controllers"),
        (cron_job_of(completions=10**8), "spec.jobTemplate.spec.completions is 100000000; all controllers"),
        (controller("Job", completions=1.5), "spec.completions is 1.5; a number of 0 or more is allowed"),
        (
            controller("Job", completionMode="Indexed"),
            "spec.completions is not set, and has to be with completionMode Indexed",
        ),
        (
            controller("Job", backoffLimit="x"),
            "spec.backoffLimit is 'x'; a number of 0 or more is allowed",
        ),
        (
            controller("Job", completionMode="Sorted"),
            "spec.completionMode is 'Sorted'; NonIndexed and Indexed are allowed",
        ),
        (
            controller("Job", {"spec": {"containers": []}}),
            "spec.template.spec.restartPolicy is None; of a Job, Never and OnFailure are allowed",
        ),
        (
            controller("StatefulSet", ordinals={"start": -1}),
            "spec.ordinals.start is -1; a number of 0 or more is allowed",
        ),
        (
            controller("StatefulSet", podManagementPolicy="InOrder"),
            "spec.podManagementPolicy is 'InOrder'; OrderedReady and Parallel are allowed",
        ),
        (
            controller("StatefulSet", volumeClaimTemplates=[{}]),
            "spec.volumeClaimTemplates has to be a list of claims with metadata.name",
        ),
        (
            {"kind": "Deployment", "metadata": {"name": "d"}},
            "spec.template has to be a pod template with spec.containers",
        ),
        (
            {"kind": "CronJob", "metadata": {"name": "d"}, "spec": {"template": TEMPLATE}},
            "spec.jobTemplate.spec.template has to be a pod template with spec.containers",
        ),
        (
            controller("Deployment", {"metadata": {"annotations": {"gpu-fraction": 0.5}}, "spec": TEMPLATE["spec"]}),
            "spec.template: the API server would not take this pod: metadata.annotations[gpu-fraction] is 0.5 and has "
            "to be text: put it in quotes",
        ),
        (
            {**controller("Job"), "metadata": {"name": "j", "annotations": {"kai.scheduler/batch-min-member": 2}}},
            "metadata of the Job: Expected `str`, got `int`",
        ),
    ],
)
def test_what_makes_no_pods_is_refused_with_field_value_and_what_is_allowed(obj: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed) as caught:
        Expander().expand(obj)
    assert str(caught.value).startswith(message)


def test_a_stateful_set_whose_gang_comes_one_by_one_is_refused_in_the_words_of_the_clusters_policy() -> None:
    made = controller("StatefulSet", replicas=4)
    made = {**made, "metadata": {**made["metadata"], "annotations": {"kai.scheduler/batch-min-member": "4"}}}
    with pytest.raises(Malformed) as caught:
        registry.grouped(made, "default", Expander().expand(made))
    said = 'metadata.annotations[kai.scheduler/batch-min-member] is "4"; allowed: '
    assert str(caught.value).startswith(f"{said}1, or spec.podManagementPolicy: Parallel;")
    (validation,) = stateful_gangs()["spec"]["validations"]
    assert all(part in validation["messageExpression"] for part in said.split("4"))


def test_the_limit_of_pods_holds_for_all_controllers_together() -> None:
    expander = Expander()
    assert len(expander.expand(controller("ReplicaSet", replicas=MOST_PODS - 1))) == MOST_PODS - 1
    expander.expand(controller("ReplicaSet"))
    with pytest.raises(Malformed, match=r"^spec.replicas is 1; all controllers together make 10000 .*, 0 are left$"):
        expander.expand(controller("ReplicaSet"))
    assert expander.expand(controller("ReplicaSet", replicas=0)) == []


def test_the_bytes_of_all_pods_together_are_limited_before_any_is_made() -> None:
    large = {"metadata": {"annotations": {"text": "x" * 1_000_000}}, "spec": TEMPLATE["spec"]}
    expander = Expander()
    with pytest.raises(Malformed, match=rf"^spec.replicas is 100 with a template of 1000\d+ bytes; .* {MOST_BYTES} "):
        expander.expand(controller("ReplicaSet", large, replicas=100))
    assert len(expander.expand(controller("ReplicaSet", large, replicas=60))) == 60
    for _ in range(7):
        assert expander.expand(controller("ReplicaSet", large, replicas=0)) == []
    with pytest.raises(Malformed, match=r"are left$"):
        expander.expand(controller("ReplicaSet", large, replicas=0))


def test_pods_of_one_controller_share_what_they_have_in_common() -> None:
    made: list[Made] = Expander().expand(
        controller("Job", parallelism=5000, completionMode="Indexed", completions=5000)
    )
    assert made[0].resource is JOBS
    containers = {id(each.body["spec"]["containers"]) for each in made[1:]}
    assert len(containers) == 1


def test_the_work_grows_with_the_number_of_pods_and_no_faster() -> None:
    def cost(replicas: int) -> int:
        spec: dict[str, Any] = {"completions": replicas, "parallelism": replicas, "completionMode": "Indexed"}
        with counted() as steps:
            Expander().expand(controller("Job", **spec))
        return steps.taken

    assert cost(2000) <= 11 * cost(200)


@pytest.mark.parametrize("field", ["name", "generateName"])
def test_a_name_that_is_no_text_is_refused_by_its_field(field: str) -> None:
    spec = {"template": TEMPLATE, "replicas": 1}
    with pytest.raises(Malformed, match=rf"metadata\.{field} is 5; allowed: text"):
        Expander().expand({"kind": "StatefulSet", "metadata": {field: 5}, "spec": spec})


NODES = shape.parse(["2x1x80GiB", "1x0"])
IN = "In"


def on(key: str, operator: str, *values: str, part: str = "matchExpressions") -> dict[str, Any]:
    term = {part: [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def daemonpods_pods(**spec: Any) -> list[dict[str, Any]]:
    template = {"spec": {"containers": [{"name": "main", "image": "work"}], **spec}}
    daemon_set = {"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {"template": template}}
    return [dict(made.body) for made in Expander(NODES).expand(daemon_set)]


def nodes(made: list[dict[str, Any]]) -> list[str]:
    terms = [
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        for pod in made
    ]
    assert all(len(each) == 1 and list(each[0]) == ["matchFields"] for each in terms)
    return [each[0]["matchFields"][0]["values"][0] for each in terms]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ["node-0", "node-1", "node-2"]),
        ({"nodeSelector": {"nvidia.com/gpu.count": "1"}}, ["node-0", "node-1"]),
        ({"nodeSelector": {"nowhere": "x"}}, []),
        (on("kubernetes.io/hostname", IN, "node-1"), ["node-1"]),
        (on("metadata.name", "NotIn", "node-1", part="matchFields"), ["node-0", "node-2"]),
    ],
    ids=["all", "a selector", "none", "affinity", "a field"],
)
def test_each_node_that_it_may_be_on_gets_a_pod(spec: dict[str, Any], expected: list[str]) -> None:
    assert nodes(daemonpods_pods(**spec)) == expected


def test_a_pod_has_what_kubernetes_adds() -> None:
    own = {"key": "team", "operator": "Exists"}
    pod = daemonpods_pods(tolerations=[own], hostNetwork=True)[0]
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("apps/v1", "DaemonSet", "agent")
    assert pod["metadata"]["generateName"] == "agent-"
    assert set(pod["metadata"]["labels"]) == {"controller-revision-hash", "pod-template-generation"}
    first, *added = pod["spec"]["tolerations"]
    assert first == own
    assert {(each["key"].rpartition("/")[2], each["effect"]) for each in added} == {
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    }


def test_without_nodes_there_are_no_pods() -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    daemon_set = {"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {"template": template}}
    assert Expander().expand(daemon_set) == []


PASSING_TEMPLATE: dict[str, Any] = {"spec": {"template": {"spec": {"containers": []}}}}


def obj(kind: str, api_version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": api_version, **more}


@pytest.mark.parametrize(
    ("objects", "lines"),
    [
        ([], []),
        (
            [obj("Service"), obj("Ingress", "networking.k8s.io/v1"), obj("Service")],
            ["passed over, because they make no pods: 2 Service, 1 Ingress"],
        ),
        (
            [
                obj("JobSet", "jobset.x-k8s.io/v1alpha2", **PASSING_TEMPLATE),
                obj("Job", "batch.volcano.sh/v1alpha1", **PASSING_TEMPLATE),
            ],
            [
                "their pods are not made, because their controllers are not simulated: "
                "1 JobSet.jobset.x-k8s.io, 1 Job.batch.volcano.sh"
            ],
        ),
        (
            [obj(f"Kind{number}") for number in range(12)],
            [
                "passed over, because they make no pods: "
                + ", ".join(f"1 Kind{number}" for number in range(10))
                + ", objects of 2 more kinds"
            ],
        ),
    ],
)
def test_kinds_are_named_with_their_counts(objects: list[dict[str, Any]], lines: list[str]) -> None:
    passed = Passed()
    for each in objects:
        passed.note(each)
    assert list(passed.lines()) == lines


def test_workloads_whose_pods_are_made_are_counted_and_those_without_pod_group_are_named() -> None:
    passed = Passed()
    member = Member(Made({}), None)
    passed.note_made(obj("JobSet", "jobset.x-k8s.io/v1alpha2"), "JobSet team/a", Workload([], [member] * 3))
    passed.note_made(obj("JobSet", "jobset.x-k8s.io/v1alpha2"), "JobSet team/b", Workload([], [member], "a reason"))
    alone = answers.told(Nothing(Why.ALONE))
    passed.note_made(obj("Workflow", "argoproj.io/v1alpha1"), "Workflow team/c", Workload([], [], alone))
    assert list(passed.lines()) == [
        "pods made as the controllers would make them, with the PodGroups of 'translate --podgroup': "
        "2 JobSet.jobset.x-k8s.io (4 pods), 1 Workflow.argoproj.io (0 pods)",
        "no PodGroup for JobSet team/b: a reason",
    ]


def test_workloads_without_pod_group_are_named_up_to_ten() -> None:
    passed = Passed()
    for number in range(12):
        passed.note_made(obj("Job", "batch.volcano.sh/v1alpha1"), f"Job {number}", Workload([], [], "a reason"))
    _, *named, last = passed.lines()
    assert (len(named), last) == (10, "no PodGroup for 2 more workloads")


def test_long_names_of_kinds_are_shortened() -> None:
    passed = Passed()
    passed.note(obj("K" * 100_000, f"{'g' * 100_000}.example/v1"))
    assert len("".join(passed.lines())) < 300


@pytest.mark.parametrize(
    ("spec", "is_suspended"),
    [
        ({"suspend": True}, True),
        ({"runPolicy": {"suspend": True}}, True),
        ({"suspend": False}, False),
        ({"suspend": "true"}, False),
        ({"suspend": 1}, False),
        ({"runPolicy": "suspend"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_suspended_controllers_are_named(spec: object, *, is_suspended: bool) -> None:
    passed = Passed()
    passed.note_expanded(obj("Job", "batch/v1", spec=spec))
    assert list(passed.lines()) == ["without pods, because they are suspended: 1 Job"] * is_suspended
