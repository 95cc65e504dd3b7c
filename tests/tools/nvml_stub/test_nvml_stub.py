from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tools.nvml_stub.build import LIBRARY, BuildFailed, build, main

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


class Memory(ctypes.Structure):
    # The name and form that ctypes asks for; its stub declares them read-only.
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]  # type: ignore[mutable-override]  # as said


class MemoryV2(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]  # as above
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Process(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]  # as above
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class ProcessUse(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]  # as above
        ("pid", ctypes.c_uint),
        ("time_us", ctypes.c_ulonglong),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    ]


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


def count(nvml: ctypes.CDLL) -> int:
    value = ctypes.c_uint()
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(value)) == SUCCESS
    return value.value


@pytest.mark.parametrize(
    ("index", "uuid", "name", "minor"), [(0, "GPU-a", "NVIDIA L40S", 5), (1, "GPU-b", "NVIDIA H100 80GB HBM3", 2)]
)
def test_the_file_is_the_machine(nvml: ctypes.CDLL, *, index: int, uuid: str, name: str, minor: int) -> None:
    handle, by_uuid = handle_at(nvml, index), ctypes.c_void_p()
    assert count(nvml) == 2
    assert text(nvml, "nvmlDeviceGetUUID", handle) == uuid
    assert text(nvml, "nvmlDeviceGetName", handle) == name
    assert number(nvml, "nvmlDeviceGetMinorNumber", handle) == minor
    assert number(nvml, "nvmlDeviceGetIndex", handle) == index
    assert nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(by_uuid)) == SUCCESS
    assert by_uuid.value == handle.value


def test_memory_is_told_in_both_layouts(nvml: ctypes.CDLL) -> None:
    memory, memory_v2 = Memory(), MemoryV2(version=0x02000028)
    handle = handle_at(nvml, 0)
    assert nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == SUCCESS
    assert nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory_v2)) == SUCCESS
    assert (memory.total, memory.used, memory_v2.total) == (46068 << 20, 0, 46068 << 20)
    memory_v2.version = 1
    assert nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory_v2)) == ARGUMENT_VERSION_MISMATCH


def test_slices_are_those_of_their_card(nvml: ctypes.CDLL, machine: Path) -> None:
    with machine.open("a") as state:
        state.write("mig MIG-x GPU-b 9856\nmig MIG-y GPU-b 20096\n")
    card, slice_, memory = handle_at(nvml, 1), ctypes.c_void_p(), Memory()
    current, pending, value = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    for index, is_on in ((0, 0), (1, 1)):
        handle = handle_at(nvml, index)
        assert nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending)) == SUCCESS
        assert (current.value, pending.value) == (is_on, is_on)
    assert number(nvml, "nvmlDeviceGetMaxMigDeviceCount", card) == 7
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 1, ctypes.byref(slice_)) == SUCCESS
    assert text(nvml, "nvmlDeviceGetUUID", slice_) == "MIG-y"
    assert nvml.nvmlDeviceGetMemoryInfo(slice_, ctypes.byref(memory)) == SUCCESS
    assert memory.total == 20096 << 20
    assert nvml.nvmlDeviceGetMinorNumber(slice_, ctypes.byref(value)) == NOT_SUPPORTED
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 2, ctypes.byref(slice_)) == NOT_FOUND
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 7, ctypes.byref(slice_)) == INVALID_ARGUMENT


def processes(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> list[tuple[int, int | None]]:
    """PID and memory in MiB, as pynvml asks for them: first the number, then the list."""
    count = ctypes.c_uint(0)
    if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None) == SUCCESS:
        return []
    listed = (Process * count.value)()
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), listed) == SUCCESS
    return [(each.pid, None if each.used == 2**64 - 1 else each.used >> 20) for each in listed]


