"""How the device plug-in knows one kubelet from the next, and says with which one it is registered.

Apart from the plug-in itself, so that who only waits for it does not import grpcio.
"""

from __future__ import annotations

from pathlib import Path


def identity(socket: Path) -> tuple[int, int] | None:
    """Tell one socket from its successor of the same name: inode numbers are used again, times are not."""
    try:
        found = socket.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns


def registered(kubelet: tuple[int, int]) -> str:
    """What the plug-in says on its output when this kubelet has taken it."""
    return f"is registered with {kubelet}"
