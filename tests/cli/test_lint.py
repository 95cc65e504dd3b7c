from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.review import PodAdmission
from admission.settings import Settings as AdmissionSettings
from cli.main import main
from cli.manifests import findings as lint
from gpu.dialects.settings import DialectSettings
from runtime.output import Progress
from tests.admission.pods import review
from tests.cli.terminal import Terminal, Watch

Raw = dict[str, Any]


def pod(
    annotations: Raw | None = None, *, labels: Raw | None = None, limits: Raw | None = None, **container: Any
) -> Raw:
    main_container = {"name": "main", "image": "work", **container}
    main_container.setdefault("resources", {"limits": limits} if limits else {})
    metadata = {"name": "p", "annotations": annotations or {}, "labels": labels or {}}
    spec = {"schedulerName": "kai-scheduler", "containers": [main_container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def written(tmp_path: Path, *objects: Raw) -> str:
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return str(path)


def findings(capsys: pytest.CaptureFixture[str], path: str, *, code: int = 0) -> list[Raw]:
    assert main(["lint", "-o", "json", path]) == code
    found: list[Raw] = json.loads(capsys.readouterr().out)
    return found


#: Of tests/cli/manifests/test_obstacles.py.
NEVER_PLACED = {
    "claim-missing",
    "ignored",
    "in-order",
    "min-available",
    "no-pod-group",
    "no-scheduler",
    "not-grouped",
    "one-by-one",
    "pod-group-missing",
    "priority-class-missing",
    "queue-missing",
    "sub-group-missing",
    "unreadable",
    "unsupported",
}
HALF = {"gpu-fraction": "0.5"}
SHOWN = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


def on_a_node(made: Raw) -> Raw:
    return {**made, "spec": {**made["spec"], "nodeName": "n1"}}


def critical(made: Raw) -> Raw:
    return {**made, "spec": {**made["spec"], "priorityClassName": "system-node-critical"}}


def of_a_job(made: Raw) -> Raw:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": made}}


def of_other_scheduler(made: Raw, scheduler: str) -> Raw:
    return {**made, "spec": {**made["spec"], "schedulerName": scheduler}}


def with_labels(made: Raw, labels: Raw) -> Raw:
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


def namespaced(kind: str) -> Raw:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}}


