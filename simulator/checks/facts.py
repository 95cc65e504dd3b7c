"""API objects as the invariant checker reads them: plain JSON in, plain values out, by code of its own.

Nothing here is shared with the product (but for names on the wire), so an error in how the product reads a request
can't hide the same error in what checks it. A request is read leniently: what is malformed was to be refused, and if
it runs nevertheless it counts as having asked for nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

from wire import names

Json = Mapping[str, Any]

_SHARE_NAMES: Final = (names.GPU_FRACTION, names.GPU_MEMORY)
_ASKS: Final = (
    *_SHARE_NAMES,
    names.GPU_FRACTION_NUM_DEVICES,
    names.GPU_FRACTION_CONTAINER_NAME,
)
#: NvFractions' way to ask for a share, beside which KAI's number of devices and container's name count (F5).
_SHARE_OF_CONTAINER: Final = re.compile(r"nvidia\.com/container\..+\.gpu-memory\.(request|limit)")
#: What only the names of ConfigMaps have that hand devices to a container (kai-contract 1.5).
_HANDOVER: Final = "-shared-gpu-"
_MISSING: Final = re.compile(r"Missing required configmaps: \[(?P<names>[^\]]+)\].*", re.DOTALL)
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,20}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Ask:
    """What one container asked for: ``devices`` of them, ``fraction`` of each, or ``mem_mib`` of each, or whole."""

    devices: int
    fraction: Fraction | None = None
    mem_mib: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it asked for whole devices."""
        return self.fraction is None and self.mem_mib is None

    def charge(self, card_mib: int) -> Fraction:
        """Return the part of a card of ``card_mib`` that it may have."""
        if self.mem_mib is not None:
            return Fraction(self.mem_mib, card_mib)
        return Fraction(1) if self.fraction is None else self.fraction


@dataclass(frozen=True, slots=True)
class Granted:
    """One device of a bound pod, as its Binding says; ``reservation`` is a UID."""

    group: str
    reservation: str
    uuid: str
    nano: int
    resource: str = names.GPU_RESOURCE


