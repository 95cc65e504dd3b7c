"""Ports of this machine's loopback for servers that are started in a moment: no two of them are given the same.

Between its choice and its use nobody listens on a port, so that a look at the machine says nothing. Therefore each
process that asks has a block of ports to itself, claimed by a name that the kernel gives to one process only and takes
back when that ends, and goes round in it: a port is given again after all the others of its block.
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


def free_port() -> int:
    """Return a port on which nobody listens. Raises OSError when there is none."""
    for port in itertools.islice(_own().ports, _BLOCK):
        with socket.socket() as candidate, contextlib.suppress(OSError):
            candidate.bind((LOOPBACK, port))
            return port
    raise OSError(f"all {_BLOCK} ports of this process are in use")


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
        self.ports: Iterator[int] = itertools.cycle(range(first, first + _BLOCK))


@functools.cache
def _own() -> _Block:
    for number in secrets.SystemRandom().sample(range(_BLOCKS), _BLOCKS):
        with contextlib.suppress(OSError):
            return _Block(number)
    raise OSError(f"all {_BLOCKS} blocks of ports are other processes'")
