"""The GPUs of a machine and their MIG slices, as its driver describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reservation.device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card. ``uuid``, ``product`` and ``index`` are NVML's.

    ``minor`` is the N of /dev/nvidiaN; ``mem_mib`` is rounded down; ``numa`` is the NUMA node. None: the driver does
    not tell. ``slices``: the UUIDs of its MIG slices; ``has_mig``: its MIG mode is on.
    """

    uuid: str
    index: int
    product: str = ""
    minor: int | None = None
    mem_mib: int | None = None
    numa: int | None = None
    has_mig: bool = False
    slices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One slice. ``card`` is the UUID of the GPU that it is a part of, ``profile`` a name such as ``1g.10gb``.

    ``place`` is its position among the slices of its GPU, counted from 0. ``gpu_instance`` and ``compute_instance`` are
    the driver's numbers, by which it names a slice in an event. None: the driver does not tell.
    """

    uuid: str
    card: str
    profile: str
    place: int = 0
    mem_mib: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Slices:
    """MIG slices that stay as they are. nodeagent/mig/partitioning.py has those that don't."""

    @property
    def withdrawn(self) -> frozenset[str]:
        """UUIDs that are not to be given to a pod."""
        return frozenset()

    @property
    def generation(self) -> int:
        """Another number after slices were made or destroyed."""
        return 0

    def taken(self, generation: int) -> None:
        """Hear that the driver was read since that generation, and its slices are listed."""


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
