"""Shares of a device, in nano-GPU: exact integers, and never more memory promised than a card has.

A device is ``NANO_PER_DEVICE`` = 1,000,000,000 nano-GPU, and no book holds more (gpu/book.py). A fraction is its exact
decimal (wire.quantity.parse_nano) and stands for the whole MiB in it. Memory on a card of M MiB is charged
``floor(mem * 1e9 / M)``, so that asks that add up to the card fit it: three of 8192 MiB on 24576.

Why the memory of a device's tenants, all together, can't pass the card. A memory ask of m MiB is charged
c > m * 1e9 / M - 1, so m < (c + 1) * M / 1e9. A fraction of f nano stands for floor(f * M / 1e9) MiB, so for less than
that, too. For k tenants, of whichever kind, whose charges sum to 1e9 at most, the sum of MiB is therefore less than
(1e9 + k) * M / 1e9 = M + k * M / 1e9. While k * M <= 1e9, that is M + 1 at most; MiB are whole, so their sum is M at
most. Cards up to LARGEST_FLOORED_MIB and books of up to MOST_TENANTS keep k * M <= 1e9; on larger cards memory is
charged rounded up, m <= c * M / 1e9, and however many tenants there are, their sum is M at most.

A charge may be larger than this (older versions rounded it up on every card): the proof takes less than it then has.
"""

from __future__ import annotations

from typing import Final

NANO_PER_DEVICE: Final = 1_000_000_000
#: All the compute of a device, as HAMi, Volcano and Koordinator count it: in percent.
PERCENT_PER_DEVICE: Final = 100
#: Up to this card, 512 GiB, what memory is charged is rounded down.
LARGEST_FLOORED_MIB: Final = 512 * 1024
#: Tenants of one device: 1,907, more than the annotations of a reservation pod have room for (256 KiB,
#: gpu/bound_pod.py).
MOST_TENANTS: Final = NANO_PER_DEVICE // LARGEST_FLOORED_MIB


def nano_from_memory(mem_mib: int, card_mib: int) -> int | None:
    """Nano-GPU that ``mem_mib`` > 0 costs on a card of ``card_mib``; None when that is too small or unknown (0).

    At least 1: MOST_TENANTS, of a card where it is rounded down.
    """
    if card_mib <= 0 or mem_mib > card_mib:
        return None
    nano, rest = divmod(mem_mib * NANO_PER_DEVICE, card_mib)
    return nano + 1 if rest and card_mib > LARGEST_FLOORED_MIB else nano


def memory_from_nano(nano: int, card_mib: int) -> int:
    """The largest memory ask in MiB that a charge of ``nano`` pays for on a card of ``card_mib``; 0 for one of 0.

    So it gives back exactly what a memory ask asked, whichever way its charge was rounded, and says of what is free
    whether a memory ask fits.
    """
    if card_mib <= 0:
        return 0
    if card_mib > LARGEST_FLOORED_MIB:
        return nano * card_mib // NANO_PER_DEVICE
    return ((nano + 1) * card_mib - 1) // NANO_PER_DEVICE


def mib_of_fraction(nano: int, card_mib: int) -> int:
    """Memory in MiB that a fraction of ``nano`` stands for on a card of ``card_mib``: the whole MiB that are in it."""
    return nano * card_mib // NANO_PER_DEVICE


def portion_text(nano: int, *, of_memory: bool = False) -> str:
    """Write the share as KAI does, two decimals ("0.50"). For readers only: rounded, never read back.

    A fraction is rounded half up in integers; KAI prints ``%.2f`` of the float, which agrees wherever the share has two
    decimals. What memory comes to on a card is rounded up, as KAI counts it (kai-contract 1.2; row K3).
    """
    cents = -(-nano * 100 // NANO_PER_DEVICE) if of_memory else (nano * 100 + NANO_PER_DEVICE // 2) // NANO_PER_DEVICE
    return f"{cents // 100}.{cents % 100:02d}"
