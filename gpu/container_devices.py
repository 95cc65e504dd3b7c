"""Which devices will do for a request, and how the containers of a bound pod get theirs: amounts, names, ConfigMaps."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from gpu.request import ContainerKind, ContainerRef, FractionAsk, GpuRequest, SharedAsk
from gpu.share import mib_of_fraction
from gpu.translation import Cards, GivenDevice, Translation
from wire import names
from wire.api_groups import CdiSpec, ClusterPolicy


class Identity(msgspec.Struct, frozen=True, gc=False, order=True):
    """A device as its reservation tells it: NVML's UUID, and the N of ``/dev/nvidiaN`` (-1: not told)."""

    uuid: str
    index: int


class Pin(msgspec.Struct, frozen=True, gc=False):
    """Devices that will do: of this index (-1: any), one of ``uuids`` (none said: any), none of ``not_uuids``.

    A request names them by an index or by UUIDs of the pod (rows C11, H12, V8): the scheduler looks for such a device,
    and the binder compares the one that it was given.
    """

    index: int = -1
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        """Whether every device will do."""
        return self.index < 0 and not self.uuids and not self.not_uuids

    def takes(self, device: Identity) -> bool:
        """Whether this device will do."""
        if self.index not in {-1, device.index} or device.uuid in self.not_uuids:
            return False
        return not self.uuids or device.uuid in self.uuids


ANY_DEVICE: Final = Pin()


#: UUIDs in a hint: a pod may name more, and more devices a node has not.
_MOST_NAMED: Final = 64
_UUID: Final = re.compile(r"(?:GPU|MIG)-[A-Za-z0-9-]{1,76}")
_INDEX: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


def hint(pin: Pin) -> str:
    """Write which devices are wanted, for a device plug-in that may choose one; "" where none is named.

    A UUID counts before the index. What is left out costs a search that takes longer.
    """
    if pin.uuids:
        sound = [uuid for uuid in pin.uuids if _UUID.fullmatch(uuid) and uuid not in pin.not_uuids]
        return ",".join(sound[:_MOST_NAMED])
    return str(pin.index) if pin.index >= 0 else ""


def hinted(text: str) -> Pin:
    """Read a hint. Never raises: what is none names no device."""
    if _INDEX.fullmatch(text):
        return Pin(index=int(text))
    named = text.split(",", _MOST_NAMED)[:_MOST_NAMED]
    return Pin(uuids=tuple(uuid for uuid in named if _UUID.fullmatch(uuid)))


def pin(ask: SharedAsk, cards: Cards) -> Pin:
    """What one ask of a pod wants."""
    return Pin(ask.index, cards.uuids, cards.not_uuids)


def pins(taken: Translation) -> Sequence[Pin]:
    """What each of the devices of a request has to be, in the order of ``request.shared``."""
    return [pin(ask, taken.cards) for ask in taken.request.shared]


#: On a ClusterPolicy: the operator's version.
VERSION_LABEL: Final = "app.kubernetes.io/version"
#: From this one on ``spec.cdi.enabled`` alone says that CDI is on.
_ALONE: Final = (25, 10, 0)

#: Go's semantic versions: with a v; minor and patch may be left out, the rest then too; no number begins with a zero.
_NUMBER: Final = r"(0|[1-9][0-9]*)"
_VERSION: Final = re.compile(rf"v{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER}(-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)?)?")


class Cdi(enum.Enum):
    """Whether devices are named as CDI does (KAI's ``cdiEnabled``).

    Else containers get UUIDs (docs/cdi.md). Where NVIDIA's operator has CDI on, the runtime looks a bare UUID up among
    its default kind of devices, which need not have it; elsewhere it takes a CDI name for the UUID of no device. Either
    way a container with the wrong form does not start, and sees nothing.
    """

    #: As the ClusterPolicy says; without one they are not.
    AUTO = "auto"
    ON = "true"
    OFF = "false"


def is_on(policy: ClusterPolicy | None) -> bool:
    """Whether the operator has CDI on, by KAI's rule (kai-contract 1.11)."""
    spec = _spec(policy)
    if policy is None or not spec.enabled:
        return False
    return _says_all((policy.metadata.labels or {}).get(VERSION_LABEL, "")) or bool(spec.default)


