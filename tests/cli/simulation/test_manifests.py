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


def test_a_pod_whose_claim_is_made_from_a_template_of_another_version_waits_and_the_reason_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claims of devices are neither refused nor passed over in silence."""
    claims = "spec:\n  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]\n"
    template = (
        "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaimTemplate\nmetadata: {name: one}\nspec: {}\n---\n"
    )
    path = tmp_path / "claims.yaml"
    path.write_text(template + pod("dra").replace("spec:\n", claims, 1), encoding="utf-8")
    assert main(["simulate", "-o", "json", "--nodes", "1x1x80GiB", str(path)]) == 0
    printed = capsys.readouterr()
    (waits,) = json.loads(printed.out)["pods"]
    assert (waits["phase"], waits["reason"]) == ("Pending", "Unschedulable")
    made = 'waiting for kube-controller-manager to create the resourceclaim for "gpu"'
    assert waits["verdict"] == made
    assert "passed over, because they make no pods: 1 ResourceClaimTemplate" in printed.err


def test_claims_of_devices_are_allocated_and_who_gets_none_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = [
        ("DeviceClass", "gpu", {}),
        ("ResourceSlice", "gpus", {
            "driver": "gpu.example.com", "nodeName": "node-1", "devices": [{"name": "d0"}],
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        }),
        ("ResourceClaimTemplate", "one", {"spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}}),
    ]  # fmt: skip
    offered = [
        json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        for kind, name, spec in documents
    ]
    claims = "spec:\n  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]\n"
    users = [pod(name).replace("spec:\n", claims, 1) for name in ("a", "b")]
    path = tmp_path / "claims.yaml"
    path.write_text("\n---\n".join([*offered, *users]), encoding="utf-8")
    pods = simulate(capsys, "--nodes", "2x1x80GiB", str(path))["pods"]
    assert sorted((each["phase"], each["node"]) for each in pods) == [("Pending", ""), ("Running", "node-1")]
    (waits,) = (each for each in pods if each["phase"] == "Pending")
    assert "2 node(s) cannot allocate all claims" in waits["verdict"]


def test_nodes_say_who_sits_where(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = simulate(capsys, "--nodes", "1x1x80GiB", "--nodes", "1x0", str(manifest))
    first, second = result["nodes"]
    assert (second["name"], second["devices"]) == ("node-1", [])
    tenants = first["devices"][0]["tenants"]
    assert tenants == [{"pod": f"default/{name}", "nano_gpu": 500_000_000} for name in ("a", "b")]
    assert first["devices"][0]["reserved"] is True


def test_the_same_seed_gives_the_same_result_and_another_seed_other_devices(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--nodes", "2x4x80GiB", "--delay", "200ms", str(manifest))
    first, again, other = (simulate(capsys, "--seed", seed, *arguments) for seed in ("7", "7", "8"))
    assert first == again
    assert first["nodes"] != other["nodes"]


def test_until_a_time_shows_what_is_there_by_then(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = simulate(capsys, "--nodes", "1x2x80GiB", "--until", "100ms", str(manifest))
    assert {each["phase"] for each in result["pods"]} == {"Pending"}
    assert result["idle"] is False


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


def test_the_pods_of_controllers_are_placed_as_the_scheduler_places_them_on_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "work.yaml").write_text(CONTROLLERS, encoding="utf-8")
    assert main(["simulate", "-o", "json", "--nodes", "1x8x80GiB", str(tmp_path / "work.yaml")]) == 0
    captured = capsys.readouterr()
    assert captured.err == "moorage: passed over, because they make no pods: 1 Service\n"
    pods = json.loads(captured.out)["pods"]
    assert [re.sub("-[a-z0-9]{5}$", "", each["name"]) for each in pods] == [
        *[pods[0]["name"][:-6]] * 3,
        *["alone"] * 2,
        *["together"] * 2,
    ]
    assert [each["phase"] for each in pods] == ["Running"] * 5 + ["Pending"] * 2
    assert all("annotation kai.scheduler/batch-min-member of Job together" in each["verdict"] for each in pods[5:])


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 5
  parallelism: 2
  template:
    metadata: {annotations: {simulator.moorage.dev/run-s: "5", simulator.moorage.dev/exit-code: "CODE"}}
    spec:
      restartPolicy: Never
      schedulerName: kai-scheduler
      containers: [{name: main, image: work, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


@pytest.mark.parametrize(
    ("code", "until", "phases"),
    [
        ("0", "idle", ["Succeeded"] * 5),
        ("0", "8s", ["Succeeded"] * 2 + ["Running"] * 2),
        ("1", "idle", ["Failed"] * 2),
    ],
    ids=["all", "two at a time", "none after those that failed"],
)
def test_the_next_pods_of_a_job_come_as_earlier_ones_succeed(
    code: str, until: str, phases: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("CODE", code), encoding="utf-8")
    arguments = ["simulate", "-o", "json", "--until", until, "--nodes", "1x8x80GiB", str(tmp_path / "job.yaml")]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert [each["phase"] for each in json.loads(captured.out)["pods"]] == phases


DAEMON_SET = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  template:
    metadata: {annotations: {gpu-fraction: "0.1"}}
    spec:
      schedulerName: kai-scheduler
      containers: [{name: main, image: work}]
"""


