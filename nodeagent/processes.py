"""What /proc says of a process: when it started, and which pod it belongs to, by the path of its control group.

Nothing else is read of a process: no command line, no environment, no file of a tenant.

kubelet makes one group for each pod, named by its UID, and the container runtime makes one in it for each container.
Two drivers name them: ``systemd`` (``kubepods-burstable-pod<UID with _>.slice/cri-containerd-<id>.scope``) and
``cgroupfs`` (``kubepods/burstable/pod<UID>/<id>``); paths are as cgroups(7) prints them in ``/proc/PID/cgroup``.

The outermost pod of a path counts: what a container makes below its own group, whatever its name, is its own. A
reader in a cgroup namespace of its own (the usual with version 2) sees other groups as ``/../..``, from itself upwards:
then the path may begin below ``kubepods``. Whatever is not of these forms belongs to nobody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from nodeagent.core.enforcement.overuse import Seen

_HEX: Final = "[0-9a-f]"
_SYSTEMD_POD: Final = re.compile(
    rf"(?:[a-z0-9]+-)*kubepods(?:-burstable|-besteffort)?-pod({_HEX}{{8}}(?:_{_HEX}{{4}}){{3}}_{_HEX}{{12}})\.slice"
)
_CGROUPFS_POD: Final = re.compile(rf"pod({_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})")
_CONTAINER: Final = re.compile(rf"(?:[a-z]+(?:-[a-z]+)*-)?({_HEX}{{64}})(?:\.scope)?")
_QOS: Final = frozenset({"burstable", "besteffort"})
_KUBEPODS: Final = "kubepods"
_SYSTEMD_HOME: Final = re.compile(r"(?:[a-z0-9]+-)*kubepods(?:-burstable|-besteffort)?\.slice")
#: Controllers of version 1 by which kubelet and the runtimes place containers, the first that is there.
_CONTROLLERS: Final = ("memory", "pids", "devices")


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a process is. ``container``: its id, "" for a process in another group of the pod."""

    pod_uid: str
    container: str


def seat(text: str) -> Seat | None:
    """Read ``/proc/PID/cgroup``; None for a process of no pod. Never raises."""
    path = _path(text)
    return None if path is None else seat_of_path(path)


def seat_of_path(path: str) -> Seat | None:
    """Read the path of a control group."""
    parts = path.removeprefix("/").split("/")
    climbed = 0
    while climbed < len(parts) and parts[climbed] == "..":
        climbed += 1
    parts = parts[climbed:]
    for place, part in enumerate(parts):
        if (uid := _pod_uid(part, parts[:place], is_cut=climbed > 0)) is not None:
            return Seat(uid, _container(parts[place + 1 :]))
        if _CONTAINER.fullmatch(part):
            return None  # a container that is no pod's: what lies below it is of its own making
    return None


def is_home(path: str) -> bool:
    """Whether kubelet makes groups of pods directly in this group, by its path from the root of all groups."""
    *above, name = path.strip("/").split("/")
    if name in _QOS:
        return bool(above) and above[-1] == _KUBEPODS
    return name == _KUBEPODS or _SYSTEMD_HOME.fullmatch(name) is not None


def container_of(name: str) -> str:
    """Read the id of a container from the name of its group; "" for the name of another group."""
    named = _CONTAINER.fullmatch(name)
    return named[1] if named is not None else ""


def _path(text: str) -> str | None:
    """The path that counts: of version 1 where a controller of it is mounted, else of version 2."""
    unified: str | None = None
    of_controller: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, found, path = rest.partition(":")
        if not found:
            continue
        if number == "0" and not controllers:
            unified = path
        for controller in controllers.split(","):
            of_controller.setdefault(controller, path)
    return next((of_controller[name] for name in _CONTROLLERS if name in of_controller), unified)


def _pod_uid(part: str, before: list[str], *, is_cut: bool) -> str | None:
    if (named := _SYSTEMD_POD.fullmatch(part)) is not None:
        return named[1].replace("_", "-")
    named = _CGROUPFS_POD.fullmatch(part)
    return named[1] if named is not None and _is_kubelets(before, is_cut=is_cut) else None


def _is_kubelets(before: list[str], *, is_cut: bool) -> bool:
    """Whether a group of the driver ``cgroupfs`` lies where kubelet puts pods: its name alone says little."""
    above = before[:-1] if before and before[-1] in _QOS else before
    return above[-1] == _KUBEPODS if above else is_cut


def _container(parts: list[str]) -> str:
    return container_of(parts[0]) if parts else ""


#: Of ``stat`` and of ``cgroup``: a path may have 4,096 bytes, in each of about 15 lines.
_MOST_BYTES: Final = 1 << 17
#: Place of the start time among the fields behind the name (proc_pid_stat(5), field 22).
_START_FIELD: Final = 19


@dataclass(frozen=True, slots=True)
class Known:
    """A process. ``name``: what it calls itself, with signs that can be printed only."""

    started: int
    seat: Seat | None
    name: str


class Processes:
    """Looks processes up. Where a process sits is kept while it was looked up last time, too."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._known: dict[int, Known] = {}

    def known(self, pid: int) -> Known | None:
        """Look a process up for a sample; None if there is no such one."""
        stat = self._stat(pid)
        if stat is None:
            return None
        started, name = stat
        kept = self._known.get(pid)
        if kept is not None and kept.started == started and kept.seat is not None:
            return kept
        found = Known(started, self._seat(pid), name)
        self._known[pid] = found
        return found

    def forget_others(self, pids: Collection[int]) -> None:
        """Keep nothing but what is known of these."""
        if len(self._known) > len(pids):
            self._known = {pid: self._known[pid] for pid in pids if pid in self._known}

    def seen(self, pid: int) -> Seen | None:
        """Look again, at the process itself and not at what is kept; None if there is no such one."""
        stat = self._stat(pid)
        if stat is None:
            return None
        found = self._seat(pid)
        return Seen(stat[0], found.pod_uid if found is not None else "")

    def _stat(self, pid: int) -> tuple[int, str] | None:
        """Start time and name."""
        text = self._read(pid, "stat")
        # A name may have brackets, blanks and line ends of its own.
        head, _, fields = text.rpartition(")")
        numbers = fields.split()
        if len(numbers) <= _START_FIELD or not numbers[_START_FIELD].isdigit():
            return None
        name = head.partition("(")[2]
        return int(numbers[_START_FIELD]), "".join(sign if sign.isprintable() else "?" for sign in name[:64])

    def _seat(self, pid: int) -> Seat | None:
        return seat(self._read(pid, "cgroup"))

    def _read(self, pid: int, what: str) -> str:
        """Read one of its files; "" if it has ended."""
        try:
            file = os.open(f"{self._proc}/{pid:d}/{what}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            return os.read(file, _MOST_BYTES).decode(errors="replace")
        except OSError:
            return ""
        finally:
            os.close(file)
