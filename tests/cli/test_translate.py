from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli import translate
from cli.main import main
from cli.manifests import translation
from gpu.dialects.settings import DialectSettings
from gpu.translate.say import TARGETS
from runtime.output import Progress
from tests.cli.terminal import Terminal, Watch

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: half, namespace: team, annotations: {gpu-fraction: "0.5"}}
spec: {containers: [{name: main}]}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: slices}
spec:
  template:
    spec:
      containers:
      - {name: main, resources: {limits: {nvidia.com/gpu: 2, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30}}}
"""
REFUSED = """\
kind: Pod
apiVersion: v1
metadata: {name: bad, annotations: {gpu-fraction: "1.5"}}
spec: {containers: [{name: main}]}
"""


def path_of(tmp_path: Path, *texts: str) -> str:
    path = tmp_path / "pods.yaml"
    path.write_text("---\n".join(texts), encoding="utf-8")
    return str(path)


def answers(capsys: pytest.CaptureFixture[str], path: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["translate", "-o", "json", path]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_text_tells_dialect_asks_wishes_and_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = path_of(tmp_path, POD, DEPLOYMENT)
    assert main(["translate", path]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{path} document 1: Pod team/half",
        "  dialect   kai",
        "  asks      main: 50% of a GPU",
        f"{path} document 2: Deployment default/slices spec.template",
        "  dialect   hami",
        "  asks      main: 2 times 3000 MiB of a GPU, 30% of its compute",
        "  wish      no more memory than that",
        "  wish      no more compute than that",
        "  change    main: nvidia.com/gpumem is taken out",
        "  change    main: nvidia.com/gpucores is taken out",
        "  change    main: nvidia.com/gpu is taken out",
    ]


def test_the_example_in_the_documents_is_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slices.yaml").write_text(DEPLOYMENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["translate", "slices.yaml"]) == 0
    documents = (Path(__file__).parents[2] / "docs" / "translate.md").read_text(encoding="utf-8")
    assert f"$ moorage translate slices.yaml\n{capsys.readouterr().out}```" in documents
    assert main(["translate", "--to", "volcano", "slices.yaml"]) == 0
    assert f"$ moorage translate --to volcano slices.yaml\n{capsys.readouterr().out}```" in documents


def test_the_targets_are_all_that_can_be_said() -> None:
    assert set(translate.TARGETS) == {"native", *TARGETS}


def test_what_has_no_words_at_the_target_is_named_and_ends_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = path_of(tmp_path, POD, DEPLOYMENT)
    assert main(["translate", "--to", "aliyun", path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "  unsaid    aliyun has no words for this: asks[0].nano 500000000" in lines
    assert main(["translate", "--to", "kai", "-o", "json", path]) == 1
    half, slices = json.loads(capsys.readouterr().out)
    assert half["said"] == {"dialect": "kai", "annotations": {"gpu-fraction": "0.5"}}
    assert slices["said"] == {"dialect": "kai", "unsaid": "asks[0].computePercent 30"}


def test_what_the_words_add_and_leave_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    five = "{name: main, resources: {limits: {aliyun.com/gpu-mem: 5}}}"
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{five}]}}\n"
    path = path_of(tmp_path, pod)
    assert main(["translate", "--to", "volcano", path]) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "  volcano   limit volcano.sh/vgpu-number: 1 of container main",
        "  volcano   limit volcano.sh/vgpu-memory: 5120 of container main",
        "  adds      wishes.memoryCap true",
        '  leaves    strategy "binpack"',
    ]


def test_a_pod_that_is_refused_is_said_in_no_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--to", "hami", "-o", "json", path_of(tmp_path, REFUSED)]) == 1
    (answer,) = json.loads(capsys.readouterr().out)
    assert "said" not in answer


def test_json_has_the_native_record_and_the_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = path_of(tmp_path, DEPLOYMENT)
    (answer,) = answers(capsys, path)
    assert answer == {
        "file": path,
        "document": 1,
        "path": "spec.template",
        "kind": "Deployment",
        "namespace": "default",
        "name": "slices",
        "dialect": "hami",
        "record": {
            "version": 1,
            "dialect": "hami",
            "asks": [{"container": "c0", "name": "main", "count": 2, "memMib": 3000, "computePercent": 30}],
            "wishes": {"memoryCap": True, "computeCap": True},
        },
        "changes": [
            {"container": "c0", "resource": name}
            for name in ("nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpu")
        ],
    }


def test_yaml_says_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = path_of(tmp_path, POD, DEPLOYMENT)
    expected = answers(capsys, path)
    assert main(["translate", "--to", "native", "-o", "yaml", path]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == expected


def test_a_refusal_has_the_words_of_admission_and_ends_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = path_of(tmp_path, POD, REFUSED)
    good, bad = answers(capsys, path, code=1)
    assert "refused" not in good
    message = "gpu-fraction annotation value must be a positive number smaller than 1.0"
    assert bad["refused"].startswith(f'{message} (gpu-fraction is "1.5"; allowed: ')
    assert (bad["document"], bad["refusal"]["field"], bad["refusal"]["code"]) == (2, "gpu-fraction", "malformed")
    assert main(["translate", path]) == 1
    assert f"{path} document 2: Pod default/bad\n  refused   {message}" in capsys.readouterr().out


TEMPLATE = "{spec: {containers: [{name: w, resources: {limits: {volcano.sh/vgpu-memory: 500}}}]}}"


@pytest.mark.parametrize(
    ("kind", "spec", "paths"),
    [
        ("Job", "{template: %s}", ["spec.template"]),
        ("StatefulSet", "{template: %s}", ["spec.template"]),
        ("CronJob", "{jobTemplate: {spec: {template: %s}}}", ["spec.jobTemplate.spec.template"]),
        (
            "JobSet",
            "{replicatedJobs: [{template: {spec: {template: %s}}}]}",
            ["spec.replicatedJobs[0].template.spec.template"],
        ),
        ("PyTorchJob", "{pytorchReplicaSpecs: {Worker: {template: %s}}}", ["spec.pytorchReplicaSpecs.Worker.template"]),
        ("Queue", "{weight: 1}", []),
        ("VolcanoJob", "{tasks: [{template: &t %s}, {template: *t}]}", ["spec.tasks[0].template"]),
    ],
)
def test_pod_templates_of_any_kind_are_found(
    kind: str, spec: str, paths: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"kind: {kind}\nmetadata: {{name: x}}\nspec: {spec.replace('%s', TEMPLATE)}\n"
    found = answers(capsys, path_of(tmp_path, text))
    assert [answer["path"] for answer in found] == paths
    assert all(answer["record"]["asks"] == [{"container": "c0", "name": "w", "memMib": 500}] for answer in found)


def test_lists_empty_documents_json_and_standard_input_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = yaml.safe_load(POD)
    (tmp_path / "list.json").write_text(json.dumps({"kind": "List", "items": [pod, pod, 7]}), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("{", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"---\n---\n{POD}"))
    assert main(["translate", "-o", "json", "-", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(Path(answer["file"]).name, answer["document"]) for answer in found] == [
        ("-", 2),
        ("list.json", 1),
        ("list.json", 1),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POD.replace('"0.5"', "0.5"), "metadata.annotations[gpu-fraction] is 0.5 and has to be text: put it in quotes"),
        (POD.replace("main", "7"), "Expected `str`, got `int`"),
        (POD.replace("{name: main}", "main"), "Expected `object`, got `str`"),
    ],
)
def test_what_the_api_server_would_not_read_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = answers(capsys, path_of(tmp_path, text), code=1)
    assert answer["refused"].startswith(f"the API server would not take this pod: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not YAML: "),
        ("a: 2024-99-99\n", "not YAML: "),
        ("hello\n", "document 1 is text, not an object"),
        ("- {kind: Pod}\n", "document 1 is a list, not an object"),
        ("[" * 400, "not YAML: "),
        (None, "No such file or directory"),
    ],
    ids=["broken", "date", "text", "list", "deep", "missing"],
)
def test_bad_input_ends_with_two_and_one_line(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = path_of(tmp_path, text) if text is not None else str(tmp_path / "missing.yaml")
    assert main(["translate", path]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"moorage: {path}: {message}")
    assert captured.err.count("\n") == 1


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=8) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
ASKED = st.dictionaries(
    st.sampled_from(
        ["nvidia.com/gpu", "nvidia.com/gpumem", "aliyun.com/gpu-mem", "cnvrg.io/metagpu", "koordinator.sh/gpu"]
    ),
    ANYTHING,
    max_size=3,
)
LIMITED = st.fixed_dictionaries({"resources": st.fixed_dictionaries({"limits": ASKED | ANYTHING})})


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    annotations=st.dictionaries(st.sampled_from(["gpu-fraction", "gpu-memory"]) | st.text(), ANYTHING) | ANYTHING,
    containers=st.lists(st.builds(lambda limited: {"name": "main", **limited}, LIMITED) | ANYTHING, max_size=3),
    beside=ANYTHING,
)
def test_whatever_a_file_holds_there_is_an_answer(
    annotations: object, containers: list[object], beside: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": containers, "volumes": beside}}
    workload = {"kind": "Deployment", "metadata": beside, "spec": {"template": template, "more": beside}}
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump_all([workload, template, {"of": beside}]), encoding="utf-8")
    for command in ("translate", "lint"):
        assert main([command, "-o", "json", str(path)]) in {0, 1}
        assert isinstance(json.loads(capsys.readouterr().out), list)


def test_a_folder_without_manifests_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", str(tmp_path)]) == 2
    said = "a folder without manifests (.json, .yaml, .yml); -R reads folders within it"
    assert capsys.readouterr().err == f"moorage: {tmp_path}: {said}\n"


@pytest.mark.parametrize(
    "arguments", [["translate", "-f"], ["translate", "--to", "run.ai", "x"], ["lint", "--files"], ["lint", "-o", "x"]]
)
def test_what_the_parser_refuses_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_reader_who_has_enough_ends_it_without_a_word(tmp_path: Path) -> None:
    path = path_of(tmp_path, *[DEPLOYMENT] * 500)
    program = [sys.executable, "-m", "cli.main", "translate", path]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert "document 1:" in running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == ""
        assert running.wait(60) == 141


def test_a_terminal_gets_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["translate", path_of(tmp_path, POD)]) == 0
    shown = capsys.readouterr().out
    assert "what Moorage makes of it" in shown
    assert "50% of a GPU" in shown


def test_what_is_asked_on_some_nodes_is_told_beside_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "dialects.yaml"
    settings.write_text("replicas: {time_slices: 4}\nnodes: [{labels: {a: b}, replicas: {time_slices: 2}}]")
    shared = 'gpu-fraction: "0.5"', "main, resources: {limits: {nvidia.com/gpu.shared: 1}}"
    path = path_of(tmp_path, POD.replace(shared[0], "").replace("main", shared[1]))
    assert main(["translate", path, "--dialects", str(settings)]) == 0
    shown = capsys.readouterr().out
    assert "  asks      main: 25% of a GPU\n  asks      on nodes without a=b\n" in shown
    assert "  or        main: 50% of a GPU; on nodes with a=b\n" in shown


def test_pods_are_read_with_the_settings_of_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "dialects.yaml"
    settings.write_text("hami: {memory_factor: 10}")
    path = path_of(tmp_path, DEPLOYMENT)
    assert main(["translate", "-o", "json", path, "--dialects", str(settings)]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["record"]["asks"][0]["memMib"] == 30000
    assert main(["lint", path, "--dialects", str(settings)]) == 0


def test_a_translation_that_takes_long_says_how_far_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, terminal = tmp_path / "many.yaml", Terminal()
    path.write_text("---\n".join([POD] * 8), encoding="utf-8")
    progress = Progress(out=terminal, now_s=Watch(1.5))
    assert translation.run([str(path)], output="json", settings=DialectSettings(), progress=progress) == 0
    assert len(json.loads(capsys.readouterr().out)) == 8
    *reading, first, second = terminal.getvalue().splitlines()
    assert reading[-1] == f"moorage: reading {path}, objects read: 5 ..."
    assert [first, second] == ["moorage: 0 of 8 pods translated ...", "moorage: 4 of 8 pods translated ..."]
