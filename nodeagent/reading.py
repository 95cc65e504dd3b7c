"""Has the GPUs of this machine read by a process of its own, which is ended where the driver does not answer."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process

from nodeagent.core.machine import Machine
from reservation.device import Unreadable

#: Where no persistence daemon runs, the driver takes a second or two a GPU.
_WITHIN_S: Final = 60.0
#: After SIGKILL. In a call of a driver that hangs it takes until the driver answers.
_ENDS_WITHIN_S: Final = 1.0
_COMMAND: Final = (sys.executable, "-m", "nodeagent.nvml")
#: The folder of our packages, wherever they are installed.
_ROOT: Final = Path(__file__).parents[1]


class _Said(msgspec.Struct, frozen=True):
    """What the process prints: a Machine, or why there is none."""

    message: str = ""


async def _start(command: Sequence[str]) -> Process:
    return await anyio.open_process(command, stdin=subprocess.DEVNULL, cwd=_ROOT)


class ReadAside:
    """Asks the driver in a process of its own, one at a time.

    A process inside a driver that hangs may not be ended by SIGKILL: it is left behind, and no other is started beside
    it. ``start`` starts a process.
    """

    def __init__(
        self,
        command: Sequence[str] = _COMMAND,
        *,
        within_s: float = _WITHIN_S,
        start: Callable[[Sequence[str]], Awaitable[Process]] = _start,
    ) -> None:
        self._command = command
        self._within_s = within_s
        self._start = start
        self._stuck: Process | None = None

    async def __call__(self) -> Machine | Unreadable:
        """Read them. Never raises for what a driver can cause."""
        if self._stuck is not None:
            if self._stuck.returncode is None:
                return Unreadable(f"the driver hangs: process {self._stuck.pid}, which asked it, can't be ended")
            await self._stuck.aclose()
            self._stuck = None
        try:
            process = await self._start(self._command)
        except OSError as error:
            return Unreadable(f"{self._command[0]} could not be started: {error.strerror}")
        try:
            with anyio.fail_after(self._within_s):
                printed, complained = await _output(process)
        except TimeoutError:
            return Unreadable(f"the driver did not answer within {self._within_s:g} s")
        finally:
            await self._end(process)
        return _read(process.returncode, printed, complained)

    async def _end(self, process: Process) -> None:
        """End it and wait a little, whoever is cancelled: waiting for its end may take for ever."""
        with anyio.move_on_after(_ENDS_WITHIN_S, shield=True):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            await process.aclose()
            return
        self._stuck = process


read_aside: Final = ReadAside()


async def _output(process: Process) -> tuple[bytes, bytes]:
    """Wait for its end; return what it wrote to stdout and stderr."""
    written = {1: bytearray(), 2: bytearray()}

    async def drain(number: int, stream: ByteReceiveStream | None) -> None:
        if stream is not None:
            async for chunk in stream:
                written[number] += chunk

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drain, 1, process.stdout)
        tasks.start_soon(drain, 2, process.stderr)
        await process.wait()
    return bytes(written[1]), bytes(written[2])


def _read(code: int | None, printed: bytes, complained: bytes) -> Machine | Unreadable:
    if code != 0:
        last = complained.decode(errors="replace").strip().rpartition("\n")[2]
        return Unreadable(f"reading the GPUs ended with {code}: {last[:200]}")
    try:
        if message := msgspec.json.decode(printed, type=_Said).message:
            return Unreadable(message)
        return msgspec.json.decode(printed, type=Machine)
    except msgspec.DecodeError as error:
        return Unreadable(f"reading the GPUs printed something else: {error}")
