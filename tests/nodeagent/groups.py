"""Real processes in control groups as kubelet makes them. It needs root, and groups that can be made."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

from nodeagent.enforcement.memory_enforcer.sampling import boot_ticks
from nodeagent.processes import Processes


class Groups:
    """Control groups below one of their own, as kubelet's driver ``cgroupfs`` names them."""

    def __init__(self, root: Path) -> None:
        self.mounted = root.parent
        self._root = root
        self._made: list[Path] = []
        self.started: list[subprocess.Popen[bytes]] = []
        self._make(root)

    def _make(self, folder: Path) -> Path:
        if not folder.exists():
            self._make(folder.parent)
            folder.mkdir()
            self._made.append(folder)
        return folder

    def container(self, pod: str, name: str = "") -> Path:
        return self._make(self._root / "kubepods" / "burstable" / f"pod{pod}" / (name or uuid.uuid4().hex * 2))

    def start(self, group: Path, *command: str) -> subprocess.Popen[bytes]:
        """A process that is in the group before its program runs, and older than a clock tick.

        The memory enforcer takes none that may have started after the driver was asked.
        """
        shell = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        process = subprocess.Popen(["sh", "-c", shell, "sh", *(command or ("sleep", "600"))])  # noqa: S607 - of PATH
        self.started.append(process)
        while process.poll() is None and not _runs(process.pid, group):
            os.sched_yield()
        return process

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
        for folder in reversed(self._made):
            for pid in (folder / "cgroup.procs").read_text().split():
                os.kill(int(pid), 9)
            while (folder / "cgroup.procs").read_text():
                os.sched_yield()
            folder.rmdir()


def _runs(pid: int, group: Path) -> bool:
    text, command = Path(f"/proc/{pid}/cgroup").read_text(), Path(f"/proc/{pid}/cmdline").read_bytes()
    known = Processes().known(pid)
    is_old = known is not None and known.started < boot_ticks()
    return is_old and str(group).rpartition("/")[2] in text and b"cgroup.procs" not in command


def hierarchy() -> Path | None:
    """Where groups can be made that /proc then names: of version 1 by its memory controller, else version 2."""
    for mounted in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        if (mounted / "cgroup.procs").exists() and os.access(mounted, os.W_OK):
            return mounted
    return None


def unified() -> Path | None:
    """Where groups of version 2 can be made, also where version 1 is mounted beside it."""
    for mounted in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (mounted / "cgroup.controllers").exists() and os.access(mounted, os.W_OK):
            return mounted
    return None
