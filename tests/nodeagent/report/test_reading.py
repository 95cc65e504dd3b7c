"""The machine as a process of its own reads it; in real time, since it waits for that process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.core.devices import Card, Machine
from nodeagent.report.cards import ReadAside
from reservation.device import Device, Unreadable
from tests.conftest import AnyioBackend
from tests.values import of_kind
from tools.nvml_stub.build import build


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stub"))


def command(stub: Path, machine: Path) -> list[str]:
    environment = [f"FAKE_NVML_STATE={machine}", f"LD_LIBRARY_PATH={stub}"]
    return ["/usr/bin/env", *environment, sys.executable, "-m", "nodeagent.report.nvml"]


async def test_what_the_process_reads_arrives_whole(stub: Path, tmp_path: Path) -> None:
    (tmp_path / "machine").write_text("gpu GPU-a NVIDIA_H100 81559 3\nmig MIG-x GPU-a 40192\n")
    card = Card(uuid="GPU-a", index=0, product="NVIDIA H100", minor=3, mem_mib=81559, has_mig=True, slices=("MIG-x",))
    devices = {"GPU-a": Device("GPU-a", 3, 81559), "MIG-x": Device("MIG-x", None, 40192)}
    assert await ReadAside(command(stub, tmp_path / "machine"))() == Machine((card,), devices)


async def test_a_machine_without_gpus_has_none(stub: Path, tmp_path: Path) -> None:
    (tmp_path / "machine").write_text("# none\n")
    assert await ReadAside(command(stub, tmp_path / "machine"))() == Machine((), {})


async def test_a_driver_that_is_not_there_is_told(stub: Path, tmp_path: Path) -> None:
    found = of_kind(Unreadable, await ReadAside(command(stub, tmp_path / "missing"))())
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
    found = of_kind(Unreadable, await ReadAside(program, within_s=0.2 if "sleep" in program else 60.0)())
    assert found.message.startswith(said)


class Unkillable:
    """A process inside a driver that hangs: signals wait until the driver answers."""

    pid = 4711
    stdin = stdout = stderr = None

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.ended = anyio.Event()
        self.kills = 0

    async def wait(self) -> int:
        await self.ended.wait()
        self.returncode = -9
        return -9

    def kill(self) -> None:
        self.kills += 1

    async def aclose(self) -> None:
        await self.wait()


async def test_a_process_that_can_not_be_ended_is_left_behind_and_no_other_is_started_beside_it() -> None:
    made: list[Unkillable] = []

    async def start(_: object) -> Any:
        made.append(Unkillable())
        return made[-1]

    read = ReadAside(within_s=0.01, start=start)
    with anyio.fail_after(30):
        first, second = await read(), await read()
    assert isinstance(first, Unreadable)
    assert isinstance(second, Unreadable)
    assert first.message == "the driver did not answer within 0.01 s"
    assert second.message == "the driver hangs: process 4711, which asked it, can't be ended"
    assert [process.kills for process in made] == [1]
    made[0].returncode = -9
    made[0].ended.set()
    await read()
    assert len(made) == 2


async def test_who_is_cancelled_does_not_wait_for_a_process_that_can_not_be_ended() -> None:
    process = Unkillable()

    async def start(_: object) -> Any:
        return process

    with anyio.fail_after(30):
        with anyio.move_on_after(0.01):
            await ReadAside(start=start)()
    assert process.kills == 1
