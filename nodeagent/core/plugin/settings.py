"""The settings of a device plug-in on one node, and the resources and devices that follow from it.

Settings are values, as read from its file and its environment, or what is wrong. Names of fields follow NVIDIA's file
``version: v1``; nodeagent/core/plugin/settings_file.py reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from typing_extensions import override

from nodeagent.core.devices import Card, Slice


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong. ``path`` names an entry, as in ``sharing.timeSlicing.resources[1].replicas``.

    ``is_unserved``: the file is right, and asks for something that this plug-in does not do.
    """

    path: str
    problem: str
    allowed: str
    is_unserved: bool = False

    @override
    def __str__(self) -> str:
        """In one line, for a log or an event."""
        return f"{self.path}: {self.problem}; allowed: {self.allowed}"


def shown(value: object) -> str:
    """A value of a file in at most 40 characters. Lists and objects are not written out."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = {True: "true", False: "false", None: "null"}[value] if isinstance(value, bool | None) else str(value)
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return repr(printable if len(printable) <= 40 else f"{printable[:37]}...")


#: Prefix of all resources that a device plug-in serves here.
PREFIX: Final = "nvidia.com/"
#: kubelet reads at most 4 MiB of a list of devices.
MOST_IDS: Final = 60_000


class MigStrategy(Enum):
    """How MIG slices are offered: not at all, as if they were GPUs, or under names of their own."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class Delivery(Enum):
    """How a container gets its devices. Several can be combined."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def is_cdi(self) -> bool:
        """Whether it names devices of a CDI file, which has to be there."""
        return self in {Delivery.CDI_ANNOTATIONS, Delivery.CDI_CRI}


class IdStrategy(Enum):
    """By which name a device is given to the container runtime."""

    UUID = "uuid"
    INDEX = "index"


class Policy(Enum):
    """Which replica kubelet is advised to take: of the GPU with the fewest in use, or with the most."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


class All(Enum):
    """Every device of a name."""

    ALL = "all"


class Auto(Enum):
    """One replica for each of these amounts of device memory, in MiB."""

    PER_GIB = 1024
    #: iktos' ``-1``.
    PER_1000_MIB = 1000


#: Every device, the first n of them, or these: an index, ``i:j`` (slice j of GPU i), or a UUID.
Devices = All | int | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Devices that are served under another name, several times, or both.

    ``name`` is the resource that they would have without this entry, ``rename`` the one that pods ask for. ``path`` is
    the place in the file. ``replicas`` of 1: exclusive.
    """

    path: str
    name: str
    rename: str
    replicas: int | Auto
    devices: Devices = All.ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """All settings of a device plug-in. Defaults are NVIDIA's."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    fail_on_init_error: bool = True
    driver_root: str = "/"
    #: "": the driver's root.
    dev_root: str = ""
    pass_device_specs: bool = False
    deliveries: frozenset[Delivery] = frozenset({Delivery.ENVVAR})
    id_strategy: IdStrategy = IdStrategy.UUID
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    ctk_path: str = "/usr/bin/nvidia-ctk"
    policy: Policy = Policy.DISTRIBUTED
    entries: tuple[Entry, ...] = ()
    fail_requests_greater_than_one: bool = False
    #: Of the section ``moorage``: UUIDs of GPUs that were taken out of the machine.
    gone: frozenset[str] = field(default_factory=frozenset)
    #: XIDs that are not counted, or are although they usually are not. None: all of them.
    ignored_xids: frozenset[int] | None = field(default_factory=frozenset)
    counted_xids: frozenset[int] | None = field(default_factory=frozenset)
    #: Seconds without a sign of illness before a device is offered again.
    healing_s: int = 60
    #: Whether the node gets the labels of GPU feature discovery.
    labels: bool = True