class Charged(NamedTuple):
    """What a bound pod counts for, as its Binding says. ``is_fixed``: it can't be preempted."""

    queue: str
    is_fixed: bool
    pool: str | None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a waiting pod says of itself."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One version of a pod."""

    uid: str
    namespace: str
    name: str
    node: str
    phase: str
    scheduler: str
    labels: Json
    annotations: Json
    #: Container name -> what it asked, without the parts of devices that a record has (simulator/checks/shares.py).
    asks: Mapping[str, Ask]
    deleting: bool
    #: Whether a container asks for GPUs by means that are not simulated: claims, other vendors' names.
    has_other_gpus: bool
    #: This version as JSON.
    raw: Json = field(default_factory=dict, repr=False)
    #: Whether its maker named the node, so that nobody of us was asked.
    is_placed_by_hand: bool = False
    #: What it takes of a resource, by resource and unit, as far as somebody wanted to know (checks/ledgers.py).
    demands: dict[tuple[str, Fraction], int] = field(default_factory=dict, init=False, repr=False, compare=False)
    #: What it takes of its node, once somebody counted it (checks/ledgers.py); one at most.
    counted: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_reservation(self) -> bool:
        """Whether it holds a device for others."""
        app = self.labels.get(names.APP_LABEL)
        return self.namespace == names.RESERVATION_NAMESPACE and app == names.RESERVATION_APP

    @property
    def has_ended(self) -> bool:
        """Whether the API server shows it as ended."""
        return self.phase in names.ENDED_PHASES

    @property
    def groups(self) -> frozenset[str]:
        """GPU groups that its labels name."""
        prefixed = {v for k, v in self.labels.items() if k.startswith(names.MULTI_GPU_GROUP_LABEL_PREFIX)}
        plain = self.labels.get(names.GPU_GROUP_LABEL)
        return frozenset(prefixed | ({plain} if plain else set()))

    @property
    def promised(self) -> frozenset[str]:
        """UUIDs that its annotations hand to its containers."""
        values = [v for k, v in self.annotations.items() if k.startswith(names.VISIBLE_DEVICES_PREFIX)]
        uuids = (each.removeprefix(names.CDI_DEVICE_PREFIX) for value in values for each in value.split(","))
        return frozenset(uuid for uuid in uuids if uuid.startswith(("GPU-", "MIG-")))

    @property
    def told_uuid(self) -> str:
        """Of a reservation pod: the device that it holds, "" while it names none."""
        return str(self.annotations.get(names.RESERVE_FOR_GPU_INDEX) or "")

    @property
    def has_claimed_share(self) -> bool:
        """Whether a claim gives it its share: its containers get the device from a driver, and none by a variable."""
        status = (self.raw.get("status") or {}).get("extendedResourceClaimStatus") or {}
        return any(each["resourceName"] == names.GPU_SHARE_RESOURCE for each in status.get("requestMappings") or ())

    @property
    def mode(self) -> str:
        """In which mode it runs on devices, as its record says; "" for any."""
        said = _json(self.annotations.get(names.GPU_RECORD))
        wishes = said.get("wishes") if isinstance(said, dict) and said.get("dialect") != "kai" else None
        mode = wishes.get("mode") if isinstance(wishes, dict) else None
        return mode if isinstance(mode, str) else ""

    @property
    def dialect(self) -> str:
        """The system in whose words it asks, as its record says; "" for one without: KAI's older words, whole GPUs."""
        said = _json(self.annotations.get(names.GPU_RECORD))
        return str(said.get("dialect", "")) if isinstance(said, dict) else ""

    @property
    def attempt(self) -> str:
        """The attempt that bound it, as its grant says; "" if it has none."""
        grant = _json(self.annotations.get(names.GRANT))
        return str(grant.get("attempt", "")) if isinstance(grant, dict) else ""

    @property
    def charged(self) -> Charged | None:
        """What its Binding says that it counts for from then on; None where nothing readable says so."""
        said = _json(self.annotations.get(names.CHARGED)) if self.node else None
        if not isinstance(said, dict):
            return None
        return Charged(str(said.get("queue")), not said.get("preemptible"), said.get("pool"), said.get("priority"))

    @property
    def version(self) -> int:
        """Its resourceVersion."""
        return _count(self.raw["metadata"].get("resourceVersion"))

    @property
    def pod_group(self) -> str:
        """The PodGroup that it names, "" for none."""
        return str(self.annotations.get(names.POD_GROUP_NAME, ""))

    @property
    def asks_slices(self) -> bool:
        """Whether a container asks for whole MIG slices."""
        asked = (name for container in _containers(self.raw["spec"]) for name in _limits(container))
        return any(name.startswith(names.MIG_RESOURCE_PREFIX) for name in asked)

    @property
    def resource(self) -> str:
        """Of a reservation pod: what it asks of the device plugin."""
        asked = (name for c in _containers(self.raw["spec"]) for name in _limits(c))
        return next((name for name in asked if name.startswith(names.MIG_RESOURCE_PREFIX)), names.GPU_RESOURCE)

    @property
    def is_ours(self) -> bool:
        """Whether it is for us to place."""
        return self.scheduler == names.SCHEDULER_NAME

    @property
    def waits(self) -> bool:
        """Whether it is for us to place, and is not placed yet."""
        return self.is_ours and not self.node and not self.deleting and not self.has_ended

    @property
    def is_gated(self) -> bool:
        """Whether nobody may place it yet."""
        return bool(self.raw["spec"].get("schedulingGates"))

    @property
    def grants(self) -> tuple[Granted, ...]:
        """What its Binding says that it was given, device by device."""
        grant = _json(self.annotations.get(names.GRANT))
        devices = grant.get("devices") if isinstance(grant, dict) else None
        return tuple(
            Granted(
                str(d.get("group")),
                str(d.get("reservation")),
                str(d.get("uuid")),
                _count(d.get("nano")),
                str(d.get("resource", names.GPU_RESOURCE)),
            )
            for d in devices or ()
        )

    @property
    def lacks_config(self) -> bool:
        """Whether a container waits for a ConfigMap or a Secret that its user owes it.

        Of a pod with a share, the ConfigMaps that hand over its devices are ours to make.
        """
        status = self.raw.get("status") or {}
        statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
        waiting = [(each.get("state") or {}).get("waiting") or {} for each in statuses]
        lacking = [each.get("message", "") for each in waiting if each.get("reason") == "CreateContainerConfigError"]
        has_share = any(not ask.is_whole for ask in self.asks.values())
        return any(not (has_share and _HANDOVER in message) for message in lacking)

    @property
    def ill(self) -> frozenset[str]:
        """Devices of its containers that the device plugin calls unhealthy."""
        statuses = (self.raw.get("status") or {}).get("containerStatuses") or ()
        told = [each for status in statuses for each in status.get("allocatedResourcesStatus") or ()]
        devices = [device for each in told for device in each.get("resources") or ()]
        return frozenset(device["resourceID"] for device in devices if device.get("health") == "Unhealthy")

    @property
    def verdict(self) -> Verdict | None:
        """Why it waits, as its condition PodScheduled=False says; None if it says nothing."""
        for condition in (self.raw.get("status") or {}).get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return Verdict(condition.get("reason", ""), condition.get("message", ""))
        return None

    @property
    def book(self) -> Mapping[str, Fraction]:
        """Of a reservation pod: pod UID -> the share that its book holds for it."""
        book = _json(self.annotations.get(names.TENANTS))
        entries = book.items() if isinstance(book, dict) else ()
        return {uid: Fraction(_count(entry.get("nano")), 10**9) for uid, entry in entries if isinstance(entry, dict)}