def test_a_daemon_set_has_a_pod_on_each_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agent.yaml").write_text(DAEMON_SET, encoding="utf-8")
    assert main(["simulate", "-o", "json", "--nodes", "3x2x80GiB", str(tmp_path / "agent.yaml")]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    pods = json.loads(captured.out)["pods"]
    assert sorted((each["node"], each["phase"]) for each in pods) == [(f"node-{n}", "Running") for n in range(3)]


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


CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, annotations: {{pv.kubernetes.io/bind-completed: "yes"}}}}
spec: {{accessModes: [ReadWriteOnce], volumeName: {volume}, resources: {{requests: {{storage: 1Gi}}}}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: pv}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  claimRef: {{namespace: default, name: data}}
  hostPath: {{path: /data}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [node-1]}}]
---
"""


WAITING_CLAIM = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: disk.csi.example
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
"""


@pytest.mark.parametrize(
    ("claim", "node", "verdict"),
    [
        (CLAIM.format(name="data", volume="pv"), "node-1", ""),
        (CLAIM.format(name="data", volume='""'), "", 'pod has unbound immediate PersistentVolumeClaims: "data"'),
        (CLAIM.format(name="other", volume="pv"), "", 'persistentvolumeclaim "data" not found'),
        (WAITING_CLAIM, "node-0", ""),
    ],
)
def test_a_pod_with_a_bound_claim_runs_where_its_volume_is(
    claim: str, node: str, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mounting = pod("a", limits="nvidia.com/gpu: 1").replace(
        "  containers:", "  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n  containers:"
    )
    (tmp_path / "pods.yaml").write_text(claim + mounting, encoding="utf-8")
    result = simulate(capsys, "--nodes", "2x2x80GiB", str(tmp_path / "pods.yaml"))
    assert [(each["node"], each["verdict"]) for each in result["pods"]] == [(node, verdict)]


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


def test_a_namespace_adopts_the_pods_of_controllers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deployment = CONTROLLERS.partition("---\n")[0].replace("      schedulerName: kai-scheduler\n", "")
    (tmp_path / "work.yaml").write_text(ADOPTING.format(name="default", adopt="true") + deployment, encoding="utf-8")
    result = simulate(capsys, "--nodes", "1x2x80GiB", str(tmp_path / "work.yaml"))
    assert [(each["phase"], len(each["devices"])) for each in result["pods"]] == [("Running", 1)] * 3


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


def test_there_are_examples_with_controllers() -> None:
    assert len(WITH_CONTROLLERS) >= 3


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


_TREE = """\
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}}}
spec: {{parentQueue: "{parent}", resources: {{cpu: {{limit: -1}}, memory: {{limit: -1}}, gpu: {{limit: {limit}}}}}}}
---
"""


def test_a_queue_counts_those_below_it_and_one_that_nobody_made_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = 'gpu-fraction: "0.5"'
    label = "labels: {kai.scheduler/queue: TEAM}, annotations"
    teams = ("vision", "vision", "speech", "nobodys")
    pods = [pod(f"p{i}", half).replace("annotations", label.replace("TEAM", team)) for i, team in enumerate(teams)]
    tree = [("speech", "lab", -1), ("lab", "", 8), ("vision", "lab", 0.5)]
    path = tmp_path / "tree.yaml"
    path.write_text("".join(_TREE.format(name=name, parent=up, limit=most) for name, up, most in tree) + "".join(pods))
    assert main(["simulate", "--nodes", "1x8x80GiB", str(path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    rows = [line for line in lines if {"lab", "vision", "speech", "nobodys"} & set(line[:1])]
    assert [row[:7] for row in rows] == [
        ["lab", "2", "1", "1", "0.5", "0", "8"],
        ["speech", "1", "0", "0.5", "0", "0", "unlimited"],
        ["vision", "1", "1", "0.5", "0.5", "0", "0.5"],
        ["nobodys", "0", "1", "0", "0.5", "0", "0"],
    ]


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
