"""A machine with GPUs for tests of the device plug-in's shell, and an observer that tests can wait for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import anyio

from nodeagent.core.devices import Card, Slice
from nodeagent.core.plugin.health import Health, Look
from nodeagent.core.plugin.offer import Fault
from nodeagent.core.plugin.settings import Mistake
from nodeagent.plugin.ports import Reading, Unreadable

T = TypeVar("T")


class EmulatedMachine:
    """``cards`` and ``looks`` may be changed while it is read; ``strike`` brings a fault.

    ``answers``: cleared, a look hangs. ``broken``: there is no driver. ``unlisted``: it reports faults, and can't list
    devices.
    """

    def __init__(self, cards: Sequence[Card], slices: Sequence[Slice] = ()) -> None:
        self.cards = list(cards)
        self.slices = list(slices)
        self.looks: dict[str, Look] = {}
        self.broken = False
        self.unlisted = False
        self.answers = threading.Event()
        self.answers.set()
        self._faults: queue.SimpleQueue[Fault] = queue.SimpleQueue()

    def strike(self, fault: Fault) -> None:
        self._faults.put(fault)

    def read(self) -> Reading:
        self.answers.wait()
        if self.broken or self.unlisted:
            raise Unreadable("no driver")
        uuids = [*(one.uuid for one in self.cards), *(one.uuid for one in self.slices)]
        return Reading(
            cards=tuple(self.cards),
            slices=tuple(self.slices),
            looks={uuid: self.looks.get(uuid, Look(driver="1", processes=0)) for uuid in uuids},
        )

    def faults(self, within_s: float) -> Sequence[Fault]:
        if self.broken:
            raise Unreadable("no driver")
        try:
            return [self._faults.get(timeout=within_s)]
        except queue.Empty:
            return ()


class Heard:
    """Everything that an observer hears; ``until`` waits for a state of it."""

    def __init__(self) -> None:
        self.registrations: list[str] = []
        self.rivals: dict[str, str] = {}
        self.failures: list[str] = []
        self.withdrawals: list[str] = []
        self.mistakes: list[str] = []
        self.notes: list[str] = []
        self.states: dict[str, Health] = {}
        self.labels: dict[str, str] = {}
        self.why = ""
        self._changed = anyio.Event()

    async def until(self, probe: Callable[[], T | None]) -> T:
        with anyio.fail_after(60):
            while True:
                changed = self._changed
                if found := probe():
                    return found
                await changed.wait()

    def registered(self, resource: str, kubelet: tuple[int, int]) -> None:
        del kubelet
        self.registrations.append(resource)
        self._wake()

    def rival(self, resource: str, what: str) -> None:
        self.rivals[resource] = what
        self._wake()

    def failed(self, resource: str, what: str) -> None:
        self.failures.append(f"{resource}: {what}")
        self._wake()

    def withdrawn(self, resource: str) -> None:
        self.withdrawals.append(resource)
        self._wake()

    def refused(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = [one.path for one in mistakes]
        self._wake()

    def noted(self, notes: Sequence[str]) -> None:
        self.notes = list(notes)
        self._wake()

    def health(self, states: Mapping[str, Health]) -> None:
        self.states = dict(states)
        self._wake()

    def labelled(self, labels: Mapping[str, str]) -> None:
        self.labels = dict(labels)
        self._wake()

    def unreadable(self, why: str) -> None:
        self.why = why
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