def pod(raw: Json) -> PodFacts:
    """Read a pod."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    annotations = metadata.get("annotations") or {}
    return PodFacts(
        uid=metadata["uid"],
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "",
        scheduler=spec.get("schedulerName") or "",
        labels=metadata.get("labels") or {},
        annotations=annotations,
        asks=dict(_asks(spec, annotations)),
        deleting=bool(metadata.get("deletionTimestamp")),
        raw=raw,
        has_other_gpus=bool(spec.get("resourceClaims")) or asks_other_gpus(spec),
    )


def asks_other_gpus(spec: Json) -> bool:
    """Whether a container asks for GPUs by other vendors' names. That of a share by a claim is no such name."""
    return any(map(_is_other_gpu, _containers(spec)))


def is_handover(raw: Json) -> bool:
    """Whether a ConfigMap is one that hands devices to a container (kai-contract 1.5): ours, by its name."""
    return _HANDOVER in raw["metadata"]["name"]


def missing_config_maps(pod: PodFacts) -> list[str]:
    """ConfigMaps for which a pod says that it waits, and which its spec requires."""
    found = _MISSING.fullmatch(pod.verdict.message) if pod.verdict else None
    said = found["names"].split() if found else []
    required = {*_config_maps(pod.raw["spec"])} if said else set()
    return said if required.issuperset(said) else []


def _config_maps(spec: Json) -> Iterator[str]:
    """Names of ConfigMaps without which a container of a pod does not start."""
    for volume in spec.get("volumes") or ():
        sources = (volume, *((volume.get("projected") or {}).get("sources") or ()))
        yield from (each["configMap"].get("name", "") for each in sources if _is_required(each.get("configMap")))
    for container in _containers(spec):
        whole = [each.get("configMapRef") for each in container.get("envFrom") or ()]
        keys = [(each.get("valueFrom") or {}).get("configMapKeyRef") for each in container.get("env") or ()]
        yield from (each.get("name", "") for each in (*whole, *keys) if _is_required(each))


def _is_required(reference: Json | None) -> bool:
    return reference is not None and not reference.get("optional")


