"""``simulate --from-snapshot`` and ``--from-cluster`` from the command line."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.main import main
from cli.simulation import comparison as changes
from cli.simulation.comparison import Scheduling
from cli.simulation.snapshot import comparison
from cli.snapshots import command
from cli.snapshots import file as saved
from kube.client.resources import JOBS
from scheduler.core.model.settings import Settings
from tests.cli.simulation.given import snapshot, told
from tests.scheduler import stage
from tests.scheduler.core.device_objects import DRIVER
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import node, pod, queue
from tests.scheduler.stage import api_of, create, settle, share
from wire.resource import DeviceTaintRule

VIRTUAL_TIME = True

WALL_NS = 1_800_000_000 * 10**9
NOT_IN_THE_FILE = (
    "whether the scheduler follows DeviceTaintRules: the snapshot does not have it, and they do not count here; "
    "--scheduler-config may say it (device-taint-rules)"
)
CLUSTER = snapshot(
    node("n1", 4),
    node("n2", 4),
    queue("default-queue", gpu=(0, 1, -1)),
    pod("a", gpus=4, bound_to="n1", phase="Running", owner=("batch/v1", "Job")),
    pod("b", gpus=2, bound_to="n2", phase="Running", owner=("batch/v1", "Job")),
    *(pod(f"w{at:02}", gpus=4, created="2026-01-02T00:00:00Z") for at in range(2)),
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_bytes(saved.write(CLUSTER))
    return str(path)


def owned(manifest: dict[str, Any], job: Any) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job.metadata.uid, "controller": True}
    manifest["metadata"]["ownerReferences"] = [owner]
    return manifest


async def test_shares_of_a_cluster_that_was_read_move_to_another_device() -> None:
    async with stage.stage("2x1x80GiB") as world:
        written = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
        job = await world.api.create(JOBS, written, namespace=stage.TEAM)
        await create(world, *(owned(share(name), job) for name in ("a", "b")))
        await settle()
        found = await command.read_cluster(api_of(world, "someone"), now_ns=WALL_NS)
        (at,) = {each.spec.node_name for each in found.pods if each.metadata.namespace == stage.TEAM}
        other = {"node-0": "node-1", "node-1": "node-0"}[at]
        result, problems = comparison(found, Scheduling(Settings(), 60.0), changes.read([f"drain {at}"]))
        assert problems == ()
        assert told(result) == [f"{name} moves {at} {other}" for name in ("a", "b")]
        result, _ = comparison(found, Scheduling(Settings(), 60.0), changes.read([f"finish {stage.TEAM}/a"]))
        assert told(result) == [f"a ends {at} -"]


def test_people_get_tables(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--from-snapshot", file, "--drain", "n1", "--what-if", "node +2 like n1"]) == 0
    assert capsys.readouterr().out == (
        "Changes: drain n1; add 2 nodes like n1.\n"
        "\n"
        "Without them: 2 pods placed, 2 waiting. With them: 3 pods placed, 1 waiting.\n"
        "\n"
        "With the changes: 1 pod waits, 2 pods start.\n"
        "\n"
        "Pods:\n"
        "POD      QUEUE           WITH THE CHANGES   NODE NOW   WITHOUT   WITH        WAITS FOR\n"
        "ns/a     default-queue   waits              n1         n1                    NoNodeFits\n"
        "ns/w00   default-queue   starts                                  n1-more-1\n"
        "ns/w01   default-queue   starts                                  n1-more-2\n"
        "\n"
        "Why pods wait:\n"
        "REASON       PODS WITHOUT   PODS WITH   HELP\n"
        "NoNodeFits   2              1           moorage explain reason no-node-fits\n"
        "\n"
        "GPUs of queues:\n"
        "QUEUE           USED WITHOUT   USED WITH   FAIR SHARE WITHOUT   FAIR SHARE WITH   REQUESTED WITHOUT   "
        "REQUESTED WITH\n"
        "default-queue   6              10          8                    14                14                  14\n"
    )


def test_programs_get_all_of_it(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--from-snapshot", file, "--drain", "n2", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["takenAt"] == "2026-11-27T08:00:00Z"
    assert found["changes"] == [{"family": "ended", "message": "drain n2", "whatIf": "drain n2"}]
    assert (found["without"]["placed"], found["with"]["placed"]) == (2, 1)
    assert found["pods"] == [
        {
            "namespace": "ns",
            "name": "b",
            "queue": "default-queue",
            "change": "waits",
            "nodeNow": "n2",
            "nodeWithout": "n2",
            "nodeWith": "",
            "reason": "NoNodeFits",
            "help": "moorage explain reason no-node-fits",
        }
    ]
    assert found["queues"][0]["with"]["allocated"]["gpuNano"] == 4 * 10**9


def test_the_same_snapshot_gives_the_same_answer(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    outs = []
    for _ in range(2):
        assert main(["simulate", "--from-snapshot", file, "--strategy", "spread", "-o", "yaml"]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]


def test_a_snapshot_is_read_from_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(saved.write(CLUSTER))))
    assert main(["simulate", "--from-snapshot", "-", "--drain", "n2"]) == 0
    assert "1 pod waits" in capsys.readouterr().out


def test_settings_of_the_scheduler_count(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text("require-enforcement: maybe\n", encoding="utf-8")
    arguments = ["simulate", "--from-snapshot", file, "--drain", "n2", "--scheduler-config", str(config)]
    assert main(arguments) == 2
    assert "--scheduler-config: " in capsys.readouterr().err
    config.write_text("partition-label-value: other\n", encoding="utf-8")
    assert main([*arguments, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["pods"] == []  # those nodes are another scheduler's


@pytest.mark.parametrize(
    ("config", "file", "moved", "unread"),
    [
        ("device-taint-rules: true", None, ["w waits"], []),
        ("device-taint-rules: false", None, [], []),
        ("device-taint-rules: false", True, [], []),
        ("log-level: info", True, ["w waits"], []),
        ("", True, ["w waits"], []),
        ("", False, [], []),
        ("", None, [], [NOT_IN_THE_FILE]),
    ],
)
def test_rules_that_taint_devices_count_as_the_settings_say_else_as_the_snapshot_says(
    config: str,
    file: bool | None,
    moved: list[str],
    unread: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = ("n1", "n2", "n3")
    selector = {"driver": DRIVER, "pool": "n2", "device": "d0"}
    written = {"deviceSelector": selector, "taint": {"key": "example.com/ill", "effect": "NoSchedule"}}
    rule = msgspec.convert({"metadata": {"name": "r"}, "spec": written}, DeviceTaintRule)
    found = snapshot(
        *(node(name, 1) for name in nodes),
        *(_with_uid(each) for each in (GPU, rule, *(offered(name) for name in nodes))),
        claimed(on=("n1", "d0"), by=("uid-p",)),
        claiming("p", "c", bound_to="n1", phase="Running", owner=("batch/v1", "Job")),
        claimed("waits"),
        claiming("w", "waits"),
    )
    path, settings = tmp_path / "cluster.json", tmp_path / "scheduler.yaml"
    path.write_bytes(saved.write(msgspec.structs.replace(found, follows_taint_rules=file)))
    settings.write_text(f"{config}\n", encoding="utf-8")
    given = ["--scheduler-config", str(settings)] if config else []
    drain = ["--drain", "n3", "--strategy", "spread", *given, "-o", "json"]
    assert main(["simulate", "--from-snapshot", str(path), *drain]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [f"{each['name']} {each['change']}" for each in told["pods"]] == moved
    assert told.get("unread", []) == unread


def _with_uid(obj: Any) -> Any:
    named = msgspec.structs.replace(obj.metadata, uid=f"uid-{obj.__class__.__name__}-{obj.metadata.name}")
    return msgspec.structs.replace(obj, metadata=named)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--drain", "n1"], "--drain: only with --from-snapshot or --from-cluster"),
        (["--what-if", "drain n1"], "--what-if: only with --from-snapshot"),
        (["--context", "x"], "options of a connection such as --context: only with --from-snapshot"),
        (["--from-snapshot", "x", "--from-cluster", "--drain", "n1"], "allowed is one of the two"),
        (["--from-snapshot", "x", "--context", "y"], "--context: not with --from-snapshot; a file is read"),
        (["--from-snapshot", "-", "-f", "-"], "allowed is one of the two; stdin is read once"),
        (["--from-snapshot", "x", "--drain", "n1", "--adopt-all"], "--adopt-all: only with manifests"),
        (["-f", "x", "--seed", "7"], "--seed: only with --nodes"),
        (["--from-snapshot", "x", "--nodes", "1x1x1GiB"], "--nodes: not with --from-snapshot"),
        (["--from-snapshot", "x", "--trace", "csv:y"], "--trace: not with --from-snapshot"),
        (["--from-snapshot", "x", "--until", "1m"], "--until: not with --from-snapshot"),
        (["--from-snapshot", "x", "--seed", "7"], "--seed: not with --from-snapshot"),
        (["--from-snapshot", "x", "--record", "y"], "--record: not with --from-snapshot"),
        (["--from-snapshot", "x"], "--drain, --what-if, --strategy: missing; name a change"),
        (["--from-snapshot", "x", *(["--drain", "n"] * 65)], "65 changes; allowed are 64 together"),
        (["--from-snapshot", "x", "--strategy", "best-fit"], "--strategy: 'best-fit'; allowed: one of binpack"),
        (["--from-snapshot", "x", "--strategy", "spread", "--strategy", "binpack"], "--strategy: given twice"),
        (["--from-snapshot", "/nowhere/x", "--drain", "n1"], "--from-snapshot /nowhere/x: No such file"),
        (["--from-snapshot", __file__, "--drain", "n1"], "one JSON object, as moorage snapshot writes it"),
        (["--from-cluster", "--kubeconfig", "/nowhere", "--drain", "n1"], "/nowhere"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    assert says in capsys.readouterr().err
