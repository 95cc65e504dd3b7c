"""KAI 0.18's per-container annotations, NvFractions (kai-contract 1.15; docs/reference/dialects.md, F1-F14).

They replace KAI's older annotations or are written beside them, so both are read here, in KAI's order and with its
words. A request of memory is read as the older form says the same, by kai.py. Ours, where KAI has no rule or no order:

- memory is whole MiB, request and limit rounded up;
- of several containers the first by name is named;
- a mode where no container of that name has a share means nothing, and is noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpu import cdi as cdi_names
from gpu.dialects import kai
from gpu.dialects.gofloat import parse_uint
from gpu.dialects.handed import handed, quantity_text
from gpu.dialects.nvannotations import MODES, Annotations, Asked, is_asked, portion_limit, read_all
from gpu.dialects.plugin import containers, plugin_resources
from gpu.dialects.settings import DialectSettings
from gpu.refusal import Mistake, Refusal, shown
from gpu.request import Ask, FractionAsk, GpuRequest, MemoryAsk, SharedAsk
from gpu.translation import GivenDevice, Note, NoteCode, Translation, Wishes, Written
from wire import names
from wire.core import Pod
from wire.quantity import NANO_PER_MIB

NAME: Final = "nvfractions"

_OLDER: Final = (names.GPU_FRACTION, names.GPU_MEMORY)


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether the pod has one of these annotations; those that only a Binding writes don't count."""
    return any(is_asked(key) for key in pod.metadata.annotations or ())


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read a pod that speaks this form, with KAI's older annotations beside it."""
    annotations = pod.metadata.annotations or {}
    limit_nano = portion_limit(annotations, pod.spec.containers[0].name if pod.spec.containers else "")
    if isinstance(limit_nano, Refusal):
        return limit_nano
    found = read_all(annotations)
    if isinstance(found, Refusal):
        return found
    if any(asked.field for asked in found.values()):
        return _by_memory(pod, found, settings)
    if not any(name in annotations for name in _OLDER) and names.GPU_FRACTION_NUM_DEVICES in annotations:
        return _count_alone(annotations)
    request = kai.translate(pod, sharing=settings.sharing)
    return request if isinstance(request, Refusal) else _translation(_limited(request, limit_nano=limit_nano), found)


def written_back(translation: Translation, given: Sequence[GivenDevice], *, cdi: bool = False) -> Written:
    """The devices of each container, and in MiB what was asked as a fraction, as KAI's binder tells the runtime.

    ``given``: a device for each of ``translation.request.shared``. ``cdi``: devices are named as CDI does.
    """
    annotations = {}
    for ref, devices in handed(translation.request, given):
        prefix, first = names.NVFRACTIONS_PREFIX + ref.name, devices[0]
        uuids = (each.device.uuid for each in devices)
        annotations[prefix + names.NVFRACTIONS_DEVICES] = cdi_names.listed(uuids, cdi=cdi)
        if isinstance(first.ask, FractionAsk):
            annotations[prefix + names.NVFRACTIONS_REQUEST] = quantity_text(first.mem_mib)
        if isinstance(first.ask, FractionAsk) and first.ask.limit_nano:
            annotations[prefix + names.NVFRACTIONS_LIMIT] = quantity_text(first.cap_mib)
    return Written(annotations=annotations)


def unwritten(pod: Pod, own: Translation) -> Pod:
    """The pod without what the Binding wrote of the fractions in its record, which reads like a request of memory.

    A copied spec of a bound pod bears it.
    """
    annotations = pod.metadata.annotations or {}
    fractions = [c.container.name for c in own.request.containers if any(isinstance(a, FractionAsk) for a in c.asks)]
    written = {
        names.NVFRACTIONS_PREFIX + name + suffix
        for name in fractions
        for suffix in (names.NVFRACTIONS_REQUEST, names.NVFRACTIONS_LIMIT)
    }
    if own.dialect != NAME or written.isdisjoint(annotations):
        return pod
    kept = {key: text for key, text in annotations.items() if key not in written}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept))


# --- a request of memory -----------------------------------------------------------------------------------------


