"""ClearML's dialect: CFGI in its three generations, MIG by CDMO, images with memory in the tag (rows C1-C14).

A pod asks by the label, or without it by cards by index, counts of eighths, MIG slices as memory, or image tags. Queue
limits, and labels that count for them, are no requests for devices (C14).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from gpu.colocation import sit
from gpu.device_plugin import (
    MOST_DEVICES,
    Asks,
    amounts,
    assembled,
    containers,
    count_of,
    is_sidecar,
    plugin_resources,
    taken_out,
    too_many,
    too_many_together,
)
from gpu.dialects.settings import ClearmlSettings, DialectSettings
from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import (
    EnvEdit,
    GivenDevice,
    Mistake,
    Note,
    NoteCode,
    Refusal,
    ResourceEdit,
    Translation,
    Wishes,
    Written,
    shown,
)
from wire import names
from wire.core import Container, Pod, PodSpec

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


def claims_by_resources(spec: PodSpec, settings: ClearmlSettings) -> bool:
    """Whether resources of the vendor's plugin are read as ClearML's."""
    resources = {name for _, container in containers(spec) for name in plugin_resources(container)}
    is_counted = settings.legacy_replicas > 0 and names.GPU_RESOURCE in resources
    return is_counted or (settings.mig_as_memory and any(_memory_gib(name) for name in resources))


def resource_asks(spec: PodSpec, settings: ClearmlSettings) -> Asks | Refusal:
    """Read the forms that need no label."""
    image = by_image(spec) if settings.by_image_tag else None
    if image is not None:
        return {image[0]: (MemoryAsk(image[1] * _MIB_PER_GIB),)}
    pinned = asks_by_index(spec)
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


def asks_by_index(spec: PodSpec) -> dict[ContainerRef, tuple[FractionAsk, ...]] | Refusal:
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


LABEL: Final = "clearml-injector/fraction"

#: Parts of a device: the sixteenth and the eighths. From a device on only whole numbers are allowed.
_SIXTEENTH: Final = Fraction(1, 16)
_SHARES: Final = (_SIXTEENTH, *(Fraction(eighths, 8) for eighths in range(1, 8)))
_DECIMAL: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
#: Of a label's value, by the API server.
_LONGEST: Final = 63
_ALLOWED: Final = (
    f"one of 0.0625, 0.125, 0.250, 0.375, 0.500, 0.625, 0.750, 0.875, or whole GPUs from 1 to {MOST_DEVICES}"
)


class Labelled(msgspec.Struct, frozen=True, gc=False):
    """The container that the label is for, and what it gets."""

    container: ContainerRef
    asks: tuple[Ask, ...]
    notes: tuple[Note, ...]


class _Share(msgspec.Struct, frozen=True, gc=False):
    """What the label says: a part of one device, or a number of devices."""

    value: Fraction
    text: str
    notes: tuple[Note, ...] = ()

    @property
    def asks(self) -> tuple[Ask, ...]:
        if self.value.denominator == 1:
            return (WholeAsk(),) * self.value.numerator
        return (FractionAsk(NANO_PER_DEVICE * self.value.numerator // self.value.denominator),)

    @property
    def eighths(self) -> int:
        """How many of the origin's slices that takes: a sixteenth takes one."""
        return -(-self.value.numerator * 8 // self.value.denominator)


def labelled(spec: PodSpec, text: str, settings: ClearmlSettings) -> Labelled | Refusal:
    """Read ClearML's label (rows C1-C8, C10), and the limits beside it.

    The injector that reads it at the origin is closed; two choices are ours, where nothing is known:

    - the label is for the first regular container that names a GPU in any way, else for the first one;
    - its value is a plain decimal without sign or exponent, and compared exactly.
    """
    share = _share(text, settings)
    if isinstance(share, Refusal):
        return share
    target = _target(spec)
    if target is None:
        return Refusal(
            code=Mistake.UNKNOWN_CONTAINER,
            field="spec.containers",
            value="",
            message=f"label {LABEL}: the pod has no container",
            allowed="a pod with at least one container",
        )
    asks = _pinned(spec, target[0], share)
    if isinstance(asks, Refusal):
        return asks
    remarks = _dropped_count(*target, share)
    return remarks if isinstance(remarks, Refusal) else Labelled(target[0], asks, (*share.notes, *remarks))


def _share(text: str, settings: ClearmlSettings) -> _Share | Refusal:
    """Read the label's value. Exact: 0.1249999999 is not an eighth."""
    return _read(text, settings) if len(text) <= _LONGEST else _bad_share(text, "must be a positive number")


# A dozen values are in use; fractions take a third of a pod's time.
@lru_cache(maxsize=64)
def _read(text: str, settings: ClearmlSettings) -> _Share | Refusal:
    number = Fraction(text) if _DECIMAL.fullmatch(text) else Fraction(0)
    if number == 0:
        return _bad_share(text, "must be a positive number")
    return _part(number, text, settings) if number < 1 else _whole(number, text)


def _whole(number: Fraction, text: str) -> _Share | Refusal:
    if number.denominator != 1:
        return _bad_share(text, "must be a whole number above 1: parts of a GPU are not added to whole ones")
    return _Share(number, text) if number <= MOST_DEVICES else too_many(f"label {LABEL}", text)


def _part(number: Fraction, text: str, settings: ClearmlSettings) -> _Share | Refusal:
    if number == _SIXTEENTH and settings.sixteenth_as_eighth:
        return _rounded(text, Fraction(1, 8))
    if number in _SHARES:
        return _Share(number, text)
    if settings.round_up:
        return _rounded(text, next((share for share in _SHARES if share > number), Fraction(1)))
    return _bad_share(text, "is not a share that CFGI has")


def _rounded(text: str, value: Fraction) -> _Share:
    note = Note(NoteCode.ROUNDED_UP, LABEL, text, decimal(int(value * NANO_PER_DEVICE)))
    return _Share(value, text, (note,))


def _bad_share(text: str, rule: str) -> Refusal:
    return Refusal(
        code=Mistake.MALFORMED,
        field=f"label {LABEL}",
        value=shown(text),
        message=f"label {LABEL} {rule}, it is {shown(text) or 'empty'}",
        allowed=_ALLOWED,
    )


def _target(spec: PodSpec) -> tuple[ContainerRef, Container] | None:
    """The container that gets the label's share."""
    regular = [(ref, container) for ref, container in containers(spec) if ref.kind is ContainerKind.REGULAR]
    asking = (pair for pair in regular if any(is_gpu(name) for name in amounts(pair[1])))
    return next(asking, regular[0] if regular else None)


def _dropped_count(ref: ContainerRef, container: Container, share: _Share) -> tuple[Note, ...] | Refusal:
    """What the count of GPUs beside the label is worth: nothing, and it should be eight for each GPU (C8, C10)."""
    count = count_of(ref, container, names.GPU_RESOURCE)
    if isinstance(count, Refusal):
        return count
    if count in {0, sum(isinstance(ask, WholeAsk) for ask in share.asks)}:
        return ()
    field = f"{names.GPU_RESOURCE} of container {ref.name}"
    dropped = Note(NoteCode.COUNT_DROPPED, field, str(count), share.text)
    is_first_generation = count == 1 and any(is_pseudo(name) for name in amounts(container))
    if count == share.eighths or is_first_generation:
        return (dropped,)
    return (dropped, Note(NoteCode.COUNT_DIFFERS, field, str(count), str(share.eighths)))


def _pinned(spec: PodSpec, ref: ContainerRef, share: _Share) -> tuple[Ask, ...] | Refusal:
    """The label's asks, on the cards that the injector has put into the limits already; they have to agree."""
    indexed = asks_by_index(spec)
    if isinstance(indexed, Refusal):
        return indexed
    if not indexed:
        return share.asks
    eighths = [ask.nano * 8 // NANO_PER_DEVICE for asks in indexed.values() for ask in asks]
    one_each = [share.eighths] if share.value < 1 else [8] * share.value.numerator
    if set(indexed) != {ref} or eighths != one_each:
        return Refusal(
            code=Mistake.CONFLICTING,
            field=f"label {LABEL}",
            value=share.text,
            message=f"label {LABEL} {share.text} and {INDEXED_PREFIX}<index> say different shares",
            allowed=f"{share.eighths} of one {INDEXED_PREFIX}<index> in container {ref.name}, or none of them",
        )
    nano = min(NANO_PER_DEVICE, int(share.value * NANO_PER_DEVICE))
    return tuple(msgspec.structs.replace(ask, nano=nano) for ask in indexed[ref])


def decimal(nano: int) -> str:
    """Write a share with at least three places, as ClearML does, and exactly."""
    whole, rest = divmod(nano, NANO_PER_DEVICE)
    places = f"{rest:09d}"
    return f"{whole}.{places[:3]}{places[3:].rstrip('0')}"


NAME: Final = "clearml"
ENV_FRACTIONS: Final = "CLEARML_AGENT_GPU_FRACTIONS"


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether the pod carries the label, a resource of ClearML's, or an image of theirs where those are requests."""
    if LABEL in (pod.metadata.labels or {}):
        return True
    if any(is_own(name) for _, container in containers(pod.spec) for name in amounts(container)):
        return True
    return settings.clearml.by_image_tag and by_image(pod.spec) is not None


def claims(pod: Pod, settings: DialectSettings) -> bool:
    """Whether counts of the vendor's own resources are ClearML's here, where nobody else speaks (C9, C12)."""
    return claims_by_resources(pod.spec, settings.clearml)


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read the label, or else resources and images."""
    text = (pod.metadata.labels or {}).get(LABEL)
    if text is not None:
        return _by_label(pod.spec, text, settings.clearml)
    pseudo = next((edit for edit in own_taken_out(pod.spec) if is_pseudo(edit.resource)), None)
    return _label_missing(pseudo) if pseudo else _by_resources(pod.spec, settings.clearml)


def _by_label(spec: PodSpec, text: str, settings: ClearmlSettings) -> Translation | Refusal:
    found = labelled(spec, text, settings)
    if isinstance(found, Refusal):
        return found
    ref = found.container
    made = assembled(spec, {ref: found.asks}, key=f"label {LABEL}", owned=(ref,))
    if isinstance(made, Refusal):
        return made
    is_shared = made.request.is_shared
    return Translation(
        dialect=NAME,
        request=made.request,
        strategy="binpack" if is_shared else "",
        wishes=Wishes(memory_cap=is_shared),
        notes=found.notes,
        edits=(*made.edits, *own_taken_out(spec)),
        env=tuple(_reported(made.request)),
    )


def _label_missing(pseudo: ResourceEdit) -> Refusal:
    return Refusal(
        code=Mistake.INCOMPLETE,
        field=f"{pseudo.resource} of container {pseudo.container.name}",
        value="",
        message=f"{pseudo.resource} means something only beside the label {LABEL}",
        allowed=f"beside the label {LABEL}",
    )


def _by_resources(spec: PodSpec, settings: ClearmlSettings) -> Translation | Refusal:
    asks = resource_asks(spec, settings)
    if isinstance(asks, Refusal):
        return asks
    everywhere = [ref for ref, _ in containers(spec)]
    edits = slice_edits(spec, settings)
    replaced = {(edit.container, edit.resource) for edit in edits}
    made = assembled(spec, asks, key=f"{INDEXED_PREFIX}<index>", owned=everywhere, replaced=replaced)
    if isinstance(made, Refusal):
        return made
    is_shared = made.request.is_shared
    caps_itself = settings.by_image_tag and by_image(spec) is not None
    return Translation(
        dialect=NAME,
        request=made.request,
        strategy="binpack" if is_shared else "",
        wishes=Wishes(memory_cap=is_shared and not caps_itself),
        edits=(*made.edits, *edits, *own_taken_out(spec)),
        env=tuple(_reported(made.request)),
    )


def written_back(translation: Translation, given: Sequence[GivenDevice]) -> Written:
    """Nothing: what ClearML's agent reports of itself is known when the pod comes, and set by admission."""
    del translation, given
    return Written()


def _reported(request: GpuRequest) -> Iterator[EnvEdit]:
    """The share of each container as its agent reads it: 1.000 for whole GPUs however many (C4)."""
    for asking in request.containers:
        parts = [decimal(ask.nano) for ask in asking.asks if isinstance(ask, FractionAsk)]
        if asking.whole:
            parts.append(decimal(NANO_PER_DEVICE))
        if parts:
            yield EnvEdit(asking.container, ENV_FRACTIONS, ",".join(parts))
