"""``make cluster`` as its user has it: Moorage with simulated nodes, kubectl, and an end that leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.docs import session
from tests.docs.blocks import blocks
from tests.pauses import pause_s
from tools.cluster.background import Description, Program, State
from tools.controlplane import ensure

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
_HERE = "tests/cluster/test_make_cluster.py"
COMPONENTS = {"admission", "binder", "nodes", "scheduler", "podgrouper"}


@dataclass
class Cluster:
    """``python -m tools.cluster`` with its state in a folder of its own."""

    cache: Path

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tools.cluster", *words],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def kubectl(self, *words: str) -> str:
        kubectl = Path(sys.executable).with_name("kubectl")
        command = [
            str(kubectl),
            f"--kubeconfig={self.state.kubeconfig}",
            f"--cache-dir={self.cache / 'kubectl'}",
            *words,
        ]
        return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True).stdout

    def pods(self, *words: str) -> dict[str, dict[str, Any]]:
        items = json.loads(self.kubectl("get", "pods", "-o", "json", *words))["items"]
        return {item["metadata"]["name"]: item for item in items}

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "MOORAGE_CACHE": str(self.cache), "KUBEBUILDER_ASSETS": str(ensure())}

    @property
    def state(self) -> State:
        return State(self.cache / "cluster")

    @property
    def described(self) -> Description:
        described = self.state.describe()
        assert described is not None
        return described

    @property
    def programs(self) -> dict[str, Program]:
        return {program.name: program for program in self.described.programs}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cache"))
    up = made.command("up", "--nodes", "1x2x24GiB", "--nodes", "1x0")
    assert up.returncode == 0, up.stderr
    yield made
    made.command("down")


def eventually(probe: Callable[[], object], what: str, *, within_s: float = 120) -> None:
    began_at = time.monotonic()
    while not probe():
        waited_s = time.monotonic() - began_at
        assert waited_s < within_s, f"waited {within_s} s for {what}"
        time.sleep(pause_s(waited_s))


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def typed(cluster: Cluster, page: str, test: str, folder: Path) -> Sequence[str]:
    """Type in what the page says that this test runs, as its reader has it, and return what went otherwise."""
    (folder / ".cache").mkdir()
    (folder / ".cache" / "moorage").symlink_to(cluster.cache)
    (folder / "examples").symlink_to(ROOT / "examples")
    programs = folder / "bin"
    programs.mkdir()
    session.install(programs)
    (programs / "kubectl").symlink_to(Path(sys.executable).with_name("kubectl"))
    (programs / "make").symlink_to("/bin/true")  # the cluster is up
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), "LANG": "C.UTF-8"}
    environ["KUBECONFIG"] = str(cluster.state.kubeconfig)
    mine = [each for each in blocks(ROOT / "docs" / page) if each.tests == [f"{_HERE}::{test}"]]
    assert mine
    return session.type_in(mine, folder, environ)


def test_the_tutorial_goes_as_its_page_says(cluster: Cluster, tmp_path: Path) -> None:
    assert typed(cluster, "tutorial.md", "test_the_tutorial_goes_as_its_page_says", tmp_path) == []
    eventually(lambda: not cluster.pods("--namespace=kai-resource-reservation"), "the device to be given back")


def test_an_example_is_applied_and_two_pods_share_a_device(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "examples/00-queue.yaml", "-f", "examples/01-fraction-pair.yaml")
    pair = {"half-a", "half-b"}
    eventually(lambda: {n for n, p in cluster.pods().items() if p["status"]["phase"] == "Running"} == pair, "both")
    pods = cluster.pods().values()
    assert {pod["spec"]["nodeName"] for pod in pods} == {"simulated-0"}
    devices = {pod["metadata"]["annotations"]["moorage.dev/visible-devices.c0"] for pod in pods}
    (device,) = devices
    (reservation,) = cluster.pods("--namespace=kai-resource-reservation").values()
    assert reservation["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] == device
    assigned = "Successfully assigned pod default/half-a to node simulated-0"
    eventually(lambda: assigned in cluster.kubectl("events", "--for=pod/half-a"), "the event to be written")


def test_only_a_reservation_process_says_which_device_its_pod_holds(cluster: Cluster) -> None:
    """The policy stands as in production: not even the simulated nodes' own identity is let by."""
    (name,) = cluster.pods("--namespace=kai-resource-reservation")
    lie = '{"metadata":{"annotations":{"run.ai/reserve_for_gpu_index":"GPU-of-a-liar"}}}'
    for who in ("kai-scheduler:moorage-simulator", "kai-resource-reservation:kai-resource-reservation"):
        with pytest.raises(subprocess.CalledProcessError) as refused:
            cluster.kubectl(
                *("patch", "pod", name, "--namespace=kai-resource-reservation", "--type=merge", "--patch", lie),
                *(f"--as=system:serviceaccount:{who}", "--as-group=system:masters"),
            )
        assert "ValidatingAdmissionPolicy 'moorage-reservations'" in refused.value.stderr


def test_what_operators_look_at_is_there(cluster: Cluster, tmp_path: Path) -> None:
    assert typed(cluster, "operate.md", "test_what_operators_look_at_is_there", tmp_path) == []


