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

from gpu import container_devices as cdi_names
from gpu.container_devices import handed, quantity_text
from gpu.device_plugin import containers, plugin_resources
from gpu.dialects import kai
from gpu.dialects.settings import DialectSettings
from gpu.request import Ask, FractionAsk, GpuRequest, MemoryAsk, SharedAsk
from gpu.translation import GivenDevice, Mistake, Note, NoteCode, Refusal, Translation, Wishes, Written, shown
from wire import names
from wire.core import Pod
from wire.go import parse_float, parse_uint
from wire.quantity import LONGEST, NANO_PER_MIB, MalformedQuantity, parse_nano

_WRITTEN: Final = (names.NVFRACTIONS_DEVICES, names.NVFRACTIONS_COMPUTE_PORTION)
_KINDS: Final = (names.NVFRACTIONS_REQUEST, names.NVFRACTIONS_LIMIT, names.NVFRACTIONS_MODE)
MODES: Final = ("time-slicing", "sm-sharing")
_MOST_PLACES: Final = 5

Annotations = Mapping[str, str]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotations of one container say; memory in nano-bytes, 0 where nothing is said."""

    request_key: str = ""
    limit_key: str = ""
    mode_key: str = ""
    request_nano: int = 0
    limit_nano: int = 0
    mode: str = ""

    @property
    def field(self) -> str:
        """The annotation that asks for memory, the request before the limit."""
        return self.request_key or self.limit_key


def is_written(key: str) -> bool:
    """Whether only a Binding may write this annotation."""
    return key.startswith(names.NVFRACTIONS_PREFIX) and key.endswith(_WRITTEN)


def is_asked(key: str) -> bool:
    """Whether this annotation is a request of this form, well or badly written."""
    if key.startswith(names.NVFRACTIONS_PREFIX):
        return not is_written(key)
    return _is_portion_limit(key)


def read_all(annotations: Annotations) -> dict[str, Asked] | Refusal:
    """Read all of them, by the name of the container in order of names.

    They are ``nvidia.com/container.<name>.gpu-memory.request`` and the like. What KAI's binder writes under the same
    prefix is skipped: a pod that KAI has bound carries it, and reads as it did before.
    """
    found: dict[str, Asked] = {}
    for key in sorted(annotations):
        if not key.startswith(names.NVFRACTIONS_PREFIX) or is_written(key):
            continue
        kind = next((each for each in _KINDS if key.endswith(each)), "")
        container = key.removeprefix(names.NVFRACTIONS_PREFIX).removesuffix(kind)
        if not kind or not container:
            return _unknown_key(key, annotations[key])
        asked = _with(found.get(container, Asked()), key, kind, annotations[key])
        if isinstance(asked, Refusal):
            return asked
        found[container] = asked
    return found


def _with(asked: Asked, key: str, kind: str, text: str) -> Asked | Refusal:
    if kind == names.NVFRACTIONS_MODE:
        if text not in MODES:
            return _malformed(
                key, text, f"invalid NvFractions compute mode: {shown(text)}", "one of " + ", ".join(MODES)
            )
        return msgspec.structs.replace(asked, mode_key=key, mode=text)
    nano = _memory(text)
    if not nano:
        message = f"{key} annotation value must be a valid Kubernetes memory quantity greater than 0"
        return _malformed(key, text, message, 'bytes as a quantity above 0, such as "8Gi"')
    if kind == names.NVFRACTIONS_REQUEST:
        return msgspec.structs.replace(asked, request_key=key, request_nano=nano)
    return msgspec.structs.replace(asked, limit_key=key, limit_nano=nano)


def _memory(text: str) -> int:
    """Nano-bytes above 0, or 0 if that can't be."""
    try:
        return max(0, parse_nano(text))
    except MalformedQuantity:
        return 0


# --- a limit in parts of a device --------------------------------------------------------------------------------


def _is_portion_limit(key: str) -> bool:
    return key.startswith(names.PORTION_LIMIT_PREFIX) and key.endswith(names.PORTION_LIMIT)


def portion_limit(annotations: Annotations, target: str) -> int | Refusal:
    """Read the limit beside ``gpu-fraction`` in nano-GPU; 0 if there is none. ``target``: the fraction's container."""
    key = next((each for each in sorted(annotations) if _is_portion_limit(each)), "")
    if not key:
        return 0
    text, fraction = annotations[key], annotations.get(names.GPU_FRACTION, "")
    if not fraction:
        message = f"{key} annotation can only be used together with the {names.GPU_FRACTION} annotation"
        return _incomplete(key, text, message, f"beside {names.GPU_FRACTION}")
    refusal = _other_container(annotations, key, target) or _unsound(key, text, fraction)
    return refusal or parse_nano(text)


def _other_container(annotations: Annotations, key: str, target: str) -> Refusal | None:
    container = key.removeprefix(names.PORTION_LIMIT_PREFIX).removesuffix(names.PORTION_LIMIT)
    said = annotations.get(names.GPU_FRACTION_CONTAINER_NAME)
    if container == (target if said is None else said):
        return None
    message = f"{key} annotation container name {container} does not match the gpu-fraction target container"
    if said is not None:
        message = (
            f"{names.GPU_FRACTION_CONTAINER_NAME} annotation value {shown(said)} does not match container name "
            f"{container} in {key} annotation"
        )
    return Refusal(
        code=Mistake.CONFLICTING, field=key, value=shown(annotations[key]), message=message, allowed=f"{target}'s"
    )


def _unsound(key: str, text: str, fraction: str) -> Refusal | None:
    """What the limit itself may be. KAI counts digits after the point before it reads the number."""
    allowed = f"a decimal number above {names.GPU_FRACTION} and below 1, with at most {_MOST_PLACES} places"
    if len(text.partition(".")[2]) > _MOST_PLACES:
        places = f"{key} annotation value must have at most {_MOST_PLACES} digits after the decimal point"
        return _malformed(key, text, places, allowed)
    limit = _nano(text)
    if limit is None or not 0 < limit < 10**9:
        return _malformed(key, text, f"{key} annotation value must be a positive number smaller than 1.0", allowed)
    least = _nano(fraction)
    if least is not None and limit <= least:
        message = (
            f"{key} annotation value ({text}) must be greater than {names.GPU_FRACTION} annotation value "
            f"({shown(fraction)})"
        )
        return _malformed(key, text, message, allowed)
    return None


def _nano(text: str) -> int | None:
    """The number in nano, if Go's floats and Kubernetes' quantities both read it."""
    if len(text) > LONGEST or parse_float(text) is None:
        return None
    try:
        return parse_nano(text)
    except MalformedQuantity:
        return None


# --- refusals ----------------------------------------------------------------------------------------------------


def _unknown_key(key: str, text: str) -> Refusal:
    ends = ", ".join(f"<container>{kind}" for kind in _KINDS)
    message = f"invalid NvFractions annotation key: {shown(key)}"
    return _malformed(key, text, message, f"{names.NVFRACTIONS_PREFIX} and one of {ends}")


def _malformed(key: str, text: str, message: str, allowed: str) -> Refusal:
    return Refusal(code=Mistake.MALFORMED, field=shown(key), value=shown(text), message=message, allowed=allowed)


def _incomplete(key: str, text: str, message: str, allowed: str) -> Refusal:
    return Refusal(code=Mistake.INCOMPLETE, field=shown(key), value=shown(text), message=message, allowed=allowed)


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
