"""Nodes that have the devices for a pod, though none that will do: named ones, and such as others leave room on.

Which ones will do says its rule (device_fit.py): by UUID or index, by the mode and the compute of their tenants.
"""

from __future__ import annotations

from itertools import count

import msgspec
import numpy as np

from gpu.request import SharedAsk
from scheduler.core.devices.device_choice import choose_answered, choose_devices
from scheduler.core.devices.device_fit import DeviceFit, rule_of
from scheduler.core.explain.units import COMPUTE, Lack, unit
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.binpack import BINPACK
from scheduler.core.snapshot.statement import Statement

PINNED = "pinned"
PINNED_FULL = "pinned-full"
PINNED_WHOLE = "pinned-whole"
PINNED_ROOM = "pinned-room"
EXCLUSION = "exclusion"
_LEAST_HOPE_FIRST = (PINNED, PINNED_WHOLE, PINNED_FULL, PINNED_ROOM, EXCLUSION)
MODE = "mode"


def ruled_out(statement: Statement, cls: PodClass, where: Bools) -> list[Lack]:
    """Nodes that have the devices, though none that the pod's rule allows as far as is known: else it were there."""
    rule = rule_of(cls)
    nothing = np.zeros(len(statement.nodes), np.int64)
    if rule.names_any(cls.request.shared):
        return _pinned(statement, cls, where)
    if not rule.mode and not any(ask.compute_percent for ask in cls.request.shared):
        return []
    others = {kind: np.zeros(len(statement.nodes), np.bool_) for kind in (MODE, COMPUTE)}
    for position in np.flatnonzero(where).tolist():
        if kind := _kept_out_by(statement, cls, position):
            others[kind][position] = True
    missing = _missing_percent(statement, cls, others[COMPUTE])
    return [
        Lack(MODE, "", "", others[MODE], nothing),
        Lack(COMPUTE, "", unit(COMPUTE), others[COMPUTE], missing),
    ]


def _missing_percent(statement: Statement, cls: PodClass, where: Bools) -> Int64s:
    """How much more of the compute the best device would have to have free, of those with room; 0 for several asks."""
    missing = np.zeros(len(statement.nodes), np.int64)
    if len(cls.request.shared) != 1:
        return missing
    ask, rule = cls.request.shared[0], rule_of(cls)
    undemanding = msgspec.structs.replace(ask, compute_percent=0)
    for position in np.flatnonzero(where).tolist():
        fit = DeviceFit(undemanding, statement.nodes[position], rule)
        devices = statement.table.devices[position]
        fitting = (dev.free_compute_percent for dev in devices if fit.nano_on(dev) is not None)
        missing[position] = max(0, ask.compute_percent - max(fitting, default=ask.compute_percent))
    return missing


def _pinned(statement: Statement, cls: PodClass, where: Bools) -> list[Lack]:
    """The nodes by what keeps the pod from the devices that it names."""
    nothing = np.zeros(len(statement.nodes), np.int64)
    found = {kind: np.zeros(len(statement.nodes), np.bool_) for kind in _LEAST_HOPE_FIRST}
    for position in np.flatnonzero(where).tolist():
        found[_why_not(statement, cls, position)][position] = True
    return [Lack(kind, "", "", at, nothing) for kind, at in found.items()]


def _why_not(statement: Statement, cls: PodClass, position: int) -> str:
    """What is in the way on one node: of several devices that are named, of the one for which there is least hope."""
    rule, prospect = rule_of(cls), statement.prospect(position)
    devices, node = statement.table.devices[position], statement.nodes[position]
    if rule.not_uuids and _are_had(statement, cls, position, cls.request.shared):
        return EXCLUSION
    found = set()
    for ask in cls.request.shared:
        pin = rule.pin(ask)
        if pin.is_any or choose_answered((ask,), devices, node, order=BINPACK, rule=rule) is not None:
            continue
        if any(pin.takes(device) for device in prospect.held):
            found.add(PINNED_FULL)
        elif prospect.may_bring(pin):
            found.add(PINNED_ROOM)
        else:
            found.add(PINNED_WHOLE if prospect.is_all and statement.has(position, pin) else PINNED)
    return next((kind for kind in _LEAST_HOPE_FIRST if kind in found), PINNED_FULL)


def _kept_out_by(statement: Statement, cls: PodClass, position: int) -> str:
    """MODE or COMPUTE where a node lacks devices for a pod only because of how the tenants run that are on them."""
    devices, rule, asks = statement.table.devices[position], rule_of(cls), cls.request.shared
    if _are_had(statement, cls, position, asks):
        return ""
    undemanding = tuple(msgspec.structs.replace(ask, compute_percent=0) for ask in asks)
    is_compute = all(dev.suits(rule.mode) for dev in devices) or _are_had(statement, cls, position, undemanding)
    return COMPUTE if is_compute else MODE


def _are_had(statement: Statement, cls: PodClass, position: int, asks: tuple[SharedAsk, ...]) -> bool:
    """Whether a node has devices for these asks, pod slots aside."""
    node, names_ = statement.nodes[position], (str(number) for number in count())
    room = statement.room(position, cls.demand, [node.resource_of(ask.profile) for ask in asks])
    found = choose_devices(
        asks,
        statement.table.devices[position],
        node,
        room=room,
        order=BINPACK,
        new_group=lambda _: next(names_),
        rule=rule_of(cls),
        prospect=statement.prospect(position),
    )
    return found is not None
