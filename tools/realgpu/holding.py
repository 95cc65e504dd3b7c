"""Processes that hold memory of the GPU, for as long as a row needs them."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

#: A context of a GPU that was not used for a while takes seconds.
_STARTS_WITHIN_S: Final = 20.0


class Holder:
    """``tools.realgpu.hold`` in a process of its own. ``group``: the control group that it is in from the start.

    ``under``: a program that starts it.
    """

    def __init__(
        self,
        mib: int,
        *options: str,
        group: Path | None = None,
        environment: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
    ) -> None:
        command = [*under, sys.executable, "-m", "tools.realgpu.hold", str(mib), *options]
        if group is not None:
            command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.told = self._line()

    def _line(self) -> str:
        output = self.process.stdout
        assert output is not None
        if not select.select([output], [], [], _STARTS_WITHIN_S)[0]:
            return f"nothing within {_STARTS_WITHIN_S:.0f} s"
        return output.readline().strip()

    @property
    def holds(self) -> bool:
        """Whether it got its memory."""
        return self.told.startswith("held ")

    def rest(self, within_s: float) -> str:
        """Wait for its end, and return what else it has printed. Raises subprocess.TimeoutExpired."""
        self.process.wait(timeout=within_s)
        assert self.process.stdout is not None
        return self.process.stdout.read().strip()

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def holding(*sizes_mib: int) -> Iterator[list[Holder]]:
    """Hold memory in as many processes as sizes are given; all end with the block."""
    holders: list[Holder] = []
    try:
        holders.extend(Holder(mib) for mib in sizes_mib)
        yield holders
    finally:
        for holder in holders:
            holder.end()


@contextlib.contextmanager
def group(path: Path) -> Iterator[Path]:
    """A control group, and those above it that are missing; removed in the end. Raises OSError."""
    made: list[Path] = []
    try:
        for folder in (*reversed(path.parents), path):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
        yield path
    finally:
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # a process in it has not quite ended
                folder.rmdir()
