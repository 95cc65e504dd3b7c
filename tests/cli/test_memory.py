from __future__ import annotations

import platform
import subprocess
import sys

import anyio
import pytest

from cli.memory import keep_large_blocks_apart, trim_now_and_then
from tests.conftest import AnyioBackend

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
    """A C library that has none of it."""


class _Counting:
    """A C library that counts how often it is asked to give pages back."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def malloc_trim(self, pad: int) -> int:
        self.asked.append(pad)
        return 1


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def _is_mapped(*, is_asked: bool) -> str:
    script = _MAPPED.format(is_asked=is_asked)
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


def test_glibc_gives_large_blocks_back_only_when_it_is_asked_to() -> None:
    if platform.libc_ver()[0] == "glibc":
        assert (_is_mapped(is_asked=True), _is_mapped(is_asked=False)) == ("True", "False")
    else:
        assert not keep_large_blocks_apart()


async def test_free_pages_are_given_back_once_a_minute() -> None:
    library = _Counting()
    with anyio.move_on_after(330):
        await trim_now_and_then(library)
    assert library.asked == [0] * 5


async def test_another_c_library_is_left_as_it_is() -> None:
    assert not keep_large_blocks_apart(_Musl())
    await trim_now_and_then(_Musl())
    assert anyio.current_time() == 0
