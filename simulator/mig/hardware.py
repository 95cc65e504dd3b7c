"""GPUs in MIG mode of a simulated node: their slices, which outlive the agent, and the driver that makes others.

The profiles are those of a card of 80 GB (NVIDIA Multi-Instance GPU User Guide, H100 80GB), without the ones with media
engines. A slice is written ``1g.10gb@3``: its profile, and its first memory slice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import anyio
import msgspec

from gpu.mig import Place, Profile
from nodeagent.core.mig_partitioning import CardSlices, NotDone, Present, Spot
from simulator.nodes.device_manager import Device
from simulator.nodes.shape import slice_mib
from wire import names

CARD_MIB: Final = 80 * 1024
PRODUCT: Final = "NVIDIA-H100-80GB-HBM3"


def _profile(size: int, *starts: int) -> Profile:
    return Profile(tuple(Place(start, size) for start in starts), len(starts))


PROFILES: Final[Mapping[str, Profile]] = {
    "1g.10gb": _profile(1, 0, 1, 2, 3, 4, 5, 6),
    "1g.20gb": _profile(2, 0, 2, 4, 6),
    "2g.20gb": _profile(2, 0, 2, 4),
    "3g.40gb": _profile(4, 0, 4),
    "4g.40gb": _profile(4, 0),
    "7g.80gb": _profile(8, 0),
}


class SlicedNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A node whose agent makes MIG slices. ``cards``: the slices of each GPU in MIG mode at first.

    ``is_idle``: programs have slices and never use them, so that the driver knows of none. ``keeps_uuids``: a slice
    that is made again has its UUID again. ``hears_s``: kubelet reads the plug-in's list up to so much later;
    ``tells_s``: the Node shows what it offers up to so much later.
    """

    node: str
    cards: tuple[tuple[str, ...], ...]
    is_idle: bool = False
    keeps_uuids: bool = True
    hears_s: float = 1.0
    tells_s: float = 10.0


def spot(text: str) -> Spot:
    """Read ``1g.10gb@3``. Raises ValueError for a slice that no card can have."""
    profile, at, start = text.partition("@")
    known = PROFILES.get(profile)
    if not at or known is None or start not in {str(place.start) for place in known.places}:
        raise ValueError(f"slice {text!r}: not a profile and a place, as in 1g.10gb@3; profiles: {', '.join(PROFILES)}")
    return Spot(int(start), profile)


def size(at: Spot) -> int:
    """Return how many memory slices a slice takes."""
    return PROFILES[at.profile].places[0].size


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


_READ_S: Final = 0.02
_CHANGE_S: Final = 0.2
#: After so long the agent gives a call up (nodeagent/mig/nvml.py).
_WITHIN_S: Final = 60.0

#: What becomes of a change: carried out; refused; half of it done, and an error; all of it, and an error.
End = Literal["done", "refused", "half", "done-and-failed"]
#: Where a call is: asked and not done yet, or done and not answered yet.
Moment = Literal["before", "after"]


@dataclass(slots=True)
class DriverFaults:
    """``end`` says what becomes of the next change; ``slow_s`` is added to each."""

    end: Callable[[], End] = lambda: "done"
    slow_s: float = 0.0


@dataclass(slots=True)
class Driver:
    """nodeagent.mig.partitioning.Driver of one machine. ``begin`` runs what goes on without the one who asked.

    ``is_on``: whether the machine has power. ``listeners`` are called at each moment of a change.

    It is late, fails, and goes on when nobody waits any more.
    """

    machine: SlicedMachine
    begin: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    is_on: Callable[[], bool]
    faults: DriverFaults = field(default_factory=DriverFaults)
    listeners: list[Callable[[Moment], None]] = field(default_factory=list)
    #: Set when no change is under way.
    idle: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.idle.set()

    async def read(self) -> Mapping[str, CardSlices]:
        """Return the slices of all GPUs, by UUID. Raises NotDone while a change is under way for too long."""
        await self._turn()
        await anyio.sleep(_READ_S)
        return self.machine.read()

    async def destroy(self, card: str, at: Spot) -> None:
        """Destroy a slice. Raises NotDone."""
        await self._change(lambda is_half: self.machine.destroy(card, at, is_half=is_half))

    async def make(self, card: str, at: Spot) -> None:
        """Make a slice. Raises NotDone."""
        await self._change(lambda is_half: self.machine.make(card, at, is_half=is_half))

    async def _turn(self) -> None:
        with anyio.move_on_after(_WITHIN_S):
            await self.idle.wait()
            return
        raise NotDone(f"the driver did not answer within {_WITHIN_S:g} s")

    async def _change(self, change: Callable[[bool], None]) -> None:
        await self._turn()
        call = _Call(change, self.faults.end(), _CHANGE_S + self.faults.slow_s)
        self.idle = anyio.Event()
        self.begin(lambda: self._carry_out(call))
        with anyio.move_on_after(_WITHIN_S):
            await call.over.wait()
            if call.error:
                raise NotDone(call.error)
            return
        raise NotDone(f"the driver did not answer within {_WITHIN_S:g} s")

    def _notice(self, moment: Moment) -> None:
        for listener in list(self.listeners):
            listener(moment)

    async def _carry_out(self, call: _Call) -> None:
        self._notice("before")
        await anyio.sleep(call.takes_s)
        if self.is_on():
            call.carry_out()
        self.idle.set()
        self._notice("after")
        call.over.set()


@dataclass(slots=True)
class _Call:
    """A change that was asked for. ``error``: the driver's words; "": it is done."""

    change: Callable[[bool], None]
    end: End
    takes_s: float
    error: str = ""
    over: anyio.Event = field(default_factory=anyio.Event)

    def carry_out(self) -> None:
        """Do to the machine what becomes of it."""
        if self.end == "refused":
            self.error = "refused by a fault of the simulation"
            return
        try:
            self.change(self.end == "half")
        except NotDone as error:
            self.error = str(error)
        if self.end != "done":
            self.error = self.error or "an error of the simulation"
