from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.cluster.background import State
from tools.cluster.plane import ControlPlane
from tools.controlplane import ensure

pytestmark = pytest.mark.cluster

Command = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """``python -m tools.cluster WORD`` with its state in a folder of the test's own."""
    environ = {**os.environ, "MOORAGE_CACHE": str(tmp_path), "KUBEBUILDER_ASSETS": str(ensure())}

    def run(word: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tools.cluster", word],
            cwd=Path(__file__).parents[2],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    yield run
    run("down")


def test_a_cluster_comes_up_stays_up_and_goes_down(command: Command, tmp_path: Path) -> None:
    assert command("status").returncode == 3
    first = command("up")
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith(f"  export KUBECONFIG={tmp_path}/cluster/kubeconfig\n")
    assert command("up").stdout == first.stdout
    assert command("status").stdout.startswith(first.stdout)
    kubectl = [str(Path(sys.executable).with_name("kubectl")), f"--kubeconfig={tmp_path}/cluster/kubeconfig"]
    assert subprocess.check_output([*kubectl, "get", "--raw", "/readyz"]) == b"ok"
    assert command("down").stdout == "the cluster is down\n"
    assert command("status").returncode == 3
    assert {path.name for path in (tmp_path / "cluster").iterdir()} == {"keeper.log", "lock"}


def test_after_its_keeper_was_killed_the_cluster_is_gone_and_another_can_come(command: Command, tmp_path: Path) -> None:
    state = State(tmp_path / "cluster")
    assert command("up").returncode == 0
    killed = state.describe()
    assert killed is not None
    _kill(killed.pid)
    assert command("up").returncode == 0
    fresh = state.describe()
    assert fresh is not None, state.log.read_text()
    assert fresh.pid != killed.pid
    assert fresh.url != killed.url


def _kill(pid: int) -> None:
    """Kill a process, and wait until it has ended: until then it holds its locks."""
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([handle], [], [])
    os.close(handle)


def test_a_control_plane_that_runs_is_not_started_twice(control_plane: ControlPlane) -> None:
    with pytest.raises(RuntimeError, match="is running"):
        control_plane.start()