def _asks(spec: Json, annotations: Json) -> Iterator[tuple[str, Ask]]:
    if names.GPU_RECORD not in annotations and any(name in annotations for name in _SHARE_NAMES):
        target = _target(spec, annotations)
        ask = _share(annotations)
        if target and ask:
            yield target, ask
        return
    for container in _containers(spec):
        count = sum(_count(amount) for name, amount in _limits(container).items() if _is_device(name))
        if count:
            yield container["name"], Ask(count)


def _target(spec: Json, annotations: Json) -> str:
    """Return the name of the container that a share is for: the named one, else the first of its type."""
    inits = [container["name"] for container in spec.get("initContainers") or ()]
    regular = [container["name"] for container in spec.get("containers") or ()]
    wanted = annotations.get(names.GPU_FRACTION_CONTAINER_NAME)
    if wanted:
        return wanted if wanted in (*inits, *regular) else ""
    is_init = annotations.get(names.GPU_FRACTION_CONTAINER_TYPE) == names.CONTAINER_TYPE_INIT
    candidates = inits if is_init else regular
    return candidates[0] if candidates else ""


def problem(pod: PodFacts) -> tuple[str, str] | None:
    """Name an ask that nobody can grant as it is written, as (annotation, value); None for a sound pod (S11).

    Written from what the annotations mean (kai-contract 1.1), not from how the product reads them. What different
    readers take differently (``0x1p-1``, ``0_1``) is nobody's mistake here.
    """
    asked = {key: str(value) for key, value in pod.annotations.items() if key in _ASKS}
    spec = pod.raw["spec"]
    containers = {container["name"] for container in _containers(spec)}
    has_share = any(key in asked for key in _SHARE_NAMES) or any(map(_SHARE_OF_CONTAINER.fullmatch, pod.annotations))
    wrong = {
        names.GPU_FRACTION: lambda text: not _is_fraction(text),
        names.GPU_MEMORY: lambda text: not 0 < _count(text) < 2**64,
        names.GPU_FRACTION_NUM_DEVICES: lambda text: not (has_share and 0 < _count(text) < 2**64),
        names.GPU_FRACTION_CONTAINER_NAME: lambda text: has_share and text not in containers,
    }
    for key, text in asked.items():
        if wrong[key](text):
            return key, text
    has_whole = any(names.GPU_RESOURCE in _limits(container) for container in _containers(spec))
    kinds = [key for key in _SHARE_NAMES if key in asked] + ([names.GPU_RESOURCE] if has_whole else [])
    return (kinds[0], asked[kinds[0]]) if len(kinds) > 1 else None


def _is_fraction(text: str) -> bool:
    return _DECIMAL.fullmatch(text) is not None and 0 < Fraction(text) < 1


def _share(annotations: Json) -> Ask | None:
    devices = _count(annotations.get(names.GPU_FRACTION_NUM_DEVICES, "1"))
    if names.GPU_MEMORY in annotations:
        mem_mib = _count(annotations[names.GPU_MEMORY])
        return Ask(devices, mem_mib=mem_mib) if mem_mib else None
    try:
        fraction = Fraction(annotations[names.GPU_FRACTION])
    except (ValueError, ZeroDivisionError):
        return None
    return Ask(devices, fraction=fraction) if 0 < fraction < 1 else None


def _containers(spec: Json) -> Iterator[Json]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _limits(container: Json) -> Json:
    limits: Json = (container.get("resources") or {}).get("limits") or {}
    return limits


def _is_other_gpu(container: Json) -> bool:
    others = [name for name in _limits(container) if not _is_device(name) and name != names.GPU_SHARE_RESOURCE]
    return any("gpu" in name or name.startswith("nvidia.com/") for name in others)


def _is_device(resource: str) -> bool:
    return resource == names.GPU_RESOURCE or resource.startswith(names.MIG_RESOURCE_PREFIX)


def _count(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else 0


def _json(text: object) -> Any:
    """Read an annotation. What is returned is shared: it is not to be changed."""
    return _parsed(str(text)) if text else None


@lru_cache(maxsize=8192)
def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
