from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from cli.simulation import manifests as simulation
from runtime.output import Progress
from tests.cli.terminal import Terminal, Watch

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec:
  schedulerName: {scheduler}
  containers:
  - {{name: main, image: work, resources: {{limits: {{{limits}}}}}}}
---
"""


def pod(name: str, annotations: str = "", *, limits: str = "", scheduler: str = "kai-scheduler") -> str:
    return POD.format(name=name, annotations=annotations, limits=limits, scheduler=scheduler)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "pods.yaml"
    half = 'gpu-fraction: "0.5"'
    text = pod("a", half) + pod("b", half) + pod("c", limits="nvidia.com/gpu: 4") + pod("d", scheduler="other")
    path.write_text(text, encoding="utf-8")
    return path


def simulate(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["simulate", "-o", "json", *arguments]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_json_tells_pods_nodes_and_invariants(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = simulate(capsys, "--nodes", "1x2x80GiB", str(manifest))
    pods = {each["name"]: each for each in result["pods"]}
    held = {f"S{number}" for number in range(1, 20)} | {f"L{number}" for number in range(1, 8)}
    assert result["invariants"] == dict.fromkeys(held, "held")
    assert result["idle"] is True
    (device,) = pods["a"]["devices"]
    assert pods["b"]["devices"] == [device]
    assert (device["nano_gpu"], device["mem_mib"]) == (500_000_000, 40960)
    assert device["uuid"] == result["nodes"][0]["devices"][device["index"]]["uuid"]
    assert [pods["a"][key] for key in ("namespace", "phase", "node", "reason", "verdict")] == [
        "default",
        "Running",
        "node-0",
        "",
        "",
    ]
    assert (pods["c"]["phase"], pods["c"]["node"], pods["c"]["reason"]) == ("Pending", "", "Unschedulable")
    assert "GPUs" in pods["c"]["verdict"]
    assert pods["d"]["reason"] == "OtherScheduler"


def test_each_node_pool_has_a_scheduler_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, label = tmp_path / "pods.yaml", "kai.scheduler/node-pool"
    here = pod("here", limits="nvidia.com/gpu: 1").replace("metadata: {", f"metadata: {{labels: {{{label}: a100}}, ")
    path.write_text(here + pod("elsewhere", limits="nvidia.com/gpu: 1"), encoding="utf-8")
    arguments = ("--nodes", "1x2x80GiB", "--node-label", f"{label}=a100", str(path))
    pods = {each["name"]: each for each in simulate(capsys, *arguments)["pods"]}
    assert (pods["here"]["phase"], pods["elsewhere"]["phase"]) == ("Running", "Pending")
    assert "1 node(s) were in another node pool" in pods["elsewhere"]["verdict"]


def test_all_pods_are_adopted_if_asked_whichever_scheduler_they_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the option pods of others are placed, those without GPUs too; one that brings its node stays as it is."""
    path = tmp_path / "foreign.yaml"
    bound = pod("bound", scheduler="other").replace("spec:\n", "spec:\n  nodeName: node-0\n")
    path.write_text(pod("cpu", scheduler="other") + pod("gpu", limits="nvidia.com/gpu: 1", scheduler="volcano") + bound)
    arguments = ("--nodes", "1x1x80GiB", str(path))
    left = {each["name"]: each["reason"] for each in simulate(capsys, *arguments)["pods"]}
    assert (left["cpu"], left["gpu"]) == ("OtherScheduler", "OtherScheduler")
    taken = simulate(capsys, "--adopt-all", *arguments)["pods"]
    assert {each["name"]: each["node"] for each in taken} == dict.fromkeys(("cpu", "gpu", "bound"), "node-0")


