"""Which of the free devices kubelet is advised to take. A hint: kubelet chooses, and nothing rests on it.

Replicas: of distinct GPUs as far as they go, then by policy, as NVIDIA's plugin has it. Exclusive devices: those that
a waiting reservation is opened for; then devices that belong together, of the island that stays fullest.

What a container is given for the devices that kubelet chose, in each way that NVIDIA's device plugin has.

Source: NVIDIA device plugin v0.20, internal/plugin/server.go; Container Device Interface, annotations.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.plugin.resources import Device, is_replica, uuid_of
from nodeagent.core.plugin.settings import Delivery, IdStrategy, PluginSettings, Policy
from wire import names

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
