"""Taints of devices, and requests that tolerate them (KEP-5055).

Drivers publish them, and administrators add some by DeviceTaintRules: as in kube-scheduler a rule's taint is added to
each device that it selects. Pods that use such a device are evicted by Kubernetes' own controller, not here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Final

import msgspec

from scheduler.core.model.device_requests import DeviceToleration
from scheduler.core.model.devices import DeviceTaint, PoolId, SliceRecord, TaintRuleRecord

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


#: Driver and pool that rules select; None: any.
Selected = tuple[str | None, str | None]
_NONE: Mapping[str | None, Mapping[str, DeviceTaint]] = {}


def selecting(pool_id: PoolId) -> tuple[Selected, ...]:
    """All ways to select a pool."""
    driver, pool = pool_id
    return (None, None), (driver, None), (None, pool), (driver, pool)


class TaintRules:
    """Rules by what they select, so that a pool looks at four places and not at all rules."""

    def __init__(self) -> None:
        self._known: dict[str, TaintRuleRecord] = {}
        #: Taints by name of the rule, by name of the device (None: all of them).
        self._taints: dict[Selected, dict[str | None, dict[str, DeviceTaint]]] = {}

    def put(self, name: str, rule: TaintRuleRecord | None) -> set[Selected]:
        """Take a rule as it is now (None: it is gone); returns what it and the one before it select."""
        changed: set[Selected] = set()
        before = self._known.pop(name, None)
        if before is not None:
            changed.add(self._drop(before))
        if rule is not None and rule.taint.effect in KEEPS_OFF:
            self._known[name] = rule
            selected = rule.driver, rule.pool
            self._taints.setdefault(selected, {}).setdefault(rule.device, {})[name] = rule.taint
            changed.add(selected)
        return changed

    def _drop(self, rule: TaintRuleRecord) -> Selected:
        selected = rule.driver, rule.pool
        by_device = self._taints[selected]
        del by_device[rule.device][rule.name]
        if not by_device[rule.device]:
            del by_device[rule.device]
        if not by_device:
            del self._taints[selected]
        return selected

    def tainted(self, pool_id: PoolId, slices: Collection[SliceRecord]) -> Collection[SliceRecord]:
        """The slices of a pool with the taints of rules; the same ones where no rule selects the pool."""
        found = [each for selected in selecting(pool_id) if (each := self._taints.get(selected, _NONE))]
        return [_tainted(each, found) for each in slices] if found else slices


def _tainted(published: SliceRecord, found: list[Mapping[str | None, Mapping[str, DeviceTaint]]]) -> SliceRecord:
    of_all = _listed(None, found)
    devices = []
    for device in published.devices:
        added = of_all + _listed(device.name, found)
        # Several rules may give the same taint.
        taints = tuple(dict.fromkeys(device.taints + added)) if added else device.taints
        devices.append(msgspec.structs.replace(device, taints=taints) if added else device)
    return msgspec.structs.replace(published, devices=tuple(devices))


def _listed(device: str | None, found: list[Mapping[str | None, Mapping[str, DeviceTaint]]]) -> tuple[DeviceTaint, ...]:
    return tuple(chain.from_iterable(each[device].values() for each in found if device in each))