def _by_memory(pod: Pod, found: Mapping[str, Asked], settings: DialectSettings) -> Translation | Refusal:
    """Memory asked in this form: in KAI's order, what can't stand together, then how many devices."""
    annotations = pod.metadata.annotations or {}
    refusal = (
        (None if settings.sharing else _disabled(pod, found))
        or _misplaced(pod, found)
        or _whole_beside(pod, found)
        or _beside_older(annotations, next(iter(found.values())))
    )
    if refusal is not None:
        return refusal
    container, asked = next(iter(found.items()))
    mem_mib = _mib_up(asked.request_nano or asked.limit_nano)
    request = kai.translate(_as_older(pod, container, mem_mib), sharing=settings.sharing)
    if isinstance(request, Refusal):
        return request
    translation = _translation(_limited(request, limit_mib=_mib_up(asked.limit_nano)), found)
    said = [name for name in _OLDER if annotations.get(name)]
    twice = tuple(Note(NoteCode.SAID_TWICE, name, shown(annotations[name]), asked.field) for name in said)
    return msgspec.structs.replace(translation, notes=(*twice, *translation.notes))


def _as_older(pod: Pod, container: str, mem_mib: int) -> Pod:
    """The same request in KAI's older form, whose other rules hold for both."""
    annotations = {
        name: text
        for name, text in (pod.metadata.annotations or {}).items()
        if name not in {names.GPU_FRACTION, names.GPU_FRACTION_CONTAINER_TYPE}
    }
    annotations |= {names.GPU_MEMORY: str(mem_mib), names.GPU_FRACTION_CONTAINER_NAME: container}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=metadata)


def _limited(request: GpuRequest, *, limit_nano: int = 0, limit_mib: int = 0) -> GpuRequest:
    """Put the cap on all shares, where it is above what is charged."""

    def capped(ask: Ask) -> Ask:
        if isinstance(ask, FractionAsk) and limit_nano > ask.nano:
            return msgspec.structs.replace(ask, limit_nano=limit_nano)
        if isinstance(ask, MemoryAsk) and limit_mib > ask.mem_mib:
            return msgspec.structs.replace(ask, limit_mib=limit_mib)
        return ask

    return GpuRequest(
        tuple(msgspec.structs.replace(c, asks=tuple(capped(ask) for ask in c.asks)) for c in request.containers)
    )


def _translation(request: GpuRequest, found: Mapping[str, Asked]) -> Translation:
    """Memory of shares is capped, and tenants of one card have one mode: time-slicing where none is said."""
    if not request.is_shared:
        return Translation(dialect=NAME, request=request, notes=_without_share(found, ()))
    sharing = [c.container.name for c in request.containers if any(isinstance(a, SharedAsk) for a in c.asks)]
    mode = next((found[name].mode for name in sharing if name in found and found[name].mode), MODES[0])
    return Translation(
        dialect=NAME,
        request=request,
        wishes=Wishes(memory_cap=True, mode=mode),
        notes=_without_share(found, sharing),
    )


def _without_share(found: Mapping[str, Asked], sharing: Sequence[str]) -> tuple[Note, ...]:
    return tuple(
        Note(NoteCode.NO_EFFECT, asked.mode_key, asked.mode) for name, asked in found.items() if name not in sharing
    )


