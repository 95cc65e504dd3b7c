"""The row about limits by MPS, version 3: what docs/design/mps.md has to be shown by a real GPU, question by question.

The MPS daemon's own code starts NVIDIA's control daemon, in folders that are removed in the end. No setting of the GPU
is changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import pynvml

from nodeagent.core.mps import control
from nodeagent.core.mps.control import Wanted
from nodeagent.core.mps.limits import Report, read_wanted
from nodeagent.listener import Listener
from nodeagent.mps.mps_daemon.control import PROGRAM, Control, Daemon, NoAnswer, Refused
from nodeagent.mps.mps_daemon.loop import MpsDaemon
from nodeagent.processes import Processes
from tools.realgpu.rows import Holder, Outcome, judged, not_possible

_FIRST: Final = "00000000-0000-4000-8000-000000000001"
_SECOND: Final = "00000000-0000-4000-8000-000000000002"
_WITHIN_S: Final = 15.0
_NOBODY: Final = 60_000
#: In namespaces of its own: no /dev/shm of the host, and the folder read-only, as a container has it.
_CONTAINED: Final = (
    'mount -t tmpfs none /dev/shm && mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
)
#: As the MPS daemon's container: no capabilities, and a root that is read-only but for the control daemon's folder.
_BARE: Final = """#!/bin/sh
exec unshare --mount sh -c 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec setpriv --bounding-set=-all \\
  --inh-caps=-all --no-new-privs "$@"' {folder} {program} "$@"
"""
_CAPPED_MIB: Final = 4_096
_UNROUNDED_MIB: Final = 24_467
_PERCENT: Final = 25
#: What any client gets.
_LITTLE_MIB: Final = 256
#: Words of tools/realgpu/hold.py.
_REFUSED_MEMORY: Final = re.compile(r"refused cuMem(?:Alloc_v2|setD8_v2): CUDA_ERROR_OUT_OF_MEMORY\b")
_MULTIPROCESSORS: Final = re.compile(r"held [0-9]+ of [0-9]+ on ([0-9]+) SMs")


class NotAsked(Exception):
    """Raised where a question can't be asked here; the message is the reason."""


class Kept:
    """NVIDIA's control daemon in a folder, by the MPS daemon's code. ``program``: how it is started."""

    def __init__(self, folder: Path, device: str, program: str = PROGRAM) -> None:
        self.folder, self.device, self.said = folder, device, list[str]()
        self.control = Control(program, pipes=folder / "p", logs=folder)
        self._daemon = Daemon(self.control, say=self.said.append)
        self._listener = Listener(str(folder / "s" / "s"), read=read_wanted, say=self.said.append)
        self._mps_daemon = MpsDaemon(
            self.control, self._daemon, self._listener, interval_ns=10**9, processes=Processes(), say=self.said.append
        )

    def hold(self, *wanted: Wanted) -> Report:
        """Turn until all of them are held, for a while; return the last report."""
        self._listener.said = wanted
        until_s = time.monotonic() + _WITHIN_S
        while True:
            report = self._mps_daemon.turn()
            if len(report.held) == len(wanted) or time.monotonic() >= until_s:
                return report
            self._listener.wait(time.monotonic_ns() + 10**8)

    def listed(self, module: str) -> str:
        """Return what the control daemon lists, or why it does not."""
        try:
            more = ("--all",) if module == "client" else ()
            return self.control.ask((module, "list", "--format=csv,noheader", *more), 5.0).strip()
        except (NoAnswer, Refused) as error:
            return str(error)

    def its_folder(self, of: Wanted) -> Path:
        """Return the folder of a tenant's namespace."""
        return Path(control.folder(PurePosixPath(self.control.pipes), of))

    def restart(self) -> None:
        """End the control daemon. The next turns start another one."""
        self._daemon.stop()

    def close(self) -> None:
        """End the control daemon with its clients."""
        self._daemon.stop()
        self._listener.close()


