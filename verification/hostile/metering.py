"""How much our components do at a stretch, and for one pod: counted in lines of code that are run, never in time.

WORK  one turn of the event loop ran more lines of ours than ``Budget.turn``, or a pod that fits cost more than
      ``Budget.pod`` until it ran, beside all else that waits

While a turn lasts nothing else runs: no lease is renewed, nobody else's pod is decided on or reviewed. A decision, a
review and the taking of an event are each within one turn. The interpreter counts (sys.settrace), so nothing has to
count itself, and a loop beside the allowance of decisions (scheduler/core/decide/allowance.py) counts like any other.
What one call into C does (a sort, a copy) is one line. The same run costs the same number, but for what caches of the
process already hold.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import msgspec

from simulator.checks.violations import Violation

WORK: Final = "WORK"

_ROOT: Final = Path(__file__).parents[2]
_OURS: Final = tuple(f"{_ROOT / folder}/" for folder in ("admission", "binder", "gpu", "kube", "scheduler", "wire"))
_TURN: Final[CodeType] = Handle._run.__code__  # noqa: SLF001 - where a turn begins


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that may be run: in one turn of the event loop, and for one pod that fits until it runs."""

    turn: int
    pod: int


@dataclass(slots=True)
class Meter:
    """Counts lines of ours. ``found``: where the budget was passed; ``most``: the largest turn that ended."""

    budget: Budget
    found: list[Violation] = field(default_factory=list)
    most: int = 0
    total: int = 0
    #: What ``total`` was when this turn began, and what it may be at its end.
    _began: int = 0
    _limit: int = 0
    #: File -> whether it is ours.
    _files: dict[str, bool] = field(default_factory=dict)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count inside of the block, on this thread."""
        self._end_turn()
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            self._end_turn()

    @contextmanager
    def of_one_pod(self, name: str) -> Iterator[None]:
        """Judge what is done inside of the block: all that the components do is for this pod."""
        before = self.total
        yield
        spent = self.total - before
        if spent > self.budget.pod:
            self._add(f"pod {name} cost {spent:,} lines, {self.budget.pod:,} are allowed")

    def _called(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        code = frame.f_code
        if code is _TURN:
            self._end_turn()
            return None
        name = code.co_filename
        is_ours = self._files.get(name)
        if is_ours is None:
            is_ours = self._files[name] = name.startswith(_OURS)
        return self._line if is_ours else None

    def _line(self, frame: FrameType, event: str, _arg: Any) -> None:
        """Count one line. Called for each, so it does no more than it must; None keeps it for the next one."""
        if event == "line":
            self.total += 1
            if self.total == self._limit:
                self._add(f"more than {self.budget.turn:,} lines in one turn: at {_place(frame)}")

    def _end_turn(self) -> None:
        self.most = max(self.most, self.total - self._began)
        self._began = self.total
        self._limit = self.total + self.budget.turn + 1

    def _add(self, text: str) -> None:
        self.found.append(Violation(WORK, asyncio.get_running_loop().time(), text))


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).relative_to(_ROOT)}:{frame.f_lineno} in {frame.f_code.co_qualname}"
