"""ClearML's dialect: CFGI in its three generations, MIG by CDMO, images with memory in the tag (rows C1-C14).

Queue limits, and labels that count for them, are no requests for devices (C14).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpu.dialects import clearmlforms as forms
from gpu.dialects.assembly import assembled
from gpu.dialects.clearmllabel import LABEL, decimal, labelled
from gpu.dialects.plugin import amounts, containers
from gpu.dialects.settings import ClearmlSettings, DialectSettings
from gpu.refusal import Mistake, Refusal
from gpu.request import FractionAsk, GpuRequest
from gpu.share import NANO_PER_DEVICE
from gpu.translation import EnvEdit, GivenDevice, ResourceEdit, Translation, Wishes, Written
from wire.core import Pod, PodSpec

NAME: Final = "clearml"
ENV_FRACTIONS: Final = "CLEARML_AGENT_GPU_FRACTIONS"


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether the pod carries the label, a resource of ClearML's, or an image of theirs where those are requests."""
    if LABEL in (pod.metadata.labels or {}):
        return True
    if any(forms.is_own(name) for _, container in containers(pod.spec) for name in amounts(container)):
        return True
    return settings.clearml.by_image_tag and forms.by_image(pod.spec) is not None


def claims(pod: Pod, settings: DialectSettings) -> bool:
    """Whether counts of the vendor's own resources are ClearML's here, where nobody else speaks (C9, C12)."""
    return forms.claims(pod.spec, settings.clearml)


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read the label, or else resources and images."""
    text = (pod.metadata.labels or {}).get(LABEL)
    if text is not None:
        return _by_label(pod.spec, text, settings.clearml)
    pseudo = next((edit for edit in forms.own_taken_out(pod.spec) if forms.is_pseudo(edit.resource)), None)
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
        edits=(*made.edits, *forms.own_taken_out(spec)),
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
    asks = forms.asks(spec, settings)
    if isinstance(asks, Refusal):
        return asks
    everywhere = [ref for ref, _ in containers(spec)]
    edits = forms.slice_edits(spec, settings)
    replaced = {(edit.container, edit.resource) for edit in edits}
    made = assembled(spec, asks, key=f"{forms.INDEXED_PREFIX}<index>", owned=everywhere, replaced=replaced)
    if isinstance(made, Refusal):
        return made
    is_shared = made.request.is_shared
    caps_itself = settings.by_image_tag and forms.by_image(spec) is not None
    return Translation(
        dialect=NAME,
        request=made.request,
        strategy="binpack" if is_shared else "",
        wishes=Wishes(memory_cap=is_shared and not caps_itself),
        edits=(*made.edits, *edits, *forms.own_taken_out(spec)),
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
