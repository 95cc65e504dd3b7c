"""Reading the device through NVML (nvidia-ml-py, module ``pynvml``).

The questions and their error texts are KAI's (kai-contract 1.7); memory and minor number are ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pynvml

from reservation.device import Device, Unreadable

_MIB = 1 << 20
_T = TypeVar("_T")


class _QuestionFailed(Exception):
    """Raised when NVML refused a question whose answer is needed."""


class NvmlReader:
    """A DeviceReader over the driver's ``libnvidia-ml.so.1``, loaded at the first read."""

    def read(self) -> Device | Unreadable:
        """Return the only visible device."""
        try:
            with _session():
                return _only_device()
        except _QuestionFailed as failure:
            return Unreadable(str(failure))


@contextlib.contextmanager
def _session() -> Iterator[None]:
    """NVML between init and shutdown, so that the process keeps no device file open while it idles."""
    _ask("initialize NVML", pynvml.nvmlInit)
    try:
        yield
    finally:
        # What was read stays true; a driver that can't shut down is no reason to withhold it.
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _only_device() -> Device:
    count: int = _ask("get device count", pynvml.nvmlDeviceGetCount)
    if count != 1:
        raise _QuestionFailed(f"found {count} devices, 1 was expected")
    handle = _ask("get device handle", lambda: pynvml.nvmlDeviceGetHandleByIndex(0))
    uuid: str = _ask("get device uuid", lambda: pynvml.nvmlDeviceGetUUID(handle))
    if not uuid:
        raise _QuestionFailed("unable to get device uuid: the driver answered with an empty one")
    return Device(uuid=uuid, minor=_minor(handle), mem_mib=_mem_mib(handle))


def _minor(handle: Any) -> int | None:
    minor: int | None = _ask_if_supported("get device minor number", lambda: pynvml.nvmlDeviceGetMinorNumber(handle))
    return minor


def _mem_mib(handle: Any) -> int | None:
    memory = _ask_if_supported("get device memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    return None if memory is None else int(memory.total) // _MIB


def _ask(what: str, question: Callable[[], _T]) -> _T:
    try:
        return question()
    except pynvml.NVMLError as error:
        raise _QuestionFailed(f"unable to {what}: {error}") from error


def _ask_if_supported(what: str, question: Callable[[], _T]) -> _T | None:
    """Return None where the device has no answer (unified memory has no memory of its own to report)."""
    try:
        return question()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
            return None
        raise _QuestionFailed(f"unable to {what}: {error}") from error
