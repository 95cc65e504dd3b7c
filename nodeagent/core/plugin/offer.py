"""What a device plug-in offers right now, and what kubelet is advised and given of it.

File, the machine's devices and their health are put together. The shell brings in what it reads, and asks what each
resource has. A file that can't be served changes nothing: the last good one goes on, and ``mistakes`` says what is
wrong.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from nodeagent.core.devices import Card, Slice
from nodeagent.core.plugin import settings_file
from nodeagent.core.plugin.health import Health, Look, Rules, on_cleared, on_fault, on_look, on_xid
from nodeagent.core.plugin.settings import (
    Delivery,
    Device,
    IdStrategy,
    Mistake,
    Offer,
    PluginSettings,
    Policy,
    Resource,
    by_id,
    is_replica,
    listed,
    offer,
    uuid_of,
)
from wire import names
from wire.units import SECOND_NS

#: Where the NVIDIA runtime looks for devices that are given as mounts.
VOLUME_ROOT: Final = "/var/run/nvidia-container-devices"
_NOTHING: Final = "/dev/null"
#: Device files that belong to all GPUs.
COMMON_FILES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
#: A key of an annotation has at most 63 characters after its prefix.
_CDI_KEY: Final = "nvidia-device-plugin_"
_LONGEST_REFUSAL: Final = 200


@dataclass(frozen=True, slots=True)
class Refused:
    """kubelet's choice can't be given; kubelet shows the text on the pod."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What kubelet adds to one container. ``mounts`` and ``files``: path in the container -> path on the node."""

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()


def allocate(
    chosen: Sequence[str],
    *,
    resource: str,
    devices: Mapping[str, Device],
    settings: PluginSettings,
    present_files: Collection[str],
    number: str,
) -> Given | Refused:
    """Give the devices of one container. ``devices`` are all of the resource by id, ``number`` makes a CDI key unique.

    ``present_files``: device files that belong to all GPUs and are there.

    A container is given what kubelet chose in each way that NVIDIA's device plugin has. Source: NVIDIA device plugin
    v0.20, internal/plugin/server.go; Container Device Interface, annotations.
    """
    if unknown := [each for each in chosen if each not in devices]:
        return Refused(f"invalid allocation request for {resource!r}: unknown device: {unknown[0][:_LONGEST_REFUSAL]}")
    if settings.fail_requests_greater_than_one and len(chosen) > 1 and any(map(is_replica, chosen)):
        most = "maximum request size for shared resources is 1"
        return Refused(f"invalid request for {resource!r}: {most}; found {len(chosen)}")
    found = {device.uuid: device for device in (devices[each] for each in sorted(chosen))}
    named = [_name(device, settings.id_strategy) for device in found.values()]
    environment: dict[str, str] = {}
    mounts: dict[str, str] = {}
    if Delivery.ENVVAR in settings.deliveries:
        environment[names.ENV_VISIBLE_DEVICES] = ",".join(named)
    if Delivery.VOLUME_MOUNTS in settings.deliveries:
        environment[names.ENV_VISIBLE_DEVICES] = VOLUME_ROOT
        mounts = {f"{VOLUME_ROOT}/{each}": _NOTHING for each in named}
    # A CDI file has UUIDs, whichever way an environment names devices.
    cdi = [names.CDI_DEVICE_PREFIX + uuid for uuid in found]
    key = f"{settings.cdi_annotation_prefix}{_CDI_KEY}{number}"
    return Given(
        environment=environment,
        mounts=mounts,
        files=_files(found.values(), settings, present_files) if settings.pass_device_specs else {},
        annotations={key: ",".join(cdi)} if Delivery.CDI_ANNOTATIONS in settings.deliveries else {},
        cdi_devices=cdi if Delivery.CDI_CRI in settings.deliveries else (),
    )


def _name(device: Device, strategy: IdStrategy) -> str:
    return device.uuid if strategy is IdStrategy.UUID else device.index


def _files(devices: Collection[Device], settings: PluginSettings, present: Collection[str]) -> dict[str, str]:
    """Device files of the GPUs, and those that belong to all, as far as they are there."""
    root = (settings.dev_root or settings.driver_root).rstrip("/")
    own = [f"/dev/nvidia{device.minor}" for device in devices if device.minor is not None]
    return {path: root + path for path in (*dict.fromkeys(own), *(each for each in COMMON_FILES if each in present))}


#: Where a device is: its NVLink island, then its NUMA node.
Place = tuple[int, int]
#: Of a device whose place is not known.
_NOWHERE: Final[Place] = (-1, -1)


