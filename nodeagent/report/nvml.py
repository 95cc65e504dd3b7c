"""The GPUs of this machine, read whole through NVML. ``python -m nodeagent.report.nvml`` prints them as JSON.

It is a process of its own (nodeagent/report/cards.py): pynvml and the driver's library take 15 MiB, and a driver that
hangs keeps its callers for ever. The driver is asked, and let go again: who holds it open stops its upgrade.

A GPU that has fallen off its bus is still counted, and answers nothing: the others are read all the same.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import pynvml

from nodeagent.core.devices import Card, Lost, Machine
from reservation.device import Device, Unreadable
from reservation.nvml import QuestionFailed, ask, ask_if_supported, is_cut, minor_of, named, session, slice_at

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")


def read() -> Machine | Unreadable:
    """Read all GPUs that answer, and their MIG slices. Blocks."""
    found: list[tuple[Card, list[Device]]] = []
    lost: list[Lost] = []
    try:
        with session():
            count: int = ask("get device count", pynvml.nvmlDeviceGetCount)
            for index in range(count):
                try:
                    found.append(_card(index))
                except QuestionFailed as failure:
                    lost.append(Lost(index, str(failure)))
    except QuestionFailed as failure:
        return Unreadable(str(failure))
    devices = {device.uuid: device for _, of_card in found for device in of_card}
    return Machine(tuple(card for card, _ in found), devices, tuple(lost))


def _card(index: int) -> tuple[Card, list[Device]]:
    handle = ask("get device handle", partial(pynvml.nvmlDeviceGetHandleByIndex, index))
    itself, has_mig = named(handle, minor=minor_of(handle)), is_cut(handle)
    # A minor number is the card's, and says nothing of which slice.
    slices = [named(each, minor=None) for each in _slices(handle)] if has_mig else []
    product: str = ask_if_supported("get device name", partial(pynvml.nvmlDeviceGetName, handle)) or ""
    card = Card(
        uuid=itself.uuid,
        index=index,
        product=product,
        minor=itself.minor,
        mem_mib=itself.mem_mib,
        numa=_numa(handle),
        has_mig=has_mig,
        slices=tuple(each.uuid for each in slices),
    )
    return card, [itself, *slices]


def _slices(card: Any) -> list[Any]:
    most: int = ask("get the number of MIG devices", partial(pynvml.nvmlDeviceGetMaxMigDeviceCount, card))
    return [each for index in range(most) if (each := slice_at(card, index)) is not None]


def _numa(handle: Any) -> int | None:
    pci = ask_if_supported("get PCI address", partial(pynvml.nvmlDeviceGetPciInfo, handle))
    return None if pci is None else numa_node(pci.busId)


def numa_node(bus_id: str, devices: Path = PCI_DEVICES) -> int | None:
    """Return the NUMA node of a PCI device, as the kernel tells it; None: it does not, as on machines with one.

    NVML writes the domain with eight digits, the kernel with four.
    """
    domain, _, rest = bus_id.partition(":")
    try:
        told = int((devices / f"{domain[-4:]}:{rest}".lower() / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return told if told >= 0 else None


def main() -> int:
    """Print what was read."""
    sys.stdout.write(json.dumps(dataclasses.asdict(read())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
