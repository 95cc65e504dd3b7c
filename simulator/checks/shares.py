"""What a pod asks by its record and may have of which device, and whether that of all is too much (S1).

The record is documented, and read here by that page and nothing else (docs/reference/record.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from simulator.checks.facts import Ask, Json, PodFacts
from simulator.nodes.device_manager import Device
from wire import names

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
    """Say what of a card of ``card_mib`` these shares pass together; "" if they don't.

    Judged twice, since memory and parts of a device don't measure alike: MiB are whole, and a ledger in nano-GPU may
    hold a part of memory less than one nano short. So all parts together are one device, but for that, and all MiB are
    those of the card and not one more.
    """
    there = list(shares)
    mib = sum(share.mib(card_mib) for share in there)
    if mib > card_mib:
        return f"{mib} MiB of {card_mib}"
    parts = sum((share.part for share in there), Fraction(0))
    short = sum(share.is_memory for share in there)
    is_over = parts >= 1 + Fraction(short, _NANO) if short else parts > 1
    return f"{float(parts):.10g} of a device" if is_over else ""


#: CDI devices that are mounts and variables, and no GPU.
_BESIDE_GPUS: Final = (names.VIEW_DEVICE_PREFIX, names.LIMITS_DEVICE_PREFIX)
_LISTS: Final = {"c": "containers", "i": "initContainers"}


@dataclass(frozen=True, slots=True)
class Part:
    """What one container asks of one device. Parts of one ``seat`` are of the same device, all others of another.

    ``profile``: of a MIG slice of this profile, "" for a card. ``percent``: asked of its compute.
    """

    key: str
    container: str
    seat: str
    fraction: Fraction
    mem_mib: int
    is_sidecar: bool
    profile: str = ""
    percent: int = 0

    def charge(self, card_mib: int) -> Fraction:
        """Return the part of a card of ``card_mib``."""
        return Fraction(self.mem_mib, card_mib) if self.mem_mib else self.fraction


Way = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """One way on real devices. ``parts``: device -> its parts."""

    parts: Mapping[str, Way]
    cards: Mapping[str, Device]

    def of(self, container: str) -> dict[str, Share]:
        """Return what a container may have of each of its devices."""
        found: dict[str, Share] = {}
        for uuid, parts in self.parts.items():
            mine = [part.charge(self.cards[uuid].mem_mib) for part in parts if part.container == container]
            if mine:
                found[uuid] = Share(sum(mine, Fraction(0)), self._is_memory(uuid))
        return found

    def share(self, uuid: str) -> Share:
        """Return what the pod may have of a device at one time."""
        return Share(self.charge(uuid), self._is_memory(uuid))

    def _is_memory(self, uuid: str) -> bool:
        """Whether MiB of it are asked: parts of one seat are asked in one way."""
        return any(part.mem_mib for part in self.parts.get(uuid, ()))

    def charge(self, uuid: str) -> Fraction:
        """Return what a device has to hold at one time."""
        card_mib = self.cards[uuid].mem_mib if uuid in self.parts else 0
        return self._at_one_time(uuid, lambda part: part.charge(card_mib))

    def percent(self, uuid: str) -> int:
        """Return how much of the compute of a device is asked at one time."""
        return int(self._at_one_time(uuid, lambda part: Fraction(part.percent)))

    def _at_one_time(self, uuid: str, amount: Callable[[Part], Fraction]) -> Fraction:
        """Init containers end before the next start, but for sidecars."""
        parts = self.parts.get(uuid, ())
        beside = most = Fraction(0)
        for part in sorted((p for p in parts if p.key.startswith("i")), key=lambda p: int(p.key[1:])):
            now = beside + amount(part)
            most = max(most, now)
            beside = now if part.is_sidecar else beside
        regular = sum((amount(part) for part in parts if part.key.startswith("c")), Fraction(0))
        return max(most, beside + regular)


def ways(pod: PodFacts) -> tuple[Way, ...]:
    """All that will do, best first; nothing for a pod without a record, or one that asks for no part of a device."""
    text = pod.annotations.get(names.GPU_RECORD)
    if not text:
        return ()
    try:
        said = json.loads(text)
        listed = [said.get("asks") or [], *(said.get("alternatives") or ())]
        found = tuple(tuple(_parts(asks, pod.raw["spec"])) for asks in listed)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        return ()
    return found if any(found) else ()


def placed(pod: PodFacts, cards: Mapping[str, Device]) -> Placed | None:
    """Find the way that its Binding took; None where its devices are those of none, or none was asked.

    A record may leave a choice (``alternatives``): which was taken shows in the devices that the Binding hands to each
    container, and where that leaves several, in the charges of its grant.
    """
    shown = {
        key.removeprefix(names.VISIBLE_DEVICES_PREFIX): [
            each.removeprefix(names.CDI_DEVICE_PREFIX) for each in value.split(",") if not each.startswith(_BESIDE_GPUS)
        ]
        for key, value in pod.annotations.items()
        if key.startswith(names.VISIBLE_DEVICES_PREFIX)
    }
    nanos = {grant.uuid: grant.nano for grant in pod.grants}
    on_devices = [on for way in ways(pod) if (on := _on_devices(way, shown)) is not None and _are_of_kind(on, cards)]
    candidates = [Placed(parts, cards) for parts in on_devices]
    charged = (each for each in candidates if all(_is_charged(each, uuid, nanos) for uuid in each.parts))
    return next(charged, candidates[0] if candidates else None)


def _are_of_kind(on: Mapping[str, Way], cards: Mapping[str, Device]) -> bool:
    """Whether each device is there, and a card or a slice of the profile that was asked."""
    return on.keys() <= cards.keys() and all(
        part.profile == cards[uuid].profile for uuid, parts in on.items() for part in parts
    )


def _is_charged(placed: Placed, uuid: str, nanos: Mapping[str, int]) -> bool:
    """Whether a device is charged with just that, but for less than the nano that can't be said."""
    nano = nanos.get(uuid)
    return nano is not None and abs(placed.charge(uuid) * _NANO - nano) < 1


def _on_devices(way: Way, shown: Mapping[str, Sequence[str]]) -> dict[str, Way] | None:
    """Each part on its device, in the order in which a container is shown them; None if that can't be."""
    asked: dict[str, list[Part]] = {}
    for part in way:
        asked.setdefault(part.key, []).append(part)
    if {key: len(parts) for key, parts in asked.items()} != {key: len(uuids) for key, uuids in shown.items()}:
        return None
    seats: dict[str, str] = {}
    found: dict[str, Way] = {}
    for key, parts in asked.items():
        for part, uuid in zip(parts, shown[key], strict=True):
            if seats.setdefault(part.seat, uuid) != uuid:
                return None
            found[uuid] = (*found.get(uuid, ()), part)
    return found if len(found) == len(seats) else None


def _parts(asks: Sequence[Json], spec: Json) -> Iterator[Part]:
    number = 0
    for ask in asks:
        key = str(ask["container"])
        container = spec[_LISTS[key[0]]][int(key[1:])]
        nano, mem_mib = int(ask.get("nano", 0)), int(ask.get("memMib", 0))
        if not (nano or mem_mib):
            continue
        for _ in range(int(ask.get("count", 1))):
            number += 1
            seat = str(ask.get("seat") or f"/{number}")
            is_sidecar = key.startswith("i") and container.get("restartPolicy") == "Always"
            profile, percent = str(ask.get("mig", "")), int(ask.get("computePercent", 0))
            yield Part(key, container["name"], seat, Fraction(nano, _NANO), mem_mib, is_sidecar, profile, percent)
