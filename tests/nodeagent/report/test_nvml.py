"""The machine as the agent reads it, through the NVML stub, in a process of its own: libraries are loaded once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.core.devices import Card, Lost, Machine
from nodeagent.report.nvml import numa_node
from reservation.device import Device, Unreadable
from tests.values import of_kind
from tools.nvml_stub.build import build

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]
_READ = "from nodeagent.report import nvml; print(repr(nvml.read()))"


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stub"))


def read(stub: Path, folder: Path, *lines: str) -> Machine | Unreadable:
    state = folder / "machine"
    state.write_text("".join(f"{line}\n" for line in lines))
    environment = {**os.environ, "FAKE_NVML_STATE": str(state), "LD_LIBRARY_PATH": str(stub)}
    done = subprocess.run(
        [sys.executable, "-c", _READ], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    known = {"Machine": Machine, "Lost": Lost, "Card": Card, "Device": Device, "Unreadable": Unreadable}
    found: Machine | Unreadable = eval(done.stdout, known)  # noqa: S307 - our own repr
    return found


def test_all_cards_and_slices_are_read_as_a_reservation_process_reads_its_own(stub: Path, tmp_path: Path) -> None:
    lines = ("gpu GPU-a NVIDIA_H100 81559 3", "gpu GPU-b NVIDIA_A100 40960 1", "mig MIG-x GPU-b 4864")
    whole = Card(uuid="GPU-a", index=0, product="NVIDIA H100", minor=3, mem_mib=81559)
    cut = Card(uuid="GPU-b", index=1, product="NVIDIA A100", minor=1, mem_mib=40960, has_mig=True, slices=("MIG-x",))
    devices = [Device("GPU-a", 3, 81559), Device("GPU-b", 1, 40960), Device("MIG-x", None, 4864)]
    assert read(stub, tmp_path, *lines) == Machine((whole, cut), {each.uuid: each for each in devices})


def test_what_the_driver_does_not_tell_is_left_open(stub: Path, tmp_path: Path) -> None:
    lines = ("gpu GPU-a NVIDIA_H100 81559 3", *(f"fail nvmlDeviceGet{what} 3" for what in ("Name", "MinorNumber")))
    found = read(stub, tmp_path, *lines, "fail nvmlDeviceGetMemoryInfo 3")
    assert found == Machine((Card(uuid="GPU-a", index=0),), {"GPU-a": Device("GPU-a", None, None)})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fail nvmlInitWithFlags 9", "unable to initialize NVML"),
        ("fail nvmlDeviceGetCount_v2 999", "unable to get device count"),
    ],
)
def test_a_driver_that_fails_is_unreadable_and_says_at_what(stub: Path, tmp_path: Path, line: str, said: str) -> None:
    found = of_kind(Unreadable, read(stub, tmp_path, "gpu GPU-a NVIDIA_H100 81559 3", line))
    assert found.message.startswith(said)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("lost GPU-a", "unable to get device handle: GPU is lost"),
        ("fail nvmlDeviceGetUUID 15", "unable to get device uuid: GPU is lost"),
    ],
)
def test_a_gpu_that_does_not_answer_is_lost(stub: Path, tmp_path: Path, line: str, why: str) -> None:
    assert read(stub, tmp_path, "gpu GPU-a NVIDIA_H100 81559 3", line) == Machine((), {}, (Lost(0, why),))


def test_the_others_are_read_where_one_is_lost(stub: Path, tmp_path: Path) -> None:
    cards = [f"gpu GPU-{name} NVIDIA_H100 81559 {number}" for number, name in enumerate("abc")]
    found = of_kind(Machine, read(stub, tmp_path, *cards, "mig MIG-x GPU-b 4864", "lost GPU-b"))
    assert [(card.uuid, card.index) for card in found.cards] == [("GPU-a", 0), ("GPU-c", 2)]
    assert list(found.devices) == ["GPU-a", "GPU-c"]
    assert [one.index for one in found.lost] == [1]


@pytest.mark.parametrize(("told", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("", None)])
def test_the_numa_node_is_what_the_kernel_tells(tmp_path: Path, told: str, node: int | None) -> None:
    device = tmp_path / "0000:3b:00.0"
    device.mkdir()
    (device / "numa_node").write_text(told)
    assert numa_node("00000000:3B:00.0", tmp_path) == node
    assert numa_node("00000000:FF:00.0", tmp_path) is None
