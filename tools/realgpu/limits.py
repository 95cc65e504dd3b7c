"""Rows about limits: the driver's, of a control group, MPS' of a client, and the memory enforcer's.

The memory enforcer's are set on a pod's control group and seen through a read-only mount. Two rows only read: the
machine, and where MIG slices may lie.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pynvml

from nodeagent.core.enforcement.messages import Frames, Limited, read_report, write_caps
from tools.realgpu.rows import Holder, Outcome, Verdict, group, holding, judged, not_possible

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


GROUPS: Final = Path("/sys/fs/cgroup")
OURS: Final = "moorage-realgpu"
_CAP_MIB: Final = 8192
_KILLED: Final = -9


def driver() -> Outcome:
    """A hard limit of the driver on a control group, set and read back by NVML, without an MPS daemon."""
    if os.geteuid() != 0 or not (GROUPS / "cgroup.controllers").exists():
        return not_possible("it needs root and control groups of version 2")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with contextlib.ExitStack() as stack:
        try:
            ours = stack.enter_context(group(GROUPS / OURS))
        except OSError as error:
            return not_possible(f"a control group can't be made: {error}")
        set_ = answer(partial(_set, handle, ours, _CAP_MIB))
        if isinstance(set_, str):
            return not_possible(f"nvmlDeviceSetMemoryLimits_v1 {set_}")
        read_back = answer(partial(_hard_mib, handle, ours))
        alone = _tried(ours, [9000])
        two = _tried(ours, [5000, 5000])
        seen: dict[str, object] = {
            "cap MiB": _CAP_MIB,
            "read back MiB": read_back,
            "one of 9000": alone,
            "two of 5000": two,
            "managed, 9000": _tried(ours, [9000], "--managed"),
            "changed while in use": _changed(handle, ours),
        }
    holds = [told.startswith("held") for told in (*alone, *two)]
    return judged(seen, is_as_expected=read_back == _CAP_MIB and holds == [False, True, False])


def _tried(ours: Path, sizes_mib: list[int], *options: str) -> list[str]:
    holders: list[Holder] = []
    try:
        holders.extend(Holder(mib, *options, group=ours) for mib in sizes_mib)
        return [holder.told for holder in holders]
    finally:
        for holder in holders:
            holder.end()


def _changed(handle: Any, ours: Path) -> dict[str, object]:
    """Raise and lower the limit while a process holds memory: what is read back."""
    holder = Holder(2048, group=ours)
    try:
        found: dict[str, object] = {"holder": holder.told}
        for mib in (10_240, 4_096, 1_024):
            refused = answer(partial(_set, handle, ours, mib))
            found[f"to {mib} MiB"] = refused or answer(partial(_hard_mib, handle, ours))
        return found
    finally:
        holder.end()


def _set(handle: Any, ours: Path, mib: int) -> None:
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(str(ours).encode(), 0, mib * _MIB)
    pynvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)


def _hard_mib(handle: Any, ours: Path) -> int:
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(str(ours).encode())
    pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    return int(limits.hardLimit) // _MIB


def mps() -> Outcome:
    """The limit of a client of MPS: it holds for each process, not for two together."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        return not_possible("nvidia-cuda-mps-control is not there")
    with _daemon() as environment:
        limited = {**environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M"}
        holders: list[Holder] = []
        try:
            above = Holder(5000, environment=limited)
            holders.append(above)
            within = [Holder(3000, environment=limited) for _ in range(2)]
            holders += within
        finally:
            for holder in holders:
                holder.end()
    seen = {"limit MiB": 4096, "one of 5000": above.told, "two of 3000": [one.told for one in within]}
    return judged(seen, is_as_expected=not above.holds and all(one.holds for one in within))


@contextlib.contextmanager
def _daemon() -> Iterator[Mapping[str, str]]:
    """A control daemon of MPS in folders of its own: the variables of its clients."""
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        run = partial(
            subprocess.run, env={**os.environ, **variables}, capture_output=True, text=True, timeout=15, check=False
        )
        run(["nvidia-cuda-mps-control", "-d"])
        try:
            yield variables
        finally:
            run(["nvidia-cuda-mps-control"], input="quit -t 1\n")


def ending() -> Outcome:
    """The real memory enforcer ends a process above its cap, and nobody else."""
    mounted = next((one for one in (GROUPS / "memory", GROUPS) if (one / "cgroup.procs").exists()), None)
    if mounted is None or not os.access(mounted, os.W_OK):
        return not_possible("control groups can't be made here")
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
    pod = str(uuid.uuid4())
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="memory-enforcer-"))
        try:
            place = mounted / OURS / "kubepods" / "burstable" / f"pod{pod}" / (uuid.uuid4().hex * 2)
            ours = stack.enter_context(group(place))
        except OSError as error:
            return not_possible(f"a control group can't be made: {error}")
        agent = stack.enter_context(
            enforcer(Path(folder) / "memory-enforcer.sock", "--dry-run=false", "--interval-s=1")
        )
        agent.sendall(write_caps({(pod, device): 2048}))
        (neighbour,) = stack.enter_context(holding(1024))
        victim = Holder(3000, group=ours)
        began = time.monotonic()
        stack.callback(victim.end)
        if not (victim.holds and neighbour.holds):
            return not_possible(f"{victim.told}; {neighbour.told}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            victim.process.wait(timeout=10)
        took_s = time.monotonic() - began
        code, lives = victim.process.poll(), neighbour.process.poll() is None
    seen = {"cap MiB": 2048, "held MiB": 3000, "exit code": code, "after s": round(took_s, 2), "neighbour lives": lives}
    return judged(seen, is_as_expected=code == _KILLED and took_s <= 2 and lives)


@contextlib.contextmanager
def enforcer(path: Path, *options: str, under: Sequence[str] = ()) -> Iterator[socket.socket]:
    """Start a memory enforcer with these options, and connect to it as its agent.

    ``under``: a program that starts it.
    """
    command = [
        *under,
        sys.executable,
        "-m",
        "nodeagent.enforcement.memory_enforcer.main",
        "--socket",
        str(path),
        *options,
    ]
    started = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        assert started.stderr is not None
        started.stderr.readline()
        with socket.socket(socket.AF_UNIX) as agent:
            agent.connect(str(path))
            yield agent
    finally:
        started.kill()
        started.wait()


_ENFORCED_MIB: Final = 2048
_WITHIN_S: Final = 10.0
#: As the chart mounts the host's groups into the memory enforcer.
_READ_ONLY: Final = f'mount -o remount,bind,ro {GROUPS} && exec "$@"'


def memory_enforcer() -> Outcome:
    """The real memory enforcer sets a limit of a container's group that nobody has used yet, and reads it back."""
    if os.geteuid() != 0 or not (GROUPS / "cgroup.controllers").exists():
        return not_possible("it needs root and control groups of version 2")
    if shutil.which("unshare") is None:
        return not_possible("unshare is not there")
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
    pod = str(uuid.uuid4())
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="memory-enforcer-"))
        try:
            container = stack.enter_context(group(GROUPS / OURS / "kubepods" / f"pod{pod}" / (uuid.uuid4().hex * 2)))
        except OSError as error:
            return not_possible(f"a control group can't be made: {error}")
        options = ["--dry-run=true", "--driver-limits=true", f"--control-groups={GROUPS}"]
        under = ["unshare", "--mount", "sh", "-c", _READ_ONLY, "sh"]
        agent = stack.enter_context(enforcer(Path(folder) / "memory-enforcer.sock", *options, under=under))
        agent.sendall(write_caps({(pod, device): _ENFORCED_MIB}))
        limited = _limited(agent)
        if not limited.held and "can't limit" in limited.why:
            return not_possible(limited.why)
        told = [_held_in(mib, container) for mib in (3000, 1000)]
        seen: dict[str, object] = {
            "cap MiB": _ENFORCED_MIB,
            "held": limited.held == ((pod, device),),
            "why not": limited.why,
            "dmem.max": (container / "dmem.max").exists(),
            "one of 3000": told[0],
            "one of 1000": told[1],
        }
    holds = [one.startswith("held") for one in told]
    return judged(seen, is_as_expected=seen["held"] is True and holds == [False, True])


def _limited(agent: socket.socket) -> Limited:
    """What the memory enforcer reports of its limits, once it holds the cap or says why it does not."""
    frames, until_s = Frames(), time.monotonic() + _WITHIN_S
    agent.settimeout(_WITHIN_S)
    last = Limited((), "it reported none")
    with contextlib.suppress(TimeoutError):
        while time.monotonic() < until_s:
            for message in frames.cut(agent.recv(1 << 20)):
                last = read_report(message).driver or last
                if last.held or last.why:
                    return last
    return last


def _held_in(mib: int, container: Path) -> str:
    holder = Holder(mib, group=container)
    holder.end()
    return holder.told