GPU: Final = f"{PREFIX}gpu"
_MIG: Final = f"{PREFIX}mig-"
_STRATEGY: Final = "flags.migStrategy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of a resource: a GPU or a MIG slice.

    ``replicas`` of 0: exclusive. ``index`` is what ``deviceIDStrategy: index`` calls it. ``minor`` is the N of
    /dev/nvidiaN of its GPU.

    It is either exclusive (offered once, by its plain UUID) or replicated, and never both under one name: a scheduler
    that counts whole devices of ``nvidia.com/gpu`` would give a replica to a pod that wants a GPU for itself.
    """

    uuid: str
    card: str
    index: str
    replicas: int = 0
    numa: int | None = None
    minor: int | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource and its devices."""

    name: str
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """All resources of a node, by name. ``notes`` say what of the file has no effect here, and why."""

    resources: tuple[Resource, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A device before sharing: the name that it has without an entry, and the index by which a file means it."""

    name: str
    seat: str
    device: Device
    mem_mib: int | None


def offer(
    settings: PluginSettings,
    cards: Sequence[Card],
    slices: Sequence[Slice],
    seats: Mapping[str, int] | None = None,
) -> Offer | tuple[Mistake, ...]:
    """Put settings on the GPUs of a machine, or say which entries can't be served. GPUs in ``gone`` are left out.

    ``seats``: the index by which the file means a GPU, where that is not the driver's of now.
    """
    there = [card for card in cards if card.uuid not in settings.gone]
    found = _machine(settings.mig_strategy, there, slices, seats or {})
    if isinstance(found, Mistake):
        return (found,)
    taken: dict[str, Entry] = {}
    notes, mistakes = _unused(settings.mig_strategy, there), []
    for entry in settings.entries:
        chosen = _chosen(entry, found)
        if not chosen:
            notes.append(f"{entry.path}: this node has no such device of {entry.name}")
        for one in chosen:
            if (other := taken.get(one.device.uuid)) is not None:
                mistakes.append(Mistake(entry.path, f"has {one.device.uuid}, as {other.path} has", "each device once"))
            taken[one.device.uuid] = entry
    served: dict[str, list[Device]] = {}
    for one in found:
        held = taken.get(one.device.uuid)
        count = 0 if held is None else _replicas(held, one)
        if count is None:
            notes.append(f"{held.path if held else ''}: the memory of {one.device.uuid} is not known, or too small")
            continue
        name = held.rename if held else one.name
        served.setdefault(name, []).append(_with(one.device, count))
    mistakes += _mixed(served, taken)
    if mistakes:
        return tuple(mistakes)
    return Offer(tuple(Resource(name, tuple(served[name])) for name in sorted(served)), tuple(notes))


def _machine(
    strategy: MigStrategy, cards: Sequence[Card], slices: Sequence[Slice], seats: Mapping[str, int]
) -> list[_Found] | Mistake:
    whole = [_card(card, seats) for card in cards if not card.has_mig]
    if strategy is MigStrategy.NONE:
        return whole
    by_uuid = {card.uuid: card for card in cards}
    parts = [(by_uuid[one.card], one) for one in slices if one.card in by_uuid]
    if strategy is MigStrategy.MIXED:
        named = (_part(f"{_MIG}{one.profile.replace('+', '.')}", card, one, seats) for card, one in parts)
        return [*whole, *named]
    profiles = {one.profile for _, one in parts}
    if parts and (whole or len(profiles) > 1):
        kinds = [*(["whole GPUs"] if whole else []), *sorted(profiles)]
        return Mistake(_STRATEGY, f"single, and this node has {', '.join(kinds)}", "mixed, or slices of one profile")
    return [*whole, *(_part(GPU, card, one, seats) for card, one in parts)]


def _card(card: Card, seats: Mapping[str, int]) -> _Found:
    device = Device(uuid=card.uuid, card=card.uuid, index=str(card.index), numa=card.numa, minor=card.minor)
    return _Found(name=GPU, seat=str(seats.get(card.uuid, card.index)), device=device, mem_mib=card.mem_mib)


def _part(name: str, card: Card, one: Slice, seats: Mapping[str, int]) -> _Found:
    index = f"{card.index}:{one.place}"
    device = Device(uuid=one.uuid, card=card.uuid, index=index, numa=card.numa, minor=card.minor)
    seat = f"{seats.get(card.uuid, card.index)}:{one.place}"
    return _Found(name=name, seat=seat, device=device, mem_mib=one.mem_mib)


def _unused(strategy: MigStrategy, cards: Sequence[Card]) -> list[str]:
    if strategy is not MigStrategy.NONE:
        return []
    return [f"{_STRATEGY} is none: {card.uuid} is in MIG mode and is not offered" for card in cards if card.has_mig]


def _chosen(entry: Entry, found: Sequence[_Found]) -> list[_Found]:
    named = [one for one in found if one.name == entry.name]
    if entry.devices is All.ALL:
        return named
    if isinstance(entry.devices, int):
        return named[: entry.devices]
    wanted = frozenset(entry.devices)
    return [one for one in named if one.device.uuid in wanted or one.seat in wanted]


def _replicas(entry: Entry, one: _Found) -> int | None:
    """How many replicas; 0 for an exclusive device. None: by memory, of which there is not enough, or nobody knows."""
    if isinstance(entry.replicas, Auto):
        return (one.mem_mib or 0) // entry.replicas.value or None
    return entry.replicas if entry.replicas > 1 else 0


def _with(device: Device, replicas: int) -> Device:
    return Device(
        uuid=device.uuid,
        card=device.card,
        index=device.index,
        replicas=replicas,
        numa=device.numa,
        minor=device.minor,
    )


def _mixed(served: dict[str, list[Device]], taken: dict[str, Entry]) -> Iterator[Mistake]:
    """Name the entries by which a resource has exclusive and replicated devices, or too many ids."""
    for name, devices in served.items():
        entries = [taken[one.uuid] for one in devices if one.uuid in taken]
        path = entries[0].path if entries else _STRATEGY
        if len({one.replicas > 0 for one in devices}) > 1:
            shared = next(taken[one.uuid] for one in devices if one.replicas)
            yield Mistake(shared.path, f"shares some devices of {name} and not others", f"{shared.path}.rename")
        if (ids := sum(max(1, one.replicas) for one in devices)) > MOST_IDS:
            yield Mistake(path, f"makes {ids} devices of {name}", f"at most {MOST_IDS}")


_REPLICA: Final = "::"


def ids(device: Device) -> Iterator[str]:
    """``UUID`` of an exclusive device, ``UUID::0`` and so on of a replicated one.

    They are those of NVIDIA's device plugin. So one plug-in can take the place of the other while pods run: kubelet's
    checkpoint of devices stays true.
    """
    if not device.replicas:
        yield device.uuid
    for number in range(device.replicas):
        yield f"{device.uuid}{_REPLICA}{number}"


def uuid_of(device_id: str) -> str:
    """The device of an id."""
    return device_id.partition(_REPLICA)[0]


def is_replica(device_id: str) -> bool:
    """Whether an id is one of several of its device."""
    return _REPLICA in device_id


def by_id(resource: Resource) -> Mapping[str, Device]:
    """Each id of a resource and its device, in the order in which they are listed."""
    return {each: device for device in resource.devices for each in ids(device)}


def listed(resource: Resource, ill: Collection[str]) -> Iterator[tuple[str, bool, int | None]]:
    """Each id, whether it is healthy, and its NUMA node. ``ill``: UUIDs of GPUs and slices.

    All replicas of a device change together, and slices with their GPU.
    """
    for device in resource.devices:
        is_well = device.uuid not in ill and device.card not in ill
        for each in ids(device):
            yield each, is_well, device.numa
