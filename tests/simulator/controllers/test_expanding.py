from __future__ import annotations

import re
from typing import Any

import pytest

from kube.client.resources import JOBS, PODS
from simulator.controllers.kubernetes import MOST_BYTES, Expander
from simulator.controllers.pods import MOST_PODS, Made, Malformed
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
    assert labels == {
        "app": "a",
        "apps.kubernetes.io/pod-index": "1",
        "statefulset.kubernetes.io/pod-name": "work-1",
    }
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
