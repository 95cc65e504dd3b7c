"""Volcano vGPU's dialect: slices of devices by container resources (docs/reference/dialects.md, V1-V10).

It is HAMi's form under names of its own, so the vendor's ``nvidia.com/gpu`` beside it is a request of its own, and
refused. Ours: init containers, which the origin leaves out, are served as well, with a note; and percentages or cores
without a count or MiB, in which the origin sees no request, are refused rather than left to kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpu.container_devices import handed
from gpu.device_plugin import names_any
from gpu.dialects.settings import DialectSettings, VolcanoSettings
from gpu.dialects.vgpu import SPREAD, Annotated, Form, Slices, cards, chosen, encoded, limits, sliced, together
from gpu.request import ContainerKind, ContainerRef
from gpu.translation import GivenDevice, Note, NoteCode, Refusal, Translation, Written
from wire import names
from wire.core import Pod

NAME: Final = "volcano"
#: What only a Binding may write.
WRITTEN_KEYS: Final = (
    names.VOLCANO_IDS,
    names.VOLCANO_TO_ALLOCATE,
    names.VOLCANO_NODE,
    names.VOLCANO_TIME,
    names.VOLCANO_BIND_TIME,
    names.VOLCANO_BIND_PHASE,
)

OWN: Final = (
    names.VOLCANO_NUMBER,
    names.VOLCANO_MEMORY,
    names.VOLCANO_MEMORY_PERCENTAGE,
    names.VOLCANO_CORES,
)
_MODES: Final = ("hami-core", "mig", "mps")
_DONE: Final = "success"
_NS_PER_S: Final = 10**9


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether a container names a resource of vGPU."""
    return names_any(pod.spec, OWN)


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read a pod that speaks vGPU."""
    form = _form(settings.volcano)
    found = sliced(pod, form)
    if isinstance(found, Refusal):
        return found
    annotated = _annotated(pod.metadata.annotations or {})
    if isinstance(annotated, Refusal):
        return annotated
    found = {ref: _noted(ref, each) for ref, each in found.items()}
    made = together(pod, found, form, annotated=annotated, own=OWN)
    unit = form.memory_factor if form.memory_factor != 1 else 0
    return made if isinstance(made, Refusal) else msgspec.structs.replace(made, unit=unit)


def written_back(translation: Translation, given: Sequence[GivenDevice], *, node: str, at_ns: int) -> Written:
    """What Volcano's scheduler, tools and apps read. ``given``: a device for each of ``translation.request.shared``.

    The lists have a place for each container that asks, and none for others, and memory in the units that
    the pod came with, as the origin's; the limits are in MiB.
    """
    devices = dict(handed(translation.request, given))
    if not devices:
        return Written()
    text = ";".join(encoded(each, unit_mib=translation.unit or 1) for each in devices.values())
    at_s = str(at_ns // _NS_PER_S)
    return Written(
        env={ref.key: limits(each) for ref, each in devices.items()},
        annotations={
            names.VOLCANO_IDS: text,
            names.VOLCANO_TO_ALLOCATE: text,
            names.VOLCANO_NODE: node,
            names.VOLCANO_TIME: at_s,
            names.VOLCANO_BIND_TIME: at_s,
            names.VOLCANO_BIND_PHASE: _DONE,
        },
    )


def _form(own: VolcanoSettings) -> Form:
    return Form(
        dialect=NAME,
        count=names.VOLCANO_NUMBER,
        memory=names.VOLCANO_MEMORY,
        memory_percentage=names.VOLCANO_MEMORY_PERCENTAGE,
        cores=names.VOLCANO_CORES,
        alone=(names.VOLCANO_MEMORY,),
        memory_factor=own.memory_factor,
    )


def _noted(ref: ContainerRef, each: Slices) -> Slices:
    if ref.kind is ContainerKind.REGULAR or not each.asks:
        return each
    note = Note(NoteCode.MORE_THAN_ORIGIN, f"init container {ref.name}", f"{len(each.asks)} devices")
    return msgspec.structs.replace(each, notes=(*each.notes, note))


def _annotated(annotations: Mapping[str, str]) -> Annotated | Refusal:
    which = cards(annotations, uuids=names.VOLCANO_USE_UUID, not_uuids=names.VOLCANO_NO_USE_UUID)
    if isinstance(which, Refusal):
        return which
    mode = chosen(annotations, names.VOLCANO_MODE, _MODES)
    if isinstance(mode, Refusal):
        return mode
    policy = chosen(annotations, names.VOLCANO_PODGROUP_POLICY, (SPREAD,))
    if isinstance(policy, Refusal):
        return policy
    notes = (Note(NoteCode.APPROXIMATED, names.VOLCANO_PODGROUP_POLICY, policy, SPREAD),) if policy else ()
    return Annotated(cards=which, mode=mode, strategy=policy, notes=notes)
