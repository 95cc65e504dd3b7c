"""ClearML's requests beside the label: cards by index, counts of eighths, MIG slices as memory, image tags."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from gpu.dialects.assembly import Asks, taken_out, too_many_together
from gpu.dialects.plugin import MOST_DEVICES, amounts, containers, count_of, is_sidecar, plugin_resources, too_many
from gpu.dialects.seating import sit
from gpu.dialects.settings import ClearmlSettings
from gpu.refusal import Mistake, Refusal
from gpu.request import Ask, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import ResourceEdit
from wire import names
from wire.core import Container, PodSpec

#: A resource for each card, of eight slices (CFGI 1.3).
INDEXED_PREFIX: Final = "nvidia.com/gpu-"
SLICES: Final = 8

_INDEXED: Final = re.compile(re.escape(INDEXED_PREFIX) + r"(0|[1-9][0-9]{0,3})", re.ASCII)
_PSEUDO: Final = re.compile(r"clear\.ml/fraction(?:-[0-9]+)?", re.ASCII)
_IMAGE: Final = re.compile(r"(?:.*/)?clearml/fractional-gpu:[^:/@]*-([1-9][0-9]{0,3})gb(?:@.*)?", re.ASCII)
_PROFILE: Final = re.compile(r"[0-9]+g\.([1-9][0-9]{0,3})gb(?:[.+].*)?", re.ASCII)
_MIB_PER_GIB: Final = 1024


def is_own(name: str) -> bool:
    """Whether a resource is ClearML's alone."""
    return _INDEXED.fullmatch(name) is not None or is_pseudo(name)


def is_pseudo(name: str) -> bool:
    """Whether a limit is one that ClearML's agent takes out before it makes the pod."""
    return _PSEUDO.fullmatch(name) is not None


def is_gpu(name: str) -> bool:
    """Whether a limit says that its container wants a GPU."""
    return is_own(name) or name.startswith((names.GPU_RESOURCE, names.MIG_RESOURCE_PREFIX))


def by_image(spec: PodSpec) -> tuple[ContainerRef, int] | None:
    """The first container with an image of ClearML's and its GiB, in a pod of their form: host PIDs, no resources."""
    if not spec.host_pid or any(is_gpu(name) for _, container in containers(spec) for name in amounts(container)):
        return None
    for ref, container in containers(spec):
        if found := _IMAGE.fullmatch(container.image):
            return ref, int(found[1])
    return None


def claims(spec: PodSpec, settings: ClearmlSettings) -> bool:
    """Whether resources of the vendor's plugin are read as ClearML's."""
    resources = {name for _, container in containers(spec) for name in plugin_resources(container)}
    is_counted = settings.legacy_replicas > 0 and names.GPU_RESOURCE in resources
    return is_counted or (settings.mig_as_memory and any(_memory_gib(name) for name in resources))


def asks(spec: PodSpec, settings: ClearmlSettings) -> Asks | Refusal:
    """Read the forms that need no label."""
    image = by_image(spec) if settings.by_image_tag else None
    if image is not None:
        return {image[0]: (MemoryAsk(image[1] * _MIB_PER_GIB),)}
    pinned = indexed(spec)
    if isinstance(pinned, Refusal):
        return pinned
    found: dict[ContainerRef, tuple[Ask, ...]] = {}
    for ref, container in containers(spec):
        counted = _counted(ref, container, settings)
        if isinstance(counted, Refusal):
            return counted
        found[ref] = (*pinned.get(ref, ()), *counted)
    return found


def own_taken_out(spec: PodSpec) -> tuple[ResourceEdit, ...]:
    """Take out cards by index, and what only ClearML's agent understands: parts, which the API server refuses."""
    named = {name for _, container in containers(spec) for name in amounts(container)}
    return taken_out(spec, sorted(name for name in named if is_own(name)))


# --- cards by index (C11) ----------------------------------------------------------------------------------------


