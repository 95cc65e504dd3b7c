"""Unix sockets in kubelet's folder of device plug-ins: which kubelet one belongs to, and whether somebody listens."""

from __future__ import annotations

import contextlib
from pathlib import Path

import anyio


def identity(socket: Path) -> tuple[int, int] | None:
    """Tell one socket from its successor of the same name: inode numbers are used again, times are not."""
    try:
        found = socket.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


async def is_served(socket: Path) -> bool:
    """Whether a program listens: the socket of one that was killed stays."""
    with contextlib.suppress(OSError), anyio.move_on_after(1):
        async with await anyio.connect_unix(socket):
            return True
    return False
