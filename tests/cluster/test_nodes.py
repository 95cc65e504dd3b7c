"""``moorage nodes`` against a real API server, under its own service account."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kubeconfig(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in (names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE):
        control_plane.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
    control_plane.apply((ROOT / "simulator/rbac.yaml").read_text())
    token = control_plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-simulator")
    return control_plane.write_kubeconfig(tmp_path_factory.mktemp("nodes") / "kubeconfig", token)


@contextlib.contextmanager
def running(kubeconfig: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """``moorage nodes`` from "are ready" on."""
    command = [sys.executable, "-m", "cli.main", "nodes", "--kubeconfig", str(kubeconfig), *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "are ready" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def nodes(plane: ControlPlane, prefix: str) -> dict[str, dict[str, Any]]:
    items = plane.rest().call("GET", "/api/v1/nodes")["items"]
    return {item["metadata"]["name"]: item for item in items if item["metadata"]["name"].startswith(prefix)}


def test_nodes_come_marked_and_tainted_and_go_at_ctrl_c(control_plane: ControlPlane, kubeconfig: Path) -> None:
    with running(kubeconfig, "--nodes", "1x2x24GiB", "--nodes", "1x0", "--prefix", "gone") as process:
        there = nodes(control_plane, "gone")
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert set(there) == {"gone-0", "gone-1"}
    for node in there.values():
        assert node["metadata"]["labels"]["simulator.moorage.dev/simulated"] == "true"
        assert [t["key"] for t in node["spec"]["taints"]] == ["simulator.moorage.dev/simulated"]
    assert there["gone-0"]["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    assert nodes(control_plane, "gone") == {}


def test_nodes_that_are_kept_stay_and_are_taken_over_by_the_next(control_plane: ControlPlane, kubeconfig: Path) -> None:
    words = ("--nodes", "1x1x24GiB", "--prefix", "kept", "--no-taint")
    with running(kubeconfig, *words, "--keep") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    (kept,) = nodes(control_plane, "kept").values()
    assert "taints" not in kept["spec"]
    with running(kubeconfig, *words) as process:
        (again,) = nodes(control_plane, "kept").values()
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    assert again["metadata"]["uid"] == kept["metadata"]["uid"]
    assert nodes(control_plane, "kept") == {}


def test_a_real_node_of_that_name_is_left_alone(control_plane: ControlPlane, kubeconfig: Path) -> None:
    control_plane.apply(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "real-1"}}))
    command = [sys.executable, "-m", "cli.main", "nodes", "--kubeconfig", str(kubeconfig)]
    command += ["--nodes", "2x0", "--prefix", "real"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 2
    assert done.stderr.startswith("moorage: node real-1 is there and has no label simulator.moorage.dev/simulated")
    left = nodes(control_plane, "real")
    assert set(left) == {"real-1"}
    assert "simulator.moorage.dev/simulated" not in (left["real-1"]["metadata"].get("labels") or {})
    control_plane.rest().call("DELETE", "/api/v1/nodes/real-1")