def _mib_up(nano: int) -> int:
    return -(-nano // NANO_PER_MIB)


# --- refusals, in KAI's order ------------------------------------------------------------------------------------


def _misplaced(pod: Pod, found: Mapping[str, Asked]) -> Refusal | None:
    """Containers that are not there, limits below requests, more than one container, another one than is named."""
    annotations = pod.metadata.annotations or {}
    there = [ref.name for ref, _ in containers(pod.spec)]
    for name, asked in found.items():
        if name not in there:
            return _unknown(name, asked, there)
        if asked.limit_nano and asked.request_nano > asked.limit_nano:
            message = f"invalid fraction request for container {name}: request is greater than limit"
            return _conflict(annotations, asked.request_key, message=message, allowed=f"at most {asked.limit_key}")
    first = next(iter(found))
    if len(found) > 1:
        message = "currently, kai doesn't support multiple containers with fractional GPU requests"
        second = list(found.values())[1]
        return _conflict(
            annotations, second.field or second.mode_key, message=message, allowed="annotations of one container"
        )
    named = annotations.get(names.GPU_FRACTION_CONTAINER_NAME)
    if named is None or named == first:
        return None
    message = f"gpu-fraction-container-name annotation value {shown(named)} does not match container name {first}"
    return _conflict(annotations, names.GPU_FRACTION_CONTAINER_NAME, message=message, allowed=first)


def _unknown(name: str, asked: Asked, there: Sequence[str]) -> Refusal:
    message = f"container {shown(name)} not found in pod spec, but a fractional annotation referencing it was found"
    return Refusal(
        code=Mistake.UNKNOWN_CONTAINER,
        field=shown(asked.field or asked.mode_key),
        value=shown(name),
        message=message,
        allowed="one of " + ", ".join(there),
    )


def _whole_beside(pod: Pod, found: Mapping[str, Asked]) -> Refusal | None:
    if not any(names.GPU_RESOURCE in plugin_resources(container) for _, container in containers(pod.spec)):
        return None
    field = next(asked.field for asked in found.values() if asked.field)
    annotations = pod.metadata.annotations or {}
    message = "cannot have both GPU fraction request and whole GPU resource request/limit"
    return _conflict(annotations, field, message=message, allowed=f"either {field} or {names.GPU_RESOURCE}")


def _beside_older(annotations: Annotations, asked: Asked) -> Refusal | None:
    """A limit stands alone; a request may say again what ``gpu-memory`` says."""
    older = [name for name in _OLDER if annotations.get(name)]
    if asked.limit_key and older:
        message = (
            f"cannot combine {names.NVFRACTIONS_PREFIX} limit annotation with {names.GPU_FRACTION} or "
            f"{names.GPU_MEMORY} annotation"
        )
        allowed = f"{asked.limit_key} without {older[0]}"
        return _conflict(annotations, asked.limit_key, message=message, allowed=allowed)
    if len(older) > 1:
        message = "cannot request both gpu-fraction and GPU memory request"
        allowed = f"one of {names.GPU_FRACTION} and {names.GPU_MEMORY}"
        return _conflict(annotations, names.GPU_FRACTION, message=message, allowed=allowed)
    mem_mib = parse_uint(annotations.get(names.GPU_MEMORY, ""))
    if mem_mib and mem_mib * NANO_PER_MIB != asked.request_nano:
        text = annotations[asked.request_key]
        message = (
            f"NvFractions memory request ({shown(text)}) does not match {names.GPU_MEMORY} annotation value "
            f"({mem_mib} MiB)"
        )
        return _conflict(annotations, asked.request_key, message=message, allowed=f"{mem_mib}Mi")
    return None


def _count_alone(annotations: Annotations) -> Refusal:
    field = names.GPU_FRACTION_NUM_DEVICES
    return Refusal(
        code=Mistake.INCOMPLETE,
        field=field,
        value=shown(annotations[field]),
        message="cannot request multiple fractional devices without specifying fraction details (portion or memory)",
        allowed=f"beside {names.GPU_FRACTION}, {names.GPU_MEMORY} or a request of memory",
    )


def _disabled(pod: Pod, found: Mapping[str, Asked]) -> Refusal:
    message = (
        f"attempting to create a pod {pod.metadata.namespace}/{pod.metadata.name} with gpu sharing request, "
        "while GPU sharing is disabled"
    )
    field = next(asked.field for asked in found.values() if asked.field)
    value = shown((pod.metadata.annotations or {})[field])
    return Refusal(code=Mistake.DISABLED, field=shown(field), value=value, message=message, allowed="whole GPUs")


def _conflict(annotations: Annotations, field: str, *, message: str, allowed: str) -> Refusal:
    value = shown(annotations[field])
    return Refusal(code=Mistake.CONFLICTING, field=shown(field), value=value, message=message, allowed=allowed)
