"""HAMi's dialect: slices of physical devices by container resources (docs/reference/dialects.md, H1-H18, T3).

``nvidia.com/gpu`` means here *how many physical devices to slice*, and to everybody else whole devices. What decides is
that the pod has one of HAMi's own resources, or the setting ``owns_plain_counts``: never a guess. A count that is
understood so is taken out of the container, since kubelet would hand out whole devices for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpu.container_devices import handed
from gpu.device_plugin import amounts, containers, count_of, names_any
from gpu.dialects.settings import DialectSettings, HamiSettings
from gpu.dialects.vgpu import (
    Annotated,
    Form,
    cards,
    chosen,
    encoded,
    field_of,
    limits,
    listed,
    malformed,
    sliced,
    together,
)
from gpu.request import ContainerKind
from gpu.translation import EnvEdit, GivenDevice, Note, NoteCode, Refusal, Translation, Written
from wire import names
from wire.core import Pod

NAME: Final = "hami"
#: What only a Binding may write.
WRITTEN_KEYS: Final = (names.HAMI_NODE, names.HAMI_TIME, names.HAMI_TO_ALLOCATE, names.HAMI_ALLOCATED)

_SIZES: Final = (names.HAMI_MEMORY, names.HAMI_MEMORY_PERCENTAGE, names.HAMI_CORES)
_OWN: Final = (*_SIZES, names.HAMI_PRIORITY)
_MODES: Final = ("hami-core", "mig", "mps")
_PACKING: Final = ("binpack", "spread")
_GPU_POLICIES: Final = (*_PACKING, "numa", "mutex", "topology-aware")
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_NS_PER_S: Final = 10**9


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether a container names one of HAMi's own resources."""
    return names_any(pod.spec, _OWN)


def claims(pod: Pod, settings: DialectSettings) -> bool:
    """Whether plain counts of ``nvidia.com/gpu`` are HAMi's here, where nobody else speaks (T3)."""
    return settings.hami.owns_plain_counts and any(
        names.GPU_RESOURCE in amounts(container) for _, container in containers(pod.spec)
    )


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read a pod that speaks HAMi, or that it claims: counts of ``nvidia.com/gpu`` are HAMi's in every container."""
    form = _form(settings.hami)
    found = sliced(pod, form)
    if isinstance(found, Refusal):
        return found
    annotated = _annotated(pod.metadata.annotations or {})
    if isinstance(annotated, Refusal):
        return annotated
    env = _priorities(pod)
    if isinstance(env, Refusal):
        return env
    translation = together(pod, found, form, annotated=annotated, own=_OWN)
    return translation if isinstance(translation, Refusal) else msgspec.structs.replace(translation, env=env)


def written_back(translation: Translation, given: Sequence[GivenDevice], *, node: str, at_ns: int) -> Written:
    """What HAMi's monitor, exporter and apps read. ``given``: a device for each of ``translation.request.shared``.

    A list of devices has a place for every regular container up to the last that asks, and before them for init
    containers if one asks. The device plugin's to-do list carries the same, as HAMi's scheduler leaves it.
    """
    devices = dict(handed(translation.request, given))
    if not devices:
        return Written()
    places = [""] * (1 + max((ref.index for ref in devices if ref.kind is ContainerKind.REGULAR), default=-1))
    init_places = [""] * (1 + max((ref.index for ref in devices if ref.kind is ContainerKind.INIT), default=-1))
    for ref, each in devices.items():
        (places if ref.kind is ContainerKind.REGULAR else init_places)[ref.index] = encoded(each)
    text = "".join(f"{place};" for place in (*init_places, *places))
    return Written(
        env={ref.key: limits(each) for ref, each in devices.items()},
        annotations={
            names.HAMI_NODE: node,
            names.HAMI_TIME: str(at_ns // _NS_PER_S),
            names.HAMI_TO_ALLOCATE: text,
            names.HAMI_ALLOCATED: text,
        },
    )


def _form(own: HamiSettings) -> Form:
    return Form(
        dialect=NAME,
        count=names.GPU_RESOURCE,
        memory=names.HAMI_MEMORY,
        memory_percentage=names.HAMI_MEMORY_PERCENTAGE,
        cores=names.HAMI_CORES,
        alone=_SIZES,
        default_count=own.default_gpus,
        memory_factor=own.memory_factor,
        default_mem_mib=own.default_mem_mib,
        default_cores_percent=own.default_cores_percent,
    )


# --- annotations -------------------------------------------------------------------------------------------------


def _annotated(annotations: Mapping[str, str]) -> Annotated | Refusal:
    which = cards(annotations, uuids=names.HAMI_USE_UUID, not_uuids=names.HAMI_NO_USE_UUID)
    if isinstance(which, Refusal):
        return which
    mode = chosen(annotations, names.HAMI_MODE, _MODES)
    if isinstance(mode, Refusal):
        return mode
    placement = _placement(annotations)
    if isinstance(placement, Refusal):
        return placement
    strategy, notes = placement
    return Annotated(cards=which, mode=mode, strategy=strategy, notes=notes)


def _placement(annotations: Mapping[str, str]) -> tuple[str, tuple[Note, ...]] | Refusal:
    """The policy for devices counts before the one for nodes; what is neither binpack nor spread is only noted."""
    node = chosen(annotations, names.HAMI_NODE_POLICY, _PACKING)
    if isinstance(node, Refusal):
        return node
    wanted = listed(annotations, names.HAMI_GPU_POLICY)
    if isinstance(wanted, Refusal):
        return wanted
    for each in wanted:
        known = chosen({names.HAMI_GPU_POLICY: each}, names.HAMI_GPU_POLICY, _GPU_POLICIES)
        if isinstance(known, Refusal):
            return known
    strategy = next((each for each in wanted if each in _PACKING), node)
    notes = [
        Note(NoteCode.APPROXIMATED, names.HAMI_GPU_POLICY, each, strategy) for each in wanted if each not in _PACKING
    ]
    if node and node != strategy:
        notes.append(Note(NoteCode.APPROXIMATED, names.HAMI_NODE_POLICY, node, strategy))
    if annotations.get(names.HAMI_NUMA_BIND) in _TRUE:
        notes.append(Note(NoteCode.APPROXIMATED, names.HAMI_NUMA_BIND, annotations[names.HAMI_NUMA_BIND]))
    return strategy, tuple(notes)


# --- priority ----------------------------------------------------------------------------------------------------


def _priorities(pod: Pod) -> tuple[EnvEdit, ...] | Refusal:
    """HAMi-core reads the priority of a container's tasks from its environment."""
    edits = []
    for ref, container in containers(pod.spec):
        if names.HAMI_PRIORITY not in amounts(container):
            continue
        priority = count_of(ref, container, names.HAMI_PRIORITY)
        if isinstance(priority, Refusal):
            return priority
        if priority > 1:
            rule = "is the priority of its tasks on a device"
            field = field_of(names.HAMI_PRIORITY, ref)
            return malformed(field, str(priority), rule=rule, allowed="0 for high or 1 for low")
        edits.append(EnvEdit(ref, names.ENV_CUDA_TASK_PRIORITY, str(priority)))
    return tuple(edits)
