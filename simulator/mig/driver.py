"""The driver of the GPUs in MIG mode, as an agent asks it: late, failing, and going on when nobody waits any more."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import anyio

from nodeagent.core.mig_partitioning import CardSlices, NotDone, Spot
from simulator.mig.machine import SlicedMachine

_READ_S: Final = 0.02
_CHANGE_S: Final = 0.2
#: After so long the agent gives a call up (nodeagent/mig/nvml.py).
_WITHIN_S: Final = 60.0

#: What becomes of a change: carried out; refused; half of it done, and an error; all of it, and an error.
End = Literal["done", "refused", "half", "done-and-failed"]
#: Where a call is: asked and not done yet, or done and not answered yet.
Moment = Literal["before", "after"]


@dataclass(slots=True)
class DriverFaults:
    """``end`` says what becomes of the next change; ``slow_s`` is added to each."""

    end: Callable[[], End] = lambda: "done"
    slow_s: float = 0.0


@dataclass(slots=True)
class Driver:
    """nodeagent.mig.partitioning.Driver of one machine. ``begin`` runs what goes on without the one who asked.

    ``is_on``: whether the machine has power. ``listeners`` are called at each moment of a change.
    """

    machine: SlicedMachine
    begin: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    is_on: Callable[[], bool]
    faults: DriverFaults = field(default_factory=DriverFaults)
    listeners: list[Callable[[Moment], None]] = field(default_factory=list)
    #: Set when no change is under way.
    idle: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.idle.set()

    async def read(self) -> Mapping[str, CardSlices]:
        """Return the slices of all GPUs, by UUID. Raises NotDone while a change is under way for too long."""
        await self._turn()
        await anyio.sleep(_READ_S)
        return self.machine.read()

    async def destroy(self, card: str, at: Spot) -> None:
        """Destroy a slice. Raises NotDone."""
        await self._change(lambda is_half: self.machine.destroy(card, at, is_half=is_half))

    async def make(self, card: str, at: Spot) -> None:
        """Make a slice. Raises NotDone."""
        await self._change(lambda is_half: self.machine.make(card, at, is_half=is_half))

    async def _turn(self) -> None:
        with anyio.move_on_after(_WITHIN_S):
            await self.idle.wait()
            return
        raise NotDone(f"the driver did not answer within {_WITHIN_S:g} s")

    async def _change(self, change: Callable[[bool], None]) -> None:
        await self._turn()
        call = _Call(change, self.faults.end(), _CHANGE_S + self.faults.slow_s)
        self.idle = anyio.Event()
        self.begin(lambda: self._carry_out(call))
        with anyio.move_on_after(_WITHIN_S):
            await call.over.wait()
            if call.error:
                raise NotDone(call.error)
            return
        raise NotDone(f"the driver did not answer within {_WITHIN_S:g} s")

    def _notice(self, moment: Moment) -> None:
        for listener in list(self.listeners):
            listener(moment)

    async def _carry_out(self, call: _Call) -> None:
        self._notice("before")
        await anyio.sleep(call.takes_s)
        if self.is_on():
            call.carry_out()
        self.idle.set()
        self._notice("after")
        call.over.set()


@dataclass(slots=True)
class _Call:
    """A change that was asked for. ``error``: the driver's words; "": it is done."""

    change: Callable[[bool], None]
    end: End
    takes_s: float
    error: str = ""
    over: anyio.Event = field(default_factory=anyio.Event)

    def carry_out(self) -> None:
        """Do to the machine what becomes of it."""
        if self.end == "refused":
            self.error = "refused by a fault of the simulation"
            return
        try:
            self.change(self.end == "half")
        except NotDone as error:
            self.error = str(error)
        if self.end != "done":
            self.error = self.error or "an error of the simulation"
