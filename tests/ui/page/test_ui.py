"""``moorage ui``: what it is told, to whom it shows the page, and a cluster that is played."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from cli.main import main
from kube.client.clock import SystemClock
from kube.client.resources import NODES, PODS
from runtime.settings.page import is_loopback
from simulator.checks.violations import SOUND
from simulator.nodes import shape
from tests.cli.simulation.test_manifests import pod
from tools.ports import free_port
from ui.page.objects import Objects, kept
from ui.page.simulated import TEAMS, Play
from ui.page.stream import Frames

VIRTUAL_TIME = True


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--nodes", "1x1x1GiB"], "--nodes: allowed with --simulate"),
        (["--simulate", "--nodes", "none"], "--nodes: nodes 'none'"),
        (["--simulate", "--open", "f"], "--open and --simulate: allowed is one of the two"),
        (["--record", "f", "--open", "f"], "--open and --record: allowed is one of the two"),
        (["--namespace", "Team"], "--namespace Team: allowed is the name of a namespace"),
        (["--simulate", "-n", "a", "--record", "f"], "--namespace and --record: allowed is one of the two"),
        (["-n", "a", "--open", "f"], "--namespace and --open: allowed is one of the two"),
        ([word for n in range(65) for word in ("-n", f"n{n}")], "--namespace: 65 are given; allowed are 64, or all"),
        (["--speed", "2"], "--speed: allowed with --open"),
        (["--open", "f", "--speed", "0"], "--speed 0: allowed are numbers from 0.1 to 1000"),
        (["--open", "f", "--speed", "nan"], "--speed nan: allowed are numbers"),
        (["--open", "/no/such"], "--open /no/such: [Errno 2]"),
        (["--open", __file__], "--open "),
        (["--simulate", "--record", "/no/such/file"], "--record /no/such/file: No such file"),
        (["--simulate", "--record", __file__], "File exists"),
        (["--open", "f", "--listen", "0.0.0.0:8484"], "--open: allowed on loopback"),
        (["--simulate", "--listen", "127.0.0.2:1", "--tls-cert-file", "x"], "allowed are both, or neither"),
        (["--listen", "0.0.0.0:8484"], "readers show tokens there, which need --tls-cert-file and --tls-key-file"),
        (["--listen", ":8484"], "--listen all addresses:8484"),
        (["--listen", "192.0.2.1:8484"], "or --tls-elsewhere"),
        (["--simulate", "--listen", "0.0.0.0:8484"], "--simulate: allowed on loopback"),
        (["--tls-cert-file", "/no", "--tls-key-file", "/no"], "--tls-cert-file /no, --tls-key-file /no: [Errno 2]"),
        (["--kubeconfig", "/no/such"], "--kubeconfig /no/such: there is no such file"),
    ],
)
def test_what_can_not_be_is_refused(line: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", *line]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),  # noqa: S104 - that is what is tested
        ("::", False),
        ("192.0.2.1", False),
        ("localhost.example", False),
        ("::ffff:192.0.2.1", False),
    ],
)
def test_loopback_is_what_this_machine_alone_reaches(host: str, is_ours: bool) -> None:
    assert is_loopback(host) == is_ours


@pytest.mark.thorough
async def test_a_cluster_is_played_and_keeps_every_invariant() -> None:
    shapes = shape.parse(["3x4x80GiB"])
    play = Play(shapes, seed=3)
    async with anyio.create_task_group() as tasks:
        await tasks.start(play.run)
        await anyio.sleep(240)
        api = play.world.api
        store = Objects()
        for node in (await api.list(NODES)).items:
            store.put_node(node)
        for pod in (await api.list(PODS)).items:
            store.put_pod(kept(pod))
        frames = Frames(store, "e")
        for _ in frames.draw():
            pass
        report = play.world.checker.report
        tasks.cancel_scope.cancel()
    assert all(result in SOUND for result in report.values()), report
    assert len({line.namespace for line in frames.pods.values()} & set(TEAMS)) >= 3
    assert frames.nodes["node-2"].is_cordoned
    assert sum(card.used_nano for card in frames.nodes.values()) > 3 * 10**9
    (pretrain,) = [line for line in frames.pods.values() if line.name == "pretrain-0"]
    assert "The best node lacks" in pretrain.message


def test_one_command_shows_a_cluster_and_ends_when_it_is_told_to() -> None:
    with started("--simulate", "--nodes", "1x2x80GiB") as (process, address):
        state = _state(process, address)
        assert (state["source"], len(state["changes"]["nodes"])) == ("simulated cluster", 1)


@pytest.mark.thorough
def test_a_run_is_recorded_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    began_ms = SystemClock().now_ns() // 1_000_000
    with started("--simulate", "--nodes", "1x2x80GiB", "--record", str(path)) as (process, address):
        _state(process, address)
    with started("--open", str(path), "--speed", "1000") as (process, address):
        state = _state(process, address)
        assert (state["source"], len(state["changes"]["nodes"])) == ("recorded in run.jsonl", 1)
        assert any(pod["name"] == "pretrain-0" for pod in state["changes"]["pods"])
        run = state["run"]
        assert 0 <= run.get("fromMs", 0) <= run["toMs"]
        assert began_ms <= run["beganMs"] <= SystemClock().now_ns() // 1_000_000
        assert run["speed"] == 1000


@pytest.mark.thorough
def test_a_simulated_run_of_an_hour_is_recorded_in_virtual_time_and_opened(tmp_path: Path) -> None:
    path, manifest = tmp_path / "run.jsonl", tmp_path / "my-pods.yaml"
    train = pod("train", 'simulator.moorage.dev/run-s: "3600", gpu-fraction: "0.5"')
    manifest.write_text(train.replace("spec:", "spec:\n  restartPolicy: Never"), encoding="utf-8")
    assert main(["simulate", "--nodes", "4x8x80GiB", str(manifest), "--until", "2h", "--record", str(path)]) == 0
    with started("--open", str(path), "--speed", "60") as (process, address):
        run = _state(process, address)["run"]
        assert 3_600_000 < run["toMs"] < 7_200_000
        for at_ms, phases in ((1_800_000, ["Running"]), (3_590_000, ["Running"]), (run["toMs"], [])):
            state = _state(process, address, f"?at={at_ms}")
            assert [line["phase"] for line in state["changes"].get("pods", [])] == phases


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The command, and where its page is; it ends well when it is told to."""
    port = free_port()
    command = [sys.executable, "-m", "cli.main", "ui", *arguments, "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().decode() == f"http://127.0.0.1:{port}/\n"
            yield process, f"http://127.0.0.1:{port}/"
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0


def _state(process: subprocess.Popen[bytes], address: str, query: str = "") -> dict[str, Any]:
    """Ask until the cluster is read."""
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}api/state{query}", timeout=60) as answer:  # noqa: S310 - our own
                state: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 503:
                raise
            continue
        if state["changes"].get("nodes"):
            return state
    raise AssertionError("it has ended")