def test_processes_have_memory_of_their_card(nvml: ctypes.CDLL, machine: Path) -> None:
    with machine.open("a") as state:
        state.write("proc 71 GPU-a 1024 30\nproc 72 GPU-a na 90\nproc 73 GPU-b 512 5\n")
    first, second, memory, count = handle_at(nvml, 0), handle_at(nvml, 1), Memory(), ctypes.c_uint(0)
    assert processes(nvml, first) == [(71, 1024), (72, None)]
    assert processes(nvml, second) == [(73, 512)]
    assert nvml.nvmlDeviceGetMemoryInfo(first, ctypes.byref(memory)) == SUCCESS
    assert (memory.used >> 20, memory.free >> 20) == (1024, 46068 - 1024)
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(first, ctypes.byref(count), None) == INSUFFICIENT_SIZE
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(first, ctypes.byref(count), None) == SUCCESS
    assert count.value == 0


def test_the_use_of_processes_is_told_since_a_time(nvml: ctypes.CDLL, machine: Path) -> None:
    with machine.open("a") as state:
        state.write("proc 71 GPU-a 1024 30\nproc 72 GPU-a 10 90\n")
    first, count, rates = handle_at(nvml, 0), ctypes.c_uint(0), (ctypes.c_uint * 2)()
    ask = nvml.nvmlDeviceGetProcessUtilization
    assert ask(first, None, ctypes.byref(count), ctypes.c_ulonglong(0)) == INSUFFICIENT_SIZE
    uses = (ProcessUse * count.value)()
    assert ask(first, uses, ctypes.byref(count), ctypes.c_ulonglong(0)) == SUCCESS
    assert [(each.pid, each.sm) for each in uses] == [(71, 30), (72, 90)]
    assert ask(first, uses, ctypes.byref(count), ctypes.c_ulonglong(2**63)) == NOT_FOUND
    assert ask(handle_at(nvml, 1), uses, ctypes.byref(count), ctypes.c_ulonglong(0)) == NOT_FOUND
    assert nvml.nvmlDeviceGetUtilizationRates(first, rates) == SUCCESS
    assert rates[0] == 100


def test_processes_of_a_slice_are_its_own_and_the_card_has_their_memory(nvml: ctypes.CDLL, machine: Path) -> None:
    with machine.open("a") as state:
        state.write("mig MIG-x GPU-b 9856\nproc 71 MIG-x 1024 0\n")
    card, slice_, memory, count = handle_at(nvml, 1), ctypes.c_void_p(), Memory(), ctypes.c_uint(0)
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 0, ctypes.byref(slice_)) == SUCCESS
    assert processes(nvml, slice_) == [(71, 1024)]
    assert processes(nvml, card) == []
    assert nvml.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory)) == SUCCESS
    assert memory.used >> 20 == 1024
    for on in (card, slice_):
        asked = nvml.nvmlDeviceGetProcessUtilization(on, None, ctypes.byref(count), ctypes.c_ulonglong(0))
        assert asked == NOT_SUPPORTED


def test_a_device_that_leaves_the_file_is_lost_and_may_come_back(nvml: ctypes.CDLL, machine: Path) -> None:
    handle, before = handle_at(nvml, 0), machine.read_text()
    buffer = ctypes.create_string_buffer(96)
    machine.write_text("gpu GPU-b NVIDIA_H100 81559 2\n")
    assert nvml.nvmlDeviceGetUUID(handle, buffer, 96) == GPU_IS_LOST
    assert count(nvml) == 1
    machine.write_text(before)
    assert text(nvml, "nvmlDeviceGetUUID", handle) == "GPU-a"


def test_a_failure_is_of_one_function_only(nvml: ctypes.CDLL, machine: Path) -> None:
    with machine.open("a") as state:
        state.write("fail nvmlDeviceGetUUID 15\n")
    buffer = ctypes.create_string_buffer(96)
    assert nvml.nvmlDeviceGetUUID(handle_at(nvml, 0), buffer, 96) == GPU_IS_LOST
    assert text(nvml, "nvmlDeviceGetName", handle_at(nvml, 0)) == "NVIDIA L40S"


def test_after_shutdown_it_wants_to_be_initialized(nvml: ctypes.CDLL) -> None:
    value = ctypes.c_uint()
    assert nvml.nvmlShutdown() == SUCCESS
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(value)) == UNINITIALIZED
    assert nvml.nvmlInit_v2() == SUCCESS
    assert count(nvml) == 2


