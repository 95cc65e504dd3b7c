"""``moorage clean-nodes`` against a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.cluster.plane import ControlPlane

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
NODE, LEFT, ASKED = "migrated", "volcano.sh/vgpu-number", "aliyun.com/gpu-mem"
STATUS = f"/api/v1/nodes/{NODE}/status"


def clean(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli.main", "clean-nodes", "--kubeconfig", str(kubeconfig), *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180, check=False)


def test_it_removes_what_is_left_and_no_more_than_one_may(control_plane: ControlPlane, tmp_path: Path) -> None:
    rest = control_plane.rest()
    node = {"metadata": {"name": NODE}}
    rest.call("POST", "/api/v1/nodes", node)
    told = {"cpu": "2", "pods": "9", LEFT: "0", ASKED: "0"}
    rest.call("PUT", STATUS, {**node, "status": {"capacity": told, "allocatable": told}})
    container = {"name": "main", "image": "work", "resources": {"limits": {ASKED: "1"}}}
    asker = {"metadata": {"name": "asks"}, "spec": {"nodeName": NODE, "containers": [container]}}
    rest.call("POST", "/api/v1/namespaces/default/pods", asker)
    try:
        may_read = control_plane.write_kubeconfig(tmp_path / "reader", _reader(control_plane))
        denied = clean(may_read, NODE, "--yes", "--settle", "0s")
        assert denied.returncode == 1
        assert f"{NODE}: {LEFT} not removed: " in denied.stdout
        assert 'cannot patch resource "nodes/status"' in denied.stdout

        admin = control_plane.write_kubeconfig(tmp_path / "admin", control_plane.token)
        done = clean(admin, NODE, "--yes", "--settle", "0s")
        assert done.stdout.splitlines() == [
            f"{NODE}: {ASKED} stays: asked for by default/asks",
            f"{NODE}: {LEFT} removed",
            "1 removed, 1 left",
        ]
        status = rest.call("GET", f"/api/v1/nodes/{NODE}")["status"]
        assert set(status["capacity"]) == set(status["allocatable"]) == {"cpu", "pods", ASKED}
    finally:
        rest.call("DELETE", "/api/v1/namespaces/default/pods/asks?gracePeriodSeconds=0")
        rest.call("DELETE", f"/api/v1/nodes/{NODE}")


def _reader(plane: ControlPlane) -> str:
    """Token of one who may read nodes and pods."""
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}]
    name = "looks-at-nodes"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    made = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}},
        {"apiVersion": f"{role['apiGroup']}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{role['apiGroup']}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": role,
            "subjects": [subject],
        },
    ]
    for one in made:
        plane.apply(json.dumps(one))
    return plane.service_account_token("default", name)
