"""One look at the node's GPUs through NVML: their memory, their processes, and whose those are.

What the driver can't answer costs that answer, or that device: the rest of the look is good. Slices of MIG are looked
at in place of their card. The driver names PIDs, and a process may have ended and its PID be another's before it is
looked up. That one has started after the driver was asked, so it is not taken for the one that has the memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from nodeagent.core.enforcement.overuse import Device, Process, Sample
from nodeagent.processes import Processes
from wire.units import SECOND_NS

#: Looks between which devices are not listed again: they come and go with MIG only, or with a driver.
_LOOKS_A_LISTING: Final = 10


def boot_ticks() -> int:
    """Clock ticks since boot, as start times of processes count."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // SECOND_NS


class DriverAway(Exception):
    """Raised when NVML can't say which devices there are; the message is the driver's. The next look tries again."""


@dataclass(slots=True)
class _Place:
    """A device that is looked at. ``since_us``: up to when its processes' use has been read, by the driver's clock."""

    handle: Any
    uuid: str
    is_slice: bool
    since_us: int = 0


class Sampler:
    """Looks. ``nvml``: the module pynvml, or what answers like it. ``ticks``: clock ticks since boot."""

    def __init__(self, nvml: Any, processes: Processes, *, ticks: Callable[[], int] = boot_ticks) -> None:
        self._nvml = nvml
        self._ticks = ticks
        self._processes = processes
        self._places: list[_Place] = []
        self._looks_left = 0
        self._is_open = False

    @property
    def cards(self) -> dict[str, Any]:
        """Handles of the cards of the last look that are not in MIG mode, by UUID."""
        return {place.uuid: place.handle for place in self._places if not place.is_slice}

    def look(self, at_ns: int) -> Sample:
        """Look once. Raises DriverAway."""
        if self._looks_left == 0:
            self._list()
        self._looks_left -= 1
        devices: list[Device] = []
        unread: list[str] = []
        for place in self._places:
            try:
                devices.append(self._device(place))
            except self._nvml.NVMLError:
                unread.append(place.uuid)
        if unread:
            self._looks_left = 0
        self._processes.forget_others({process.pid for device in devices for process in device.processes})
        return Sample(at_ns, tuple(devices), tuple(unread))

    def _list(self) -> None:
        known = {place.uuid: place for place in self._places}
        self._places = []
        try:
            if not self._is_open:
                self._nvml.nvmlInit()
                self._is_open = True
            self._find(self._nvml.nvmlDeviceGetCount(), known)
        except self._nvml.NVMLError as error:
            self._is_open = False
            self._places = []
            raise DriverAway(str(error)) from error

    def _find(self, count: int, known: dict[str, _Place]) -> None:
        """List the devices; a GPU that is lost is left out. Raises NVMLError if none answers."""
        failed: list[Exception] = []
        for index in range(count):
            try:
                card = self._nvml.nvmlDeviceGetHandleByIndex(index)
                self._places += [self._place(handle, known, is_slice=is_slice) for handle, is_slice in self._of(card)]
            except self._nvml.NVMLError as error:
                failed.append(error)
        if failed and len(failed) == count:
            raise failed[0]
        self._looks_left = _LOOKS_A_LISTING

    def _place(self, handle: Any, known: dict[str, _Place], *, is_slice: bool) -> _Place:
        uuid = self._nvml.nvmlDeviceGetUUID(handle)
        return _Place(handle, uuid, is_slice, known[uuid].since_us if uuid in known else 0)

    def _of(self, card: Any) -> Iterator[tuple[Any, bool]]:
        """The card, or its slices where its MIG mode is on."""
        mode = self._answer(partial(self._nvml.nvmlDeviceGetMigMode, card))
        if mode is None or mode[0] != self._nvml.NVML_DEVICE_MIG_ENABLE:
            yield card, False
            return
        for index in range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
            slice_ = self._answer(partial(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index))
            if slice_ is not None:
                yield slice_, True

    def _device(self, place: _Place) -> Device:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(place.handle)
        asked_ticks = self._ticks()
        used_by = self._used_by(place.handle)
        uses = {} if place.is_slice or not used_by else self._uses(place)
        processes = tuple(
            self._process(
                pid, used_bytes, None if uses is None or place.is_slice else uses.get(pid, 0), asked_ticks=asked_ticks
            )
            for pid, used_bytes in used_by.items()
        )
        rates = (
            None if place.is_slice else self._answer(partial(self._nvml.nvmlDeviceGetUtilizationRates, place.handle))
        )
        return Device(
            place.uuid, int(memory.total), int(memory.used), processes, None if rates is None else int(rates.gpu)
        )

    def _used_by(self, handle: Any) -> dict[int, int | None]:
        """Memory by PID. A process that computes and draws is listed twice, and has its memory once."""
        found: dict[int, int | None] = {}
        # By their versions: the function without one raises something else where a driver is older.
        computing = self._answer(partial(self._nvml.nvmlDeviceGetComputeRunningProcesses_v3, handle))
        if computing is None:
            computing = self._nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
        drawing = self._answer(partial(self._nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle))
        if drawing is None:
            drawing = self._answer(partial(self._nvml.nvmlDeviceGetGraphicsRunningProcesses_v2, handle))
        listed = [*computing, *(drawing or ())]
        for each in listed:
            pid, used = int(each.pid), None if each.usedGpuMemory is None else int(each.usedGpuMemory)
            before = found.get(pid, 0)
            found[pid] = None if used is None or before is None else max(used, before)
        return found

    def _uses(self, place: _Place) -> dict[int, int] | None:
        """SM percent by PID, the mean of the driver's samples since the last look; None if it does not tell.

        It raises where it has no samples: then nothing was used.
        """
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(place.handle, place.since_us)
        except self._nvml.NVMLError as error:
            return {} if error.value == self._nvml.NVML_ERROR_NOT_FOUND else None
        of_pid: dict[int, list[int]] = {}
        for each in samples:
            if each.timeStamp > 0 and each.smUtil <= 100:  # the driver leaves places at the end empty
                of_pid.setdefault(int(each.pid), []).append(int(each.smUtil))
                place.since_us = max(place.since_us, int(each.timeStamp))
        return {pid: sum(found) // len(found) for pid, found in of_pid.items()}

    def _process(self, pid: int, used_bytes: int | None, sm_percent: int | None, *, asked_ticks: int) -> Process:
        known = self._processes.known(pid)
        if known is None or known.started >= asked_ticks:
            return Process(pid, 0, used_bytes, sm_percent)
        pod, container = (known.seat.pod_uid, known.seat.container) if known.seat is not None else ("", "")
        return Process(pid, known.started, used_bytes, sm_percent, pod, container, known.name)

    def _answer(self, question: Callable[[], Any]) -> Any | None:
        """None where this device, or this driver, does not know the question, or has nothing there."""
        nothing = {
            self._nvml.NVML_ERROR_NOT_SUPPORTED,
            self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            self._nvml.NVML_ERROR_NOT_FOUND,
        }
        try:
            return question()
        except self._nvml.NVMLError as error:
            if error.value in nothing:
                return None
            raise
