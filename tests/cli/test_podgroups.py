from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import main
from wire import names

CONTAINERS = [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}]


def template() -> dict[str, Any]:
    return {"metadata": {}, "spec": {"schedulerName": "kai-scheduler", "containers": CONTAINERS}}


def torch(**worker: Any) -> dict[str, Any]:
    specs = {
        "Master": {"replicas": 1, "template": template()},
        "Worker": {"replicas": 2, "template": template(), **worker},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bert", "namespace": "team", "labels": {names.QUEUE_LABEL: "nlp"}},
        "spec": {"pytorchReplicaSpecs": specs},
    }


def jobset() -> dict[str, Any]:
    job = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template()}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": [job]},
    }


def path_of(tmp_path: Path, *objects: dict[str, Any]) -> str:
    path = tmp_path / "workloads.yaml"
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return str(path)


def answers(capsys: pytest.CaptureFixture[str], path: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["translate", "--podgroup", "-o", "json", path]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_text_is_yaml_with_comments_on_what_templates_have_to_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", "--podgroup", path_of(tmp_path, torch())]) == 0
    text = capsys.readouterr().out
    assert [each for each in text.splitlines() if each.startswith("#")] == [
        "# PyTorchJob team/bert",
        "# spec.pytorchReplicaSpecs.Master.template: annotation pod-group-name: pg-bert",
        "# spec.pytorchReplicaSpecs.Master.template: label kai.scheduler/subgroup-name: master",
        "# spec.pytorchReplicaSpecs.Worker.template: annotation pod-group-name: pg-bert",
        "# spec.pytorchReplicaSpecs.Worker.template: label kai.scheduler/subgroup-name: worker",
    ]
    assert list(yaml.safe_load_all(text)) == [
        {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "pg-bert", "namespace": "team", "labels": {names.QUEUE_LABEL: "nlp"}},
            "spec": {
                "minMember": 3,
                "queue": "nlp",
                "priorityClassName": "train",
                "subGroups": [{"name": "master", "minMember": 1}, {"name": "worker", "minMember": 2}],
            },
        }
    ]


def at(obj: Any, path: str) -> Any:
    for key in path.replace("[", ".").replace("]", "").split("."):
        obj = obj[int(key)] if isinstance(obj, list) else obj[key]
    return obj


