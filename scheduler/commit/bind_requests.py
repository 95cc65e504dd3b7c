"""BindRequests: how an attempt is handed to the binder, taken back, and kept until it is known what became of it.

The binder ends an attempt by deleting its BindRequest and, when it failed, by fencing the pod with the reason. Until
one of "bound", "gone" and "fenced for this attempt" is seen, the charge stays. A request that went away with none of
them is one of a binder that crashed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from gpu import attempts, bind_request, reservation
from gpu.bind_request import Handover, PlannedDevice
from gpu.request import GpuRequest, MigAsk
from gpu.share import portion_text
from kube import binding
from kube.binding import FenceText, Identity
from kube.client.api import Api, remove
from kube.client.clock import Clock, monotonic_ns
from kube.client.errors import AlreadyExists, ApiError, NotFound, Refused
from kube.client.resources import BIND_REQUESTS, PODS
from kube.client.retry import until_answered
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import BindRequestRecord
from scheduler.core.model.settings import NodePool
from scheduler.watch.cache import Cache
from wire import names
from wire.core import Pod
from wire.crds.bindrequest import BindRequest


class NotHanded(Exception):
    """Raised when the API server refuses the BindRequest for good."""


def request_manifest(
    placement: Placement, request: GpuRequest, *, pool: NodePool | None = None, plan: str = "", members: int = 1
) -> dict[str, Any]:
    """The BindRequest in KAI's shape (kai-contract 1.16, 2.3), the exact charges and the node pool beside it."""
    of_node = {names.SELECTED_NODE_LABEL: placement.node} if len(placement.node) < 64 else {}
    handed = Handover(placement.rv, placement.devices, plan, members, placement.alternative, placement.charged)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": placement.name, "uid": placement.pod_uid}
    devices = placement.devices
    spec: dict[str, Any] = {
        "podName": placement.name,
        "selectedNode": placement.node,
        "receivedResourceType": _received(placement, request),
    }
    if devices:
        spec["receivedGPU"] = {"count": len(devices), "portion": _portion(devices[0])}
        spec["selectedGPUGroups"] = [device.group for device in devices]
    elif request.whole:
        spec["receivedGPU"] = {"count": request.whole, "portion": "1.00"}
    return {
        "apiVersion": BIND_REQUESTS.api_version,
        "kind": BIND_REQUESTS.kind,
        "metadata": {
            "name": placement.name,
            "namespace": placement.namespace,
            "labels": {**of_node, **({} if pool is None else pool.labels)},
            "annotations": {names.HANDOVER: bind_request.render(handed)},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _portion(device: PlannedDevice) -> str:
    return portion_text(device.nano, of_memory=device.mem_mib > 0)


def _received(placement: Placement, request: GpuRequest) -> str:
    if placement.devices:
        return names.RECEIVED_FRACTION
    is_mig = any(isinstance(ask, MigAsk) for c in request.containers for ask in c.asks)
    return names.RECEIVED_MIG if is_mig else names.RECEIVED_REGULAR


async def create_request(api: Api, wanted: dict[str, Any]) -> BindRequest:
    """Create it, until the server answers. One of that name that says something else is an older one: it goes first.

    Raises NotHanded when the server refuses it for good.
    """
    namespace = wanted["metadata"]["namespace"]
    delay_s = 0.1
    while True:
        try:
            return await api.create(BIND_REQUESTS, wanted, namespace=namespace)
        except AlreadyExists:
            if (found := await _make_room(api, wanted)) is not None:
                return found
        except ApiError as error:
            if isinstance(error, Refused) and not error.outcome_unknown:
                raise NotHanded(str(error)) from error
        await anyio.sleep(delay_s)
        delay_s = min(delay_s * 2, 5.0)


async def _make_room(api: Api, wanted: dict[str, Any]) -> BindRequest | None:
    """Find the BindRequest that has the name: ours, created after all, is returned; any other one is taken back.

    Raises NotHanded for one that is being deleted: finalizers keep it, nobody knows for how long.
    """
    name, namespace = wanted["metadata"]["name"], wanted["metadata"]["namespace"]
    found = await until_answered(partial(_find, api, name, namespace))
    if found is not None and found.metadata.deletion_timestamp is not None:
        kept_by = ", ".join(found.metadata.finalizers or ())
        raise NotHanded(f"BindRequest {name} is being deleted, and its finalizers keep it: {kept_by}")
    if found is None or _says(found, wanted):
        return found
    await until_answered(partial(take_back_request, api, namespace, name, found.metadata.uid))
    return None


async def take_back_request(api: Api, namespace: str, name: str, uid: str) -> None:
    """Delete exactly this BindRequest. The binder then withdraws the attempt. Raises ApiError: ask again."""
    await remove(api, BIND_REQUESTS, name, namespace=namespace, uid=uid)


async def _find(api: Api, name: str, namespace: str) -> BindRequest | None:
    try:
        return await api.get(BIND_REQUESTS, name, namespace=namespace)
    except NotFound:
        return None


def _says(found: BindRequest, wanted: dict[str, Any]) -> bool:
    """Whether a BindRequest that is there is the one we wanted to create: its creation was answered late."""
    owners = found.metadata.owner_references or []
    meta = wanted["metadata"]
    return (
        bool(owners)
        and owners[0].uid == meta["ownerReferences"][0]["uid"]
        and (found.metadata.annotations or {}).get(names.HANDOVER) == meta["annotations"][names.HANDOVER]
        and found.spec.selected_node == wanted["spec"]["selectedNode"]
    )


_ORPHANED = FenceText("Withdrawn: the BindRequest is gone", "Failed to bind pod: its BindRequest was deleted")
_BROKEN_OFF = FenceText("Withdrawn: the attempt was broken off", "Failed to bind pod: the attempt was broken off")


@dataclass(slots=True)
class _Handed:
    """A placement and the BindRequest (UID) that carries it."""

    placement: Placement
    request: str
    is_watched: bool = False
    is_taken_back: bool = False


class HandedOver:
    """Attempts at the binder, by pod UID."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock, orphan_s: float) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._orphan_s = orphan_s
        self._handed: dict[str, _Handed] = {}
        self._pod_of: dict[str, str] = {}
        #: Pods whose hand-over vanished unsettled, while they are looked after here.
        self._departed: set[str] = set()
        #: Pod UID -> node -> attempts that only taught what a device is there.
        self._taught: dict[str, dict[str, int]] = {}
        self._tasks: TaskGroup | None = None

    @contextmanager
    def watching_in(self, tasks: TaskGroup) -> Iterator[None]:
        """Inside, run what has to wait in this task group, whose body this is the whole of (kube/lead/replica.py)."""
        self._tasks = tasks
        try:
            yield
        finally:
            self._tasks = None

    def add(self, placement: Placement, request: str) -> None:
        """A BindRequest (UID) was created for this placement."""
        self._handed[placement.pod_uid] = _Handed(placement, request)
        self._pod_of[request] = placement.pod_uid
        # It may have come and gone before this answer did: a pod that is still here after a while is looked after.
        self.request_gone(request)
        self.pod_changed(placement.pod_uid)

    def has(self, placement: Placement) -> bool:
        """Whether the BindRequest of this placement was created and is not known to be over."""
        handed = self._handed.get(placement.pod_uid)
        return handed is not None and handed.placement == placement

    async def take_back(self, placement: Placement) -> None:
        """Have the binder withdraw an attempt. Its charge stays until the pod is seen fenced, as with any other."""
        handed = self._handed.get(placement.pod_uid)
        if handed is None or handed.placement != placement:
            return
        handed.is_taken_back = True
        name = (placement.namespace, placement.name)
        await until_answered(partial(take_back_request, self._api, *name, handed.request))

    def settle_departed(self) -> None:
        """Look after hand-overs that vanished with their pods, or while these look unbound and unfenced."""
        for record in self._cache.cluster.commits.departed():
            if record.pod_uid in self._handed or record.pod_uid in self._departed or self._tasks is None:
                continue
            self._departed.add(record.pod_uid)
            self._tasks.start_soon(self._settle_departed, record.pod_uid)

    async def _settle_departed(self, pod_uid: str) -> None:
        """Until what departed is settled; the watch may show its end at any time, or a newer one in its place."""
        try:
            await anyio.sleep(self._orphan_s)
            while (record := self._cache.cluster.commits.departed_of(pod_uid)) is not None:
                if self._cache.cluster.pod(pod_uid) is None:
                    await self._look_for_reservations(record)
                else:
                    await self._settle(Identity(record.namespace, record.name, pod_uid), record.uid)
                await anyio.sleep(self._orphan_s)
        finally:
            self._departed.discard(pod_uid)

    async def _look_for_reservations(self, record: BindRequestRecord) -> None:
        """The pod is gone. When its BindRequest is, too, what was made for it is there, or does not come any more."""
        if await until_answered(partial(self._is_requested, record)):
            return
        for device in record.devices:
            name = reservation.name_for(record.node, device.group)
            found = await until_answered(partial(self._find_reservation, name))
            if found is not None:
                self._cache.note_pod(found)
        self._cache.cluster.commits.forget_departed(record.pod_uid)
        self._cache.wake.set()

    async def _is_requested(self, record: BindRequestRecord) -> bool:
        try:
            found = await self._api.get(BIND_REQUESTS, record.name, namespace=record.namespace)
        except NotFound:
            return False
        is_ours = any(owner.uid == record.pod_uid for owner in found.metadata.owner_references or ())
        return is_ours and found.metadata.deletion_timestamp is None

    async def _find_reservation(self, name: str) -> Pod | None:
        try:
            return await self._api.get(PODS, name, namespace=self._cache.cluster.settings.reservation_namespace)
        except NotFound:
            return None

    def pod_changed(self, pod_uid: str) -> None:
        """A pod changed: see whether its attempt is over."""
        waiting = self._cache.waiting.get(pod_uid)
        if waiting is None:
            self._taught.pop(pod_uid, None)
        handed = self._handed.get(pod_uid)
        if handed is None:
            return
        if waiting is None:
            self._forget(handed)  # bound or gone: the cluster has seen it, and the charge is no longer ours to keep
        elif handed.request in waiting.fences:
            is_last = handed.request == waiting.fences[0]
            self._fail(handed, waiting.fenced_because if is_last else attempts.Cause.WITHDRAWN.value)

    def request_gone(self, request: str) -> None:
        """A BindRequest is gone: look after its attempt if the pod is not seen bound or fenced soon."""
        pod_uid = self._pod_of.get(request)
        handed = self._handed.get(pod_uid) if pod_uid is not None else None
        if handed is None:
            return
        if not handed.is_watched and self._tasks is not None:
            handed.is_watched = True
            self._tasks.start_soon(self._fence_orphan, handed)

    def requests_listed(self, present: set[str]) -> None:
        """After a gap in the watch: a request that is on no list may have come and gone unseen, or be newer than it."""
        for request in [handed.request for handed in self._handed.values() if handed.request not in present]:
            self.request_gone(request)

    async def _is_there(self, handed: _Handed) -> bool:
        placement = handed.placement
        seen = self._cache.cluster.hand_over(placement.namespace, placement.name)
        if seen is not None and seen.uid == handed.request:
            return True  # and its end will be seen, too
        try:
            found = await self._api.get(BIND_REQUESTS, placement.name, namespace=placement.namespace)
        except NotFound:
            return False
        return found.metadata.uid == handed.request and found.metadata.deletion_timestamp is None

    async def _fence_orphan(self, handed: _Handed) -> None:
        """Give the binder time for its fence; then make sure ourselves that no Binding can land any more."""
        placement = handed.placement
        identity = Identity(placement.namespace, placement.name, placement.pod_uid)
        while True:
            await anyio.sleep(self._orphan_s)
            if self._handed.get(placement.pod_uid) is not handed:
                return
            if await until_answered(partial(self._is_there, handed)):
                handed.is_watched = False
                return
            if await self._settle(identity, handed.request):
                return

    async def _settle(self, identity: Identity, attempt: str) -> bool:
        """Read the pod, and fence it if it is unbound; whether it is settled (then the watch will show it, too).

        ``attempt``: the BindRequest that vanished, "" where an attempt was broken off before one was seen.
        """
        pod = await until_answered(lambda: binding.read(self._api, identity))
        if pod is None or pod.spec.node_name:
            return True
        fenced = await until_answered(partial(self._fence, attempt, identity, pod.metadata.resource_version))
        if fenced is not None:
            self._cache.note_pod(fenced)
        return fenced is not None

    async def _fence(self, attempt: str, identity: Identity, rv: str) -> Pod | None:
        text = _ORPHANED if attempt else _BROKEN_OFF
        named = attempt or binding.named_at("broken-off", rv)
        return await binding.fence(self._api, identity, rv=rv, attempt=named, text=text, clock=self._clock)

    def _fail(self, handed: _Handed, because: str) -> None:
        placement = handed.placement
        if attempts.is_silence(because):
            self._cache.cluster.commits.probation.fail(placement.node)
        is_by_us = handed.is_taken_back and not attempts.blames_node(because)
        if not is_by_us and not self._may_try_next_device(placement, because):
            is_blamed = attempts.blames_node(because) or attempts.taught_device(because)
            node = placement.node if is_blamed else ""
            self._cache.cluster.commits.failed(placement.pod_uid, node, because, now_ns=monotonic_ns())
        self._cache.cluster.commits.release(placement.pod_uid, attempt=placement.number)
        self._forget(handed)
        self._cache.wake.set()

    def device_freed(self, node: str) -> None:
        """A device may be free now (node "": anywhere): pods that found only others there may look again."""
        for pod_uid, tries in self._taught.items():
            for tried in [tried for tried in tries if node in {tried, ""}]:
                del tries[tried]
                self._cache.cluster.commits.forgive(pod_uid, tried)

    def _may_try_next_device(self, placement: Placement, because: str) -> bool:
        """Whether an attempt only taught what a device is, at most as often as the node has devices.

        After that the node is out for this pod for a growing time: its larger cards, or those named, are taken.
        """
        if not attempts.taught_device(because):
            return False
        tries = self._taught.setdefault(placement.pod_uid, {})
        tries[placement.node] = tries.get(placement.node, 0) + 1
        node = self._cache.cluster.node(placement.node)
        return node is not None and tries[placement.node] < node.capacity.gpus

    def _forget(self, handed: _Handed) -> None:
        self._handed.pop(handed.placement.pod_uid, None)
        self._pod_of.pop(handed.request, None)