WARNINGS: list[tuple[Raw, str, str]] = [
    (on_a_node(pod(HALF)), "own-node", "spec.nodeName"),
    (pod({"nvidia.com/gpu.memory": "8000Mi"}), "pasted-node-label", "nvidia.com/gpu.memory"),
    (pod({"gpu-memory": "8589934592"}), "unit", "container main"),
    (pod({"gpu-memory": "8"}), "unit", "container main"),
    (pod(limits={"aliyun.com/gpu-mem": 16276}), "unit", "container main"),
    (pod(limits={"nvidia.com/gpumem": 16}), "unit", "container main"),
    (pod({"kai.scheduler/gpu-fraction": "0.5"}), "misspelt", "kai.scheduler/gpu-fraction"),
    (pod({"gpu_memory": "500"}), "misspelt", "gpu_memory"),
    (pod(labels=HALF), "wrong-place", "gpu-fraction"),
    (pod({"clearml-injector/fraction": "0.500"}), "wrong-place", "clearml-injector/fraction"),
    (pod({"hami.io/vgpu-node": "n"}), "written-by-binding", "hami.io/vgpu-node"),
    (pod({"moorage.dev/grant": "{}"}), "written-by-binding", "moorage.dev/grant"),
    (
        pod({"nvidia.com/container.main.gpus.devices": "GPU-a"}),
        "written-by-binding",
        "nvidia.com/container.main.gpus.devices",
    ),
    (pod({"ALIYUN_COM_GPU_MEM_IDX": "0"}), "written-by-binding", "ALIYUN_COM_GPU_MEM_IDX"),
    (pod(limits={"nvidia.com/gpu.shared": 1}), "unread", "nvidia.com/gpu.shared of container main"),
    (pod(HALF, limits={"nvidia.com/sharedgpu": 1}), "unread", "nvidia.com/sharedgpu of container main"),
    (pod(limits={"volcano.sh/vgpu-memry": 3000}), "unread", "volcano.sh/vgpu-memry of container main"),
    (pod(limits={"koordinator.sh/gpu-cores": 50}), "unread", "koordinator.sh/gpu-cores of container main"),
    (pod({"pod-group": "x", "moorage.dev/fast": "true"}), "unknown-key", "moorage.dev/fast"),
    (pod(labels={"runai/queue": "q"}), "misspelt", "runai/queue"),
    (pod(labels={"pod-group-name": "g"}), "wrong-place", "pod-group-name"),
    (pod(labels={"kai.scheduler/preemptibility": "no"}), "unread-value", "kai.scheduler/preemptibility"),
    (pod({"moorage.dev/max-runtime": "1d"}), "unread-value", "moorage.dev/max-runtime"),
    (with_labels(of_a_job(pod()), {"kai.scheduler/quue": "q"}), "misspelt", "kai.scheduler/quue"),
    (with_labels(namespaced("Namespace"), {"moorage.dev/adopt": "yes"}), "unread-value", "moorage.dev/adopt"),
    (pod(env=SHOWN), "visible-devices", "env NVIDIA_VISIBLE_DEVICES of container main"),
    (
        pod(limits={"nvidia.com/gpumem": 500}, env=[{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]),
        "no-limit",
        "env CUDA_DISABLE_CONTROL of container main",
    ),
    (pod({"nvidia.com/use-gputype": "A100"}, limits={"nvidia.com/gpu": 1}), "whole-gpus", "nvidia.com/use-gputype"),
    (pod(image="clearml/fractional-gpu:u22-cu12.3-8gb"), "unaccounted", "image of container main"),
]


@pytest.mark.parametrize(("written_pod", "code", "field"), WARNINGS)
def test_what_is_surely_not_meant_is_a_warning(
    written_pod: Raw, code: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, written_pod)
    (finding,) = findings(capsys, path)
    assert (finding["level"], finding["code"], finding["field"]) == ("warning", code, field)
    assert finding["text"].startswith(f"{field} ")
    assert main(["lint", "--strict", path]) == 1


@pytest.mark.parametrize(
    "written_pod",
    [
        pod(),
        pod(HALF),
        pod({"gpu-memory": "2000"}),
        pod(limits={"nvidia.com/gpu": 1}),
        pod(limits={"aliyun.com/gpu-mem": 16}),
        pod(limits={"nvidia.com/gpumem": 3000}, env=[{"name": "CUDA_DISABLE_CONTROL", "value": "false"}]),
        pod(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]),
        pod({"nvidia.com/use-gputype": "A100"}, limits={"nvidia.com/gpumem": 500}),
        pod(labels={"clearml-injector/fraction": "0.500"}),
        pod(limits={"nvidia.com/gpumem": 500}, image="clearml/fractional-gpu:u22-cu12.3-8gb"),
        pod(limits={"koordinator.sh/rdma": 1, "koordinator.sh/batch-cpu": 1}),
        with_labels(of_a_job(pod()), {"volcano.sh/x": "y", "nvidia.com/use-gputyp": "z"}),
        critical(pod()),
        on_a_node(of_other_scheduler(pod(limits={"nvidia.com/gpu": 1}), "default-scheduler")),
        {**critical(pod(HALF)), "metadata": {"name": "p", "namespace": "kube-system", "annotations": HALF}},
        # What fills in the image is not known here, and of a patch neither.
        {"apiVersion": "serving.example.com/v1", "kind": "Model", "spec": {"template": pod(image="")}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": pod(image="")}},
    ],
)
def test_what_may_well_be_meant_is_not_found(
    written_pod: Raw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert findings(capsys, written(tmp_path, written_pod)) == []


def test_a_pod_without_containers_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {schedulerName: kai-scheduler}\n")
    assert main(["lint", str(path)]) == 1
    told = capsys.readouterr().out
    assert "spec.containers is empty: a pod has at least one container" in told
    assert told.endswith("1 pod: 1 error, 0 warnings, 0 notes\n")


def test_the_documents_list_all_warnings() -> None:
    documents = (Path(__file__).parents[2] / "docs" / "translate.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", documents.partition("## lint")[2], re.MULTILINE)
    listed = re.findall(r"[a-z-]+", " ".join(rows))
    assert set(listed) == {code for _, code, _ in WARNINGS} | {"gone"} | NEVER_PLACED


def test_init_containers_by_a_type_that_is_gone_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = pod({**HALF, "gpu-fraction-container-type": "InitContainer"})
    typed["spec"]["initContainers"] = [{"name": "load", "image": "work"}]
    (finding,) = findings(capsys, written(tmp_path, typed))
    assert (finding["code"], finding["field"]) == ("gone", "gpu-fraction-container-type")


def test_annotations_of_a_workload_are_not_its_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = pod(HALF)
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}},
        "spec": {"template": template},
    }
    (finding,) = findings(capsys, written(tmp_path, workload))
    assert (finding["code"], finding["field"], finding["path"]) == (
        "wrong-place",
        "gpu-fraction-num-devices",
        "spec.template",
    )


