"""The back end HAMi-core: files on the host that tenants' containers mount, and looks at the ones they write.

HAMi-core is a library that is loaded before others (``/etc/ld.so.preload``). It answers CUDA's calls for memory and
holds kernels back. All processes of a container share a file that the library maps: its head has the limits. Source:
Project-HAMi/HAMi-core, src/multiprocess/multiprocess_memory_limit.{h,c}, layout 1.x on machines of 64 bits.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.container_edits import Edits, Leftovers, Mount, Scratch
from nodeagent.core.enforcement.overuse import MIB, Key
from nodeagent.core.enforcement.tenants import is_sound
from nodeagent.enforcement.backend import Tenants
from wire import names

NAME: Final = "hami-core"
#: Where HAMi has them in a container.
_FOLDER: Final = PurePosixPath("/usr/local/vgpu")
LIBRARY: Final = _FOLDER / "libvgpu.so"
CACHE: Final = _FOLDER / "moorage.cache"
_PRELOAD: Final = PurePosixPath("/etc/ld.so.preload")
#: The content of the preload file.
PRELOADED: Final = f"{LIBRARY}\n".encode()
#: Versions before 2026 wait without end for a lock file in this folder, which they do not make.
_LOCKS: Final = Scratch(PurePosixPath("/tmp/vgpulock"), most_kib=64)  # noqa: S108 - where the library looks

#: CUDA_DEVICE_MAX_COUNT: devices of a container that the library knows.
_DEVICES: Final = 16
_MAGIC: Final = 19_920_718
_MAJOR: Final = 1
#: initialized_flag, major_version; then minor_version, sm_init_flag, owner_pid, sem, device_num; 16 uuids of 96 bytes.
_BEGIN: Final = struct.Struct("<iI")
_LIMITS_AT: Final = 64 + _DEVICES * 96
#: limit and sm_limit of each device.
_LIMITS: Final = struct.Struct(f"<{_DEVICES}Q{_DEVICES}Q")
#: Bytes of the file that are looked at.
HEAD_BYTES: Final = _LIMITS_AT + _LIMITS.size
#: Bytes that the file may have. The library's has two million.
MOST_BYTES: Final = 16 * MIB
_ALL_COMPUTE: Final = 100


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant's processes are held to on each of its GPUs; 0: not limited."""

    memory_mib: int
    compute_percent: int


def limits_read(tenant: Sequence[Tenancy]) -> Limits | None:
    """Return the limits of a tenant; None for none.

    The library numbers GPUs as the container does, which the agent does not know. Pods with unequal limits are not
    given the library (gpu/limits.py); of equal parts of unlike GPUs the smallest counts.
    """
    caps = [one.cap_mib for one in tenant if one.cap_mib]
    percents = [one.compute_percent for one in tenant if 0 < one.compute_percent < _ALL_COMPUTE]
    found = Limits(min(caps, default=0), min(percents, default=0))
    return found if found != Limits(0, 0) else None


def hamicore_edits(of: Limits, *, library: PurePosixPath, preload: PurePosixPath, cache: PurePosixPath) -> Edits:
    """Return what a container gets: paths are the host's. ``cache``: the tenant's own file.

    Each variable is said for all GPUs and for each, since the library takes the latter first, and a pod may say it
    itself. The other variables are those by which a pod would switch limits off.
    """
    env = {names.ENV_CUDA_SHARED_CACHE: str(CACHE), names.ENV_CUDA_OVERSUBSCRIBE: "false"}
    if of.memory_mib:
        env |= _of_each(names.ENV_CUDA_MEMORY_LIMIT, f"{of.memory_mib}m")
    if of.compute_percent:
        env |= _of_each(names.ENV_CUDA_SM_LIMIT, str(of.compute_percent))
        env[names.ENV_CUDA_COMPUTE_POLICY] = "FORCE"
    mounts = (
        Mount(library, LIBRARY, is_code=True),
        Mount(preload, _PRELOAD),
        Mount(cache, CACHE, is_writable=True),
        _LOCKS,
    )
    return Edits(mounts, env)


def _of_each(name: str, value: str) -> dict[str, str]:
    return {name: value, **{f"{name}_{number}": value for number in range(_DEVICES)}}


def is_held_to(head: bytes, wanted: Limits) -> bool:
    """Whether a file says that its processes go by these limits, or lower ones, on each GPU. ``head``: its first bytes.

    A file that no process has begun is empty or has zeros: nothing is in place yet.

    The file is the tenant's: it may say anything. What is read of it is bounded, and only says whether the cap is in
    place.
    """
    if len(head) < HEAD_BYTES:
        return False
    magic, major = _BEGIN.unpack_from(head)
    if (magic, major) != (_MAGIC, _MAJOR):
        return False
    found = _LIMITS.unpack_from(head, _LIMITS_AT)
    return _are_within(found[:_DEVICES], wanted.memory_mib * MIB) and _are_within(
        found[_DEVICES:], wanted.compute_percent
    )


def _are_within(found: Sequence[int], most: int) -> bool:
    return not most or all(0 < each <= most for each in found)


_log: Final = logging.getLogger(__name__)
#: ELF, 64 bits, little-endian: a file of another kind is passed over by the loader, and nobody would be limited.
_ELF: Final = b"\x7fELF\x02\x01"
#: Neither follows a link nor waits for the other end of a pipe.
_CAREFUL: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
#: Files of pods that have left the books: 2 MB each as the library makes them, 4 GiB in all where tenants fill them.
MOST_LEFT: Final = 256


