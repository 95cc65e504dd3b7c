from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.node.__main__ import LEFT_OUT
from tools.node.debian import missing, refused

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cni(tmp_path: Path) -> Path:
    for name in ("bridge", "host-local", "loopback"):
        (tmp_path / name).touch()
    return tmp_path


def everything(name: str) -> str | None:
    return f"/usr/bin/{name}"


def test_a_machine_with_everything_lacks_nothing(cni: Path) -> None:
    assert missing(everything, cni=cni, user=0) == []


def test_each_thing_that_is_missing_is_named_with_its_remedy(tmp_path: Path) -> None:
    def without_runc(name: str) -> str | None:
        return None if name == "runc" else everything(name)

    assert missing(without_runc, cni=tmp_path, user=1000) == [
        "root: namespaces and mounts need it",
        "runc: python -m tools.node install gets the package runc",
        f"CNI plug-ins in {tmp_path}: python -m tools.node install gets the package containernetworking-plugins",
    ]


def test_what_the_machine_does_not_let_us_do_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path, lambda: "") == []
    (tmp_path / "cgroup.controllers").touch()
    version, namespaces = refused(tmp_path, lambda: "unshare: Operation not permitted")
    assert version == "control groups are of version 2, on which no node was tried yet (make node-test tries it)"
    assert namespaces.endswith("can't be made: unshare: Operation not permitted")


def test_where_no_node_can_be_its_tests_are_left_out_with_one_line_that_says_why() -> None:
    command = [sys.executable, "-m", "tools.node", "ready"]
    done = subprocess.run(command, env={"PATH": ""}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (LEFT_OUT, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("LEFT OUT: the tests of a real node")
    assert "containerd: python -m tools.node install gets the package containerd; " in line