def test_wrong_arguments_are_refused(nvml: ctypes.CDLL) -> None:
    handle, short = ctypes.c_void_p(), ctypes.create_string_buffer(5)
    assert nvml.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(handle)) == INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetHandleByUUID(b"GPU-c", ctypes.byref(handle)) == NOT_FOUND
    assert nvml.nvmlDeviceGetUUID(None, short, 5) == INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetUUID(handle_at(nvml, 0), short, 5) == INSUFFICIENT_SIZE


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


def test_no_file_is_no_driver(nvml: ctypes.CDLL, machine: Path) -> None:
    machine.unlink()
    assert nvml.nvmlInitWithFlags(0) == DRIVER_NOT_LOADED


def test_a_second_build_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build(tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build(tmp_path) == folder
    assert [path.name for path in folder.iterdir()] == [LIBRARY]


def test_without_a_compiler_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("no C compiler: looked for no-such-compiler on PATH. Install one")


def test_a_compiler_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(BuildFailed, match=r"nvml_stub\.c ended with 1"):
        build(tmp_path)


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


@pytest.mark.parametrize("line", ["event GPU-a", "event GPU-a x", "event GPU-a 1 2", "event GPU-a 1 2 3 4"])
def test_an_event_that_is_no_event_is_an_unknown_error(nvml: ctypes.CDLL, machine: Path, line: str) -> None:
    machine.write_text(f"{machine.read_text()}{line}\n")
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())) == UNKNOWN


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


def test_memory_limits_are_of_a_group_and_a_card(nvml: ctypes.CDLL, machine: Path, tmp_path: Path) -> None:
    group, other = tmp_path / "a b\\c", tmp_path / "a"
    for folder in (group, other):
        folder.mkdir()
    assert limits_of(nvml, group) == (0, NO_LIMIT, 0)
    assert limit(nvml, group, 5 << 20, soft=1) == SUCCESS
    assert limit(nvml, group, 7 << 20, index=1) == SUCCESS
    assert (limits_of(nvml, group), limits_of(nvml, group, 1)) == ((1, 5 << 20, 0), (0, 7 << 20, 0))
    assert limits_of(nvml, other) == (0, NO_LIMIT, 0)
    assert machine.read_text().count("limit ") == 2
    assert limit(nvml, group, 6 << 20) == SUCCESS
    assert limits_of(nvml, group) == (0, 6 << 20, 0)
    assert limit(nvml, group, NO_LIMIT) == SUCCESS
    assert limits_of(nvml, group) == (0, NO_LIMIT, 0)
    assert limits_of(nvml, group, 1) == (0, 7 << 20, 0)


def test_a_group_without_the_kernels_controller_has_the_limit_of_the_nearest_one_above(
    nvml: ctypes.CDLL, machine: Path, tmp_path: Path
) -> None:
    below = tmp_path / "pod" / "container"
    below.mkdir(parents=True)
    with machine.open("a") as file:
        file.write(f"held GPU-a {below} 3\nheld GPU-a {below}x 4\n")
    assert limit(nvml, below.parent, 9) == SUCCESS
    assert limits_of(nvml, below) == (0, 9, 3 << 20)
    (below / "dmem.max").touch()
    assert limits_of(nvml, below) == (0, NO_LIMIT, 3 << 20)
    assert limits_of(nvml, below.parent) == (0, 9, 7 << 20)


def test_limits_that_can_not_be_are_refused(nvml: ctypes.CDLL, machine: Path, tmp_path: Path) -> None:
    assert limit(nvml, tmp_path / "gone", 5) == NOT_FOUND
    assert limit(nvml, Path("/" + "x" * 2_000), 5) == INVALID_ARGUMENT
    with machine.open("a") as file:
        file.write("mig MIG-x GPU-a 100\nstuck GPU-b\n")
    assert limit(nvml, tmp_path, 5) == NOT_SUPPORTED
    assert limit(nvml, tmp_path, 5, index=1) == SUCCESS
    assert limits_of(nvml, tmp_path, 1) == (0, NO_LIMIT, 0)
