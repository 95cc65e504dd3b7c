"""Rows about limits: the driver's, of a control group, MPS' of a client, and the warden's."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pynvml

from nodeagent.core.messages import write_caps
from tools.realgpu.facts import answer
from tools.realgpu.holding import Holder, group, holding
from tools.realgpu.outcome import Outcome, judged, not_possible

_MIB: Final = 1 << 20
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
    """The real warden ends a process above its cap, and nobody else."""
    mounted = next((one for one in (GROUPS / "memory", GROUPS) if (one / "cgroup.procs").exists()), None)
    if mounted is None or not os.access(mounted, os.W_OK):
        return not_possible("control groups can't be made here")
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
    pod = str(uuid.uuid4())
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="warden-"))
        try:
            place = mounted / OURS / "kubepods" / "burstable" / f"pod{pod}" / (uuid.uuid4().hex * 2)
            ours = stack.enter_context(group(place))
        except OSError as error:
            return not_possible(f"a control group can't be made: {error}")
        agent = stack.enter_context(warden(Path(folder) / "warden.sock", "--dry-run=false", "--interval-s=1"))
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
def warden(path: Path, *options: str, under: Sequence[str] = ()) -> Iterator[socket.socket]:
    """Start a warden with these options, and connect to it as its agent. ``under``: a program that starts it."""
    command = [*under, sys.executable, "-m", "nodeagent.warden.main", "--socket", str(path), *options]
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
