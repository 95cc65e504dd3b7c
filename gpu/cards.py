"""How much memory the cards of a node have, as the node says before any device of it is known.

Read by the scheduler, which places by it, and by the binder, which charges tenants that KAI bound (they carry no
grant). Both must come to the same, so it is read in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wire import names

#: A memory label above this many MiB (16 TiB) was written in bytes (kai-contract 1.2).
_ABSURD_MIB: Final = 2**24
_BYTES_PER_MIB: Final = 2**20


def cards_mib(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[int, int]:
    """Memory of the smallest and the largest card in MiB: our annotation if it is readable, else NVIDIA's label.

    Both are 0 where neither says it.
    """
    listed = annotations.get(names.NODE_CARDS, "").split(",")
    cards = [integer(card.strip()) for card in listed]
    if all(0 < card <= _ABSURD_MIB for card in cards):
        return min(cards), max(cards)
    labelled = integer(labels.get(names.NODE_GPU_MEMORY, ""))
    card = labelled // _BYTES_PER_MIB if labelled > _ABSURD_MIB else labelled
    return (card, card) if 0 < card <= _ABSURD_MIB else (0, 0)


def integer(text: str) -> int:
    """A decimal integer as people write it in labels; anything else is 0."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        return 0
    return int(text)
