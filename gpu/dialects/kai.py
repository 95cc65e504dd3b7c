"""KAI's dialect: shares by annotation, whole GPUs and MIG slices by resource (kai-contract 1.1-1.4, 1.11, erratum 1).

Refusals have KAI's words and come in KAI's order, the unknown container first. Three rules are ours, where KAI has none
or is unclear:

- at most ``MOST_DEVICES`` per container (KAI takes any 64-bit number, and such a pod waits for ever);
- a fraction is charged exactly, in nano-GPU rounded up, from at most ``LONGEST`` characters. Whether it is inside of
  (0, 1) is judged on the 64-bit float, as KAI does, so one just below 1 may be charged a whole device;
- ``gpu-fraction-container-type``, which newer versions ignore: ``InitContainer`` without a name means the first init
  container, and beside a name either type says in which list it is looked up. Other values mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpu.device_plugin import MOST_DEVICES, containers, is_sidecar, plugin_asks, plugin_resources, too_many
from gpu.request import (
    NO_GPU,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    SharedAsk,
)
from gpu.translation import Mistake, Refusal, shown
from wire import names
from wire.core import Pod, PodSpec
from wire.go import parse_float, parse_uint
from wire.quantity import LONGEST, MalformedQuantity, parse_nano

_SHARE_ANNOTATIONS: Final = (names.GPU_FRACTION, names.GPU_MEMORY)
_FRACTION_ALLOWED: Final = (
    f'a decimal number above 0 and below 1, such as "0.5" or "5e-1", in at most {LONGEST} characters'
)

Annotations = Mapping[str, str]


def translate(pod: Pod, *, sharing: bool = True) -> GpuRequest | Refusal:
    """Read what the pod asks, or say what is wrong with it. ``sharing`` off refuses every share, as KAI's setting."""
    annotations = pod.metadata.annotations or {}
    if not any(name in annotations for name in _SHARE_ANNOTATIONS):
        return _misplaced(annotations) or _together(pod.spec, shared=None)
    target = _target(annotations, pod.spec)
    if isinstance(target, Refusal):
        return target
    refusal = (None if sharing else _sharing_disabled(pod)) or _conflict(annotations, pod.spec)
    if refusal is not None:
        return refusal
    asks = _asks(annotations)
    return asks if isinstance(asks, Refusal) else _together(pod.spec, shared=(target, asks))


def _together(spec: PodSpec, *, shared: tuple[ContainerRef, tuple[SharedAsk, ...]] | None) -> GpuRequest | Refusal:
    """Put the one container's shares beside what all containers ask of the device plugin."""
    requests = []
    for ref, container in containers(spec):
        asked = plugin_asks(ref, container)
        if isinstance(asked, Refusal):
            return asked
        shares = shared[1] if shared is not None and shared[0] == ref else ()
        if shares or asked:
            requests.append(ContainerRequest(ref, (*shares, *asked), is_sidecar(ref, container)))
    return GpuRequest(tuple(requests)) if requests else NO_GPU


def _mps_asked(annotations: Annotations) -> bool:
    return annotations.get(names.MPS) == "true"


# --- what can't stand together (messages 1 to 5) -----------------------------------------------------------------


def _sharing_disabled(pod: Pod) -> Refusal:
    annotations = pod.metadata.annotations or {}
    field = next(name for name in _SHARE_ANNOTATIONS if name in annotations)
    return Refusal(
        code=Mistake.DISABLED,
        field=field,
        value=shown(annotations[field]),
        message=f"attempting to create a pod {pod.metadata.namespace}/{pod.metadata.name} with gpu sharing request, "
        "while GPU sharing is disabled",
        allowed="whole GPUs",
    )


def _misplaced(annotations: Annotations) -> Refusal | None:
    """What makes sense only beside a share."""
    if _mps_asked(annotations):
        return Refusal(
            code=Mistake.INCOMPLETE,
            field=names.MPS,
            value="true",
            message="MPS is only supported with GPU fraction request",
            allowed=f"beside {names.GPU_FRACTION} or {names.GPU_MEMORY}",
        )
    if names.GPU_FRACTION_NUM_DEVICES in annotations:
        return Refusal(
            code=Mistake.INCOMPLETE,
            field=names.GPU_FRACTION_NUM_DEVICES,
            value=shown(annotations[names.GPU_FRACTION_NUM_DEVICES]),
            message="cannot request multiple fractional devices without specifying fraction portion or gpu-memory",
            allowed=f"beside {names.GPU_FRACTION} or {names.GPU_MEMORY}",
        )
    return None


def _conflict(annotations: Annotations, spec: PodSpec) -> Refusal | None:
    """A share beside another request. The mere presence of ``nvidia.com/gpu`` counts, also of 0, as KAI has it."""
    has_whole = any(names.GPU_RESOURCE in plugin_resources(container) for _, container in containers(spec))
    if names.GPU_FRACTION in annotations and has_whole:
        return Refusal(
            code=Mistake.CONFLICTING,
            field=names.GPU_FRACTION,
            value=shown(annotations[names.GPU_FRACTION]),
            message="cannot have both GPU fraction request and whole GPU resource request/limit",
            allowed=f"either {names.GPU_FRACTION} or {names.GPU_RESOURCE}",
        )
    if names.GPU_MEMORY in annotations and (names.GPU_FRACTION in annotations or has_whole):
        return Refusal(
            code=Mistake.CONFLICTING,
            field=names.GPU_MEMORY,
            value=shown(annotations[names.GPU_MEMORY]),
            message="cannot request both GPU and GPU memory",
            allowed=f"one of {names.GPU_FRACTION}, {names.GPU_MEMORY} and {names.GPU_RESOURCE}",
        )
    return None


