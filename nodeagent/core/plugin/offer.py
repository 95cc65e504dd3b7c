"""What a device plug-in offers right now: its file, the machine's devices and their health, put together.

The shell brings in what it reads, and asks what each resource has. A file that can't be served changes nothing: the
last good one goes on, and ``mistakes`` says what is wrong.

What a device plug-in has to know after it was started again: the GPUs that it had, and which of them were ill.

Kept where a reboot takes it away. A GPU that the driver does not list any more stays in the list, as ill: kubelet calls
a device that is not listed healthy in the statuses of pods that have it. Anything that can't be read is as nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from nodeagent.core.devices import Card, Slice
from nodeagent.core.plugin import settings_file
from nodeagent.core.plugin.health import Health, Look, Rules, on_cleared, on_fault, on_look, on_xid
from nodeagent.core.plugin.resources import Device, Offer, Resource, by_id, listed, offer
from nodeagent.core.plugin.settings import Mistake, PluginSettings


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


_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An event of the driver about a GPU. ``xid`` of None: another fault, which ``reason`` names.

    ``gpu_instance``, ``compute_instance``: the slice that it is about. ``driver``: as in Look.
    """

    card: str
    xid: int | None = None
    reason: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Served:
    """One resource with its devices by id."""

    resource: Resource
    by_id: Mapping[str, Device]


class Offering:
    """One node's offer of devices. Nothing is offered before a file and the machine were read."""

    def __init__(self, environment: Mapping[str, str], remembered: Remembered) -> None:
        self._environment = environment
        self._cards = remembered.cards
        self._slices = remembered.slices
        self._seats = dict(remembered.seats)
        self._health: dict[str, Health] = dict(remembered.health)
        self._was_seen = False
        self._wanted: PluginSettings | None = None
        #: What is served by. None: no file was good so far.
        self.settings: PluginSettings | None = None
        self.resources: Mapping[str, Served] = {}
        #: What is wrong with the file that is there.
        self.mistakes: tuple[Mistake, ...] = ()
        self.notes: tuple[str, ...] = ()

    @property
    def cards(self) -> tuple[Card, ...]:
        """All GPUs, by index; those that the driver does not list any more among them."""
        gone = self.settings.gone if self.settings else frozenset()
        return tuple(card for card in self._cards if card.uuid not in gone)

    @property
    def uuids(self) -> tuple[str, ...]:
        """All GPUs and slices."""
        return (*(card.uuid for card in self.cards), *(one.uuid for one in self._slices))

    @property
    def rules(self) -> Rules:
        """How illness is judged."""
        settings = self.settings or PluginSettings()
        return Rules(settings.ignored_xids, settings.counted_xids, settings.healing_s * _SECOND_NS)

    @property
    def ill(self) -> frozenset[str]:
        """UUIDs of GPUs and slices that are not offered."""
        return frozenset(uuid for uuid, health in self._health.items() if not health.is_well)

    @property
    def health(self) -> Mapping[str, Health]:
        """By UUID, of devices that are or were ill; all others are well."""
        return self._health

    def listed(self, name: str, withdrawn: Collection[str] = ()) -> Sequence[tuple[str, bool, int | None]]:
        """Each id of a resource, whether it is healthy, and its NUMA node. ``withdrawn``: UUIDs that nobody gets."""
        return list(listed(self.resources[name].resource, self.ill.union(withdrawn)))

    def remembered(self) -> Remembered:
        """What has to be known after a start."""
        return Remembered(self.cards, self._slices, dict(self._health), dict(self._seats))

    def take_file(self, text: str | Mistake) -> None:
        """Take the contents of the file, "" for none, or why there are none."""
        if isinstance(text, Mistake):
            self.mistakes = (text,)
            return
        found = settings_file.read(text, self._environment)
        if isinstance(found, tuple):
            self.mistakes = found
            return
        self._wanted = found
        self._offer()

    def take_machine(self, cards: Sequence[Card], slices: Sequence[Slice]) -> None:
        """Take the devices that the driver lists. Slices of a GPU that is not listed stay with it."""
        there = {card.uuid for card in cards}
        kept = [one for one in self._slices if one.card not in there]
        now = with_unlisted(self._cards, cards), tuple(sorted((*slices, *kept), key=lambda one: (one.card, one.place)))
        if not self._was_seen or now != (self._cards, self._slices):
            self._cards, self._slices = now
            self._was_seen = True
            self._offer()

    def take_looks(self, looks: Mapping[str, Look], now_ns: int) -> None:
        """Take a look at each device; one that is not among them is not listed."""
        missing = Look(is_listed=False, answers=False)
        for uuid in self.uuids:
            health = self._health.get(uuid, Health())
            self._put(uuid, on_look(health, looks.get(uuid, missing), now_ns, rules=self.rules))

    def take_fault(self, fault: Fault, now_ns: int) -> None:
        """Take an event: of a slice if the driver names one, else of the GPU."""
        for uuid in self._struck(fault):
            health = self._health.get(uuid, Health())
            if fault.xid is None:
                after = on_fault(health, fault.reason, now_ns, driver=fault.driver)
            else:
                after = on_xid(health, fault.xid, now_ns, rules=self.rules, driver=fault.driver)
            self._put(uuid, after)

    def take_cleared(self, uuids: Collection[str], now_ns: int) -> None:
        """Take an administrator's word that these devices are mended."""
        for uuid in uuids:
            if uuid in self._health:
                self._put(uuid, on_cleared(self._health[uuid], now_ns))

    def _struck(self, fault: Fault) -> list[str]:
        if fault.gpu_instance is None:
            return [fault.card] if any(card.uuid == fault.card for card in self._cards) else []
        return [
            one.uuid
            for one in self._slices
            if one.card == fault.card
            and one.gpu_instance == fault.gpu_instance
            and fault.compute_instance in {None, one.compute_instance}
        ]

    def _put(self, uuid: str, health: Health) -> None:
        if health.is_well and not health.ill_at_ns and not health.lost_looks:
            self._health.pop(uuid, None)
        else:
            self._health[uuid] = health

    def _offer(self) -> None:
        if self._wanted is None or not self._was_seen:
            return
        self._seats = with_seats(self._seats, [card for card in self._cards if card.uuid not in self._wanted.gone])
        found = offer(self._wanted, self._cards, self._slices, self._seats)
        if not isinstance(found, Offer):
            self.mistakes = found
            return
        self.settings, self.mistakes, self.notes = self._wanted, (), found.notes
        before = self.resources
        self.resources = {
            one.name: before[one.name]
            if one.name in before and before[one.name].resource == one
            else Served(one, by_id(one))
            for one in found.resources
        }
