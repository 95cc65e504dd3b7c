"""Ports of this machine's loopback for servers that are started in a moment: no two of them are given the same.

Between its choice and its use nobody listens on a port, nor while a test has killed its server, so that a look at the
machine says nothing. Therefore each process that asks has blocks of ports to itself, claimed by names that the kernel
gives to one process only and takes back when that ends. A port is given once; only a process that has used up
all the blocks that one may have goes round in them.
All are below those that Linux gives to outgoing connections (32768 and up).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import secrets
import socket
from collections.abc import Iterator
from typing import Final

from tools.flags import LOOPBACK

_FIRST: Final = 20_000
_BLOCK: Final = 128
_BLOCKS: Final = (32_768 - _FIRST) // _BLOCK
# A long run of tests starts hundreds of servers. Six such runs may go on at once.
_MOST_BLOCKS: Final = 16


def free_port() -> int:
    """Return a port on which nobody listens. Raises OSError when there is none."""
    for port in itertools.islice(_ports(), _BLOCK * _MOST_BLOCKS):
        with socket.socket() as candidate, contextlib.suppress(OSError):
            candidate.bind((LOOPBACK, port))
            return port
    raise OSError("all ports that one process may have are in use")


@functools.cache
def _ports() -> Iterator[int]:
    return _without_end()


def _without_end() -> Iterator[int]:
    """Ports of one block after the other, each claimed when needed. Raises OSError where there is none."""
    blocks = [_claim()]
    yield from blocks[0].ports
    while len(blocks) < _MOST_BLOCKS:
        try:
            blocks.append(_claim())
        except OSError:
            break
        yield from blocks[-1].ports
    yield from itertools.cycle([port for block in blocks for port in block.ports])


class _Block:
    """A block of ports that is this process' own. Raises OSError when it is another's."""

    def __init__(self, number: int) -> None:
        self._claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            # A name of Linux' own kind: no file is left behind.
            self._claim.bind(f"\0moorage-ports-{number}")
        except OSError:
            self._claim.close()
            raise
        first = _FIRST + number * _BLOCK
        self.ports = range(first, first + _BLOCK)


def _claim() -> _Block:
    for number in secrets.SystemRandom().sample(range(_BLOCKS), _BLOCKS):
        with contextlib.suppress(OSError):
            return _Block(number)
    raise OSError(f"all {_BLOCKS} blocks of ports are other processes'")
