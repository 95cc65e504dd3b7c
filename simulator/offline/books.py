"""Reservations and their books as the binder would keep them, on records: opened, joined, left and closed at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from gpu.bind_request import PlannedDevice
from gpu.book import Book, Entry
from gpu.reservation import Reservation, name_for
from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_class import Demand, PodClass
from scheduler.core.model.records import Held, NodeRecord, PodRecord, SeenPod
from wire import names

#: The attempt that an entry names: nobody asks which it was.
_ATTEMPT: Final = "simulated"


class Books:
    """Shared devices of a cluster. ``next_rv``: a resourceVersion that nobody had before."""

    def __init__(self, cluster: Cluster, next_rv: Callable[[], str]) -> None:
        self._cluster = cluster
        self._next_rv = next_rv
        #: By node and GPU group; of several reservations the one with a book.
        self._reservations: dict[tuple[str, str], Reservation] = {}
        #: Where each pod (UID) has an entry.
        self._entries: dict[str, set[tuple[str, str]]] = {}
        #: UID of a reservation -> its place above.
        self._places: dict[str, tuple[str, str]] = {}
        for held in cluster.snapshot().pods.reservations.values():
            if held.book is not None:
                self._reservations[held.node, held.group] = held
                self._places[held.uid] = (held.node, held.group)
                for uid in held.book.entries:
                    self._entries.setdefault(uid, set()).add((held.node, held.group))

    def join(self, pod: PodRecord, node: NodeRecord, devices: Iterable[PlannedDevice]) -> tuple[Held, ...]:
        """Write a pod into the books of its devices, which are opened if need be; return what it holds."""
        return tuple(self._join(pod, node, device) for device in devices)

    def leave(self, uid: str) -> None:
        """Take a pod out of all books. A reservation without tenants goes at once."""
        for key in sorted(self._entries.pop(uid, ())):
            known = self._reservations.get(key)
            if known is None or known.book is None:
                continue
            left = {tenant: entry for tenant, entry in known.book.entries.items() if tenant != uid}
            if left:
                self._put(key, known, left)
            else:
                self.close(known.uid)

    def close(self, reservation_uid: str) -> None:
        """Remove a reservation, if it is there."""
        if (key := self._places.pop(reservation_uid, None)) is not None:
            self._reservations.pop(key, None)
        self._cluster.remove_pod(reservation_uid)

    def _join(self, pod: PodRecord, node: NodeRecord, device: PlannedDevice) -> Held:
        key = node.name, device.group
        known = self._reservations.get(key) or self._opened(node, device)
        entry = Entry(
            nano=device.nano,
            attempt=_ATTEMPT,
            rv=pod.rv,
            since=0,
            pod=f"{pod.namespace}/{pod.name}",
            grace_s=pod.grace_s,
            mode=device.mode,
            compute_percent=device.compute_percent,
        )
        entries = {} if known.book is None else known.book.entries
        self._put(key, known, {**entries, pod.uid: entry})
        self._entries.setdefault(pod.uid, set()).add(key)
        return Held(device.group, device.nano, known.uid, known.uuid, device.resource, device.compute_percent)

    def _put(self, key: tuple[str, str], known: Reservation, entries: dict[str, Entry]) -> None:
        changed = msgspec.structs.replace(known, book=Book(entries), rv=self._next_rv())
        self._reservations[key] = changed
        self._places[changed.uid] = key
        seen = SeenPod(uid=changed.uid, rv=changed.rv, has_ended=False, record=None, reservation=changed)
        self._cluster.take_pod(seen)

    def _opened(self, node: NodeRecord, device: PlannedDevice) -> Reservation:
        """A reservation that runs and has said its device, whose name is made up."""
        settings, rv, name = self._cluster.settings, self._next_rv(), name_for(node.name, device.group)
        is_card = device.resource == names.GPU_RESOURCE
        are_alike = node.smallest_card_mib == node.largest_card_mib
        opened = Reservation(
            group=device.group,
            namespace=settings.reservation_namespace,
            name=name,
            uid=f"reservation/{node.name}/{device.group}",
            rv=rv,
            node=node.name,
            phase=names.RUNNING,
            uuid=f"GPU-{device.group}",
            index=-1,
            mem_mib=node.smallest_card_mib if is_card and are_alike else 0,
            book=Book(),
            deleting=False,
            finalized=True,
            resource=device.resource,
        )
        demand = Demand(
            cpu_milli=settings.reservation_cpu_milli,
            mem_mib=settings.reservation_mem_mib,
            gpus=int(is_card),
            extended=() if is_card else ((device.resource, 1),),
        )
        record = PodRecord(
            uid=opened.uid,
            namespace=opened.namespace,
            name=name,
            rv=rv,
            node=node.name,
            cls=PodClass(demand=demand),
            is_reservation=True,
        )
        self._cluster.take_pod(SeenPod(uid=opened.uid, rv=rv, has_ended=False, record=record, reservation=opened))
        return opened
