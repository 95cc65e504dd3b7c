"""Shared devices on records: a device that is opened gets a reservation, and loses it with its last tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gpu.bind_request import PlannedDevice
from gpu.book import Book
from gpu.reservation import Reservation
from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_class import Demand, PodClass
from scheduler.core.model.records import Held, PodRecord, SeenPod
from wire import names

_WHOLE: Final = PodClass(demand=Demand(gpus=1))


class SharedDevices:
    """Which devices are shared, and by how many pods. ``next_rv``: a resourceVersion that nobody had before."""

    def __init__(self, cluster: Cluster, next_rv: Callable[[], str]) -> None:
        self._cluster = cluster
        self._next_rv = next_rv
        #: By GPU group: how many tenants it has.
        self._tenants: dict[str, int] = {}

    def join(self, devices: Iterable[PlannedDevice], node: str) -> tuple[Held, ...]:
        """Let a pod onto devices; return what it holds."""
        return tuple(self._held(device, node) for device in devices)

    def leave(self, devices: Iterable[PlannedDevice]) -> None:
        """Take a pod off devices that it joined."""
        for device in devices:
            self._tenants[device.group] -= 1
            if not self._tenants[device.group]:
                del self._tenants[device.group]
                self._cluster.remove_pod(_reservation_uid(device.group))

    def _held(self, device: PlannedDevice, node: str) -> Held:
        uid = _reservation_uid(device.group)
        if device.group not in self._tenants:
            self._open(device.group, uid, node)
        self._tenants[device.group] = self._tenants.get(device.group, 0) + 1
        return Held(device.group, device.nano, reservation=uid, uuid=_uuid(device.group))

    def _open(self, group: str, uid: str, node: str) -> None:
        rv = self._next_rv()
        reservation = Reservation(
            group=group,
            namespace=names.RESERVATION_NAMESPACE,
            name=group,
            uid=uid,
            rv=rv,
            node=node,
            phase=names.RUNNING,
            uuid=_uuid(group),
            index=-1,
            mem_mib=0,
            book=Book(),
            deleting=False,
            finalized=True,
        )
        record = PodRecord(
            uid=uid,
            namespace=names.RESERVATION_NAMESPACE,
            name=group,
            rv=rv,
            node=node,
            cls=_WHOLE,
            is_reservation=True,
        )
        self._cluster.take_pod(SeenPod(uid=uid, rv=rv, has_ended=False, record=record, reservation=reservation))


def _reservation_uid(group: str) -> str:
    return f"r-{group}"


def _uuid(group: str) -> str:
    return f"GPU-{group}"
