"""The hardware of one machine: its GPUs in MIG mode with their slices, which outlive the agent."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.mig_partitioning import CardSlices, NotDone, Present, Spot
from simulator.devices import Device
from simulator.mig.layouts import PROFILES, SlicedNode, size, spot
from simulator.shape import slice_mib
from wire import names

_UUIDS: Final = uuid.UUID("7d1c7e8c-3f6e-4a5e-b0d2-5f9a4f0f3a11")


@dataclass(slots=True)
class Instance:
    """A GPU instance. ``uuid``: of the MIG device on it; "": it has no compute instance."""

    spot: Spot
    uuid: str


@dataclass(slots=True)
class SlicedMachine:
    """``users``: UUIDs of slices that processes use now. ``destroyed`` is called with the UUID of a slice that goes.

    ``changed`` is called after each change.
    """

    node: SlicedNode
    seed: int
    users: Callable[[], set[str]]
    destroyed: Callable[[str], None] = lambda _: None
    changed: Callable[[], None] = lambda: None
    #: By the GPU's UUID.
    cards: dict[str, list[Instance]] = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        for number, slices in enumerate(self.node.cards):
            card = f"GPU-{uuid.uuid5(_UUIDS, f'{self.seed}/{self.node.node}/{number}')}"
            self.cards[card] = [Instance(at, self._uuid(card, at)) for at in map(spot, slices)]

    def _uuid(self, card: str, at: Spot) -> str:
        again = "" if self.node.keeps_uuids else f"/{self._made}"
        self._made += 1
        return f"MIG-{uuid.uuid5(_UUIDS, f'{card}/{at}{again}')}"

    def devices(self) -> tuple[Device, ...]:
        """Return its slices as the device plug-in hands them out."""
        return tuple(
            Device(
                number,
                each.uuid,
                slice_mib(each.spot.profile),
                names.MIG_RESOURCE_PREFIX + each.spot.profile,
                each.spot.profile,
            )
            for number, each in enumerate(self._slices())
        )

    def _slices(self) -> Iterator[Instance]:
        for instances in self.cards.values():
            yield from (each for each in sorted(instances, key=lambda each: each.spot) if each.uuid)

    def read(self) -> Mapping[str, CardSlices]:
        """Return what the driver shows of each GPU."""
        used = set[str]() if self.node.is_idle else self.users()
        return {
            card: CardSlices(
                tuple(
                    Present(
                        spot=each.spot,
                        size=size(each.spot),
                        uuids=(each.uuid,) if each.uuid else (),
                        has_process=each.uuid in used,
                    )
                    for each in sorted(instances, key=lambda each: each.spot)
                ),
                PROFILES,
            )
            for card, instances in self.cards.items()
        }

    def destroy(self, card: str, at: Spot, *, is_half: bool = False) -> None:
        """Destroy a slice; ``is_half``: its compute instance alone. Raises NotDone for one that is not there."""
        instance = next((each for each in self.cards[card] if each.spot == at), None)
        if instance is None:
            raise NotDone(f"no GPU instance {at} is there")
        gone, instance.uuid = instance.uuid, ""
        if not is_half:
            self.cards[card].remove(instance)
        if gone:
            self.destroyed(gone)
        self.changed()

    def make(self, card: str, at: Spot, *, is_half: bool = False) -> None:
        """Make a slice; ``is_half``: its GPU instance alone. Raises NotDone where another one is."""
        instances = self.cards[card]
        instance = next((each for each in instances if each.spot == at), None)
        if instance is None:
            taken = {number for each in instances for number in _row(each.spot)}
            if taken & set(_row(at)):
                raise NotDone(f"create the GPU instance: no room for {at}")
            instance = Instance(at, "")
            instances.append(instance)
        if not is_half and not instance.uuid:
            instance.uuid = self._uuid(card, at)
        self.changed()


def _row(at: Spot) -> range:
    return range(at.start, at.start + size(at))
