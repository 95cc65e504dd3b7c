"""The machine's cards, as they were read last by a process of its own: the driver is asked seldom."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process

from nodeagent.core.devices import Card, Lost, Machine
from reservation.device import Device, Unreadable

#: Where no persistence daemon runs, the driver takes a second or two a GPU.
_WITHIN_S: Final = 60.0
#: After SIGKILL. In a call of a driver that hangs it takes until the driver answers.
_ENDS_WITHIN_S: Final = 1.0
_COMMAND: Final = (sys.executable, "-m", "nodeagent.report.nvml")
#: The folder of our packages, wherever they are installed.
_ROOT: Final = Path(__file__).parents[2]


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


_log: Final = logging.getLogger(__name__)
#: A device that the last look did not show is looked for again at most so often.
_PAUSE_S: Final = 10.0
#: Asks the driver, beside other work.
Read = Callable[[], Awaitable[Machine | Unreadable]]


class Cards:
    """``on_change`` is called after each look that showed something else."""

    def __init__(self, read: Read, *, every_s: float) -> None:
        self._read = read
        self._every_s = every_s
        self._machine = Machine((), {})
        self._lost: Mapping[str, tuple[Card, str]] = {}
        self._memory_mib: Mapping[str, int] = {}
        self._looked_s = 0.0
        self._lock = anyio.Lock()
        self._wanted = anyio.Event()
        #: Set when the driver has answered, or was found not to.
        self.asked = anyio.Event()
        self.on_change: Callable[[], None] | None = None
        #: Why the driver could not be asked at the last look; "": it could.
        self.trouble = "the driver was not asked yet"
        #: The driver has answered since the agent was started.
        self.are_known = False

    @property
    def cards(self) -> tuple[Card, ...]:
        """All cards, those of the last look that succeeded; lost ones as they were known before."""
        lost = [card for card, _ in self._lost.values()]
        return tuple(sorted((*self._machine.cards, *lost), key=lambda card: card.index))

    @property
    def lost(self) -> Mapping[str, str]:
        """Why the driver can't describe a GPU any more, by the UUID that it had."""
        return {uuid: why for uuid, (_, why) in self._lost.items()}

    @property
    def unknown(self) -> tuple[Lost, ...]:
        """GPUs that were lost before the agent could read which they are."""
        known = {card.index for card, _ in self._lost.values()}
        return tuple(one for one in self._machine.lost if one.index not in known)

    @property
    def memory_mib(self) -> Mapping[str, int]:
        """Memory of GPUs and MIG slices by UUID, as far as the driver tells; of a lost GPU as it was."""
        return self._memory_mib

    @property
    def devices(self) -> Mapping[str, Device]:
        """GPUs and MIG slices by UUID; none of a lost GPU."""
        return self._machine.devices

    async def run(self) -> None:
        """Look at once, now and then, and where a device is looked for, until cancelled."""
        await self.look()
        while True:
            with anyio.move_on_after(self._every_s):
                await self._wanted.wait()
            await self.look()
            self._wanted = anyio.Event()

    async def look(self) -> None:
        """Ask the driver."""
        async with self._lock:
            before = (self._machine, self.trouble)
            found = await self._read()
            self._looked_s = anyio.current_time()
            if isinstance(found, Unreadable):
                self.trouble = found.message
            else:
                self._take(found)
            self.asked.set()
            if before == (self._machine, self.trouble):
                return
        if self.trouble:
            _log.warning("the GPUs can't be read: %s", self.trouble)
        for one in self._machine.lost:
            _log.warning("GPU %d can't be read: %s", one.index, one.why)
        if self.on_change is not None:
            self.on_change()

    def _take(self, found: Machine) -> None:
        self._lost = found.lost_of(self.cards)
        lost = {uuid for card, _ in self._lost.values() for uuid in (card.uuid, *card.slices)}
        kept = {uuid: mib for uuid, mib in self._memory_mib.items() if uuid in lost}
        self._memory_mib = kept | {uuid: one.mem_mib for uuid, one in found.devices.items() if one.mem_mib}
        self._machine, self.trouble, self.are_known = found, "", True

    def look_again(self) -> None:
        """Have the driver asked again soon: MIG slices were made or destroyed."""
        self._wanted.set()

    def look_for(self, uuid: str) -> None:
        """Have the driver asked again, where a device was not there at the last look and that is some time ago.

        Nobody waits for it: a driver that hangs takes a minute.
        """
        if uuid not in self.devices and anyio.current_time() >= self._looked_s + _PAUSE_S:
            self._wanted.set()
