"""The GPUs of a machine as they were read at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodeagent.core.card import Card
from reservation.device import Device


@dataclass(frozen=True, slots=True)
class Machine:
    """``cards`` by index. ``devices``: GPUs and MIG slices by UUID, as a reservation process in a pod reads them."""

    cards: tuple[Card, ...]
    devices: Mapping[str, Device]
