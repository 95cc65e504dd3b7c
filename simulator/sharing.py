"""How much of one device somebody may have, and whether that of all is too much, as the checker adds it up (S1).

It is judged twice, since memory and parts of a device don't measure alike: MiB are whole, and a ledger in nano-GPU may
hold a part of memory less than one nano short. So all parts together are one device, but for that, and all MiB are
those of the card and not one more. Nothing of how the product rounds is used: these are exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from simulator.facts import Ask

_NANO: Final = 10**9
#: Above this card, 512 GiB, memory is charged in full (docs/reference/dialects.md, T4).
_LARGEST_SHORT_MIB: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class Share:
    """This part of a device, asked as a part; or an amount of MiB, of which ``part`` is exactly the part."""

    part: Fraction = Fraction(0)
    is_memory: bool = False

    def mib(self, card_mib: int) -> int:
        """Return what it is on a card of ``card_mib``: all whole MiB that are in it."""
        return int(self.part * card_mib)

    def least_nano(self, card_mib: int) -> int:
        """Return what has to be charged for it at least: parts in full, memory up to less than a nano short."""
        nano = self.part * _NANO
        return int(nano) if self.is_memory and card_mib <= _LARGEST_SHORT_MIB else -int(-nano // 1)


def asked(ask: Ask, card_mib: int) -> Share:
    """What an ask is of each of its devices."""
    return Share(ask.charge(card_mib), ask.mem_mib is not None)


def excess(shares: Iterable[Share], card_mib: int) -> str:
    """Say what of a card of ``card_mib`` these shares pass together; "" if they don't."""
    there = list(shares)
    mib = sum(share.mib(card_mib) for share in there)
    if mib > card_mib:
        return f"{mib} MiB of {card_mib}"
    parts = sum((share.part for share in there), Fraction(0))
    short = sum(share.is_memory for share in there)
    is_over = parts >= 1 + Fraction(short, _NANO) if short else parts > 1
    return f"{float(parts):.10g} of a device" if is_over else ""