# --- values of annotations (messages 6 to 9) ---------------------------------------------------------------------


def _asks(annotations: Annotations) -> tuple[SharedAsk, ...] | Refusal:
    """The same of each device; exactly one of the two annotations is there."""
    if names.GPU_MEMORY in annotations:
        ask: SharedAsk | Refusal = _memory(annotations[names.GPU_MEMORY])
    else:
        ask = _fraction(annotations[names.GPU_FRACTION])
    if isinstance(ask, Refusal):
        return ask
    devices = _devices(annotations)
    return devices if isinstance(devices, Refusal) else (ask,) * devices


def _memory(text: str) -> MemoryAsk | Refusal:
    mem_mib = parse_uint(text)
    if mem_mib:
        return MemoryAsk(mem_mib)
    return Refusal(
        code=Mistake.MALFORMED,
        field=names.GPU_MEMORY,
        value=shown(text),
        message="gpu-memory annotation value must be a positive integer greater than 0",
        allowed="MiB as a positive integer below 2^64, in decimal digits only",
    )


def _fraction(text: str) -> FractionAsk | Refusal:
    """NaN is neither too small nor too large, so it falls through to the second refusal, as in KAI."""
    number = parse_float(text) if len(text) <= LONGEST else None
    if number is None or number <= 0 or number >= 1:
        return _bad_fraction(text, "gpu-fraction annotation value must be a positive number smaller than 1.0")
    try:
        return FractionAsk(parse_nano(text))
    except MalformedQuantity:
        message = (
            "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation "
            f".given value: {shown(text)}"
        )
        return _bad_fraction(text, message)


def _bad_fraction(text: str, message: str) -> Refusal:
    return Refusal(
        code=Mistake.MALFORMED,
        field=names.GPU_FRACTION,
        value=shown(text),
        message=message,
        allowed=_FRACTION_ALLOWED,
    )


def _devices(annotations: Annotations) -> int | Refusal:
    text = annotations.get(names.GPU_FRACTION_NUM_DEVICES, "1")
    count = parse_uint(text)
    if not count:
        return Refusal(
            code=Mistake.MALFORMED,
            field=names.GPU_FRACTION_NUM_DEVICES,
            value=shown(text),
            message="fraction count annotation value must be a positive integer greater than 0",
            allowed=f"1 to {MOST_DEVICES}, in decimal digits only",
        )
    return count if count <= MOST_DEVICES else too_many(names.GPU_FRACTION_NUM_DEVICES, text)


# --- which container (message 10) --------------------------------------------------------------------------------


def _target(annotations: Annotations, spec: PodSpec) -> ContainerRef | Refusal:
    """The container that gets the shares: by name, init containers first; else the first one of its type."""
    wanted_type = annotations.get(names.GPU_FRACTION_CONTAINER_TYPE)
    name = annotations.get(names.GPU_FRACTION_CONTAINER_NAME)
    found = {
        kind: [ref for ref, _ in containers(spec) if ref.kind is kind]
        for kind in (ContainerKind.INIT, ContainerKind.REGULAR)
    }
    if name is None:
        wanted = ContainerKind.INIT if wanted_type == names.CONTAINER_TYPE_INIT else ContainerKind.REGULAR
        return found[wanted][0] if found[wanted] else _no_container(wanted)
    candidates = _of_type(found, wanted_type)
    return next((ref for ref in candidates if ref.name == name), None) or _unknown_container(name, candidates)


def _of_type(found: Mapping[ContainerKind, Sequence[ContainerRef]], wanted_type: str | None) -> list[ContainerRef]:
    if wanted_type == names.CONTAINER_TYPE_INIT:
        return [*found[ContainerKind.INIT]]
    if wanted_type == names.CONTAINER_TYPE_REGULAR:
        return [*found[ContainerKind.REGULAR]]
    return [*found[ContainerKind.INIT], *found[ContainerKind.REGULAR]]


def _unknown_container(name: str, candidates: Sequence[ContainerRef]) -> Refusal:
    message = f"failed to get fraction container ref: container with name {shown(name)} not found for fraction request"
    return Refusal(
        code=Mistake.UNKNOWN_CONTAINER,
        field=names.GPU_FRACTION_CONTAINER_NAME,
        value=shown(name),
        message=message,
        allowed="one of " + (", ".join(ref.name for ref in candidates) or "none: there is no such container"),
    )


def _no_container(kind: ContainerKind) -> Refusal:
    wanted = "init container" if kind is ContainerKind.INIT else "container"
    return Refusal(
        code=Mistake.UNKNOWN_CONTAINER,
        field=names.GPU_FRACTION_CONTAINER_TYPE if kind is ContainerKind.INIT else "spec.containers",
        value=names.CONTAINER_TYPE_INIT if kind is ContainerKind.INIT else "",
        message=f"failed to get fraction container ref: the pod has no {wanted}",
        allowed=f"a pod with at least one {wanted}",
    )
