"""What a pod asks, as everybody behind the door reads it: its record, or KAI's own annotations.

KAI's older annotations, whole GPUs and MIG slices have no record beside them: they are read as they stand, so what a
user edits before the pod is placed counts, as it does there. What any other dialect said is read once, at the door
(gpu/translate/combine.py): its words may have left the pod by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu import limits, record
from gpu.dialects import kai, nvfractions
from gpu.dialects.replicas import MPS
from gpu.dialects.settings import DialectSettings
from gpu.request import GpuRequest
from gpu.translation import Refusal, Translation, Wishes, shown
from wire import names
from wire.core import Pod

#: KAI's annotations, the older ones.
KAI: Final = "kai"
#: Whole GPUs and MIG slices of the vendor's device plugin, or nothing at all.
PLAIN: Final = "plugin"

#: By these a pod speaks KAI's older words.
KAI_WORDS: Final = (names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_NUM_DEVICES)


def asked(pod: Pod, *, sharing: bool = True) -> Translation | Refusal:
    """Read what a pod asks, or say what is wrong with it."""
    return recorded(pod) or unrecorded(pod, sharing=sharing)


def asked_when_bound(pod: Pod) -> Translation | Refusal:
    """Read what a pod asked that runs: where KAI bound it, its newer words as well, of which it has no record."""
    annotations = pod.metadata.annotations or {}
    own = recorded(pod)
    if own is not None or any(name in annotations for name in (names.GPU_FRACTION, names.GPU_MEMORY)):
        return own or unrecorded(pod)
    settings = DialectSettings()
    return nvfractions.translate(pod, settings) if nvfractions.speaks(pod, settings) else unrecorded(pod)


def recorded(pod: Pod) -> Translation | Refusal | None:
    """Read the record; None if there is none.

    One that can't be read, or names containers that the pod has not, is refused and not passed over: it may be all
    that is left of what the pod asks.
    """
    text = (pod.metadata.annotations or {}).get(names.GPU_RECORD)
    if text is None:
        return None
    found = record.read(text)
    if isinstance(found, Refusal):
        return found
    if record.is_about(found, pod.spec):
        return msgspec.structs.replace(found, driver_caps=True) if limits.are_read(pod.spec) else found
    return record.refused(
        names.GPU_RECORD, shown(text), "asks of containers that the pod has, by their names, and sidecars as in the pod"
    )


def unrecorded(pod: Pod, *, sharing: bool = True) -> Translation | Refusal:
    """Read KAI's older annotations, whole GPUs and MIG slices."""
    request = kai.translate(pod, sharing=sharing)
    if isinstance(request, Refusal):
        return request
    annotations = pod.metadata.annotations or {}
    if not any(name in annotations for name in KAI_WORDS):
        return Translation(dialect=PLAIN, request=request)
    return Translation(
        dialect=KAI, request=request, wishes=Wishes(mode=MPS if annotations.get(names.MPS) == "true" else "")
    )


def needs_record(translation: Translation) -> bool:
    """Whether what the pod asks can't be read from the pod itself."""
    return translation.dialect not in {KAI, PLAIN}


def mode_of(translation: Translation) -> str:
    """In which mode the pod's tenants have to run, "" for any: those of two modes never share a device.

    KAI's older ``mps`` is a word about what the pod has brought along; KAI lets such pods share with all others
    (kai-contract 1.11).
    """
    return "" if translation.dialect == KAI else translation.wishes.mode


def alternative(translation: Translation, number: int) -> GpuRequest | None:
    """The request that was taken: 0 is the first, 1 the first of the alternatives. None if there is no such one."""
    requests = (translation.request, *translation.alternatives)
    return requests[number] if 0 <= number < len(requests) else None


def taken(translation: Translation, number: int) -> Translation | None:
    """The same with the alternative of this number as its request, for what a Binding writes. None: no such one."""
    request = alternative(translation, number)
    if request is None:
        return None
    unit = translation.places[number].unit if translation.places else translation.unit
    return msgspec.structs.replace(translation, request=request, unit=unit)


def asked_on(pod: Pod, labels: Mapping[str, str]) -> GpuRequest | None:
    """What a pod with a record asks first on a node with these labels; None without one, or if it is not for it."""
    found = recorded(pod)
    if not isinstance(found, Translation):
        return None
    requests = (found.request, *found.alternatives)
    if not found.places:
        return requests[0]
    return next((each for each, place in zip(requests, found.places, strict=True) if place.holds(labels)), None)
