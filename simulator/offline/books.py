"""What the binder and the scheduler's commits would write, on records: reservations with their books, and claims.

Books are opened, joined, left and closed at once; claims of pods are written when their pods are placed, and cleared
when these are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from gpu.bind_request import PlannedDevice
from gpu.book import Book, Entry
from gpu.reservation import Reservation, name_for
from scheduler.core.cluster import Cluster
from scheduler.core.convert.volumes import VolumeRecord
from scheduler.core.model.device_requests import ResourceClaimKey
from scheduler.core.model.devices import ClaimChoice, ResourceClaimRecord
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import Demand, PodClass
from scheduler.core.model.records import Held, NodeRecord, PodRecord, SeenPod
from scheduler.core.nodes.resource_claims import ResourceClaims
from scheduler.core.nodes.storage import Storage
from wire import names
from wire.core import ContainerExtendedResourceRequest, Pod, PodExtendedResourceClaimStatus, PodResourceClaimStatus

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


def bind(storage: Storage, placement: Placement) -> None:
    """Bind each claim to the volume that was chosen, or to one that is made, which all nodes can use, at once.

    So would the PV controller and a provisioner.
    """
    for choice in placement.volumes:
        key = placement.namespace, choice.claim
        claim, volume = storage.claims.get(key), storage.volumes.get(choice.volume)
        if claim is None:
            continue
        made = VolumeRecord(name=f"pvc-{choice.claim_uid}") if volume is None else volume
        storage.volumes.put(msgspec.structs.replace(made, claim=key, offer=None))
        storage.claims.put(msgspec.structs.replace(claim, volume=made.name, is_bound=True, need=None))


class DeviceClaims:
    """The ResourceClaims of a cluster. ``next_rv``: makes resourceVersions.

    Does what the scheduler writes, what drivers report, and what kube-controller-manager does for claims from
    templates.
    """

    def __init__(self, claims: ResourceClaims, next_rv: Callable[[], str]) -> None:
        self._claims = claims
        self._next_rv = next_rv
        #: Claims by pod (UID): those that are reserved for it, and those that were made for it.
        self._of: dict[str, set[ResourceClaimKey]] = {}
        #: Claims from templates of pods (UIDs) that are gone, by name.
        self._left: dict[str, dict[str, ResourceClaimRecord]] = {}
        for record in claims.claims.all():
            self._note(record)

    def _note(self, record: ResourceClaimRecord) -> None:
        for uid in {record.owner, *record.reserved_for} - {""}:
            self._of.setdefault(uid, set()).add(record.key)

    def _put(self, record: ResourceClaimRecord) -> None:
        self._note(record)
        self._claims.claims.put(msgspec.structs.replace(record, resource_version=self._next_rv()))

    # --- the scheduler -------------------------------------------------------------------------------------------
    def prepare(self, placement: Placement, pod: Pod) -> Pod:
        """Allocate and reserve the claims of a placement. Return the pod, whose status may name a claim now."""
        for choice in placement.claims:
            self._write(placement, choice)
        made = next((choice for choice in placement.claims if choice.made is not None), None)
        return pod if made is None else _naming(pod, made, rv=self._next_rv())

    def own(self, uid: str, rv: str) -> None:
        """The pod is bound by what was reserved for it, at this version."""
        self._claims.note_own(uid, rv)

    def _write(self, placement: Placement, choice: ClaimChoice) -> None:
        key, uid = (placement.namespace, choice.claim), placement.pod_uid
        known = self._claims.claims.get(key)
        if choice.made is not None:
            known = ResourceClaimRecord(
                namespace=placement.namespace, name=choice.claim, uid=choice.claim_uid, owner=uid, is_extended=True
            )
        if known is None:
            return
        users = known.reserved_for if uid in known.reserved_for else (*known.reserved_for, uid)
        self._put(msgspec.structs.replace(known, allocation=choice.allocation, reserved_for=users))

    # --- kube-controller-manager ---------------------------------------------------------------------------------
    def leave(self, uid: str) -> None:
        """A pod is gone: its own claims go with it, and of others the allocation goes with the last user."""
        for key in sorted(self._of.pop(uid, ())):
            record = self._claims.claims.get(key)
            if record is None:
                continue
            if record.owner == uid:
                if not record.is_extended:
                    self._left.setdefault(uid, {})[record.name] = record
                self._claims.claims.drop(record)
                continue
            users = tuple(each for each in record.reserved_for if each != uid)
            is_used = bool(users or record.others)
            allocation = record.allocation if is_used else None
            self._put(msgspec.structs.replace(record, allocation=allocation, reserved_for=users))

    def make_again(self, gone: Pod, made: Pod) -> Pod:
        """Make the claims of a pod from templates again, for the pod that has its place; return it with them."""
        left = self._left.pop(gone.metadata.uid, {})
        statuses = []
        for entry in gone.status.resource_claim_statuses or ():
            record = left.get(entry.resource_claim_name or "")
            if record is None:
                statuses.append(entry)
                continue
            name = f"{record.name.partition('~')[0]}~{self._next_rv()}"
            uid = made.metadata.uid
            self._put(
                ResourceClaimRecord(
                    namespace=record.namespace,
                    name=name,
                    uid=f"{uid}/{entry.name}",
                    owner=uid,
                    need=record.need,
                    unsupported=record.unsupported,
                )
            )
            statuses.append(PodResourceClaimStatus(name=entry.name, resource_claim_name=name))
        return _with_status(made, made.metadata.resource_version, resource_claim_statuses=statuses or None)


def _naming(pod: Pod, choice: ClaimChoice, *, rv: str) -> Pod:
    """The pod, with a status that names the claim that was made for it."""
    mappings = [] if choice.made is None else choice.made.mappings
    listed = [
        ContainerExtendedResourceRequest(
            container_name=each.container, resource_name=each.resource, request_name=each.request
        )
        for each in mappings
    ]
    status = PodExtendedResourceClaimStatus(resource_claim_name=choice.claim, request_mappings=listed)
    return _with_status(pod, rv, extended_resource_claim_status=status)


def _with_status(pod: Pod, rv: str, **fields: object) -> Pod:
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, resource_version=rv),
        status=msgspec.structs.replace(pod.status, **fields),
    )
