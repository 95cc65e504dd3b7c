"""What the mutating webhook makes of a new pod: a pure function from pod to pod, answered as a JSON patch.

The result does not depend on what an earlier admission did to the same pod: what it left is taken out and written
again. That serves copied specs and backups, and a second call for the same pod (``reinvocationPolicy: IfNeeded``). The
API server tells neither the final name nor the UID of a new pod, so the ConfigMap prefix of KAI's way is new at each
call.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from admission import edits, grouping, handover, protected
from admission import guard as device_guard
from admission.claimable import claimable
from admission.containers import Raw
from admission.prefix import new_prefix
from admission.settings import Choices, HandOver, Settings
from gpu import bound, drivercaps
from gpu.dialects import combine
from gpu.refusal import Refusal
from gpu.request import ContainerRef, GpuRequest, SharedAsk
from gpu.translation import Note
from wire.core import Pod


class Mutated(msgspec.Struct, frozen=True):
    """The pod as it shall be stored, and what its author should know of how it was understood.

    ``lost_on``: the node that a pod with shares brings along, on which it gets none of them; else "".
    """

    pod: Raw
    notes: tuple[Note, ...] = ()
    lost_on: str = ""


def mutated(pod: Raw, *, choices: Choices, settings: Settings, rng: random.Random) -> Mutated | Refusal:
    """Return the pod as it shall be stored, or why it is refused. A pod of another scheduler is returned as it is.

    ``pod`` is the raw object, known to decode as wire.core.Pod; it is not changed. ``choices`` are its namespace's.
    """
    if pod["spec"].get("schedulerName") != settings.scheduler_name:
        return Mutated(pod)
    translation = combine.translate(msgspec.convert(pod, Pod), choices.dialects)
    if isinstance(translation, Refusal):
        return translation
    shared = shared_containers(translation.request)
    clean = edits.translated(protected.stripped(handover.without_leftovers(pod)), translation)
    if settings.are_grouped:
        clean = grouping.grouped(clean)
    clean = claimable(clean, translation, is_on=settings.shares_by_claims)
    keys = {ref.key for ref in shared}
    if choices.dialects.driver_memory_caps:
        # On nodes with the hook a soft limit of a tenant's own would take memory from its neighbours.
        clean = handover.without_variables(clean, keys, drivercaps.VARIABLES)
    reading = handover.by_origin(clean, bound.env_names(translation))
    given = _handed_over(reading, shared, settings=settings, rng=rng) if shared else reading
    guarded = device_guard.guarded(given, shared=keys, guard=choices.guard, renamed=settings.gpu_resources)
    return Mutated(guarded, translation.notes, (pod["spec"].get("nodeName") or "") if shared else "")


def shared_containers(request: GpuRequest) -> list[ContainerRef]:
    """Return the containers that are given a part of a device, or of a slice."""
    return [asked.container for asked in request.containers if any(isinstance(ask, SharedAsk) for ask in asked.asks)]


def _handed_over(pod: Raw, shared: list[ContainerRef], *, settings: Settings, rng: random.Random) -> Raw:
    keys = {ref.key for ref in shared}
    if settings.hand_over is HandOver.CONFIG_MAPS:
        changed = handover.by_config_maps(pod, keys, new_prefix(pod["metadata"], shared, rng))
    else:
        changed = handover.by_annotations(pod, keys)
    spec: dict[str, Any] = changed["spec"]
    if settings.runtime_class and not spec.get("runtimeClassName"):
        spec = {**spec, "runtimeClassName": settings.runtime_class}
    return {**changed, "spec": spec}
