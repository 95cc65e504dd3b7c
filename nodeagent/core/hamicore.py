"""What HAMi-core needs in a container, and what its shared file says of the limits that it goes by. Pure.

HAMi-core is a library that is loaded before others (``/etc/ld.so.preload``). It answers CUDA's calls for memory and
holds kernels back. All processes of a container share a file that the library maps: its head has the limits.

Source: Project-HAMi/HAMi-core, src/multiprocess/multiprocess_memory_limit.{h,c}, layout 1.x on machines of 64 bits. The
file is the tenant's: it may say anything. What is read of it is bounded, and only says whether the cap is in place.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from nodeagent.core.caps import Tenancy
from nodeagent.core.edits import Edits, Mount, Scratch
from nodeagent.core.samples import MIB
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


def limits(tenant: Sequence[Tenancy]) -> Limits | None:
    """Return the limits of a tenant; None for none.

    The library numbers GPUs as the container does, which the agent does not know. Pods with unequal limits are not
    given the library (gpu/limits.py); of equal parts of unlike GPUs the smallest counts.
    """
    caps = [one.cap_mib for one in tenant if one.cap_mib]
    percents = [one.compute_percent for one in tenant if 0 < one.compute_percent < _ALL_COMPUTE]
    found = Limits(min(caps, default=0), min(percents, default=0))
    return found if found != Limits(0, 0) else None


def edits(of: Limits, *, library: PurePosixPath, preload: PurePosixPath, cache: PurePosixPath) -> Edits:
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
