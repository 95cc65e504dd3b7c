"""Shares of a device, in nano-GPU: exact integers, rounded against the asker.

A device is ``NANO_PER_DEVICE`` = 1,000,000,000 nano-GPU. A fraction is its exact decimal
(wire.quantity.parse_nano); memory on an M-MiB card charges ``ceil(mem * 1e9 / M)``, so the sum of MiB on a card can
never pass M while the sum of nano stays <= 1e9.
"""

from __future__ import annotations

from typing import Final

NANO_PER_DEVICE: Final = 1_000_000_000


def nano_from_memory(mem_mib: int, card_mib: int) -> int | None:
    """Nano-GPU that ``mem_mib`` costs on a card of ``card_mib``, or None when the card is too small or unknown (0)."""
    if card_mib <= 0 or mem_mib > card_mib:
        return None
    return -(-mem_mib * NANO_PER_DEVICE // card_mib)


def mib_from_nano(nano: int, card_mib: int) -> int:
    """Memory in MiB that a share of ``nano`` stands for on a card of ``card_mib`` (floored: never more than paid)."""
    return nano * card_mib // NANO_PER_DEVICE


def portion_text(nano: int, *, of_memory: bool = False) -> str:
    """Write the share as KAI does, two decimals ("0.50"). For readers only: rounded, never read back.

    A fraction is rounded half up in integers; KAI prints ``%.2f`` of the float, which agrees wherever the share has two
    decimals. What memory comes to on a card is rounded up, as KAI counts it (kai-contract 1.2; row K3).
    """
    cents = -(-nano * 100 // NANO_PER_DEVICE) if of_memory else (nano * 100 + NANO_PER_DEVICE // 2) // NANO_PER_DEVICE
    return f"{cents // 100}.{cents % 100:02d}"
