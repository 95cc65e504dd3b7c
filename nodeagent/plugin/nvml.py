"""The machine's GPUs by NVML, for the device plug-in: what there is, how well it is, and events.

NVML is held open, since events come to a set that has to live: whoever upgrades the driver stops the plug-in first.
What a driver does not know (``function not found``, ``not supported``) is None; the calls are made in one thread. On
emulated devices only so far: the names of MIG slices, row remapping, recovery actions and NVLink were not seen on real
ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml

from nodeagent.core.devices import Card, Slice
from nodeagent.core.plugin.health import Look, RecoveryAction
from nodeagent.core.plugin.labels import Driver
from nodeagent.core.plugin.offer import Fault
from nodeagent.plugin.ports import Reading, Unreadable
from nodeagent.report.nvml import PCI_DEVICES, numa_node

_T = TypeVar("_T")
_MIB: Final = 1 << 20
_MODULE: Final = Path("/sys/module/nvidia")
#: Of a slice's name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
_PROFILE: Final = re.compile(r"\bMIG ([0-9]+g\.[0-9]+gb\S*)$", re.ASCII)
_NO_INSTANCE: Final = 0xFFFFFFFF
_WANTED_EVENTS: Final = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeGpuUnavailableError
)
_REASONS: Final = {
    pynvml.nvmlEventTypeDoubleBitEccError: "DoubleBitEcc",
    pynvml.nvmlEventTypeGpuUnavailableError: "GpuUnavailable",
}
_MOST_EVENTS: Final = 256


class NvmlDevices:
    """A pluginports.Machine. Opens NVML with the first call, and again after it failed."""

    def __init__(self, *, module: Path = _MODULE, pci_devices: Path = PCI_DEVICES) -> None:
        self._module = module
        self._pci_devices = pci_devices
        self._events: Any = None
        self._registered: set[str] = set()
        self._known: tuple[str, ...] = ()

    def read(self) -> Reading:
        """Look at all devices. Raises Unreadable."""
        self._open()
        try:
            listed = self._listed()
        except pynvml.NVMLError as error:
            self._close()
            raise Unreadable(f"can't list GPUs: {error}") from error
        cards = [card for card, _ in listed]
        by_uuid = {card.uuid: handle for card, handle in listed}
        slices = [(one, handle) for card in cards if card.has_mig for one, handle in _slices(card, by_uuid[card.uuid])]
        self._register(by_uuid.items())
        # One that comes back is registered once more.
        self._registered &= by_uuid.keys()
        self._known = tuple(by_uuid)
        looks = {uuid: self._look(handle) for uuid, handle in by_uuid.items()}
        looks |= {one.uuid: self._look(handle, is_slice=True) for one, handle in slices}
        islands = _islands(list(by_uuid.items()))
        places = {card.uuid: (islands[card.uuid], -1 if card.numa is None else card.numa) for card in cards}
        handle = listed[-1][1] if listed else None
        return Reading(
            cards=cards, slices=[one for one, _ in slices], looks=looks, places=places, driver=_driver_itself(handle)
        )

    def faults(self, within_s: float) -> Sequence[Fault]:
        """Wait for events for at most this time, and take all that are there. Raises Unreadable."""
        self._open()
        found: list[Fault] = []
        wait_ms = int(within_s * 1000)
        while len(found) < _MOST_EVENTS:
            try:
                data = pynvml.nvmlEventSetWait_v2(self._events, wait_ms)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    return found
                self._close()
                raise Unreadable(f"can't wait for events: {error}") from error
            found += self._faults_of(data)
            wait_ms = 0
        return found

    def _open(self) -> None:
        if self._events is not None:
            return
        try:
            pynvml.nvmlInit()
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            raise Unreadable(f"can't open NVML: {error}") from error

    def _close(self) -> None:
        if self._events is None:
            return
        events, self._events = self._events, None
        self._registered.clear()
        for end in (partial(pynvml.nvmlEventSetFree, events), pynvml.nvmlShutdown):
            _told(end)

    def _listed(self) -> list[tuple[Card, Any]]:
        """The GPUs that answer, with their handles: a lost one is left out. Raises NVMLError if none of them does."""
        found: list[tuple[Card, Any]] = []
        failed: pynvml.NVMLError | None = None
        for at in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(at)
                found.append((self._card(at, handle), handle))
            except pynvml.NVMLError as error:
                failed = error
        if failed is not None and not found:
            raise failed
        return found

    def _card(self, index: int, handle: Any) -> Card:
        memory = _told(partial(pynvml.nvmlDeviceGetMemoryInfo, handle))
        mode = _told(partial(pynvml.nvmlDeviceGetMigMode, handle))
        pci = _told(partial(pynvml.nvmlDeviceGetPciInfo, handle))
        return Card(
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            index=index,
            product=_told(partial(pynvml.nvmlDeviceGetName, handle)) or "",
            minor=_told(partial(pynvml.nvmlDeviceGetMinorNumber, handle)),
            mem_mib=None if memory is None else int(memory.total) // _MIB,
            numa=None if pci is None else numa_node(str(pci.busId), self._pci_devices),
            has_mig=mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
        )

    def _register(self, handles: Iterable[tuple[str, Any]]) -> None:
        """Ask for events of GPUs that came. One that is too old for events has none."""
        for uuid, handle in handles:
            if uuid not in self._registered:
                supported = _told(partial(pynvml.nvmlDeviceGetSupportedEventTypes, handle)) or 0
                if wanted := supported & _WANTED_EVENTS:
                    _told(partial(pynvml.nvmlDeviceRegisterEvents, handle, wanted, self._events))
                self._registered.add(uuid)

    def _look(self, handle: Any, *, is_slice: bool = False) -> Look:
        rows = None if is_slice else _told(partial(pynvml.nvmlDeviceGetRemappedRows, handle))
        processes = _told(partial(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle))
        return Look(
            answers=_answers(handle),
            recovery=None if is_slice else _recovery(handle),
            remap_pending=None if rows is None else bool(rows[2]),
            remap_failed=None if rows is None else bool(rows[3]),
            processes=None if processes is None else len(processes),
            driver=self._driver(),
        )

    def _driver(self) -> str:
        """Another text after the driver's module was loaded again."""
        try:
            found = self._module.stat()
        except OSError:
            return ""
        return f"{found.st_ino}-{found.st_ctime_ns}"

    def _faults_of(self, data: Any) -> list[Fault]:
        uuid = _told(partial(pynvml.nvmlDeviceGetUUID, data.device))
        is_xid = data.eventType == pynvml.nvmlEventTypeXidCriticalError
        # An event whose GPU can't be asked is one of any.
        return [
            Fault(
                card=card,
                xid=int(data.eventData) if is_xid else None,
                reason=_REASONS.get(data.eventType, f"Event{data.eventType}"),
                gpu_instance=_instance(data.gpuInstanceId),
                compute_instance=_instance(data.computeInstanceId),
                driver=self._driver(),
            )
            for card in ([uuid] if uuid else self._known)
        ]


