"""Taints of devices, and requests that tolerate them (KEP-5055)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler.core.model.device_need import DeviceToleration
from scheduler.core.model.device_record import DeviceTaint

#: Other effects, ``None`` among them, keep nobody off.
KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})


def keep_off(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> bool:
    """Whether a taint keeps a request off a device."""
    listed = tuple(tolerations)
    return any(taint.effect in KEEPS_OFF and not any(_tolerates(each, taint) for each in listed) for taint in taints)


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    return toleration.operator == "Exists" or (toleration.operator in {"", "Equal"} and toleration.value == taint.value)