def test_pods_that_are_left_to_another_scheduler_are_counted_and_the_option_is_named(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "moorage: 1 of 4 pods name another scheduler or none and stay pending; --adopt-all schedules them as well\n"
    arguments = ["simulate", "--nodes", "1x2x80GiB", str(manifest)]
    assert main(arguments) == 0
    assert said in capsys.readouterr().err
    assert main([*arguments, "--adopt-all"]) == 0
    assert "--adopt-all" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "verdict", "line"),
    [
        (
            "v1alpha2",
            'waiting for kube-controller-manager to create the resourceclaim for "gpu"',
            "passed over, because they make no pods: 1 ResourceClaimTemplate",
        ),
        (
            "v1beta1",
            "device class absent does not exist",
            "read as newer versions: 1 ResourceClaimTemplate of resource.k8s.io/v1beta1 as resource.k8s.io/v1",
        ),
    ],
)
def test_a_pod_whose_claim_is_made_from_an_older_template_says_why_it_waits(
    version: str, verdict: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claims of devices are neither refused nor passed over in silence."""
    claims = "spec:\n  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]\n"
    template = (
        f"apiVersion: resource.k8s.io/{version}\nkind: ResourceClaimTemplate\nmetadata: {{name: one}}\n"
        "spec: {spec: {devices: {requests: [{name: gpu, deviceClassName: absent}]}}}\n---\n"
    )
    path = tmp_path / "claims.yaml"
    path.write_text(template + pod("dra").replace("spec:\n", claims, 1), encoding="utf-8")
    assert main(["simulate", "-o", "json", "--nodes", "1x1x80GiB", str(path)]) == 0
    printed = capsys.readouterr()
    (waits,) = json.loads(printed.out)["pods"]
    assert (waits["phase"], waits["reason"], waits["verdict"]) == ("Pending", "Unschedulable", verdict)
    assert line in printed.err


STORED = {"resourceVersion": "12", "uid": "1-2", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z"}
OF_JOB = {"batch.kubernetes.io/job-name": "job", "batch.kubernetes.io/controller-uid": "1-2"}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": OF_JOB},
    "spec": {"restartPolicy": "Never", "schedulerName": "kai-scheduler", "containers": [{"name": "c", "image": "i"}]},
}
SIZE: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
MOUNTED = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def got(api_version: str, kind: str, name: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """An object as `kubectl get -o yaml` shows it."""
    status = {"phase": "Bound"}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, **STORED, **meta},
        "spec": spec,
        "status": status,
    }


PLACED: dict[str, Any] = {**TEMPLATE["spec"], "nodeName": "elsewhere", "priority": 50, "priorityClassName": "train"}
GRANTED: dict[str, Any] = {
    "annotations": {"gpu-fraction": "0.5", "moorage.dev/grant": "{}", "moorage.dev/charged": "{}"},
    "labels": {"runai-gpu-group": "g"},
}
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
}
SCRATCH = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": SIZE}}}]}
WAITS_FOR_A_POD = {
    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
    "provisioner": "disks.example", "volumeBindingMode": "WaitForFirstConsumer",
}  # fmt: skip
LOCAL = {
    "volumes": [{"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {**SIZE, "storageClassName": "local"}}}}]
}
SET: dict[str, Any] = {
    "replicas": 2,
    "selector": {"matchLabels": OF_JOB},
    "template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}},
    "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": SIZE}],
}


@pytest.mark.parametrize(
    ("objects", "running"),
    [
        ([got("batch/v1", "Job", "job", {"template": TEMPLATE, "selector": {"matchLabels": OF_JOB}})], 1),
        ([got("v1", "Pod", "p", PLACED, **GRANTED)], 1),
        (
            [
                got("v1", "Pod", "p", {**TEMPLATE["spec"], **MOUNTED}),
                got(
                    "v1", "PersistentVolumeClaim", "data", {**SIZE, "volumeName": "pvc-1"},
                    annotations={"pv.kubernetes.io/bind-completed": "yes"},
                ),
            ],
            1,
        ),
        ([got("v1", "Pod", "p", {**TEMPLATE["spec"], "runtimeClassName": "kata"}), RUNTIME_CLASS], 1),
        ([got("apps/v1", "StatefulSet", "set", SET)], 2),
        ([got("v1", "Pod", "p", {**TEMPLATE["spec"], **SCRATCH})], 1),
        ([got("v1", "Pod", "p", {**TEMPLATE["spec"], **LOCAL}), WAITS_FOR_A_POD], 1),
    ],
    ids=[
        "a Job", "a pod that was placed", "a claim that is bound", "a RuntimeClass", "claims of a StatefulSet",
        "a claim of a pod's own", "a claim of a pod's own that waits for a node",
    ],
)  # fmt: skip
def test_what_kubectl_get_shows_starts_as_on_its_cluster(
    objects: list[dict[str, Any]], running: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "got.yaml"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects}))
    pods = simulate(capsys, "--nodes", "1x2x80GiB", str(path))["pods"]
    assert [(each["phase"], each["node"]) for each in pods] == [("Running", "node-0")] * running


def test_the_default_queue_and_the_priority_classes_of_the_chart_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pods.yaml"
    unlimited = "{resources: {cpu: {limit: -1}, memory: {limit: -1}, gpu: {limit: -1}}}"
    team = f"apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: team}}\nspec: {unlimited}\n---\n"
    path.write_text(team + pod("a", limits="nvidia.com/gpu: 1").replace("spec:", "spec:\n  priorityClassName: train"))
    result = simulate(capsys, "--nodes", "1x2x80GiB", str(path))
    assert [each["phase"] for each in result["pods"]] == ["Running"]
    assert [(each["name"], each["placed"]) for each in result["queues"]] == [
        ("default-parent-queue", 1), ("default-queue", 1), ("team", 0),
    ]  # fmt: skip


def test_nodes_say_who_sits_where(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = simulate(capsys, "--nodes", "1x1x80GiB", "--nodes", "1x0", str(manifest))
    first, second = result["nodes"]
    assert (second["name"], second["devices"]) == ("node-1", [])
    tenants = first["devices"][0]["tenants"]
    assert tenants == [{"pod": f"default/{name}", "nano_gpu": 500_000_000} for name in ("a", "b")]
    assert first["devices"][0]["reserved"] is True


def test_tables_name_pods_devices_and_reasons(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--nodes", "1x2x80GiB", str(manifest)]) == 0
    shown = capsys.readouterr().out
    for part in ("default/a", "50% = 40960 MiB", "OtherScheduler", "26 invariants held"):
        assert part in shown


def test_manifests_come_from_standard_input_and_folders(
    manifest: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(pod("from-stdin")))
    result = simulate(capsys, "--nodes", "1x2x80GiB", "-", str(manifest.parent))
    assert [each["name"] for each in result["pods"]] == ["from-stdin", "a", "b", "c", "d"]


CONTROLLERS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {gpu-fraction: "0.5"}}
    spec:
      schedulerName: kai-scheduler
      containers: [{name: main, image: work}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
---
apiVersion: batch/v1
kind: Job
metadata: {name: alone}
spec:
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      schedulerName: kai-scheduler
      containers: [{name: main, image: work, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: together, annotations: {kai.scheduler/batch-min-member: "2"}}
spec:
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      schedulerName: kai-scheduler
      containers: [{name: main, image: work, resources: {limits: {nvidia.com/gpu: 1}}}]
---
"""


def _bad_inputs() -> Iterator[tuple[list[str], str, str]]:
    nodes = ["--nodes", "1x1x80GiB"]
    yield ["--nodes", "four"], pod("a"), "nodes 'four'"
    yield [*nodes, "--delay", "soon"], pod("a"), "--delay: 'soon' is not a number with ms, s, m or h"
    yield [*nodes, "--until", "tomorrow"], pod("a"), "--until: 'tomorrow' is not"
    yield nodes, "kind: Job\n", "apiVersion None of Job: Job is batch/v1"
    deployment = CONTROLLERS.partition("---\n")[0]
    yield nodes, deployment.replace(": 3", ": 1000000000"), "spec.replicas is 1000000000; all controllers together make"
    yield nodes, deployment.replace('"0.5"', '"1.5"'), "Deployment default/web: Pod default/web-"
    yield nodes, "{", "not YAML"
    yield (
        nodes,
        pod("a", "gpu-fraction: 0.5"),
        (
            "Pod default/a: the API server would not take this pod: metadata.annotations[gpu-fraction] is 0.5 and has "
            "to be text: put it in quotes"
        ),
    )
    yield nodes, pod("a").replace("image: work", "image: 5"), "the API server would not take this pod: Expected `str`"
    yield nodes, pod("a", 'gpu-fraction: "1.5"'), "Pod default/a: admission webhook"
    yield nodes, pod("a") + pod("a"), 'Pod default/a: pods "a" already exists'
    yield nodes, pod("Not_A_Name"), "Pod default/Not_A_Name: "


@pytest.mark.parametrize(("arguments", "text", "message"), list(_bad_inputs()))
def test_bad_input_ends_with_two_and_one_line(
    arguments: list[str], text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["simulate", *arguments, str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "message"), [("missing.yaml", "No such file or directory"), ("", "a folder without manifests")]
)
def test_files_that_cannot_be_read_are_named(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--nodes", "1x0", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err == f"moorage: {tmp_path / name}: {message}".rstrip() + (
        " (.json, .yaml, .yml); -R reads folders within it\n" if not name else "\n"
    )


@pytest.mark.parametrize("arguments", [["simulate", "--nodes"], ["simulate", "--nodes", "1x0", "--manifest"], ["fly"]])
def test_what_the_parser_refuses_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_aliases_that_repeat_more_than_anybody_means_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines), encoding="utf-8")
    assert main(["simulate", "--nodes", "1x1x80GiB", str(tmp_path / "bomb.yaml")]) == 2
    assert "aliases repeat more than" in capsys.readouterr().err