@pytest.mark.parametrize("is_template", [False, True])
def test_a_field_that_is_null_is_no_finding_since_the_api_server_takes_it_as_absent(
    is_template: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = pod(HALF, resources={"requests": {"cpu": None}, "limits": None}, terminationMessagePolicy=None)
    asked["spec"]["nodeSelector"] = None
    assert findings(capsys, written(tmp_path, of_a_job(asked) if is_template else asked)) == []


@pytest.mark.parametrize(
    ("written_pod", "code", "field"),
    [
        (pod({"gpu-fraction": "1.5"}), "malformed", "gpu-fraction"),
        (pod(HALF, limits={"nvidia.com/gpu": 1}), "conflicting", "gpu-fraction"),
        (pod(limits={"nvidia.com/gpu": "0.5"}), "malformed", "nvidia.com/gpu of container main"),
        (pod(limits={"koordinator.sh/gpu-core": 50}), "incomplete", "koordinator.sh/gpu-core of container main"),
        (pod(resources={"requests": {"nvidia.com/gpu": 1}}), "malformed", "spec.containers[0].resources.limits"),
        (pod(image=""), "malformed", "spec.containers[0].image"),
        (pod(name="Main"), "malformed", "spec.containers[0].name"),
        (pod(labels={"kai.scheduler/queue": "team a"}), "malformed", "metadata.labels"),
        ({"kind": "Pod", "metadata": {"name": "p"}, "spec": pod()["spec"]}, "malformed", "apiVersion"),
        ({"apiVersion": "v1", "metadata": {"name": "p"}}, "malformed", "kind"),
        (of_a_job(pod(HALF, image="")), "malformed", "spec.containers[0].image"),
        (of_other_scheduler(pod(image=""), "default-scheduler"), "malformed", "spec.containers[0].image"),
        (on_a_node(pod(limits={"nvidia.com/gpu": 1})), "refused", ""),
        (critical(pod(HALF)), "conflicting", "spec.priorityClassName"),
        (critical(pod(limits={"nvidia.com/gpu": 1})), "conflicting", "spec.priorityClassName"),
        (pod({"moorage.dev/require-enforcement": "yes"}), "malformed", "moorage.dev/require-enforcement"),
        (pod({"gpu-memory": 2000}), "malformed", ""),
    ],
)
def test_what_a_cluster_would_refuse_is_an_error(
    written_pod: Raw, code: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(capsys, written(tmp_path, written_pod), code=1)
    assert (finding["level"], finding["code"], finding["field"]) == ("error", code, field)


BAD = {"metadata": {"name": "p", "annotations": {"gpu-fraction": "3"}}}
CONTAINER = {"image": "work"}


def workflow(**template: Any) -> Raw:
    made = {"templates": [{"name": "x", "metadata": {"annotations": {"gpu-fraction": "3"}}, **template}]}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": made}


def spark(kind: str, spec: Raw) -> Raw:
    return {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": kind, "metadata": {"name": "s"}, "spec": spec}


def inference(predictor: Raw, **annotations: str) -> Raw:
    metadata = {"name": "s", "annotations": annotations}
    spec = {"predictor": predictor}
    return {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": metadata, "spec": spec}


DRIVER = {"driver": {"annotations": {"gpu-fraction": "3"}}}
CLIQUES = [{"name": "a", "annotations": {"gpu-fraction": "3"}, "spec": {"podSpec": pod()["spec"]}}]
#: Objects with one pod that asks for a share of 3 GPUs, and the path of its template.
DESCRIBED: dict[str, tuple[Raw, str]] = {
    "Workflow": (workflow(container=CONTAINER), "spec.templates[0]"),
    "Workflow with a script": (workflow(script={**CONTAINER, "source": "1"}), "spec.templates[0]"),
    "Workflow with several containers": (
        workflow(containerSet={"containers": [{**CONTAINER, "name": "a"}]}),
        "spec.templates[0]",
    ),
    "ClusterWorkflowTemplate": (
        {**workflow(container=CONTAINER), "kind": "ClusterWorkflowTemplate"},
        "spec.templates[0]",
    ),
    "CronWorkflow": (
        {
            **workflow(),
            "kind": "CronWorkflow",
            "spec": {"workflowSpec": workflow(container=CONTAINER)["spec"]},
        },
        "spec.workflowSpec.templates[0]",
    ),
    "SparkApplication": (spark("SparkApplication", DRIVER), "spec.driver"),
    "ScheduledSparkApplication": (spark("ScheduledSparkApplication", {"template": DRIVER}), "spec.template.driver"),
    "PodCliqueSet": (
        {
            "apiVersion": "grove.io/v1alpha1",
            "kind": "PodCliqueSet",
            "metadata": {"name": "g"},
            "spec": {"template": {"cliques": CLIQUES}},
        },
        "spec.template.cliques[0].spec.podSpec",
    ),
    "InferenceService": (
        inference({"annotations": {"gpu-fraction": "3"}, "model": {"modelFormat": {"name": "huggingface"}}}),
        "spec.predictor",
    ),
    "InferenceService with containers": (
        inference({"containers": [CONTAINER]}, **{"gpu-fraction": "3"}),
        "spec.predictor",
    ),
    "List": ({"apiVersion": "v1", "kind": "List", "items": [pod(), {**pod(), **BAD}]}, ""),
    "List in a List": (
        {"apiVersion": "v1", "kind": "List", "items": [{"kind": "List", "items": [{**pod(), **BAD}]}]},
        "",
    ),
    "PodList": ({"apiVersion": "v1", "kind": "PodList", "items": [{**BAD, "spec": pod()["spec"]}]}, ""),
}


@pytest.mark.parametrize(("written_object", "path"), DESCRIBED.values(), ids=DESCRIBED)
def test_pods_are_found_in_every_form_in_which_they_are_described(
    written_object: Raw, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = findings(capsys, written(tmp_path, pod(), written_object), code=1)
    assert [(each["level"], each["field"], each["document"], each["path"]) for each in found] == [
        ("error", "gpu-fraction", 2, path)
    ]


def test_a_file_that_is_no_object_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (finding,) = findings(capsys, written(tmp_path, {"replicas": 3}))
    assert (finding["level"], finding["code"], finding["field"]) == ("note", "malformed", "apiVersion and kind")


def test_of_a_workflow_only_what_is_written_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variable = "{{inputs.parameters.amount}}"
    container = {**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": variable, "cpu": variable}}}
    asked = workflow(container=container, metadata={"annotations": {"gpu-memory": variable}})
    assert findings(capsys, written(tmp_path, asked)) == []


@pytest.mark.parametrize(
    ("written_object", "said"),
    [
        (workflow(container="x", sidecars=1), "spec.containers is empty"),
        (spark("SparkApplication", {"driver": {"memory": 3}}), "spec.driver.memory is 3"),
        (spark("SparkApplication", {"driver": [1]}), "spec.driver is [1]"),
    ],
    ids=["a container that is text", "memory", "a driver that is a list"],
)
def test_a_description_of_pods_that_can_not_be_read_is_an_error(
    written_object: Raw, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(capsys, written(tmp_path, written_object), code=1)
    assert (finding["level"], finding["code"]) == ("error", "malformed")
    assert said in finding["text"]


def adopting(labels: Raw) -> Raw:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}


TOO_LARGE: dict[str, Raw] = {
    "containers": {
        **pod(HALF),
        "spec": {**pod()["spec"], "containers": [{"name": f"x{n}", "image": "work"} for n in range(513)]},
    },
    "resources": pod(HALF, limits={f"example.com/{n}": "1" for n in range(101)}),
    "entries": pod({**HALF, **{f"a{n}": "" for n in range(10_001)}}),
}


@pytest.mark.parametrize("large", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_pod_that_is_too_large_for_admission_is_an_error_in_its_words(
    large: Raw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admission = PodAdmission(AdmissionSettings(), rng=random.Random(1))
    said = admission.mutating(review(large))["response"]["status"]["message"]
    (finding,) = findings(capsys, written(tmp_path, large), code=1)
    assert (finding["level"], finding["code"], finding["text"]) == ("error", "too-large", said)


@pytest.mark.parametrize(
    ("scheduler", "labels", "code"),
    [
        ("default-scheduler", {}, 0),
        ("default-scheduler", {"moorage.dev/adopt": "true"}, 1),
        ("volcano-of-ours", {"moorage.dev/adopt": "true"}, 0),
    ],
    ids=["of another scheduler", "adopted", "of a scheduler whose pods are not adopted"],
)
def test_a_large_pod_is_an_error_only_where_admission_reads_it(
    scheduler: str, labels: Raw, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = of_other_scheduler(TOO_LARGE["containers"], scheduler)
    found = findings(capsys, written(tmp_path, adopting(labels), large), code=code)
    assert ("too-large" in {finding["code"] for finding in found}) == bool(code)


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        ({"nvidia.com/gpu": 1}, ""),
        ({"nvidia.com/mig-1g.5gb": 1}, ""),
        ({"nvidia.com/gpu-0": 4}, ""),
        ({"nvidia.com/gpumem": 500, "nvidia.com/priority": 1}, ""),
        ({"nvidia.com/gpu": 1, "nvidia.com/hostdev": 1}, ""),
        ({"nvidia.com/gpu.shared": 1}, "replicas: {time_slices: 4}"),
        ({"nvidia.com/sharedgpu": 1}, "replicas: {entries: ['gpu:sharedgpu:4']}"),
    ],
)
def test_resources_that_are_read_are_not_told(
    asked: Raw, settings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings.yaml").write_text(settings or "{}", encoding="utf-8")
    assert main(["lint", "--dialects", str(tmp_path / "settings.yaml"), written(tmp_path, pod(limits=asked))]) == 0
    assert capsys.readouterr().out == "1 pod: 0 errors, 0 warnings, 0 notes\n"


@pytest.mark.parametrize("key", ["koordinator.sh/qosClass", "volcano.sh/preemptable", "nvidia.com/colour"])
def test_a_key_of_another_system_that_is_not_read_is_a_note(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(capsys, written(tmp_path, pod({key: "x"})))
    assert (finding["level"], finding["code"], finding["field"]) == ("note", "unknown-key", key)


def test_notes_tell_what_is_understood_otherwise_than_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, pod(limits={"nvidia.com/gpumem": 500, "nvidia.com/gpucores": 100}))
    (finding,) = findings(capsys, path)
    assert (finding["level"], finding["code"]) == ("note", "exclusive")


@pytest.mark.parametrize(("count", "codes"), [(1, []), (2, ["time-slices"]), ("2", ["time-slices"])])
def test_two_gpus_may_be_one_card_where_a_plugin_slices_time(
    count: Any, codes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, pod(limits={"nvidia.com/gpu": count}))
    found = findings(capsys, path)
    assert [(each["code"], each["level"]) for each in found] == [(code, "note") for code in codes]
    assert main(["lint", "--strict", path]) == 0


@pytest.mark.parametrize(
    ("others", "init", "codes"),
    [
        pytest.param([1], [], ["time-slices"], id="two containers"),
        pytest.param([0], [1], [], id="an init container that ends before"),
        pytest.param([0], [2], ["time-slices"], id="an init container with two"),
        pytest.param([0], ["sidecar"], ["time-slices"], id="a sidecar"),
    ],
)
def test_gpus_of_a_pod_are_counted_over_its_containers_as_the_scheduler_counts_them(
    others: list[int], init: list[Any], codes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def container(name: str, count: int, **more: Any) -> Raw:
        return {"name": name, "image": "app", "resources": {"limits": {"nvidia.com/gpu": count}}, **more}

    made = pod(limits={"nvidia.com/gpu": 1})
    made["spec"]["containers"] += [container(f"c{number}", count) for number, count in enumerate(others)]
    made["spec"]["initContainers"] = [
        container("i", 1, restartPolicy="Always") if each == "sidecar" else container("i", each) for each in init
    ]
    assert [each["code"] for each in findings(capsys, written(tmp_path, made))] == codes


@pytest.mark.parametrize("command", ["lint", "translate"])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_manifest_moves_no_cursor_and_forges_no_line(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_terminal: bool,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "400")
    made = pod({"gpu_memory": "5", "nvidia.com/use-gputype": "a\x1b[2J"}, limits={"nvidia.com/gpumem": 5})
    made["metadata"]["name"] = "p\x1b[2J\nforged.yaml: error: p"
    made["kind"] = "Po\u202ed"
    made["spec"]["containers"][0]["name"] = "main\x9b2J"
    main([command, written(tmp_path, made)])
    told = capsys.readouterr().out
    assert told.replace("\n", "").isprintable()
    assert not any(each.startswith("forged.yaml") for each in told.splitlines())
    assert "p\\x1b[2J\\nforged.yaml" in told


def test_lines_name_place_level_and_code_and_end_with_a_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, pod({"gpu-memory": "8"}), pod({"gpu-fraction": "x"}), pod())
    assert main(["lint", path]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    place = f"{path} document {{}}: Pod default/p"
    assert first == f"{place.format(1)}: warning: container main asks for 8 MiB of one GPU: are GiB meant? [unit]"
    assert second.startswith(f"{place.format(2)}: error: gpu-fraction annotation value must be")
    assert last == "3 pods: 1 error, 1 warning, 0 notes"


def test_a_kind_without_namespace_is_named_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"template": {"spec": {"replicatedJobs": [{"template": {"spec": {"template": pod({"gpu-memory": "8"})}}}]}}}
    runtime = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime", "spec": spec}
    path = written(tmp_path, {**runtime, "metadata": {"name": "torch"}})
    place = "ClusterTrainingRuntime torch spec.template.spec.replicatedJobs[0].template.spec.template"
    for command in ("lint", "translate"):
        assert main([command, path]) == 0
        assert f"{path} document 1: {place}" in capsys.readouterr().out


def test_a_terminal_gets_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["lint", written(tmp_path, pod({"gpu-memory": "8"}))]) == 0
    shown = capsys.readouterr().out
    assert "warning" in shown
    assert "1 pod: 0 errors, 1 warning, 0 notes" in shown


def test_a_lint_that_takes_long_says_how_far_it_is(tmp_path: Path) -> None:
    terminal, path = Terminal(), written(tmp_path, pod(), pod(), pod(), pod(), pod(), pod(), pod(), pod())
    progress = Progress(out=terminal, now_s=Watch(1.5))
    assert lint.run([path], output="json", strict=False, settings=DialectSettings(), progress=progress) == 0
    *reading, first, second = terminal.getvalue().splitlines()
    assert reading[-1] == f"moorage: reading {path}, objects read: 5 ..."
    assert [first, second] == ["moorage: 0 of 8 pods judged ...", "moorage: 4 of 8 pods judged ..."]