def preferred(
    free: Sequence[str],
    included: Sequence[str],
    size: int,
    *,
    devices: Mapping[str, Device],
    policy: Policy = Policy.DISTRIBUTED,
    wanted: Collection[str] = (),
    places: Mapping[str, Place] | None = None,
) -> list[str]:
    """Return ``size`` ids of ``free``, ``included`` first; fewer if there are no more. Unknown ids are left out.

    ``devices`` are all of the resource by id, ``wanted`` UUIDs that a reservation waits for, ``places`` by UUID.

    A hint: kubelet chooses, and nothing rests on it. Replicas: of distinct GPUs as far as they go, then by policy, as
    NVIDIA's plugin has it. Exclusive devices: those that a waiting reservation is opened for; then devices that belong
    together, of the island that stays fullest.
    """
    first = [each for each in dict.fromkeys(included) if each in devices]
    held = frozenset(first)
    rest = [each for each in dict.fromkeys(free) if each in devices and each not in held]
    needed = size - len(first)
    if needed <= 0:
        return first
    if any(is_replica(each) for each in rest):
        return first + _replicas(rest, first, needed, devices=devices, policy=policy)
    return first + _exclusive(rest, first, needed, wanted=wanted, places=places or {})


def _replicas(
    free: Sequence[str], first: Sequence[str], needed: int, *, devices: Mapping[str, Device], policy: Policy
) -> list[str]:
    """Take one replica after the other of the best GPU; a GPU that this request has already comes after all others."""
    left: dict[str, list[str]] = {}
    for each in reversed(free):
        left.setdefault(uuid_of(each), []).append(each)
    total = Counter(device.uuid for device in devices.values() if device.uuid in left)
    picked = Counter(uuid_of(each) for each in first)
    sign = 1 if policy is Policy.DISTRIBUTED else -1

    def rank(uuid: str) -> tuple[int, int, str]:
        return picked[uuid], sign * (total[uuid] - len(left[uuid])), uuid

    queue = [rank(uuid) for uuid in left]
    heapq.heapify(queue)
    chosen: list[str] = []
    while queue and len(chosen) < needed:
        uuid = heapq.heappop(queue)[2]
        chosen.append(left[uuid].pop())
        picked[uuid] += 1
        if left[uuid]:
            heapq.heappush(queue, rank(uuid))
    return chosen


def _exclusive(
    free: Sequence[str],
    first: Sequence[str],
    needed: int,
    *,
    wanted: Collection[str],
    places: Mapping[str, Place],
) -> list[str]:
    asked = [each for each in free if each in wanted][:needed]
    chosen, rest = list(asked), _without(free, asked)
    beside = Counter(places[each][0] for each in (*first, *asked) if each in places)
    while len(chosen) < needed and rest:
        island = _island(rest, needed - len(chosen), beside, places)
        members = [each for each in rest if places.get(each, _NOWHERE)[0] == island]
        taken = _of_one_island(members, needed - len(chosen), places)
        chosen += taken
        rest = _without(rest, taken)
        beside[island] += len(taken)
    return chosen


def _without(ids: Sequence[str], gone: Sequence[str]) -> list[str]:
    left_out = frozenset(gone)
    return [each for each in ids if each not in left_out]


def _island(free: Sequence[str], needed: int, beside: Mapping[int, int], places: Mapping[str, Place]) -> int:
    """The island that has devices of this request; else the smallest that has enough; else the largest."""
    sizes = Counter(places.get(each, _NOWHERE)[0] for each in free)

    def rank(island: int) -> tuple[int, bool, int, int]:
        size = sizes[island]
        is_enough = size >= needed
        return -beside.get(island, 0), not is_enough, size if is_enough else -size, island

    return min(sizes, key=rank)


def _of_one_island(members: Sequence[str], needed: int, places: Mapping[str, Place]) -> list[str]:
    """Fill NUMA nodes: the smallest that has enough, or the largest first."""
    by_node: dict[int, list[str]] = {}
    for each in members:
        by_node.setdefault(places.get(each, _NOWHERE)[1], []).append(each)
    chosen: list[str] = []
    while by_node and len(chosen) < needed:
        missing = needed - len(chosen)
        enough = [node for node, each in by_node.items() if len(each) >= missing]
        node = min(enough or by_node, key=lambda one: (len(by_node[one]) * (1 if enough else -1), one))
        chosen += by_node.pop(node)[:missing]
    return chosen


@dataclass(frozen=True, slots=True)
class Remembered:
    """``health`` is of GPUs and slices, by UUID, of those that are not well. Times are of the machine's uptime.

    After a restart the plug-in has to know the GPUs that it had, and which of them were ill. That is kept where a
    reboot takes it away. Anything that can't be read is as nothing.
    """

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
    """All GPUs that are listed, as they are now, and those that were known before, by index.

    A GPU that the driver does not list any more stays in the list, as ill: kubelet calls a device that is not listed
    healthy in the statuses of pods that have it.
    """
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
        return Rules(settings.ignored_xids, settings.counted_xids, settings.healing_s * SECOND_NS)

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