def test_a_simulation_that_takes_long_says_how_far_it_is(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    for step_s in (0.0, 0.05):
        terminal = Terminal()
        request = simulation.Request(nodes=["1x2x80GiB"], files=[str(manifest)], output="json")
        assert simulation.run(request, Progress(out=terminal, now_s=Watch(step_s))) == 0
        said.append(terminal.getvalue())
    results = capsys.readouterr().out
    assert results[: len(results) // 2] == results[len(results) // 2 :]
    assert said[0] == ""
    assert re.search(r"^moorage: simulated \d+ s, \d pods are there, [123] of them run \.\.\.$", said[1], re.MULTILINE)


ADOPTING = """\
apiVersion: v1
kind: Namespace
metadata: {{name: {name}, labels: {{moorage.dev/adopt: "{adopt}"}}}}
---
"""


@pytest.mark.parametrize(
    ("namespace", "scheduler", "phase"),
    [
        ("team", "default-scheduler", "Running"),
        ("default", "default-scheduler", "Running"),  # the simulation has this namespace already
        ("default", "another-scheduler", "Pending"),
    ],
)
@pytest.mark.parametrize("adopt", ["true", "false"])
def test_a_namespace_adopts_pods_if_its_manifest_says_so(
    namespace: str, scheduler: str, phase: str, adopt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    share = pod("a", 'gpu-fraction: "0.5"', scheduler=scheduler).replace(
        "name: a,", f"name: a, namespace: {namespace},"
    )
    text = share + ADOPTING.format(name=namespace, adopt=adopt)
    (tmp_path / "pods.yaml").write_text(text, encoding="utf-8")
    result = simulate(capsys, "--nodes", "1x1x80GiB", str(tmp_path / "pods.yaml"))
    assert [each["phase"] for each in result["pods"]] == [phase if adopt == "true" else "Pending"]


def test_a_namespace_that_the_simulation_makes_takes_labels_and_annotations_of_its_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pods.yaml").write_text(
        'apiVersion: v1\nkind: Namespace\nmetadata: {name: default, annotations: {moorage.dev/dialects: "nonsense"}}\n'
        "---\n" + pod("a", 'gpu-fraction: "0.5"'),
        encoding="utf-8",
    )
    assert main(["simulate", "--nodes", "1x1x80GiB", str(tmp_path / "pods.yaml")]) == 2
    assert "the annotation moorage.dev/dialects of the namespace default can't be read" in capsys.readouterr().err


def _has_controller(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    # A suspended Job, as Kueue gets it, has no pods.
    is_started = not re.search("^  suspend: true$", text, re.MULTILINE)
    return is_started and re.search("^kind: (Deployment|Job|StatefulSet)$", text, re.MULTILINE) is not None


WITH_CONTROLLERS = list(filter(_has_controller, sorted(Path("examples").rglob("*.yaml"))))


@pytest.mark.parametrize("path", WITH_CONTROLLERS, ids=str)
def test_examples_with_controllers_are_simulated(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = simulate(capsys, "--nodes", "2x4x80GiB", str(path))
    assert result["idle"] is True
    assert result["pods"]


_TEMPLATE = """
    {spec: {schedulerName: kai-scheduler, containers: [
      {name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}}"""
_WORKLOADS = f"""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: bert}}
spec:
  pytorchReplicaSpecs:
    Master: {{template: {_TEMPLATE}}}
    Worker: {{replicas: 2, template: {_TEMPLATE}}}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: mpi}}
spec:
  mpiReplicaSpecs:
    Launcher: {{replicas: 1, template: {_TEMPLATE}}}
    Worker: {{replicas: 1, template: {_TEMPLATE}}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: set}}
spec:
  replicatedJobs:
  - {{name: workers, replicas: 2, template: {{spec: {{parallelism: 2, template: {_TEMPLATE}}}}}}}
---
apiVersion: example.com/v1
kind: Unknown
metadata: {{name: u}}
spec: {{template: {_TEMPLATE}}}
"""


_SIZES = {"bert": 3, "mpi": 2, "set": 4}


@pytest.mark.parametrize("gpus", [9, 5, 3])
def test_workloads_of_other_projects_start_as_gangs_without_a_word_added(
    gpus: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "workloads.yaml"
    path.write_text(_WORKLOADS)
    assert main(["simulate", "--nodes", f"1x{gpus}x80GiB", str(path), "-o", "json"]) == 0
    captured = capsys.readouterr()
    found = [pod["name"].partition("-")[0] for pod in json.loads(captured.out)["pods"] if pod["phase"] == "Running"]
    running = {name: found.count(name) for name in found}
    assert running.items() <= _SIZES.items(), "each starts whole; which of equal age comes first is no promise"
    assert all(size > gpus - len(found) for name, size in _SIZES.items() if name not in running), (
        "and one that fits does"
    )
    assert captured.err.splitlines() == [
        "moorage: pods made as the controllers would make them, with the PodGroups of 'translate --podgroup': "
        "1 PyTorchJob.kubeflow.org (3 pods), 1 MPIJob.kubeflow.org (2 pods), 1 JobSet.jobset.x-k8s.io (4 pods)",
        "moorage: their pods are not made, because their controllers are not simulated: 1 Unknown.example.com",
    ]


def test_queues_are_kept_within_their_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "team.yaml"
    label = "labels: {kai.scheduler/queue: team}, "
    pods = [pod(f"p{i}", limits="nvidia.com/gpu: 1").replace("annotations", label + "annotations") for i in range(3)]
    path.write_text(
        "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: team}\n"
        "spec: {resources: {cpu: {limit: -1}, memory: {limit: -1}, gpu: {limit: 2}}}\n---\n" + "".join(pods)
    )
    result = simulate(capsys, "--nodes", "1x8x80GiB", str(path))
    assert sorted(each["phase"] for each in result["pods"]) == ["Pending", "Running", "Running"]
    (told,) = [each["verdict"] for each in result["pods"] if each["phase"] == "Pending"]
    assert "team quota has reached the allowable limit of GPUs. Limit is 2 GPUs" in told
    assert result["invariants"]["S6"] == "held"
    (queue,) = result["queues"]
    assert (queue["name"], queue["placed"], queue["waiting"], queue["closed"]) == ("team", 2, 1, "")
    assert [queue[each].get("nano_gpu") for each in ("used", "waits_for", "quota", "limit")] == [
        2 * 10**9,
        10**9,
        0,
        2 * 10**9,
    ]
    assert "cpu_milli" not in queue["limit"], "-1 is no limit"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("kind: Queue\nspec: {resources: {gpu: {limit: -2}}}", "spec.resources.gpu.limit"),
        ("kind: Queue\nspec: {}", "spec.resources"),
        ("kind: Queue\nspec: {parentQueue: bad, resources: {}}", "parentQueue"),
    ],
)
def test_a_queue_that_admission_refuses_is_refused_here(
    written: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text(f"apiVersion: scheduling.run.ai/v2\nmetadata: {{name: bad}}\n{written}\n")
    assert main(["simulate", "--nodes", "1x1x80GiB", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert "Queue bad" in line


def test_nodes_have_the_labels_and_resources_that_the_command_line_gives_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pods.yaml"
    text = pod("a", limits="npu.example/cards: 2") + pod("b", limits="npu.example/cards: 2")
    path.write_text(text.replace("spec:\n", "spec:\n  nodeSelector: {example.com/rack: r1}\n"), encoding="utf-8")
    given = ["--node-label", "example.com/rack=r1", "--node-resource", "npu.example/cards=3"]
    pods = simulate(capsys, "--nodes", "1x0", *given, str(path))["pods"]
    assert sorted(bool(each["node"]) for each in pods) == [False, True]
    (waiting,) = [each["verdict"] for each in pods if not each["node"]]
    assert "npu.example/cards" in waiting


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "1x0", "--node-label", "rack", __file__], "--node-label 'rack': not a label; allowed: KEY=VALUE"),
        (["--workload", "university", "--node-label", "a=b"], "only with manifests, not with --trace or --workload"),
    ],
)
def test_additions_to_nodes_that_mean_nothing_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_requests_are_read_by_the_settings_of_dialects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, settings = tmp_path / "pods.yaml", tmp_path / "dialects.yaml"
    path.write_text(pod("a", limits="aliyun.com/gpu-mem: 8138"), encoding="utf-8")
    settings.write_text("aliyun: {unit_mib: 1}", encoding="utf-8")
    (in_gib,) = simulate(capsys, "--nodes", "1x1x80GiB", str(path))["pods"]
    (in_mib,) = simulate(capsys, "--nodes", "1x1x80GiB", "--dialects", str(settings), str(path))["pods"]
    assert (in_gib["node"], in_mib["node"]) == ("", "node-0")
