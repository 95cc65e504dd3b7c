"""A memory enforcer that tests play: what it is sent, and what it reports when they say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Self

import anyio

from kube.client.clock import monotonic_ns
from nodeagent.core.enforcement.messages import Done, Limited, Report
from nodeagent.core.enforcement.overuse import MIB, Action, Device, Key, Kill, Process, Sample


class PlayedEnforcer:
    """``caps``: as they were sent last. ``holds``: MiB by pod UID and device, of a process each."""

    def __init__(self, *devices: str, mib: int = 81559) -> None:
        self._devices = devices
        self._mib = mib
        self.caps: Mapping[Key, int] | None = None
        self.sent: list[Mapping[Key, int]] = []
        self.holds: dict[Key, int] = {}
        self.is_dry = False
        self.is_connected = False
        self.unjudged: tuple[str, ...] = ()
        self.driver: Limited | None = None

    def __call__(self, *, on_report: Callable[[Report], None], say: Callable[[str], None]) -> Self:
        self._on_report, self.say = on_report, say
        return self

    def cap(self, caps: Mapping[Key, int]) -> None:
        if caps != self.caps:
            self.sent.append(caps)
        self.caps = caps

    async def run(self) -> None:
        self.is_connected = True
        await anyio.sleep_forever()

    def kill(self, key: Key, *outcomes: str) -> Done:
        """What it does to the largest process of a pod that it was told the cap of."""
        caps = self.caps or {}
        process = Process(7, 1, self.holds[key] * MIB, 10, key[0], name="train")
        kill = Kill(key[0], key[1], self.holds[key] * MIB, caps[key], Action.END_LARGEST, (process,), self.is_dry)
        return Done(kill, outcomes)

    def report(self, *done: Done) -> None:
        """One look, now."""
        devices = tuple(Device(uuid, self._mib * MIB, 0, tuple(self._processes(uuid))) for uuid in self._devices)
        caps = None if self.caps is None else len(self.caps)
        self._on_report(
            Report(Sample(monotonic_ns(), devices), done, self.unjudged, caps, is_dry=self.is_dry, driver=self.driver)
        )

    async def go_on(self, seconds: int, *done: Done) -> None:
        """A look each second."""
        for _ in range(seconds):
            self.report(*done)
            await anyio.sleep(1.0)

    def _processes(self, uuid: str) -> Sequence[Process]:
        return [Process(7, 1, mib * MIB, 10, pod) for (pod, device), mib in self.holds.items() if device == uuid]
