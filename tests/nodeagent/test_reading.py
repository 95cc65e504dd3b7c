"""The machine as a process of its own reads it; in real time, since it waits for that process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nodeagent.core.card import Card
from nodeagent.core.machine import Machine
from nodeagent.reading import read_aside
from reservation.device import Device, Unreadable
from tests.conftest import AnyioBackend
from tools.nvml_stub.build import build


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stub"))


def command(stub: Path, machine: Path) -> list[str]:
    environment = [f"FAKE_NVML_STATE={machine}", f"LD_LIBRARY_PATH={stub}"]
    return ["/usr/bin/env", *environment, sys.executable, "-m", "nodeagent.nvml"]


async def test_what_the_process_reads_arrives_whole(stub: Path, tmp_path: Path) -> None:
    (tmp_path / "machine").write_text("gpu GPU-a NVIDIA_H100 81559 3\nmig MIG-x GPU-a 40192\n")
    card = Card(uuid="GPU-a", index=0, product="NVIDIA H100", minor=3, mem_mib=81559, has_mig=True, slices=("MIG-x",))
    devices = {"GPU-a": Device("GPU-a", 3, 81559), "MIG-x": Device("MIG-x", None, 40192)}
    assert await read_aside(command(stub, tmp_path / "machine")) == Machine((card,), devices)


async def test_a_machine_without_gpus_has_none(stub: Path, tmp_path: Path) -> None:
    (tmp_path / "machine").write_text("# none\n")
    assert await read_aside(command(stub, tmp_path / "machine")) == Machine((), {})


async def test_a_driver_that_is_not_there_is_told(stub: Path, tmp_path: Path) -> None:
    found = await read_aside(command(stub, tmp_path / "missing"))
    assert isinstance(found, Unreadable)
    assert found.message.startswith("unable to initialize NVML")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (["/usr/bin/env", "sleep", "60"], "the driver did not answer within 0.2 s"),
        (["/no/such/program"], "/no/such/program could not be started: No such file or directory"),
        ([sys.executable, "-c", "raise SystemExit('no library')"], "reading the GPUs ended with 1: no library"),
        ([sys.executable, "-c", "print('{}')"], "reading the GPUs printed something else"),
        ([sys.executable, "-c", "print('x')"], "reading the GPUs printed something else"),
    ],
    ids=["hangs", "missing", "fails", "other", "no-json"],
)
async def test_a_process_that_says_nothing_of_use_is_unreadable_and_says_why(program: list[str], said: str) -> None:
    found = await read_aside(program, within_s=0.2 if "sleep" in program else 60.0)
    assert isinstance(found, Unreadable)
    assert found.message.startswith(said)
