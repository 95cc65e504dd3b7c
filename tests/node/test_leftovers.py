"""A node whose owner is killed leaves nothing: no process, no mount, no control group, no folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.node.pods import eventually
from tools.guard import cgroup_folders
from tools.node import debian

pytestmark = pytest.mark.node
ROOT = Path(__file__).parents[2]

#: Has a container that runs, and says where everything is.
_OWNER = """
    import json, time
    from tests.node.pods import Machine, pod
    from tools.cluster.plane import ControlPlane
    from tools.node.node import Node
    with ControlPlane(nodes=["node-a"]) as plane, Node(plane, "node-a") as node:
        program = {"command": ["/usr/bin/python3", "-c", "import time; time.sleep(600)"]}
        wanted = pod("stays", nodeName="node-a", runtimeClassName=None)
        wanted["spec"]["containers"][0] |= program
        machine = Machine(plane, node)
        machine.create(wanted)
        machine.reached("stays", "Running")
        settings = json.loads((node.folder / "kubelet.yaml").read_text())
        print(json.dumps([str(node.folder), str(plane.folder), settings["cgroupRoot"]]), flush=True)
        time.sleep(600)
"""


def processes(folder: str) -> list[str]:
    """Processes whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if folder in line:
            found.append(line)
    return found


def left(folders: list[Path]) -> list[str]:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return [
        *(str(folder) for folder in folders if folder.exists()),
        *(line for folder in folders for line in (*mounts, *processes(str(folder))) if str(folder) in line),
    ]


def test_a_killed_owner_leaves_nothing() -> None:
    assert debian.missing() == []
    owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(_OWNER)], cwd=ROOT, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    node, plane, cgroup = json.loads(owner.stdout.readline())
    folders = [Path(node), Path(plane), *cgroup_folders(cgroup.lstrip("/"))]
    assert all(folder.exists() for folder in folders)
    assert len(processes(node)) > 3
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    eventually(lambda: not left(folders) or None, lambda: f"these to go: {left(folders)}")
