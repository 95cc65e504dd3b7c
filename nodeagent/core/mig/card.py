"""The MIG slices of a GPU as its driver and kubelet show them at one moment, and a layout that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from typing_extensions import override

from gpu.mig import Place, Profile


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A slice of a profile at its first memory slice."""

    start: int
    profile: str

    @override
    def __str__(self) -> str:
        return f"{self.profile} at {self.start}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A GPU instance. ``uuids``: of its MIG devices; none where a GPU instance has no compute instance.

    ``is_whole``: its one compute instance has all of it. Only such a slice is one that a layout can name.
    ``has_process``: a process uses it, or the driver does not report whether one does.
    """

    spot: Spot
    size: int
    uuids: tuple[str, ...]
    is_whole: bool = True
    has_process: bool = False

    @property
    def is_slice(self) -> bool:
        """Whether a layout can name it: a GPU instance with one compute instance that has all of it."""
        return self.is_whole and len(self.uuids) == 1

    @property
    def place(self) -> Place:
        """Its memory slices."""
        return Place(self.spot.start, self.size)


class NotDone(Exception):
    """Raised by a driver that refuses to read, make or destroy slices; the text has its words."""


@dataclass(frozen=True, slots=True)
class CardSlices:
    """The slices of a GPU in MIG mode, and the profiles that its driver offers, by name."""

    present: tuple[Present, ...]
    profiles: Mapping[str, Profile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at a GPU. Each part was asked at ``at_ns`` or later.

    ``given``: UUIDs that pods have, by kubelet's List. ``offered``: UUIDs that kubelet would give to a pod, by
    GetAllocatableResources. ``booked``: UUIDs that reservations name. ``kubelet_since_ns``: since when this kubelet is
    known to listen.
    """

    at_ns: int
    present: tuple[Present, ...]
    profiles: Mapping[str, Profile]
    given: frozenset[str]
    offered: frozenset[str]
    booked: frozenset[str]
    kubelet_since_ns: int

    @property
    def spots(self) -> frozenset[Spot]:
        """The slices that a layout can name."""
        return frozenset(each.spot for each in self.present if each.is_slice)

    def user_of(self, present: Present) -> str:
        """Say who uses a GPU instance; "" if nobody does. One that is cut otherwise than slices are is somebody's."""
        if present.uuids and not present.is_slice:
            return f"{present.spot} has other compute instances than one of its size"
        if present.has_process:
            return f"a process uses {present.spot}"
        for uuid in present.uuids:
            if uuid in self.given:
                return f"kubelet gave {present.spot} to a pod"
            if uuid in self.booked:
                return f"a reservation has {present.spot}"
        return ""


@dataclass(frozen=True, slots=True)
class Ask:
    """All slices that a GPU is to have. ``attempt`` is another for each decision."""

    attempt: str
    layout: tuple[Spot, ...]


def mistake(ask: Ask, profiles: Mapping[str, Profile]) -> str:
    """Say why the driver can't make a layout; "" if it can."""
    taken = 0
    for spot in ask.layout:
        profile = profiles.get(spot.profile)
        if profile is None:
            return f"the GPU has no profile {spot.profile}; it has {', '.join(sorted(profiles)) or 'none'}"
        place = next((each for each in profile.places if each.start == spot.start), None)
        if place is None:
            starts = ", ".join(str(each.start) for each in profile.places)
            return f"{spot} can't be made; the profile's places begin at {starts}"
        if place.bits & taken:
            return f"{spot} overlaps another slice of the layout"
        taken |= place.bits
    return _too_many(ask.layout, profiles)


def _too_many(layout: Iterable[Spot], profiles: Mapping[str, Profile]) -> str:
    spots = list(layout)
    for name in sorted({spot.profile for spot in spots}):
        number, most = sum(spot.profile == name for spot in spots), profiles[name].most
        if number > most:
            return f"{number} slices of {name}; the GPU takes {most}"
    return ""
