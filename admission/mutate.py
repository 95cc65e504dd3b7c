"""What the mutating webhook makes of a new pod: a pure function from pod to pod, answered as a JSON patch.

The result does not depend on what an earlier admission did to the same pod: what it left is taken out and made anew.
That serves copied specs and backups, and a second call for the same pod (``reinvocationPolicy: IfNeeded``). The API
server tells neither the final name nor the UID of a new pod, so the ConfigMap prefix of KAI's way is new at each call.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from admission import guard as device_guard
from admission import handover, protected
from admission.containers import Raw
from admission.prefix import new_prefix
from admission.settings import Guard, HandOver, Settings
from gpu.dialects import kai
from gpu.refusal import Refusal
from gpu.request import ContainerRef, FractionAsk, GpuRequest, MemoryAsk
from wire.core import Pod


def mutated(pod: Raw, *, guard: Guard, settings: Settings, rng: random.Random) -> Raw | Refusal:
    """Return the pod as it shall be stored, or why it is refused. A pod of another scheduler is returned as it is.

    ``pod`` is the raw object, known to decode as wire.core.Pod; it is not changed.
    """
    if pod["spec"].get("schedulerName") != settings.scheduler_name:
        return pod
    request = kai.translate(msgspec.convert(pod, Pod), sharing=settings.sharing)
    if isinstance(request, Refusal):
        return request
    shared = shared_containers(request)
    clean = protected.stripped(handover.without_leftovers(pod))
    given = _handed_over(clean, shared, settings=settings, rng=rng) if shared else clean
    keys = {ref.key for ref in shared}
    return device_guard.guarded(given, shared=keys, guard=guard, renamed=settings.gpu_resources)


def shared_containers(request: GpuRequest) -> list[ContainerRef]:
    """Return the containers that are given a part of a device."""
    return [
        asked.container
        for asked in request.containers
        if any(isinstance(ask, (FractionAsk, MemoryAsk)) for ask in asked.asks)
    ]


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
