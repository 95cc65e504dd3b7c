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
from cli import lint
from cli.main import main
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
NEVER_PLACED = {"claim", "ignored", "no-pod-group", "no-scheduler", "pod-group-missing", "unreadable", "unsupported"}
HALF = {"gpu-fraction": "0.5"}
SHOWN = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


def on_a_node(made: Raw) -> Raw:
    return {**made, "spec": {**made["spec"], "nodeName": "n1"}}


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
    listed = re.findall(r"^\| `([a-z-]+)` \|", documents.partition("## lint")[2], re.MULTILINE)
    assert set(listed) == {code for _, code, _ in WARNINGS} | {"gone"} | NEVER_PLACED


def test_init_containers_by_a_type_that_is_gone_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = pod({**HALF, "gpu-fraction-container-type": "InitContainer"})
    typed["spec"]["initContainers"] = [{"name": "load"}]
    (finding,) = findings(capsys, written(tmp_path, typed))
    assert (finding["code"], finding["field"]) == ("gone", "gpu-fraction-container-type")


def test_annotations_of_a_workload_are_not_its_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = pod(HALF)
    workload = {
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


@pytest.mark.parametrize(
    ("written_pod", "code", "field"),
    [
        (pod({"gpu-fraction": "1.5"}), "malformed", "gpu-fraction"),
        (pod(HALF, limits={"nvidia.com/gpu": 1}), "conflicting", "gpu-fraction"),
        (pod(limits={"nvidia.com/gpu": "0.5"}), "malformed", "nvidia.com/gpu of container main"),
        (pod(limits={"koordinator.sh/gpu-core": 50}), "incomplete", "koordinator.sh/gpu-core of container main"),
        (pod(resources={"requests": {"nvidia.com/gpu": 1}}), "no-limits", "nvidia.com/gpu of container main"),
        (pod({"gpu-memory": 2000}), "malformed", ""),
    ],
)
def test_what_a_cluster_would_refuse_is_an_error(
    written_pod: Raw, code: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(capsys, written(tmp_path, written_pod), code=1)
    assert (finding["level"], finding["code"], finding["field"]) == ("error", code, field)


def of_other_scheduler(made: Raw, scheduler: str) -> Raw:
    return {**made, "spec": {**made["spec"], "schedulerName": scheduler}}


def adopting(labels: Raw) -> Raw:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}


TOO_LARGE: dict[str, Raw] = {
    "containers": {**pod(HALF), "spec": {**pod()["spec"], "containers": [{"name": f"x{n}"} for n in range(513)]}},
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


def test_notes_tell_what_is_understood_otherwise_than_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, pod(limits={"nvidia.com/gpumem": 500, "nvidia.com/gpucores": 100}))
    (finding,) = findings(capsys, path)
    assert (finding["level"], finding["code"]) == ("note", "exclusive")


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