def test_status_says_how_to_use_it_and_what_each_program_takes(cluster: Cluster) -> None:
    said = cluster.command("status")
    assert said.returncode == 0
    assert f"export KUBECONFIG={cluster.state.kubeconfig}\n" in said.stdout
    assert "apply -f examples/00-queue.yaml -f examples/01-fraction-pair.yaml\n" in said.stdout
    listed = said.stdout.rpartition("programs:\n")[2].splitlines()
    assert {line.split()[0] for line in listed} == COMPONENTS | {"etcd", "kube-apiserver", "kube-controller-manager"}
    assert all(int(line.split()[1]) > 10 and line.endswith(" MiB") for line in listed)


def test_a_second_cluster_with_other_nodes_is_not_made_unasked(cluster: Cluster) -> None:
    again = cluster.command("up", "--nodes", "9x8x80GiB")
    assert again.returncode == 0
    assert again.stdout.startswith("it is up already, with other nodes")
    assert "with simulated nodes: 1x2x24GiB 1x0\n" in again.stdout


def test_a_crashed_component_is_started_again_and_status_tells(cluster: Cluster) -> None:
    crashed = cluster.programs["scheduler"]
    os.kill(crashed.pid, signal.SIGKILL)
    # That it does not run is seen for a second only.
    eventually(lambda: cluster.programs["scheduler"].trouble, "the crash to be seen")
    down = cluster.command("status")
    eventually(lambda: cluster.programs["scheduler"].is_running, "the scheduler to be back")
    assert down.returncode in {0, 1}  # it may be back already
    assert "ended once, last with -9: " in down.stdout
    back = cluster.programs["scheduler"]
    assert back.pid != crashed.pid
    assert "leads" in Path(back.trouble.rpartition(": ")[2]).read_text()
    cluster.kubectl("apply", "-f", "examples/02-memory.yaml")
    eventually(lambda: cluster.pods()["by-memory"]["status"]["phase"] == "Running", "a pod to run")


def test_simulated_machines_that_crash_come_back_with_the_same_devices(cluster: Cluster) -> None:
    def devices() -> dict[str, str]:
        reservations = cluster.pods("--namespace=kai-resource-reservation").items()
        return {name: pod["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] for name, pod in reservations}

    def restarted() -> bool:
        pods = [*cluster.pods().values(), *cluster.pods("--namespace=kai-resource-reservation").values()]
        return all(pod["status"]["containerStatuses"][0]["restartCount"] == 1 for pod in pods)

    before = devices()
    os.kill(cluster.programs["nodes"].pid, signal.SIGKILL)
    eventually(restarted, "all pods to run again")
    assert devices() == before
    (binder,) = Path(cluster.described.logs).glob("components-*/binder.log")
    assert "was lost" not in binder.read_text()


def test_down_leaves_no_process_behind_and_up_starts_afresh(cluster: Cluster) -> None:
    pids = [cluster.described.pid, *(program.pid for program in cluster.described.programs)]
    assert all(is_alive(pid) for pid in pids)
    assert cluster.command("down").stdout == "the cluster is down\n"
    # The keeper gives back its lock, which is waited for, a moment before it has ended.
    eventually(lambda: not any(is_alive(pid) for pid in pids), "the keeper to have ended")
    assert {path.name for path in cluster.state.folder.iterdir()} == {"keeper.log", "lock"}
    assert cluster.command("status").stdout == "no cluster is up\n"


def test_a_keeper_that_is_killed_takes_all_with_it(cluster: Cluster) -> None:
    assert cluster.command("up", "--nodes", "1x1x24GiB").returncode == 0
    described = cluster.described
    os.kill(described.pid, signal.SIGKILL)
    eventually(lambda: not any(is_alive(program.pid) for program in described.programs), "all programs to end")
    eventually(lambda: not Path(described.logs).exists(), "the folder to go")
    said = cluster.command("status")
    assert said.returncode == 3
    assert said.stdout == "no cluster is up; the last one ended: its keeper was killed\n"


def test_an_interrupted_start_leaves_nothing(cluster: Cluster) -> None:
    # A shell that runs the tests in the background ignores SIGINT, and hands that on.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tools.cluster", "up", "--nodes", "1x1x24GiB"]
    starting = subprocess.Popen(command, cwd=ROOT, env=cluster.environ)
    eventually(cluster.state.keeper, "the keeper to be there")
    starting.send_signal(signal.SIGINT)
    assert starting.wait(120) == 130
    assert not cluster.state.kept()
    assert cluster.command("status").stdout == "no cluster is up\n"


def test_the_end_of_the_control_plane_is_the_end_of_the_cluster(cluster: Cluster) -> None:
    assert cluster.command("up", "--nodes", "1x1x24GiB").returncode == 0
    pids = [program.pid for program in cluster.described.programs]
    os.kill(cluster.programs["etcd"].pid, signal.SIGKILL)
    eventually(lambda: not cluster.state.kept(), "the keeper to end")
    # The keeper gives back its lock, which is waited for, a moment before it has ended.
    eventually(lambda: not any(is_alive(pid) for pid in pids), "the keeper to have ended")
    assert "the last one ended: etcd ended with -9" in cluster.command("status").stdout
