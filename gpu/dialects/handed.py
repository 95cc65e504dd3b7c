"""What each container of a bound pod was handed, for what dialects write back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpu.request import ContainerRef, FractionAsk, GpuRequest, SharedAsk
from gpu.share import mib_of_fraction
from gpu.translation import GivenDevice

_SUFFIXES: Final = ("Mi", "Gi", "Ti", "Pi", "Ei")


class Handed(msgspec.Struct, frozen=True, gc=False):
    """One device of one container, and what the container asked of it."""

    ask: SharedAsk
    device: GivenDevice

    @property
    def mem_mib(self) -> int:
        """How much of its memory the container asked; parts of a card are floored."""
        if isinstance(self.ask, FractionAsk):
            return mib_of_fraction(self.ask.nano, self.device.mem_mib)
        return self.ask.mem_mib

    @property
    def cap_mib(self) -> int:
        """How much of its memory the container may use."""
        if isinstance(self.ask, FractionAsk):
            return mib_of_fraction(self.ask.limit_nano or self.ask.nano, self.device.mem_mib)
        return self.ask.limit_mib or self.ask.mem_mib


def handed(request: GpuRequest, given: Sequence[GivenDevice]) -> Iterator[tuple[ContainerRef, tuple[Handed, ...]]]:
    """Go through the containers that have shares. ``given`` is one device for each of ``request.shared``."""
    devices = request.devices()
    for container in request.containers:
        asks = [ask for ask in container.asks if isinstance(ask, SharedAsk)]
        if asks:
            places = devices[container.container]
            yield (
                container.container,
                tuple(Handed(ask, given[place]) for ask, place in zip(asks, places, strict=True)),
            )


def quantity_text(mem_mib: int) -> str:
    """Write MiB as Kubernetes writes such a quantity: with the largest suffix that leaves a whole number."""
    amount, place = mem_mib, 0
    while amount and amount % 1024 == 0 and place < len(_SUFFIXES) - 1:
        amount, place = amount // 1024, place + 1
    return f"{amount}{_SUFFIXES[place]}" if amount else "0"
