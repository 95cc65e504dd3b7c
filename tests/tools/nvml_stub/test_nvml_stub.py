from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tools.nvml_stub.build import LIBRARY, build, main

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE = 0, 1, 2, 3, 6, 7
DRIVER_NOT_LOADED, TIMEOUT, GPU_IS_LOST, ARGUMENT_VERSION_MISMATCH, UNKNOWN = 9, 10, 15, 25, 999


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return ctypes.CDLL(str(build(tmp_path_factory.mktemp("stub")) / LIBRARY))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state file: two devices, the first of them with minor number 5."""
    state = tmp_path / "machine"
    state.write_text("# two cards\ngpu GPU-a NVIDIA_L40S 46068 5\n\ngpu GPU-b NVIDIA_H100_80GB_HBM3 81559 2\n")
    monkeypatch.setenv("FAKE_NVML_STATE", str(state))
    return state


@pytest.fixture
def nvml(library: ctypes.CDLL, machine: Path) -> ctypes.CDLL:
    while library.nvmlShutdown() == SUCCESS:
        pass
    assert library.nvmlInitWithFlags(0) == SUCCESS
    return library


def handle_at(nvml: ctypes.CDLL, index: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == SUCCESS
    return handle


def text(nvml: ctypes.CDLL, function: str, handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(96)
    assert getattr(nvml, function)(handle, buffer, 96) == SUCCESS
    return buffer.value.decode()


def number(nvml: ctypes.CDLL, function: str, handle: ctypes.c_void_p) -> int:
    value = ctypes.c_uint()
    assert getattr(nvml, function)(handle, ctypes.byref(value)) == SUCCESS
    return value.value


def test_a_failure_is_of_one_function_only(nvml: ctypes.CDLL, machine: Path) -> None:
    with machine.open("a") as state:
        state.write("fail nvmlDeviceGetUUID 15\n")
    buffer = ctypes.create_string_buffer(96)
    assert nvml.nvmlDeviceGetUUID(handle_at(nvml, 0), buffer, 96) == GPU_IS_LOST
    assert text(nvml, "nvmlDeviceGetName", handle_at(nvml, 0)) == "NVIDIA L40S"


@pytest.mark.parametrize(
    "line",
    [
        "gpu GPU-a NVIDIA_L40S 46068",
        "gpu GPU-a L40S 46068 5 6",
        "fail nvmlInit_v2",
        "mig GPU-a",
        "proc 71 GPU-a 1024",
        "proc 71 GPU-a few 5",
        "proc 71 GPU-a 10MiB 5",
        "limit GPU-a /x 5",
        "limit GPU-a /x 0 5 6",
        "held GPU-a /x",
        "held GPU-a /x y 5",
        "stuck",
    ],
)
def test_a_line_that_can_not_be_read_is_never_passed_over(
    nvml: ctypes.CDLL, machine: Path, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.write_text(f"{line}\n")
    assert nvml.nvmlInit_v2() == UNKNOWN
    assert capfd.readouterr().err == f"nvml_stub: {machine}: can't read line: {line}\n"


def test_without_a_compiler_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("no C compiler: looked for no-such-compiler on PATH. Install one")


class EventData(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]  # as above
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def test_an_event_is_told_once_and_of_registered_devices_only(nvml: ctypes.CDLL, machine: Path) -> None:
    events, types, data = ctypes.c_void_p(), ctypes.c_ulonglong(), EventData()
    assert nvml.nvmlEventSetCreate(ctypes.byref(events)) == SUCCESS
    first = handle_at(nvml, 0)
    assert nvml.nvmlDeviceGetSupportedEventTypes(first, ctypes.byref(types)) == SUCCESS
    assert nvml.nvmlDeviceRegisterEvents(first, types, events) == SUCCESS

    def told() -> tuple[str, int, int, int] | int:
        code: int = nvml.nvmlEventSetWait_v2(events, ctypes.byref(data), 0)
        if code != SUCCESS:
            return code
        device = ctypes.c_void_p(data.device)
        return text(nvml, "nvmlDeviceGetUUID", device), data.data, data.gpu_instance, data.compute_instance

    assert told() == TIMEOUT
    gpus = machine.read_text()
    machine.write_text(f"{gpus}event GPU-b 79\nevent GPU-a 48\nevent GPU-a 94 3 0\n")
    assert told() == ("GPU-a", 48, 2**32 - 1, 2**32 - 1)
    assert told() == ("GPU-a", 94, 3, 0)
    assert told() == TIMEOUT
    machine.write_text(gpus)
    assert told() == TIMEOUT
    machine.write_text(f"{gpus}event GPU-a 63\n")
    assert told() == ("GPU-a", 63, 2**32 - 1, 2**32 - 1)
    assert nvml.nvmlEventSetFree(events) == SUCCESS


class SetLimits(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("soft", ctypes.c_ulonglong), ("hard", ctypes.c_ulonglong)]  # type: ignore[mutable-override]  # as above


class GetLimits(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]  # as above
        ("path", ctypes.c_char_p),
        ("soft", ctypes.c_ulonglong),
        ("hard", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


NO_LIMIT = (1 << 64) - 1


def limit(nvml: ctypes.CDLL, path: Path, hard: int, *, soft: int = 0, index: int = 0) -> int:
    limits = SetLimits(bytes(path), soft, hard)
    answered: int = nvml.nvmlDeviceSetMemoryLimits_v1(handle_at(nvml, index), ctypes.byref(limits))
    return answered


def limits_of(nvml: ctypes.CDLL, path: Path, index: int = 0) -> tuple[int, int, int]:
    limits = GetLimits(bytes(path))
    assert nvml.nvmlDeviceGetMemoryLimits_v1(handle_at(nvml, index), ctypes.byref(limits)) == SUCCESS
    return limits.soft, limits.hard, limits.used


def test_limits_that_can_not_be_are_refused(nvml: ctypes.CDLL, machine: Path, tmp_path: Path) -> None:
    assert limit(nvml, tmp_path / "gone", 5) == NOT_FOUND
    assert limit(nvml, Path("/" + "x" * 2_000), 5) == INVALID_ARGUMENT
    with machine.open("a") as file:
        file.write("mig MIG-x GPU-a 100\nstuck GPU-b\n")
    assert limit(nvml, tmp_path, 5) == NOT_SUPPORTED
    assert limit(nvml, tmp_path, 5, index=1) == SUCCESS
    assert limits_of(nvml, tmp_path, 1) == (0, NO_LIMIT, 0)
