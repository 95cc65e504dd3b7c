from __future__ import annotations

from pathlib import Path

import pytest

from tools.node.needs import missing


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
