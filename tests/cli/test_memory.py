from __future__ import annotations

import platform
import subprocess
import sys

from cli.memory import keep_large_blocks_apart

#: Bytes mapped for one more large block, after one was freed.
_MAPPED = """
import ctypes
from cli.memory import LARGE_BYTES, keep_large_blocks_apart

class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]

if {is_asked}:
    assert keep_large_blocks_apart()
mallinfo = ctypes.CDLL(None).mallinfo
mallinfo.restype = Mallinfo
del [bytearray(LARGE_BYTES)][:]
before = mallinfo().hblkhd
kept = bytearray(LARGE_BYTES)
print(mallinfo().hblkhd - before >= LARGE_BYTES)
"""


class _Musl:
    """A C library without mallopt."""


def _is_mapped(*, is_asked: bool) -> str:
    script = _MAPPED.format(is_asked=is_asked)
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


def test_glibc_gives_large_blocks_back_only_when_it_is_asked_to() -> None:
    if platform.libc_ver()[0] == "glibc":
        assert (_is_mapped(is_asked=True), _is_mapped(is_asked=False)) == ("True", "False")
    else:
        assert not keep_large_blocks_apart()


def test_another_c_library_is_left_as_it_is() -> None:
    assert not keep_large_blocks_apart(_Musl())
