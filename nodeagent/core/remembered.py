"""What a device plug-in has to know after it was started again: the GPUs that it had, and which of them were ill.

Kept where a reboot takes it away. A GPU that the driver does not list any more stays in the list, as ill: kubelet calls
a device that is not listed healthy in the statuses of pods that have it. Anything that can't be read is as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from nodeagent.core.card import Card
from nodeagent.core.health import Health
from nodeagent.core.slice import Slice


@dataclass(frozen=True, slots=True)
class Remembered:
    """``health`` is of GPUs and slices, by UUID, of those that are not well. Times are of the machine's uptime."""

    cards: tuple[Card, ...] = ()
    slices: tuple[Slice, ...] = ()
    health: Mapping[str, Health] = field(default_factory=dict)
    #: The index by which the file means a GPU: the one that it had first.
    seats: Mapping[str, int] = field(default_factory=dict)


def encoded(remembered: Remembered) -> bytes:
    """As JSON."""
    return msgspec.json.encode(remembered)


def decoded(content: bytes) -> Remembered:
    """Read it; nothing for what can't be read."""
    try:
        return msgspec.json.decode(content, type=Remembered)
    except (msgspec.DecodeError, RecursionError):
        return Remembered()


def with_unlisted(known: Sequence[Card], listed: Sequence[Card]) -> tuple[Card, ...]:
    """All GPUs that are listed, as they are now, and those that were known before, by index."""
    by_uuid = {card.uuid: card for card in (*known, *listed)}
    return tuple(sorted(by_uuid.values(), key=lambda card: (card.index, card.uuid)))


def with_seats(seats: Mapping[str, int], cards: Sequence[Card]) -> dict[str, int]:
    """Keep the index that each GPU had first: the driver numbers the others again when one has gone.

    Else a file that names GPUs by index would move them to other resources while pods have them.
    """
    known = {card.uuid for card in cards}
    kept = {uuid: seat for uuid, seat in seats.items() if uuid in known}
    free = (seat for seat in range(len(cards) + len(kept)) if seat not in set(kept.values()))
    for card in cards:
        if card.uuid not in kept:
            kept[card.uuid] = next(free) if card.index in kept.values() else card.index
    return kept
