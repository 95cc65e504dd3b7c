"""A snapshot of a cluster's etcd, and the way back to it, as docs/operate.md has it."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

from kube.client.resources import BIND_REQUESTS, POD_GROUPS
from tests.e2e.cluster import PATIENCE_S
from tools.cluster.plane import ControlPlane
from tools.goprogram import ETCDUTL

_ETCD, _API_SERVER = "etcd", "kube-apiserver"
#: So that no version comes twice, and a watch from a version of the time that is undone has to list again.
_BUMP = ("--bump-revision", "1000000000", "--mark-compacted")
#: Of etcd's own flags those that the restored member has to agree with.
_MEMBER = ("--initial-advertise-peer-urls", "--initial-cluster")


def save(plane: ControlPlane, snapshot: Path) -> None:
    """Save a snapshot while etcd runs, as ``etcdctl snapshot save`` does."""
    connection = http.client.HTTPConnection(urlsplit(plane.etcd_url).netloc, timeout=PATIENCE_S)
    with contextlib.closing(connection), snapshot.open("wb") as file:
        connection.request("POST", "/v3/maintenance/snapshot", "{}")
        for line in filter(bytes.strip, connection.getresponse()):
            file.write(base64.b64decode(json.loads(line)["result"].get("blob", "")))


def restore(plane: ControlPlane, snapshot: Path) -> None:
    """Set the cluster back: the API server is away meanwhile, and everybody else is not. Returns when it serves."""
    etcd = next(program for program in plane.programs if program.name == _ETCD)
    member = [str(flag) for flag in etcd.command if str(flag).partition("=")[0] in _MEMBER]
    plane.kill(_API_SERVER)
    plane.kill(_ETCD)
    data = plane.folder / "etcd"
    shutil.rmtree(data)
    command = [str(ETCDUTL.ensure()), "snapshot", "restore", str(snapshot), f"--data-dir={data}"]
    subprocess.run([*command, *member, *_BUMP], check=True, capture_output=True)
    plane.start_again(_ETCD)
    plane.start_again(_API_SERVER)
    deadline = time.monotonic() + PATIENCE_S
    while not _serves(plane):
        plane.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the API server did not serve within {PATIENCE_S:.0f} s of the restore")
        time.sleep(0.05)


def _serves(plane: ControlPlane) -> bool:
    """Whether it is ready, and has custom resources: for these it asks to be patient for some time longer (429)."""
    rest = plane.rest()
    try:
        return all(rest.send("GET", path)[0] == 200 for path in ("/readyz", POD_GROUPS.path(), BIND_REQUESTS.path()))
    except OSError:
        return False
