"""The GPUs of a machine as they were read at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.core.card import Card
from reservation.device import Device


@dataclass(frozen=True, slots=True)
class Lost:
    """A GPU that the driver counts and can't describe. ``index`` is NVML's, ``why`` its words; it tells no UUID."""

    index: int
    why: str


@dataclass(frozen=True, slots=True)
class Machine:
    """``cards`` by index. ``devices``: GPUs and MIG slices by UUID, as a reservation process in a pod reads them."""

    cards: tuple[Card, ...]
    devices: Mapping[str, Device]
    lost: tuple[Lost, ...] = ()

    def lost_of(self, known: Iterable[Card]) -> dict[str, tuple[Card, str]]:
        """Return the GPUs known before that are lost now, by UUID, each with the driver's words.

        A lost GPU is the one that had its index, if no GPU that answers has that UUID: NVML orders them by their
        place on the bus, which a lost one keeps until the driver is loaded again.
        """
        answering = {card.uuid for card in self.cards}
        why_at = {one.index: one.why for one in self.lost}
        return {
            card.uuid: (card, why_at[card.index])
            for card in known
            if card.index in why_at and card.uuid not in answering
        }
