"""Rows that only read: the machine, and where MIG slices may lie."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pynvml

from tools.realgpu.outcome import Outcome, Verdict, judged, not_possible

_MIB: Final = 1 << 20
_GROUPS: Final = Path("/sys/fs/cgroup")
#: By slices of compute: where instances may begin, and their size in memory slices, as NVIDIA documents it for A100,
#: H100 and H200. One with twice the memory has another size, and is not judged.
_PLACEMENTS: Final[Mapping[int, Sequence[tuple[int, int]]]] = {
    1: [(at, 1) for at in range(7)], 2: [(0, 2), (2, 2), (4, 2)], 3: [(0, 4), (4, 4)], 4: [(0, 4)], 7: [(0, 8)],
}  # fmt: skip


def machine() -> Outcome:
    """Driver, GPU, control groups, kernel and MPS: which limits this machine can have."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = answer(partial(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2))
    capacity = _GROUPS / "dmem.capacity"
    seen = {
        "driver": answer(pynvml.nvmlSystemGetDriverVersion),
        "cuda": answer(pynvml.nvmlSystemGetCudaDriverVersion_v2),
        "gpus": pynvml.nvmlDeviceGetCount(),
        "name": answer(partial(pynvml.nvmlDeviceGetName, handle)),
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "total MiB": memory if isinstance(memory, str) else memory.total // _MIB,
        "reserved MiB": memory if isinstance(memory, str) else memory.reserved // _MIB,
        "MIG mode": answer(partial(pynvml.nvmlDeviceGetMigMode, handle)),
        "compute mode": answer(partial(pynvml.nvmlDeviceGetComputeMode, handle)),
        "control groups": "version 2" if (_GROUPS / "cgroup.controllers").exists() else "version 1",
        "dmem.capacity": capacity.read_text() if capacity.exists() else "not there",
        "kernel": platform.release(),
        "uid": os.getuid(),
        "MPS control": _version("nvidia-cuda-mps-control", "-v"),
        "nvidia-ctk": _version("nvidia-ctk", "--version"),
    }
    return Outcome(Verdict.SEEN, seen)


def placements() -> Outcome:
    """Where NVML says that MIG slices may begin. Nothing is made."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    seen: dict[str, object] = {}
    is_as_documented = True
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        profile = answer(partial(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number))
        if isinstance(profile, str):
            continue
        places = answer(partial(_places, handle, profile.id))
        slices = int(profile.sliceCount)
        seen[f"{slices} of 7, {profile.memorySizeMB} MiB (profile {number})"] = places
        documented = _PLACEMENTS.get(slices)
        if documented and isinstance(places, list) and places and places[0][1] == documented[0][1]:
            is_as_documented &= places == documented
    if not seen:
        return not_possible("the driver tells no profiles of MIG slices for this GPU")
    return judged(seen, is_as_expected=is_as_documented)


def _places(handle: Any, profile: int) -> list[tuple[int, int]]:
    """Begin and size of each place, in memory slices."""
    count = pynvml.c_uint()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile, None, pynvml.byref(count))
    array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile, array, pynvml.byref(count))
    return sorted((int(one.start), int(one.size)) for one in array)


def answer(question: Callable[[], Any]) -> Any:
    """Return the driver's answer, or its refusal as a text."""
    try:
        return question()
    except (pynvml.NVMLError, AttributeError) as error:
        return f"refused: {error}"


def _version(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return "not there"
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return (done.stdout or done.stderr).strip()[:200]