def answers() -> Outcome:
    """Ask all questions; each is answered by yes, no, or why it could not be asked."""
    if shutil.which(PROGRAM) is None:
        return not_possible(f"{PROGRAM} is not there")
    if os.geteuid() != 0:
        return not_possible("it needs root, as the control daemon serves clients of all users")
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
    first = Wanted(_FIRST, device, _CAPPED_MIB, _PERCENT)
    with _kept(device) as kept:
        report = kept.hold(first)
        seen: dict[str, object] = {"servers": kept.listed("server"), "namespaces": kept.listed("namespace")}
        seen["a server without clients is listed as Ready"] = _said(bool(report.held), report.why)
        if not report.held:
            return judged(seen, is_as_expected=False)
        for question, ask in _QUESTIONS.items():
            seen[question] = _asked(lambda ask=ask: ask(kept, first))  # type: ignore[misc]  # bound at once
    return judged(seen, is_as_expected=not any(str(one).startswith("no") for one in seen.values()))


@contextlib.contextmanager
def _kept(device: str, program: str = PROGRAM) -> Iterator[Kept]:
    with tempfile.TemporaryDirectory(prefix="mps-", dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        if program != PROGRAM:
            (folder / "bare").write_text(program.format(folder=folder, program=shutil.which(PROGRAM)))
            (folder / "bare").chmod(0o755)
            program = str(folder / "bare")
        kept = Kept(folder, device, program)
        try:
            yield kept
        finally:
            kept.close()


def _asked(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except (NotAsked, OSError) as error:
        return f"could not be asked: {error}"


def _said(is_so: bool, why: str) -> str:
    return "yes" if is_so else f"no: {why}"


def _client(kept: Kept, of: Wanted, mib: int, *under: str, **more: str) -> tuple[bool, bool, str]:
    """Whether a client has got its memory, whether it was in the namespace, and its words."""
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(kept.its_folder(of)), **more}
    holder = Holder(mib, "--sms", environment=environment, under=under)
    try:
        if not holder.told.startswith(("held", "refused")) or "libcuda" in holder.told:
            raise NotAsked(holder.told or "the client said nothing")
        places = {one.place for one in control.clients(kept.listed("client"))}
        return holder.holds, (control.server(of.device), control.namespace(of.pod_uid)) in places, holder.told
    finally:
        holder.end()


def _joins(kept: Kept, of: Wanted, *under: str) -> str:
    holds, joined, told = _client(kept, of, _LITTLE_MIB, *under)
    return _said(holds and joined, told if not holds else "it ran, and was in no namespace")


def _contained(kept: Kept, of: Wanted) -> str:
    if shutil.which("unshare") is None:
        raise NotAsked("unshare is not there")
    return _joins(kept, of, "unshare", "--mount", "--ipc", "sh", "-c", _CONTAINED, str(kept.its_folder(of)))


def _other_user(kept: Kept, of: Wanted) -> str:
    if shutil.which("setpriv") is None:
        raise NotAsked("setpriv is not there")
    return _joins(kept, of, "setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")


def _listed(kept: Kept, of: Wanted) -> str:
    """Whether a client in a PID namespace of its own is listed by the PID that it has outside. Raises NotAsked."""
    if shutil.which("unshare") is None:
        raise NotAsked("unshare is not there")
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(kept.its_folder(of))}
    holder = Holder(_LITTLE_MIB, environment=environment, under=("unshare", "--pid", "--fork", "--kill-child"))
    try:
        if not holder.holds:
            raise NotAsked(holder.told)
        pid = holder.process.pid
        children = set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
        listed = {one.pid for one in control.clients(kept.listed("client"))}
        return _said(bool(children & listed), f"{sorted(listed)} are listed; it is {sorted(children)}")
    finally:
        holder.end()


def _outside(kept: Kept, mib: int) -> str:
    """The words of a client without MPS, which gets its memory. Raises NotAsked."""
    holder = Holder(mib, "--sms", environment={"CUDA_MPS_PIPE_DIRECTORY": str(kept.folder / "none")})
    holder.end()
    if not holder.holds:
        raise NotAsked(f"a client without MPS: {holder.told}")
    return holder.told