class HamiCore:
    """``library``: HAMi-core's file on the host. ``seen_at``: where the agent sees it, None for the same path.

    ``folder`` is at the same path for both.
    ``boot``: id of the machine's start. Files of an earlier one have locks of processes that are gone.

    A container is given one file of its own and no folder, so a tenant can make no further files, links or pipes. A
    file that grows is cut at each look. One that a container's root has taken from the agent (it has no capabilities)
    can't be cut: ``folder`` is on a disk, whose fill level kubelet watches. A program keeps the file that it has
    mapped. So a pod that is out of the books for a while gets no other one when it comes back
    (nodeagent/core/enforcement/container_edits.py).
    """

    name = NAME

    def __init__(self, library: Path, folder: Path, *, boot: str, seen_at: Path | None = None) -> None:
        self._library = library
        self._seen_at = seen_at or library
        self._folder = folder
        self._preload = folder / "ld.so.preload"
        self._caches = folder / boot
        self._cut: set[str] = set()
        self._leftovers = Leftovers(MOST_LEFT)

    def trouble(self) -> str:
        """Say why the library would not be loaded."""
        try:
            with self._seen_at.open("rb") as file:
                mode, begin = os.fstat(file.fileno()).st_mode, file.read(len(_ELF))
        except OSError as error:
            return f"the library {self._library} can't be read: {error.strerror}"
        if not stat.S_ISREG(mode) or begin != _ELF:
            return f"{self._library} is no library of a machine with 64 bits"
        return "" if mode & stat.S_IROTH else f"the library {self._library} may not be read by all users"

    def edits(self, tenant: Sequence[Tenancy]) -> Edits | None:
        """Return the library, its variables and the tenant's file."""
        limits = limits_read(tenant)
        if limits is None:
            return None
        library, preload, cache = self._library, self._preload, self._caches / tenant[0].pod_uid
        return hamicore_edits(
            limits, library=PurePosixPath(library), preload=PurePosixPath(preload), cache=PurePosixPath(cache)
        )

    def is_ready(self, tenant: Sequence[Tenancy]) -> bool:
        """A library that can be loaded limits everybody."""
        return True

    def ill(self, tenants: Tenants) -> Mapping[str, str]:
        """It is the same on all GPUs: what is wrong is ``trouble``."""
        del tenants
        return {}

    async def run(self, on_change: Callable[[], None]) -> None:
        """Nothing is done beside."""

    def prepare(self, tenants: Tenants) -> None:
        """Make the preload file, and an empty file for each tenant that has none. Raises OSError."""
        for folder in (self._folder, self._caches):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        if not self._preload.exists() or self._preload.read_bytes() != PRELOADED:
            _put(self._preload, PRELOADED, 0o644)
        for pod, held in tenants.items():
            if limits_read(held) is not None and not (self._caches / pod).exists():
                # Any user in the container; no other user of the machine comes through the folder above.
                _put(self._caches / pod, b"", 0o666)

    def tidy(self, kept: Collection[str], now_s: float) -> None:
        """Remove files that were left long ago, and those of an earlier start of the machine. Raises OSError."""
        for folder in self._folder.iterdir():
            if folder.is_dir() and folder != self._caches:
                shutil.rmtree(folder)
        left = {file.name for file in self._caches.iterdir()} - set(kept)
        unfinished = {name for name in left if not is_sound(name)}
        for name in unfinished | self._leftovers.expired(left - unfinished, now_s):
            (self._caches / name).unlink()
            self._cut.discard(name)

    def in_place(self, tenants: Tenants) -> Collection[Key]:
        """Return whose memory caps the library goes by, as the tenant's file says. Files of former tenants are cut."""
        for name in self._long_files() - tenants.keys():
            self._head(name)
        found: set[Key] = set()
        for pod, held in tenants.items():
            limits = limits_read(held)
            if limits is not None and is_held_to(self._head(pod), limits):
                found |= {one.key for one in held if one.cap_mib}
        return found

    def _long_files(self) -> set[str]:
        """Return which files are to be cut."""
        if not self._caches.exists():
            return set()
        with os.scandir(self._caches) as found:
            return {each.name for each in found if each.stat(follow_symlinks=False).st_size > MOST_BYTES}

    def _head(self, pod: str) -> bytes:
        """Read the first bytes of a tenant's file, and cut it where it is too long; b"" where it can't be read."""
        try:
            file = os.open(self._caches / pod, os.O_RDWR | _CAREFUL)
        except OSError:
            return b""
        try:
            seen = os.fstat(file)
            if not stat.S_ISREG(seen.st_mode):
                return b""
            if seen.st_size > MOST_BYTES:
                os.ftruncate(file, MOST_BYTES)
                if pod not in self._cut:
                    self._cut.add(pod)
                    _log.warning("the file of pod %s had %d bytes and was cut", pod, seen.st_size)
            return os.pread(file, HEAD_BYTES, 0)
        except OSError:
            return b""
        finally:
            os.close(file)


def _put(file: Path, content: bytes, mode: int) -> None:
    """Make a file that is there with its mode or not at all, wherever the agent ends. Raises OSError."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_bytes(content)
    fresh.chmod(mode)
    fresh.replace(file)
