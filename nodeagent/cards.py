"""The machine's cards, as they were read last: the driver is asked seldom."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from nodeagent.core.card import Card
from nodeagent.core.machine import Lost, Machine
from reservation.device import Device, Unreadable

_log: Final = logging.getLogger(__name__)
#: A device that the last look did not show is looked for again at most so often.
_PAUSE_S: Final = 10.0
#: Asks the driver, beside other work.
Read = Callable[[], Awaitable[Machine | Unreadable]]


class Cards:
    """``on_change`` is called after each look that showed something else."""

    def __init__(self, read: Read, *, every_s: float) -> None:
        self._read = read
        self._every_s = every_s
        self._machine = Machine((), {})
        self._lost: Mapping[str, tuple[Card, str]] = {}
        self._memory_mib: Mapping[str, int] = {}
        self._looked_s = 0.0
        self._lock = anyio.Lock()
        self._wanted = anyio.Event()
        #: Set when the driver has answered, or was found not to.
        self.asked = anyio.Event()
        self.on_change: Callable[[], None] | None = None
        #: Why the driver could not be asked at the last look; "": it could.
        self.trouble = "the driver was not asked yet"
        #: The driver has answered since the agent was started.
        self.are_known = False

    @property
    def cards(self) -> tuple[Card, ...]:
        """All cards, those of the last look that succeeded; lost ones as they were known before."""
        lost = [card for card, _ in self._lost.values()]
        return tuple(sorted((*self._machine.cards, *lost), key=lambda card: card.index))

    @property
    def lost(self) -> Mapping[str, str]:
        """Why the driver can't describe a GPU any more, by the UUID that it had."""
        return {uuid: why for uuid, (_, why) in self._lost.items()}

    @property
    def unknown(self) -> tuple[Lost, ...]:
        """GPUs that were lost before the agent could read which they are."""
        known = {card.index for card, _ in self._lost.values()}
        return tuple(one for one in self._machine.lost if one.index not in known)

    @property
    def memory_mib(self) -> Mapping[str, int]:
        """Memory of GPUs and MIG slices by UUID, as far as the driver tells; of a lost GPU as it was."""
        return self._memory_mib

    @property
    def devices(self) -> Mapping[str, Device]:
        """GPUs and MIG slices by UUID; none of a lost GPU."""
        return self._machine.devices

    async def run(self) -> None:
        """Look at once, now and then, and where a device is looked for, until cancelled."""
        await self.look()
        while True:
            with anyio.move_on_after(self._every_s):
                await self._wanted.wait()
            await self.look()
            self._wanted = anyio.Event()

    async def look(self) -> None:
        """Ask the driver."""
        async with self._lock:
            before = (self._machine, self.trouble)
            found = await self._read()
            self._looked_s = anyio.current_time()
            if isinstance(found, Unreadable):
                self.trouble = found.message
            else:
                self._take(found)
            self.asked.set()
            if before == (self._machine, self.trouble):
                return
        if self.trouble:
            _log.warning("the GPUs can't be read: %s", self.trouble)
        for one in self._machine.lost:
            _log.warning("GPU %d can't be read: %s", one.index, one.why)
        if self.on_change is not None:
            self.on_change()

    def _take(self, found: Machine) -> None:
        self._lost = found.lost_of(self.cards)
        lost = {uuid for card, _ in self._lost.values() for uuid in (card.uuid, *card.slices)}
        kept = {uuid: mib for uuid, mib in self._memory_mib.items() if uuid in lost}
        self._memory_mib = kept | {uuid: one.mem_mib for uuid, one in found.devices.items() if one.mem_mib}
        self._machine, self.trouble, self.are_known = found, "", True

    def look_again(self) -> None:
        """Have the driver asked again soon: MIG slices were made or destroyed."""
        self._wanted.set()

    def look_for(self, uuid: str) -> None:
        """Have the driver asked again, where a device was not there at the last look and that is some time ago.

        Nobody waits for it: a driver that hangs takes a minute.
        """
        if uuid not in self.devices and anyio.current_time() >= self._looked_s + _PAUSE_S:
            self._wanted.set()