def _member(kept: Kept, of: Wanted, **more: str) -> str:
    """The words of a client that has joined, and gets a little memory. Raises NotAsked."""
    holds, joined, told = _client(kept, of, _LITTLE_MIB, **more)
    if not (holds and joined):
        raise NotAsked(f"a client of {_LITTLE_MIB} MiB: {told if not holds else 'it ran, and was in no namespace'}")
    return told


def _memory_holds(kept: Kept, of: Wanted, **more: str) -> str:
    """Whether memory above the limit is refused, which others get, and to a client that gets less. Raises NotAsked."""
    above_mib = _CAPPED_MIB + 1_000
    _outside(kept, above_mib)
    _member(kept, of, **more)
    holds, joined, told = _client(kept, of, above_mib, **more)
    if not holds and not is_for_memory(told):
        raise NotAsked(told)
    return _said(not holds, told if joined else "it ran, and was in no namespace")


def _root_and_memory(kept: Kept, of: Wanted) -> str:
    return _memory_holds(kept, of, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=65536M")


def _root_and_percentage(kept: Kept, of: Wanted) -> str:
    outside, limited = multiprocessors(_outside(kept, _LITTLE_MIB)), multiprocessors(_member(kept, of))
    if limited >= outside:
        raise NotAsked(f"a client of {_PERCENT} % sees all {outside} multiprocessors")
    raised = multiprocessors(_member(kept, of, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="100"))
    return _said(raised <= limited, f"{limited} multiprocessors; with its own variable {raised}")


def is_for_memory(told: str) -> bool:
    """Whether a client was refused memory, and nothing else."""
    return _REFUSED_MEMORY.match(told) is not None


def multiprocessors(told: str) -> int:
    """Return how many a client sees that holds its memory. Raises NotAsked."""
    found = _MULTIPROCESSORS.fullmatch(told)
    if found is None:
        raise NotAsked(told)
    return int(found[1])


def _unrounded(kept: Kept, of: Wanted) -> str:
    second = Wanted(_SECOND, of.device, _UNROUNDED_MIB, 100)
    report = kept.hold(of, second)
    return _said(len(report.held) == 2, kept.listed("namespace"))


def _folders_stay(kept: Kept, of: Wanted) -> str:
    # Kept open, as a container's mount keeps it: no other folder gets its number.
    opened = os.open(kept.its_folder(of), os.O_RDONLY | os.O_DIRECTORY)
    try:
        kept.restart()
        report = kept.hold(of)
        if not report.held:
            raise NotAsked(f"nobody is held after that: {report.why}")
        return _said(kept.its_folder(of).stat().st_ino == os.fstat(opened).st_ino, "it is another folder")
    finally:
        os.close(opened)


def _bare(kept: Kept, of: Wanted) -> str:
    for needed in ("unshare", "setpriv"):
        if shutil.which(needed) is None:
            raise NotAsked(f"{needed} is not there")
    with _kept(of.device, _BARE) as bare:
        report = bare.hold(of)
        return _said(bool(report.held), f"{report.why}; {bare.said[-1:]}")


#: In this order: the last but one ends the control daemon.
_QUESTIONS: Final[Mapping[str, Callable[[Kept, Wanted], str]]] = {
    "a client joins by a read-only folder, without the host's /dev/shm": _contained,
    "a client of another user joins": _other_user,
    "a client is listed by the host's PID": _listed,
    "an allocation above the namespace's limit is refused": _memory_holds,
    "root can't raise its memory limit": _root_and_memory,
    "root can't raise its percentage": _root_and_percentage,
    f"a limit of {_UNROUNDED_MIB} MiB is read back": _unrounded,
    "folders stay when the control daemon starts again": _folders_stay,
    "it serves without capabilities and with a read-only root": _bare,
}
