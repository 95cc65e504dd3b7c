"""Manifests that come to a cluster from a snapshot: where they go, why they wait, who is evicted, what is left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from admission.settings import Settings as AdmissionSettings
from cli.main import main
from cli.simulation import added
from cli.simulation.added import Addition
from cli.simulation.comparison import Scheduling
from cli.simulation.snapshot import comparison
from cli.snapshots import file as saved
from cli.snapshots.file import Saved
from runtime.text import BadInput
from scheduler.core.model.settings import Settings
from simulator import manifests
from tests.cli.simulation.given import NO_EVICTIONS, snapshot
from tests.scheduler.core.objects import node, pod, pod_group, queue
from wire import names
from wire.core import Namespace, PriorityClass

JOB = ("batch/v1", "Job")
GPU = 10**9


def of_queue(name: str) -> dict[str, str]:
    return {names.QUEUE_LABEL: name}


def runs(name: str, at: str, gpus: int, team: str = "team") -> Any:
    return pod(name, gpus=gpus, bound_to=at, phase="Running", owner=JOB, labels=of_queue(team))


def manifest(name: str, gpus: int = 0, *, team: str = "team", ours: bool = True, **metadata: Any) -> dict[str, Any]:
    resources = {"limits": {names.GPU_RESOURCE: str(gpus)}} if gpus else {}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "cuda-app", "resources": resources}]}
    if ours:
        spec["schedulerName"] = names.SCHEDULER_NAME
    meta = {"name": name, "namespace": "ns", "labels": of_queue(team), **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def share(name: str, portion: str) -> dict[str, Any]:
    return manifest(name, annotations={names.GPU_FRACTION: portion})


def hami(name: str, percent: int) -> dict[str, Any]:
    made = manifest(name)
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": str(percent), "nvidia.com/gpumem-percentage": str(percent)}
    made["spec"]["containers"][0]["resources"] = {"limits": limits}
    return made


def gang(name: str, pods: int, gpus: int) -> list[dict[str, Any]]:
    """A Job whose pods start together."""
    template = manifest(name, gpus)
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "ns", "annotations": {names.BATCH_MIN_MEMBER: str(pods)}},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "template": {
                    "metadata": {"labels": template["metadata"]["labels"]},
                    "spec": {**template["spec"], "restartPolicy": "Never"},
                },
            },
        }
    ]


def admitted(found: Saved, documents: Sequence[dict[str, Any]]) -> added.Added:
    reader = manifests.Reader(found.nodes)
    return added.admitted(found, reader.grouped(reader.read(documents, origin="manifest")), AdmissionSettings())


def simulated(found: Saved, documents: Sequence[dict[str, Any]]) -> Addition:
    result, problems = comparison(found, Scheduling(Settings(), 60.0), (), added=admitted(found, documents))
    assert problems == ()
    assert isinstance(result, Addition)
    return result


def told(found: Addition) -> list[str]:
    pods = [f"{pod.name.split('-')[0]} {pod.node or pod.reason}" for pod in found.new.pods]
    evicted = [f"{each.name} leaves {each.node} for {' '.join(each.evicted_for)}" for each in found.new.evicted]
    return pods + evicted


TEAM = queue("team", gpu=(4, 1, -1))
NODE = node("n1", 4)


@pytest.mark.parametrize(
    ("cluster", "documents", "expected"),
    [
        pytest.param([NODE, TEAM, runs("a", "n1", 2)], [manifest("new", 2)], ["new n1"], id="fits beside what runs"),
        pytest.param([NODE, TEAM, runs("a", "n1", 3)], [manifest("new", 2)], ["new NoNodeFits"], id="waits"),
        pytest.param([NODE, TEAM], [manifest("new", 1, team="none")], ["new QueueDoesNotExist"], id="unknown queue"),
        pytest.param(
            [NODE, queue("team", gpu=(1, 1, 2)), runs("a", "n1", 2)],
            [manifest("new", 1)],
            ["new OverLimit"],
            id="queue at its limit",
        ),
        pytest.param(
            [NODE, TEAM, queue("guest", gpu=(0, 1, -1)), *(runs(f"g{at}", "n1", 1, "guest") for at in range(4))],
            [manifest("new", 4)],
            ["new n1", *(f"g{at} leaves n1 for ns/new" for at in range(4))],
            id="evicts pods of a queue above its share",
        ),
        pytest.param([NODE, TEAM], gang("big", 5, 1), ["big GangIncomplete"] * 5, id="gang that is too large"),
        pytest.param([NODE, TEAM], gang("small", 4, 1), ["small n1"] * 4, id="gang that fits"),
        pytest.param(
            [NODE, TEAM, runs("a", "n1", 3)],
            [share("s1", "0.5"), share("s2", "0.5")],
            ["s1 n1", "s2 n1"],
            id="shares on one GPU",
        ),
        pytest.param(
            [NODE, TEAM, runs("a", "n1", 3)],
            [hami("h1", 40), hami("h2", 40)],
            ["h1 n1", "h2 n1"],
            id="shares in the words of HAMi",
        ),
        pytest.param(
            [NODE, TEAM], [manifest("theirs", 1, ours=False)], ["theirs OtherScheduler"], id="another scheduler"
        ),
    ],
)
def test_a_manifest_goes_where_the_scheduler_would_put_it(
    cluster: list[Any], documents: list[dict[str, Any]], expected: list[str]
) -> None:
    assert told(simulated(snapshot(*cluster, room=NO_EVICTIONS), documents)) == expected


def test_a_runtime_class_has_the_overhead_that_one_of_its_pods_has_written_out() -> None:
    pods = [manifest(name, 1) for name in "ab"]
    for each in pods:
        each["spec"]["runtimeClassName"] = "kata"
    pods[0]["spec"]["overhead"] = {"cpu": "250m"}
    for documents in (pods, pods[::-1]):
        assert sorted(told(simulated(snapshot(NODE, TEAM), documents))) == ["a n1", "b n1"]


def test_a_queue_comes_with_its_pods() -> None:
    resources = {kind: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for kind in ("cpu", "memory")}
    spec = {"resources": {"gpu": {"quota": 2, "limit": 3, "overQuotaWeight": 1}, **resources}}
    new = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "new"}, "spec": spec}
    found = simulated(snapshot(NODE, TEAM), [new, manifest("a", 1, team="new"), manifest("b", 4, team="new")])
    assert told(found) == ["a n1", "b OverLimit"]
    (without,) = (each.without for each in found.queues if each.name == "new")
    assert (without.allocated.gpu_nano, without.fair_share) == (0, None)


def test_pods_of_a_namespace_that_adopts_are_scheduled_whichever_scheduler_they_name() -> None:
    adopting = msgspec.convert({"metadata": {"name": "ns", "uid": "ns", "labels": {names.ADOPT: "true"}}}, Namespace)
    found = snapshot(NODE, TEAM, adopting)
    assert told(simulated(found, [manifest("theirs", 1, ours=False)])) == ["theirs n1"]


def test_priority_classes_of_the_cluster_count() -> None:
    urgent = msgspec.convert({"metadata": {"name": "urgent", "uid": "urgent"}, "value": 90}, PriorityClass)
    found = snapshot(NODE, TEAM, urgent, runs("a", "n1", 4), room=NO_EVICTIONS)
    wanted = manifest("new", 4)
    wanted["spec"]["priorityClassName"] = "urgent"
    assert told(simulated(found, [wanted])) == ["new n1", "a leaves n1 for ns/new"]
    with pytest.raises(BadInput, match="no PriorityClass with name urgent"):
        admitted(snapshot(NODE, TEAM), [wanted])


def test_a_daemon_set_has_pods_on_nodes_of_the_cluster() -> None:
    template = manifest("d", 1)
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": "ns"},
        "spec": {
            "selector": {"matchLabels": of_queue("team")},
            "template": {"metadata": {"labels": of_queue("team")}, "spec": template["spec"]},
        },
    }
    assert told(simulated(snapshot(NODE, node("n2", 4), TEAM), [daemons])) == ["d n1", "d n2"]


def test_what_exists_is_neither_admitted_again_nor_changed() -> None:
    found = snapshot(NODE, TEAM, runs("a", "n1", 2), pod_group("g", 1))
    after = admitted(found, [manifest("new", 1)]).to(found)
    assert after.pods[0] is found.pods[0]
    assert [after.queues, after.nodes, after.podgroups] == [found.queues, found.nodes, found.podgroups]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (manifest("a", 1), "Pod ns/a: metadata.name: a exists in the cluster; allowed is a new name"),
        (
            {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team"}, "spec": {}},
            "Queue team: metadata.name: team exists in the cluster",
        ),
        (
            {
                "apiVersion": "scheduling.run.ai/v2alpha2",
                "kind": "PodGroup",
                "metadata": {"name": "g", "namespace": "ns"},
                "spec": {"minMember": 1},
            },
            "PodGroup ns/g: metadata.name: g exists in the cluster",
        ),
        (share("wrong", "7.5x"), "Pod ns/wrong: "),
    ],
)
def test_what_exists_and_what_admission_refuses_is_named(document: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput) as refused:
        admitted(snapshot(NODE, TEAM, runs("a", "n1", 2), pod_group("g", 1)), [document])
    assert says in str(refused.value)


def test_manifests_do_not_go_with_other_names() -> None:
    anonymous = msgspec.structs.replace(snapshot(NODE), is_anonymized=True)
    with pytest.raises(BadInput, match="not with a snapshot of --anonymize"):
        added.read(anonymous, None, None)  # type: ignore[arg-type] # it is refused before they are read


def test_people_and_programs_get_what_comes_of_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, wanted = tmp_path / "cluster.json", tmp_path / "job.yaml"
    cluster.write_bytes(saved.write(snapshot(NODE, queue("team", gpu=(4, 1, 8)), runs("a", "n1", 2))))
    wanted.write_text(yaml.safe_dump_all([manifest("one", 1), manifest("two", 4)]), encoding="utf-8")
    command = ["simulate", "--from-snapshot", str(cluster), "-f", str(wanted)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Changes: create 2 Pods." in shown
    assert "New pods:" in shown
    assert "at once" in shown
    assert "GPUs of their queues afterwards:" in shown
    assert main([*command, "-o", "json"]) == 0
    new = json.loads(capsys.readouterr().out)["new"]
    assert [(pod["name"], pod["node"], pod["reason"]) for pod in new["pods"]] == [
        ("one", "n1", ""),
        ("two", "", "NoNodeFits"),
    ]
    assert new["pods"][1]["message"].startswith("no nodes with enough resources were found")
    (left,) = new["queues"]
    assert [left[part]["gpuNano"] // GPU for part in ("allocated", "quotaLeft", "limitLeft")] == [3, 1, 5]


def test_without_nodes_and_a_cluster_the_nodes_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = tmp_path / "pod.yaml"
    wanted.write_text(yaml.safe_dump(manifest("one", 1)), encoding="utf-8")
    assert main(["simulate", "--kubeconfig", "/nowhere", "-f", str(wanted)]) == 2
    said = capsys.readouterr().err
    assert "--nodes: missing" in said
    assert "/nowhere" in said
