"""The back end HAMi-core: files on the host that tenants' containers mount, and looks at the ones they write.

A container is given one file of its own and no folder, so a tenant can make no further files, links or pipes. A file
that grows is cut at each look. One that a container's root has taken from the agent (it has no capabilities) can't be
cut: ``folder`` is on a disk, whose fill level kubelet watches.

A program keeps the file that it has mapped. So a pod that is out of the books for a while gets no other one when it
comes back (nodeagent/core/leftovers.py).
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from nodeagent.backend import Tenants
from nodeagent.core import hamicore
from nodeagent.core.caps import Tenancy
from nodeagent.core.edits import Edits
from nodeagent.core.judging import Key
from nodeagent.core.leftovers import Leftovers
from nodeagent.core.viewfile import is_sound

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
    """

    name = hamicore.NAME

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
        limits = hamicore.limits(tenant)
        if limits is None:
            return None
        library, preload, cache = self._library, self._preload, self._caches / tenant[0].pod_uid
        return hamicore.edits(
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
        if not self._preload.exists() or self._preload.read_bytes() != hamicore.PRELOADED:
            _put(self._preload, hamicore.PRELOADED, 0o644)
        for pod, held in tenants.items():
            if hamicore.limits(held) is not None and not (self._caches / pod).exists():
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
            limits = hamicore.limits(held)
            if limits is not None and hamicore.is_held_to(self._head(pod), limits):
                found |= {one.key for one in held if one.cap_mib}
        return found

    def _long_files(self) -> set[str]:
        """Return which files are to be cut."""
        if not self._caches.exists():
            return set()
        with os.scandir(self._caches) as found:
            return {each.name for each in found if each.stat(follow_symlinks=False).st_size > hamicore.MOST_BYTES}

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
            if seen.st_size > hamicore.MOST_BYTES:
                os.ftruncate(file, hamicore.MOST_BYTES)
                if pod not in self._cut:
                    self._cut.add(pod)
                    _log.warning("the file of pod %s had %d bytes and was cut", pod, seen.st_size)
            return os.pread(file, hamicore.HEAD_BYTES, 0)
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