def indexed(spec: PodSpec) -> dict[ContainerRef, tuple[FractionAsk, ...]] | Refusal:
    """Read eighths of cards by index. Containers that name the same card sit on it together."""
    found: dict[ContainerRef, tuple[FractionAsk, ...]] = {}
    for ref, container in containers(spec):
        mine = _indexed_of(ref, container)
        if isinstance(mine, Refusal):
            return mine
        if mine:
            found[ref] = mine
    asked = Counter(ask.index for mine in found.values() for ask in mine)
    if (refusal := too_many_together(f"{INDEXED_PREFIX}N", asked.total())) is not None:
        return refusal
    seated = {
        ref: tuple(sit(ask, f"gpu-{ask.index}") if asked[ask.index] > 1 else ask for ask in mine)
        for ref, mine in found.items()
    }
    return _overfull(spec, seated) or seated


def _indexed_of(ref: ContainerRef, container: Container) -> tuple[FractionAsk, ...] | Refusal:
    mine: list[FractionAsk] = []
    for name in sorted(amounts(container)):
        match = _INDEXED.fullmatch(name)
        if match is None:
            continue
        count = count_of(ref, container, name)
        if isinstance(count, Refusal):
            return count
        if count > SLICES:
            return _too_much(f"{name} of container {ref.name}", count)
        if count:
            mine.append(FractionAsk(count * NANO_PER_DEVICE // SLICES, index=int(match[1])))
    return tuple(sorted(mine, key=lambda ask: ask.index))


def _overfull(spec: PodSpec, seated: Asks) -> Refusal | None:
    """Refuse more than a card of one index, as kubelet counts containers."""
    request = GpuRequest(
        tuple(ContainerRequest(ref, seated[ref], is_sidecar(ref, c)) for ref, c in containers(spec) if ref in seated)
    )
    for ask in request.shared:
        if isinstance(ask, FractionAsk) and ask.nano > NANO_PER_DEVICE:
            return _too_much(f"{INDEXED_PREFIX}{ask.index}", ask.nano * SLICES // NANO_PER_DEVICE)
    return None


def _too_much(field: str, count: int) -> Refusal:
    return Refusal(
        code=Mistake.MALFORMED,
        field=field,
        value=str(count),
        message=f"{field} is {count}: a GPU has {SLICES} slices",
        allowed=f"0 to {SLICES} in all containers of a pod together",
    )


# --- counts whose meaning depends on a setting (C9, C12) ---------------------------------------------------------


def _counted(ref: ContainerRef, container: Container, settings: ClearmlSettings) -> tuple[Ask, ...] | Refusal:
    found: tuple[Ask, ...] = ()
    for name in sorted(plugin_resources(container)):
        count = count_of(ref, container, name)
        if isinstance(count, Refusal):
            return count
        counted_as = _counted_as(name, settings)
        if counted_as is None:
            continue
        ask, each = counted_as
        if count % each:
            return Refusal(
                code=Mistake.MALFORMED,
                field=f"{name} of container {ref.name}",
                value=str(count),
                message=f"{name} of container {ref.name} counts {each} for a GPU, and {count} is no multiple of it",
                allowed=f"a multiple of {each}, or a share by the label of ClearML",
            )
        if count // each > MOST_DEVICES:
            return too_many(f"{name} of container {ref.name}", str(count))
        found += (ask,) * (count // each)
    return found


def _counted_as(name: str, settings: ClearmlSettings) -> tuple[Ask, int] | None:
    """What a resource of the vendor's plugin stands for, and how many of it; None: for itself."""
    if name == names.GPU_RESOURCE:
        return WholeAsk(), settings.legacy_replicas or 1
    if settings.mig_as_memory and (gib := _memory_gib(name)):
        return MemoryAsk(gib * _MIB_PER_GIB), 1
    return None


def slice_edits(spec: PodSpec, settings: ClearmlSettings) -> tuple[ResourceEdit, ...]:
    """Take out the MIG slices that are served as memory."""
    named = {name for _, container in containers(spec) for name in plugin_resources(container)}
    return taken_out(spec, sorted(name for name in named if settings.mig_as_memory and _memory_gib(name)))


def _memory_gib(resource: str) -> int:
    """GiB in the name of a MIG slice; 0 where it is none."""
    found = _PROFILE.fullmatch(resource.removeprefix(names.MIG_RESOURCE_PREFIX))
    return int(found[1]) if found and resource.startswith(names.MIG_RESOURCE_PREFIX) else 0
