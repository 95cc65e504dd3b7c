"""What one reader may see of what everybody is shown. Pure.

Others' shares stay where they are, to scale and without a name: a map with holes would say that there is room.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from ui.page.values import Changes, Device, GroupLine, NodeCard, PodLine, PodPath, Tenant

_Named = TypeVar("_Named", PodLine, GroupLine)


class Sight(msgspec.Struct, frozen=True):
    """``namespaces``: those whose pods, and ``events``: those whose events may be seen; None for all.

    ``queues``: what is written in queues and counted of them. The name of a pod's queue is the pod's.
    """

    nodes: bool = True
    namespaces: frozenset[str] | None = None
    events: frozenset[str] | None = None
    queues: bool = True

    def sees(self, namespace: str) -> bool:
        """Whether pods of a namespace may be seen."""
        return self.namespaces is None or namespace in self.namespaces

    def sees_events(self, namespace: str) -> bool:
        """Whether what is reported of its pods may be."""
        return self.sees(namespace) and (self.events is None or namespace in self.events)


EVERYTHING: Final = Sight()


def seen(changes: Changes, sight: Sight) -> Changes:
    """Leave out what may not be seen. Keys of what is gone stay: who was never told of it can't know what they mean."""
    if sight == EVERYTHING:
        return changes
    return msgspec.structs.replace(
        changes,
        nodes=tuple(_node(node, sight) for node in changes.nodes) if sight.nodes else (),
        gone_nodes=changes.gone_nodes if sight.nodes else (),
        pods=_of(changes.pods, sight),
        events=tuple(event for event in changes.events if sight.sees_events(event.namespace)),
        gone_events=tuple(key for key in changes.gone_events if sight.sees_events(key.partition("/")[0])),
        groups=_of(changes.groups, sight),
        gone_groups=tuple(key for key in changes.gone_groups if sight.sees(key.partition("/")[0])),
        queues=changes.queues if sight.queues else (),
        gone_queues=changes.gone_queues if sight.queues else (),
        unusable=changes.unusable if sight.nodes else (),
        gone_unusable=changes.gone_unusable if sight.nodes else (),
    )


def _of(lines: Iterable[_Named], sight: Sight) -> tuple[_Named, ...]:
    return tuple(line for line in lines if sight.sees(line.namespace))


def _node(node: NodeCard, sight: Sight) -> NodeCard:
    return msgspec.structs.replace(node, devices=tuple(_device(device, sight) for device in node.devices))


def _device(device: Device, sight: Sight) -> Device:
    if all(sight.sees(tenant.namespace) for tenant in device.tenants):
        return device
    tenants = [_tenant(tenant, sight) for tenant in device.tenants]
    # Tenants are in the order of their names, which must not be shown either.
    return msgspec.structs.replace(device, tenants=tuple(sorted(tenants, key=_own_first)))


def _tenant(tenant: Tenant, sight: Sight) -> Tenant:
    if sight.sees(tenant.namespace):
        return tenant
    return Tenant(
        nano=tenant.nano,
        mem_mib=tenant.mem_mib,
        is_on_its_way=tenant.is_on_its_way,
        is_kept=tenant.is_kept,
        is_hidden=True,
    )


def seen_path(path: PodPath, sight: Sight) -> PodPath | None:
    """Leave out of a pod's path what may not be seen; None: all of it."""
    if not sight.sees(path.pod.namespace):
        return None
    return path if sight.sees_events(path.pod.namespace) else msgspec.structs.replace(path, events=())


def _own_first(tenant: Tenant) -> tuple[bool, int]:
    return tenant.is_hidden, tenant.nano if tenant.is_hidden else 0
