from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeagent.cdi import NoCdi, generate, write

KIND = {"kind": "k8s.device-plugin.nvidia.com/gpu", "devices": []}


def program(folder: Path, script: str) -> str:
    path = folder / "nvidia-ctk"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_nvidias_program_makes_a_file_of_the_device_plugins_kind(tmp_path: Path) -> None:
    ctk = program(tmp_path, f"echo \"$@\" > {tmp_path}/asked; echo '{json.dumps(KIND)}'")
    assert json.loads(generate(ctk, "/run/nvidia/driver")) == KIND
    assert (tmp_path / "asked").read_text().split() == [
        "cdi",
        "generate",
        "--format=json",
        "--vendor=k8s.device-plugin.nvidia.com",
        "--class=gpu",
        "--device-name-strategy=uuid",
        "--driver-root=/run/nvidia/driver",
        "--output=-",
    ]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no driver >&2; exit 3", "ended with 3: no driver"),
        ("echo", "no JSON"),
        ("echo '[1]'", "of kind 'None'"),
        ("""echo '{"kind": "nvidia.com/gpu"}'""", "of kind 'nvidia.com/gpu'"),
        ("head -c 100000 /dev/zero | tr '\\0' '['", "no JSON"),
    ],
)
def test_another_output_is_no_file(tmp_path: Path, script: str, why: str) -> None:
    with pytest.raises(NoCdi, match=why):
        generate(program(tmp_path, script), "/")


def test_without_the_program_there_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NoCdi, match="No such file"):
        generate(str(tmp_path / "none"), "/")


def test_the_file_takes_its_place_in_one_step(tmp_path: Path) -> None:
    write(tmp_path / "cdi", b"1")
    write(tmp_path / "cdi", b"2")
    assert [path.name for path in (tmp_path / "cdi").iterdir()] == ["moorage-gpu.json"]
    assert (tmp_path / "cdi" / "moorage-gpu.json").read_bytes() == b"2"
    (tmp_path / "file").touch()
    with pytest.raises(NoCdi):
        write(tmp_path / "file", b"3")
