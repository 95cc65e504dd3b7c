"""Reading the device through NVML (nvidia-ml-py, module ``pynvml``).

The questions and their error texts are KAI's (kai-contract 1.7); memory, minor number and MIG slices are ours.

Of a container that has a MIG slice the driver shows the whole card, with that slice as the only one of it. What the
device plugin handed out, and what tenants are to see, is the slice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import Any, TypeVar

import pynvml

from reservation.device import Device, Unreadable

_MIB = 1 << 20
_T = TypeVar("_T")


class QuestionFailed(Exception):
    """Raised when NVML refused a question whose answer is needed."""


class NvmlReader:
    """A DeviceReader over the driver's ``libnvidia-ml.so.1``, loaded at the first read."""

    def read(self) -> Device | Unreadable:
        """Return the only visible device."""
        try:
            with session():
                return _only_device()
        except QuestionFailed as failure:
            return Unreadable(str(failure))


def installed() -> tuple[tuple[Device, bool], ...] | Unreadable:
    """Return all GPUs by NVML's index, each with whether its MIG mode is on: such a GPU can't be used whole."""
    try:
        with session():
            count: int = ask("get device count", pynvml.nvmlDeviceGetCount)
            handles = [ask("get device handle", partial(pynvml.nvmlDeviceGetHandleByIndex, at)) for at in range(count)]
            return tuple((named(handle, minor=minor_of(handle)), is_cut(handle)) for handle in handles)
    except QuestionFailed as failure:
        return Unreadable(str(failure))


@contextlib.contextmanager
def session() -> Iterator[None]:
    """NVML between init and shutdown, so that the process keeps no device file open while it idles."""
    ask("initialize NVML", pynvml.nvmlInit)
    try:
        yield
    finally:
        # What was read stays true; a driver that can't shut down is no reason to withhold it.
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _only_device() -> Device:
    count: int = ask("get device count", pynvml.nvmlDeviceGetCount)
    if count != 1:
        raise QuestionFailed(f"found {count} devices, 1 was expected")
    handle = ask("get device handle", lambda: pynvml.nvmlDeviceGetHandleByIndex(0))
    if is_cut(handle):
        # A minor number is the card's, and says nothing of which slice.
        return named(_only_slice(handle), minor=None)
    return named(handle, minor=minor_of(handle))


def named(handle: Any, *, minor: int | None) -> Device:
    """Return a GPU or slice with its UUID and memory. Raises QuestionFailed."""
    uuid: str = ask("get device uuid", lambda: pynvml.nvmlDeviceGetUUID(handle))
    if not uuid:
        raise QuestionFailed("unable to get device uuid: the driver answered with an empty one")
    return Device(uuid=uuid, minor=minor, mem_mib=_mem_mib(handle))


def is_cut(handle: Any) -> bool:
    """Whether the card's MIG mode is on. Cards and drivers from before MIG don't know the question."""
    mode = ask_if_supported("get MIG mode", lambda: pynvml.nvmlDeviceGetMigMode(handle))
    return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _only_slice(card: Any) -> Any:
    most: int = ask("get the number of MIG devices", lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(card))
    found = [slice_ for index in range(most) if (slice_ := slice_at(card, index)) is not None]
    if len(found) != 1:
        raise QuestionFailed(f"found {len(found)} MIG devices, 1 was expected")
    return found[0]


def slice_at(card: Any, index: int) -> Any | None:
    """The slice at one of the places of a card; None if there is none, or it is not ours to see."""
    question = partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index)
    return ask_unless({pynvml.NVML_ERROR_NOT_FOUND}, "get MIG device handle", question)


def minor_of(handle: Any) -> int | None:
    """Return the N of /dev/nvidiaN; None where the driver does not tell."""
    minor: int | None = ask_if_supported("get device minor number", lambda: pynvml.nvmlDeviceGetMinorNumber(handle))
    return minor


def _mem_mib(handle: Any) -> int | None:
    memory = ask_if_supported("get device memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    return None if memory is None else int(memory.total) // _MIB


def ask(what: str, question: Callable[[], _T]) -> _T:
    """Ask the driver something that it has to know. Raises QuestionFailed."""
    try:
        return question()
    except pynvml.NVMLError as error:
        raise QuestionFailed(f"unable to {what}: {error}") from error


def ask_if_supported(what: str, question: Callable[[], _T]) -> _T | None:
    """Return None where the device has no answer (unified memory has no memory of its own to report)."""
    return ask_unless({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}, what, question)


def ask_unless(nothing: Container[int], what: str, question: Callable[[], _T]) -> _T | None:
    """Return None where the driver answers with one of these codes."""
    try:
        return question()
    except pynvml.NVMLError as error:
        if error.value in nothing:
            return None
        raise QuestionFailed(f"unable to {what}: {error}") from error
