"""What the device plug-in of another system leaves in a node's status, and ``moorage clean-nodes``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.histories.stage import on_node
from tests.node.pods import Machine, Pod, eventually
from tools.controlplane import KUBELET

pytestmark = pytest.mark.node
ROOT = Path(__file__).parents[2]
RESOURCE = "volcano.sh/vgpu-number"


def amounts(machine: Machine) -> tuple[str | None, str | None]:
    """Capacity and allocatable, as the node's object says."""
    status = machine.node.status()["status"]
    return status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)


def become(machine: Machine, *wanted: str | None) -> None:
    eventually(lambda: amounts(machine) == wanted or None, lambda: f"{wanted}: {amounts(machine)}")


def restart(machine: Machine, *, with_devices: bool = True) -> None:
    machine.node.kill(KUBELET)
    if not with_devices:
        machine.node.lose_devices()
    machine.node.start_again(KUBELET)
    machine.node.wait_until_ready()


def clean(machine: Machine, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    machine.plane.write_kubeconfig(kubeconfig, machine.plane.token)
    command = [sys.executable, "-m", "cli.main", "clean-nodes", "--kubeconfig", str(kubeconfig)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["--yes", "--settle", "8s"]
    return subprocess.run([*command, *words], env=environ, capture_output=True, text=True, timeout=180, check=False)


def asks(machine: Machine, name: str) -> Pod:
    wanted = on_node(machine.node.name, name)
    wanted["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: "1"}}
    return wanted


def test_what_a_plugin_leaves_behind_refuses_pods_until_it_is_cleaned(machine: Machine, tmp_path: Path) -> None:
    plugin = machine.node.advertise(RESOURCE)
    become(machine, "2", "2")
    machine.node.kill(plugin)
    become(machine, "2", "0")
    restart(machine)
    become(machine, "0", "0")

    early = clean(machine, tmp_path / "kubeconfig")
    assert early.returncode == 1
    assert f"{machine.node.name}: {RESOURCE} is back: kubelet knows a device plugin for five minutes" in early.stdout

    # It forgets in five minutes, or with its checkpoint.
    restart(machine, with_devices=False)
    assert amounts(machine) == ("0", "0")
    machine.create(asks(machine, "refused"))
    assert machine.reached("refused", "Failed")["status"]["reason"] == f"OutOf{RESOURCE}"
    machine.remove("refused")

    done = clean(machine, tmp_path / "kubeconfig")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 removed, 0 left")
    restart(machine)
    assert amounts(machine) == (None, None)
    machine.create(asks(machine, "runs"))
    machine.reached("runs", "Running")
    machine.remove("runs")