def _told(question: Callable[[], _T]) -> _T | None:
    """Return the driver's answer; None where it has none."""
    try:
        return question()
    except pynvml.NVMLError:
        return None


def _answers(handle: Any) -> bool:
    try:
        pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as error:
        return bool(error.value == pynvml.NVML_ERROR_NOT_SUPPORTED)
    return True


def _recovery(handle: Any) -> RecoveryAction | None:
    values = _told(partial(pynvml.nvmlDeviceGetFieldValues, handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]))
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return RecoveryAction.of(int(values[0].value.uiVal))


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else int(number)


def _driver_itself(handle: Any) -> Driver:
    """What the driver says of itself, and of the model of this GPU; None: of none."""
    cuda = _told(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    version = _told(pynvml.nvmlSystemGetDriverVersion) or ""
    said = "" if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
    if handle is None:
        return Driver(version=version, cuda=said)
    compute = _told(partial(pynvml.nvmlDeviceGetCudaComputeCapability, handle))
    return Driver(
        version=version,
        cuda=said,
        compute=None if compute is None else (int(compute[0]), int(compute[1])),
        is_mig_capable=_told(partial(pynvml.nvmlDeviceGetMigMode, handle)) is not None,
    )


def _slices(card: Card, handle: Any) -> Iterable[tuple[Slice, Any]]:
    """The slices of a GPU that have a profile in their name, each with its handle."""
    most = _told(partial(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)) or 0
    place = 0
    for at in range(most):
        one = _told(partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, at))
        uuid = None if one is None else _told(partial(pynvml.nvmlDeviceGetUUID, one))
        if one is None or not uuid:
            continue
        memory = _told(partial(pynvml.nvmlDeviceGetMemoryInfo, one))
        profile = profile_of(_told(partial(pynvml.nvmlDeviceGetName, one)) or "")
        if profile:
            yield (
                Slice(
                    uuid=uuid,
                    card=card.uuid,
                    profile=profile,
                    place=place,
                    mem_mib=None if memory is None else int(memory.total) // _MIB,
                    gpu_instance=_told(partial(pynvml.nvmlDeviceGetGpuInstanceId, one)),
                    compute_instance=_told(partial(pynvml.nvmlDeviceGetComputeInstanceId, one)),
                ),
                one,
            )
        place += 1


def profile_of(name: str) -> str:
    """Return the profile in a slice's name; "" if there is none."""
    match = _PROFILE.search(name)
    return match[1] if match else ""


def _islands(handles: Sequence[tuple[str, Any]]) -> dict[str, int]:
    """Number groups of GPUs that reach each other by NVLink; all are in one where the driver does not say."""
    island = dict.fromkeys((uuid for uuid, _ in handles), -1)
    for at, (uuid, handle) in enumerate(handles):
        for other, its in handles[:at]:
            status = _told(partial(pynvml.nvmlDeviceGetP2PStatus, handle, its, pynvml.NVML_P2P_CAPS_INDEX_NVLINK))
            if status is None:
                return dict.fromkeys(island, 0)
            if status == pynvml.NVML_P2P_STATUS_OK:
                island[uuid] = island[other]
                break
        else:
            island[uuid] = at
    return island
