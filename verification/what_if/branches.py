"""Several futures of one simulated cluster: each is tried in a process of its own, forked at the same moment.

Making a cluster and waiting until it is at rest costs more than what follows one change, and a cluster that is made
again is never quite the same one.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NoReturn, TypeVar

import anyio

from simulator.clock import VirtualTimeLoop

T = TypeVar("T")


class BranchFailed(Exception):
    """Raised where a branch ended with an error; its text names the causes."""


def _causes(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    else:
        yield error


class Branches:
    """Forks the process within a run on an event loop of virtual time."""

    def __init__(self) -> None:
        #: In a branch: where its result goes.
        self._pipe: int | None = None

    def fork(self) -> Branch | None:
        """Fork here. Returns None in the branch: what the run's main function returns there is the branch's result."""
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        gc.freeze()  # a collection in the branch would copy all pages
        with warnings.catch_warnings():
            # Other threads are NumPy's: they hold no lock of Python's.
            warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)
            pid = os.fork()
        if pid:
            gc.unfreeze()
            os.close(writing)
            return Branch(pid, reading)
        os.close(reading)
        self._pipe = writing
        asyncio._set_running_loop(loop)  # noqa: SLF001 - asyncio forgets the loop of a process that forked
        return None

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run to the end on an event loop that begins at 0. Does not return in a branch."""
        try:
            result = anyio.run(main, backend="asyncio", backend_options={"loop_factory": VirtualTimeLoop})
        except BaseException as error:
            if self._pipe is not None:
                self._leave((False, "; ".join(map(repr, _causes(error)))))
            raise
        if self._pipe is not None:
            self._leave((True, result))
        return result

    def _leave(self, result: tuple[bool, Any]) -> NoReturn:
        """End this process at once: nothing of the one that forked it is written or cleaned up twice."""
        assert self._pipe is not None
        with os.fdopen(self._pipe, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)


class Branch:
    """A branch, seen from the process that forked it."""

    def __init__(self, pid: int, pipe: int) -> None:
        self._pid = pid
        self._pipe = pipe

    def result(self) -> Any:
        """Wait for its end; no virtual time passes. Raises BranchFailed."""
        with os.fdopen(self._pipe, "rb") as pipe:
            written = pipe.read()
        os.waitpid(self._pid, 0)
        if not written:
            raise BranchFailed("the branch was killed")
        is_through, result = pickle.loads(written)  # noqa: S301 - from our own process
        if not is_through:
            raise BranchFailed(result)
        return result