def has_nri_plugin(policy: ClusterPolicy | None) -> bool:
    """Whether the operator hands devices over by its NRI plugin, which makes no runtime class. It needs CDI."""
    spec = _spec(policy)
    return bool(spec.enabled and spec.nri_plugin_enabled)


def listed(uuids: Iterable[str], *, cdi: bool, beside: Sequence[str] = ()) -> str:
    """The devices of a container as its runtime reads them. ``beside``: CDI names that it gets and that are no GPUs.

    Names of both forms are never mixed, so beside UUIDs those are left out. NVIDIA's toolkit in its mode ``auto``
    resolves CDI names only where all are such names. Of a mix it makes UUIDs and indices: it would look for a GPU
    called ``moorage.dev/view=...``, and refuse the container. In its mode ``cdi`` it looks a bare UUID up under its
    ``default-kind``, which need not be that of the device plug-in.

    Source: nvidia-container-toolkit, internal/modifier/cdi.go, internal/info/auto.go, internal/config/image.
    """
    if not cdi:
        return ",".join(uuids)
    return ",".join([*(names.CDI_DEVICE_PREFIX + uuid for uuid in uuids), *beside])


def _spec(policy: ClusterPolicy | None) -> CdiSpec:
    return (policy.spec.cdi if policy is not None and policy.spec is not None else None) or CdiSpec()


def _says_all(version: str) -> bool:
    """Whether an operator of this version looks at ``enabled`` only. What is no version is older than all."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return False
    number = tuple(int(part or 0) for part in found.groups()[:3])
    return number > _ALONE or (number == _ALONE and not found[4])


def container_suffix(container: ContainerRef) -> str:
    """KAI's key of a container: ``0`` for the first regular one, ``i1`` for the second init container."""
    kind = "" if container.kind is ContainerKind.REGULAR else container.kind.value
    return f"{kind}{container.index}"


def capabilities_name(prefix: str, container: ContainerRef) -> str:
    """Name of the ConfigMap that the container's env entries read.

    KAI hands devices to a container through two ConfigMaps (kai-contract 1.3, 1.5), which the binder creates. Their
    names are a prefix, which admission wrote into the annotation ``runai/shared-gpu-configmap``, and the container's
    place.
    """
    return f"{prefix}-{container_suffix(container)}"


def direct_env_name(capabilities: str) -> str:
    """Name of the ConfigMap that the container takes whole into its environment.

    It is normally empty.
    """
    return f"{capabilities}-evar"


def volume_name(capabilities: str) -> str:
    """Name of the volume that delays the kubelet until the ConfigMap exists: a DNS label, so without dots."""
    return f"{capabilities}-vol".replace(".", "-")


_SUFFIXES: Final = ("Mi", "Gi", "Ti", "Pi", "Ei")


class Handed(msgspec.Struct, frozen=True, gc=False):
    """One device of one container, and what the container asked of it."""

    ask: SharedAsk
    device: GivenDevice

    @property
    def mem_mib(self) -> int:
        """How much of its memory the container asked; parts of a card are floored."""
        if isinstance(self.ask, FractionAsk):
            return mib_of_fraction(self.ask.nano, self.device.mem_mib)
        return self.ask.mem_mib

    @property
    def cap_mib(self) -> int:
        """How much of its memory the container may use."""
        if isinstance(self.ask, FractionAsk):
            return mib_of_fraction(self.ask.limit_nano or self.ask.nano, self.device.mem_mib)
        return self.ask.limit_mib or self.ask.mem_mib


def handed(request: GpuRequest, given: Sequence[GivenDevice]) -> Iterator[tuple[ContainerRef, tuple[Handed, ...]]]:
    """Go through the containers that have shares. ``given`` is one device for each of ``request.shared``."""
    devices = request.devices()
    for container in request.containers:
        asks = [ask for ask in container.asks if isinstance(ask, SharedAsk)]
        if asks:
            places = devices[container.container]
            yield (
                container.container,
                tuple(Handed(ask, given[place]) for ask, place in zip(asks, places, strict=True)),
            )


def quantity_text(mem_mib: int) -> str:
    """Write MiB as Kubernetes writes such a quantity: with the largest suffix that leaves a whole number."""
    amount, place = mem_mib, 0
    while amount and amount % 1024 == 0 and place < len(_SUFFIXES) - 1:
        amount, place = amount // 1024, place + 1
    return f"{amount}{_SUFFIXES[place]}" if amount else "0"