def batch_job(**annotations: str) -> dict[str, Any]:
    pods = template()
    spec = {"parallelism": 4, "template": {**pods, "spec": {**pods["spec"], "restartPolicy": "Never"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "annotations": annotations},
        "spec": spec,
    }


@pytest.mark.parametrize("workload", [torch(), jobset(), batch_job(**{names.BATCH_MIN_MEMBER: "3"})])
def test_a_workload_that_is_changed_as_it_says_starts_as_a_gang(
    workload: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = answers(capsys, path_of(tmp_path, workload))
    for each in answer["templates"]:
        meta = at(workload, each["path"])["metadata"]
        meta["annotations"] = {names.POD_GROUP_NAME: each["pod_group"]}
        if each.get("subgroup"):
            meta["labels"] = {names.SUBGROUP_LABEL: each["subgroup"]}
    path = path_of(tmp_path, *answer["pod_groups"], workload)
    count = answer["pod_groups"][0]["spec"]["minMember"]
    for gpus, running in ((count, count), (count - 1, 0)):
        assert main(["simulate", "--nodes", f"1x{gpus}x80GiB", path, "-o", "json"]) == 0
        pods = json.loads(capsys.readouterr().out)["pods"]
        assert sum(pod["phase"] == "Running" for pod in pods) == running


LEAST = {names.BATCH_MIN_MEMBER: "4"}


def of_kubernetes(kind: str, version: str, annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    meta = {"name": "w", "namespace": "team", "labels": {names.QUEUE_LABEL: "nlp"}, "annotations": annotations}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": {"template": template(), **spec}}


JOB = of_kubernetes("Job", "batch/v1", LEAST, parallelism=4)
SET = of_kubernetes("StatefulSet", "apps/v1", LEAST, podManagementPolicy="Parallel", replicas=4)


@pytest.mark.parametrize("workload", [JOB, SET], ids=["Job", "StatefulSet"])
def test_a_workload_of_kubernetes_own_with_a_minimum_gets_a_pod_group(
    workload: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = answers(capsys, path_of(tmp_path, workload))
    (made,) = answer["pod_groups"]
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("pg-w", "team")
    assert (made["spec"]["minMember"], made["spec"]["queue"]) == (4, "nlp")
    assert answer["templates"] == [{"path": "spec.template", "pod_group": "pg-w"}]


def test_a_job_without_parallelism_has_one_pod_at_a_time_as_the_api_server_fills_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = path_of(tmp_path, of_kubernetes("Job", "batch/v1", LEAST, completions=4))
    (answer,) = answers(capsys, path)
    assert answer["pod_groups"][0]["spec"]["minMember"] == 1


@pytest.mark.parametrize(
    ("workload", "code", "field", "said"),
    [
        (of_kubernetes("Job", "batch/v1", {names.BATCH_MIN_MEMBER: "x"}), 1, "refused", "is 'x'; allowed"),
        (of_kubernetes("StatefulSet", "apps/v1", LEAST), 1, "refused", "spec.podManagementPolicy: Parallel"),
        (
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": {"name": "c"},
                "spec": {"jobTemplate": {"metadata": {"annotations": LEAST}, "spec": {"template": template()}}},
            },
            0,
            "note",
            "each of its Jobs has a PodGroup of its own",
        ),
        (of_kubernetes("Deployment", "apps/v1", LEAST), 0, "note", "each of its pods has a PodGroup of its own"),
    ],
    ids=["a minimum that is no number", "pods one after the other", "CronJob", "Deployment"],
)
def test_a_minimum_that_no_pod_group_can_have_is_told(
    workload: dict[str, Any],
    code: int,
    field: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (answer,) = answers(capsys, path_of(tmp_path, workload), code=code)
    assert said in answer[field]
    assert "pod_groups" not in answer


def wrapped(*components: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "a", "namespace": "team"},
        "spec": {"components": [{"template": each} for each in components]},
    }


def test_what_an_app_wrapper_holds_gets_its_pod_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {**JOB, "metadata": {**JOB["metadata"], "namespace": ""}}
    found = answers(capsys, path_of(tmp_path, wrapped(job, torch())))
    assert sorted((each["kind"], each["namespace"], each["pod_groups"][0]["spec"]["minMember"]) for each in found) == [
        ("Job", "team", 4),
        ("PyTorchJob", "team", 3),
    ]
    broken = {**wrapped(), "spec": {"components": [{}]}}
    (answer,) = answers(capsys, path_of(tmp_path, broken), code=1)
    assert (answer["kind"], answer["refused"].partition(" is ")[0]) == ("AppWrapper", "spec.components")


def test_a_job_set_in_order_is_told_that_it_starts_with_one_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_order = jobset()
    in_order["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    (answer,) = answers(capsys, path_of(tmp_path, in_order))
    assert answer["note"].startswith("spec.startupPolicy.startupPolicyOrder is InOrder:")
    (any_order,) = answers(capsys, path_of(tmp_path, jobset()))
    assert "note" not in any_order


def test_what_grouping_refuses_ends_with_one_for_each_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = [{"groupName": name, "replicas": 1, "template": template()} for name in ("w", "W")]
    spec = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups}
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": spec}
    (answer,) = answers(capsys, path_of(tmp_path, cluster), code=1)
    assert "subGroups.name is 'w'; allowed" in answer["refused"]


def test_a_job_without_minimum_has_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answers(capsys, path_of(tmp_path, of_kubernetes("Job", "batch/v1", {}))) == []


def test_a_value_that_is_not_allowed_ends_with_one_and_its_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = answers(capsys, path_of(tmp_path, torch(replicas=-1)), code=1)
    assert answer["refused"].startswith("spec.pytorchReplicaSpecs.Worker.replicas is -1")


def test_kinds_that_are_not_known_have_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {
        "apiVersion": "example.com/v1",
        "kind": "Other",
        "metadata": {"name": "o"},
        "spec": {"template": template()},
    }
    assert answers(capsys, path_of(tmp_path, other, {"kind": "PyTorchJob"}, batch_job())) == []


def test_it_is_not_asked_for_with_another_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["translate", "--podgroup", "--to", "kai", "-"])
    assert ended.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def volcano(**spec: Any) -> dict[str, Any]:
    api_version = "scheduling.volcano.sh/v1beta1"
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": "llm"}, "spec": spec}


def of_volcano(name: str, task: str = "") -> dict[str, Any]:
    annotations = {"scheduling.k8s.io/group-name": "llm", **({"volcano.sh/task-spec": task} if task else {})}
    return {"apiVersion": "v1", "kind": "Pod", **template(), "metadata": {"name": name, "annotations": annotations}}


def test_a_gang_in_the_words_of_another_scheduler_is_one_answer_for_all_its_pods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = template()
    words["metadata"] = {"annotations": {"scheduling.k8s.io/group-name": "llm", "volcano.sh/task-spec": "worker"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": words}}
    group = volcano(minMember=3, minTaskMember={"worker": 2}, queue="research")
    (answer,) = answers(capsys, path_of(tmp_path, of_volcano("master"), job, group))
    (made,) = answer["pod_groups"]
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("pg-volcano-llm", "default")
    assert names.FOREIGN_GANG not in made["metadata"].get("annotations", {})
    assert made["spec"]["queue"] == "research"
    assert made["spec"]["subGroups"] == [{"name": "worker", "minMember": 2}]
    assert answer["templates"] == [
        {"path": "Pod master", "pod_group": "pg-volcano-llm"},
        {"path": "Job j spec.template", "pod_group": "pg-volcano-llm", "subgroup": "worker"},
    ]


@pytest.mark.parametrize(("gpus", "running"), [(2, 2), (1, 0)])
def test_a_gang_in_the_words_of_another_scheduler_is_simulated_whole(
    gpus: int, running: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = path_of(tmp_path, of_volcano("a"), of_volcano("b"), volcano(minMember=2))
    assert main(["simulate", path, "--nodes", f"1x{gpus}x80GiB", "-o", "json"]) == 0
    pods = json.loads(capsys.readouterr().out)["pods"]
    assert (len(pods), sum(each["phase"] == "Running" for each in pods)) == (2, running)
