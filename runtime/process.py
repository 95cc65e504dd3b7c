"""What a process has from the system: memory, randomness, listening sockets, and another program to become.

Memory that was freed is given back to the kernel: glibc keeps it where nothing is done. Randomness is seeded from the
system here and passed in from there on. A process that becomes another program keeps nothing of what it has imported.
"""

from __future__ import annotations

import gc
import os
import random
import secrets
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import anyio

from runtime.text import BadInput


def rng() -> random.Random:
    """Return a source of jitter and ids."""
    return random.Random(secrets.randbits(128))  # noqa: S311 - jitter and ids, no secrets


def listening(option: str, address: tuple[str, int] | None) -> socket.socket | None:
    """Listen there; None for nowhere. Raises BadInput, with the option's name, if that can't be had."""
    if address is None:
        return None
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        return socket.create_server(address, family=family)
    except OSError as error:
        raise BadInput(f"{option}: {address[0]}:{address[1]}: {error.strerror or error}") from error


_TRIM_EVERY_S: Final = 60.0
#: Objects that were made and not freed until young ones are looked through: in a process that stays, and in a run that
#: ends, where ten million objects take some GiB.
_RARE: Final = 200_000
HARDLY_EVER: Final = 10_000_000
#: The same in a process that follows a cluster, and how often young ones are looked through until older ones are.
_FOLLOWING: Final = (10_000, 20, 10)
#: How often young ones are looked through until older ones are.
_OLDER: Final = (50, 100)


async def trim_now_and_then(library: Any = None) -> None:
    """Give free pages back once a minute, until cancelled; end at once where the C library can't (musl, others).

    It takes some milliseconds (14 for 10 MiB in pieces, on a busy machine), and the pages that are used again are
    faulted in once.
    """
    import ctypes  # for processes that stay: commands need it not

    trim = getattr(library or ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await anyio.sleep(_TRIM_EVERY_S)
        trim(0)


@contextmanager
def rare_collections(made: int = _RARE) -> Iterator[None]:
    """Have Python look for cyclic garbage only after ``made`` objects that were not freed, while this lasts.

    A simulated cluster keeps a million objects and drops them by their counts: with Python's own thresholds looking
    through them took nearly half of a run with 5,000 pods, and found next to nothing. Of what was left, some each
    200,000 objects and one before the result is printed were a ninth (peak memory is 1.2 % more without).
    """
    before = gc.get_threshold()
    gc.set_threshold(made, *_OLDER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def lasting() -> Iterator[Callable[[], None]]:
    """Give what to call when the first lists are there: they stay, or go by their counts.

    From then on, while this lasts, Python looks for cyclic garbage only among what was made later, and more rarely.
    Before, one look through a cluster of 60 nodes and 940 pods took 62 ms, in which nothing else ran, and all looks
    took 4 % of the CPU time while pods came and went; they take 0.4 %.
    """
    before = gc.get_threshold()

    def keep() -> None:
        gc.freeze()
        gc.set_threshold(*_FOLLOWING)

    try:
        yield keep
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def run(program: str, options: Sequence[str], *, become: Callable[[str, list[str]], NoReturn] = os.execv) -> NoReturn:
    """Become ``python -m PROGRAM`` with these options; returns never.

    With the module search path as it is here: a program that was started from a folder has that folder on it.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    become(sys.executable, [sys.executable, "-m", program, *options])
