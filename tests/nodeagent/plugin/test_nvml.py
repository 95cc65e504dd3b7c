"""Asked in a process of its own: the stub is another library than the one that this process may have loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodeagent.plugin.nvml import profile_of
from tools.nvml_stub.build import build

# Reads, waits for faults, and prints both; between them a line of its input is a new state of the machine.
_PROGRAM = """
import dataclasses, json, sys
from pathlib import Path
from nodeagent.plugin.nvml import NvmlDevices
from nodeagent.plugin.ports import Unreadable

state, module = Path(sys.argv[1]), Path(sys.argv[2])
devices = NvmlDevices(module=module, pci_devices=module)
for line in sys.stdin:
    state.write_text(json.loads(line))
    try:
        reading = dataclasses.asdict(devices.read())
        faults = [dataclasses.asdict(fault) for fault in devices.faults(0.01)]
    except Unreadable as error:
        print(json.dumps(str(error)), flush=True)
        continue
    print(json.dumps([reading, faults], default=lambda each: each.name), flush=True)
"""
TWO = "gpu GPU-a NVIDIA_L40S 46068 5\ngpu GPU-b NVIDIA_L40S 46068 2\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stub"))


def told(library: Path, tmp_path: Path, *states: str) -> list[Any]:
    state, module = tmp_path / "state", tmp_path / "module"
    module.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(state), str(module)],
        input="".join(json.dumps(one) + "\n" for one in states),
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "FAKE_NVML_STATE": str(state),
            "PYTHONPATH": str(Path.cwd()),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_cards_are_read_and_well(library: Path, tmp_path: Path) -> None:
    ((reading, faults),) = told(library, tmp_path, TWO)
    assert faults == []
    first, second = reading["cards"]
    assert (first["uuid"], first["index"], first["minor"], first["mem_mib"]) == ("GPU-a", 0, 5, 46068)
    assert (second["uuid"], second["product"], second["has_mig"]) == ("GPU-b", "NVIDIA L40S", False)
    look = reading["looks"]["GPU-a"]
    assert look["is_listed"]
    assert look["answers"]
    assert look["driver"]
    # The stub's driver does not tell these.
    assert (look["recovery"], look["remap_pending"]) == (None, None)
    assert reading["places"] == {"GPU-a": [0, -1], "GPU-b": [0, -1]}
    driver = reading["driver"]
    assert (driver["version"], driver["cuda"], driver["compute"]) == ("0.0.0-stub", "", None)


def test_events_are_faults_of_a_card_or_a_slice(library: Path, tmp_path: Path) -> None:
    # The set of events is made by the first reading.
    _, (_, faults) = told(library, tmp_path, TWO, f"{TWO}event GPU-a 79\nevent GPU-b 94 3 0\n")
    assert [(one["card"], one["xid"], one["gpu_instance"], one["compute_instance"]) for one in faults] == [
        ("GPU-a", 79, None, None),
        ("GPU-b", 94, 3, 0),
    ]


def test_a_card_that_does_not_answer_is_read_and_one_that_is_gone_is_not_listed(library: Path, tmp_path: Path) -> None:
    (lost, _), (gone, _) = told(
        library, tmp_path, f"{TWO}fail nvmlDeviceGetMemoryInfo 15\n", TWO.splitlines(keepends=True)[0]
    )
    assert [look["answers"] for look in lost["looks"].values()] == [False, False]
    assert list(gone["looks"]) == ["GPU-a"]


def test_a_gpu_that_is_lost_is_not_listed_and_the_others_are_and_have_their_events(
    library: Path, tmp_path: Path
) -> None:
    lost, (back, _), (_, faults) = told(
        library, tmp_path, f"{TWO}lost GPU-a\n", TWO, f"{TWO}event GPU-a 48\nevent GPU-b 48\n"
    )
    assert [(card["uuid"], card["index"]) for card in lost[0]["cards"]] == [("GPU-b", 1)]
    assert list(lost[0]["looks"]) == ["GPU-b"]
    assert [card["uuid"] for card in back["cards"]] == ["GPU-a", "GPU-b"]
    assert [one["card"] for one in faults] == ["GPU-a", "GPU-b"]
    (none,) = told(library, tmp_path / "none", f"{TWO}lost GPU-a\nlost GPU-b\n")
    assert none == "can't list GPUs: GPU is lost"


def test_a_driver_that_went_and_came_back_is_opened_again(library: Path, tmp_path: Path) -> None:
    before, broken, (after, faults) = told(
        library, tmp_path, TWO, f"{TWO}fail nvmlDeviceGetCount_v2 9\n", f"{TWO}event GPU-a 48\n"
    )
    assert broken.startswith("can't list GPUs")
    assert after["cards"] == before[0]["cards"]
    assert [one["xid"] for one in faults] == [48]


def test_a_slice_without_a_profile_in_its_name_is_not_offered(library: Path, tmp_path: Path) -> None:
    ((reading, _),) = told(library, tmp_path, f"{TWO}mig MIG-1 GPU-b 9984\n")
    assert [card["has_mig"] for card in reading["cards"]] == [False, True]
    assert reading["slices"] == []


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
        ("NVIDIA H100 80GB HBM3", ""),
        ("", ""),
    ],
)
def test_a_profile_is_told_by_a_slices_name(name: str, profile: str) -> None:
    assert profile_of(name) == profile
