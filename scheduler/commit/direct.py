"""Direct commits: pods that need no binder. Whole GPUs and CPU: one write. A share of a known device: join, bind.

The steps are docs/design/protocol.md's: the books first, then one Binding at the resourceVersion that stands in them,
and after anything but a clear yes a quorum read, before the charge is given back.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from gpu import bound
from gpu import grant as grants
from gpu.asked import PLAIN, asked, taken
from gpu.book import Entry, Tenant
from gpu.fences import fences
from gpu.grant import BoundMetadata, DeviceGrant, Grant
from gpu.refusal import Refusal
from gpu.request import NO_GPU
from gpu.reservation import Reservation
from gpu.translation import Translation
from kube import binding
from kube.binding import FenceText, Identity
from kube.bookwriter import BookWriter
from kube.client.api import Api
from kube.client.clock import Clock, monotonic_ns
from kube.client.patience import until_answered
from kube.clusterpolicies import CdiNames
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from scheduler.core.model.plan import Placement
from scheduler.telemetry.observing import Ended, Observer, ended_by
from scheduler.watch.cache import Cache
from wire import names
from wire.core import ObjectReference, Pod

_log: Final = logging.getLogger(__name__)

#: What a pod asks that is gone.
_NOTHING: Final = Translation(dialect=PLAIN, request=NO_GPU)

#: Bindings posted for one attempt, each after a quorum read that showed the pod unbound.
_TRIES: Final = 5


@dataclass(slots=True)
class Sharer:
    """One placement on its way: its attempt, the version its entries stand at, and the books it has entered.

    ``taken`` is what the pod asks, with the alternative that was taken as its request. ``began_s`` and ``joined_s``:
    when it began, and when all books were entered, by the event loop's clock.
    """

    placement: Placement
    taken: Translation
    attempt: str
    rv: str
    since: int
    grace_s: int
    began_s: float
    joined_s: float = 0.0
    held: dict[str, Reservation] = field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        """The pod by name and UID."""
        return Identity(self.placement.namespace, self.placement.name, self.placement.pod_uid)

    def tenant(self, group: str, rv: str = "") -> Tenant:
        """Its entry for a group's book, at ``rv`` or at the version it stands at."""
        device = next(device for device in self.placement.devices if device.group == group)
        pod = f"{self.placement.namespace}/{self.placement.name}"
        entry = Entry(
            nano=device.nano,
            attempt=self.attempt,
            rv=rv or self.rv,
            since=self.since,
            pod=pod,
            grace_s=self.grace_s,
            mode=device.mode,
            compute_percent=device.compute_percent,
        )
        return Tenant(self.placement.pod_uid, entry, resource=device.resource)


class Direct:
    """Carries out direct placements: they come here charged, and here the charge is settled or given back."""

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        clock: Clock,
        rng: random.Random,
        events: EventRecorder,
        cdi: CdiNames,
        observer: Observer,
    ) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._rng = rng
        self._events = events
        self._cdi = cdi
        self._observer = observer
        self._books = BookWriter(api)

    def sharer(self, placement: Placement) -> Sharer:
        """A placement on its way, under a fresh attempt that is never used again."""
        pod = self._cache.cluster.pod(placement.pod_uid)
        asks = (pod.taken(placement.alternative) if pod is not None else None) or _NOTHING
        attempt = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        grace_s = pod.grace_s if pod is not None else 30
        since, began_s = self._clock.now_ns() // 1_000_000_000, anyio.current_time()
        return Sharer(placement, asks, attempt, placement.rv, since, grace_s, began_s)

    async def bind(self, placement: Placement) -> None:
        """Bind a pod without shares."""
        sharer = self.sharer(placement)
        await self.post(sharer, may_renew=False)

    async def join(self, placements: Sequence[Placement]) -> None:
        """Join and bind shares that enter the same books, in one write each."""
        sharers = [self.sharer(placement) for placement in placements]
        joined = await self.enter(sharers)
        async with anyio.create_task_group() as tasks:
            for sharer in sharers:
                if sharer.attempt in joined:
                    tasks.start_soon(self._post_alone, sharer)
                else:
                    tasks.start_soon(self.give_back, sharer, "", "DeviceTaken: the device had no room any more")

    async def _post_alone(self, sharer: Sharer) -> None:
        await self.post(sharer, may_renew=False)

    async def enter(self, sharers: Sequence[Sharer]) -> set[str]:
        """Enter all books; returns the attempts that stand in all of theirs. One book's tenants are one write."""
        async with anyio.create_task_group() as tasks:
            for sharer in sharers:
                for device in sharer.placement.devices:
                    tasks.start_soon(self._enter, sharer, device.group)
        return {s.attempt for s in sharers if all(d.group in s.held for d in s.placement.devices)}

    async def _enter(self, sharer: Sharer, group: str) -> None:
        held = self._cache.reservations.get(group)
        if held is not None:
            joined = await self._books.join(held, [sharer.tenant(group)])
            if isinstance(joined, Reservation):
                sharer.held[group] = joined

    async def post(self, sharer: Sharer, *, may_renew: bool) -> bool:
        """Bind; returns whether the pod is bound by this attempt. If not, entries and charge are given back."""
        sharer.joined_s = anyio.current_time()
        metadata = self._metadata(sharer)
        if metadata is None:
            await self.give_back(sharer, "", "ReservationLost: the device changed")
            return False
        detail = ""
        may_land = False
        for _ in range(_TRIES):
            posted = await self._post_once(sharer, metadata)
            if isinstance(posted, binding.Accepted):
                return True
            detail = posted.detail
            may_land |= posted.is_unknown
            pod = await until_answered(lambda: binding.read(self._api, sharer.identity))
            if pod is None or pod.spec.node_name or _is_doomed(pod):
                return await self._settled(sharer, pod)
            if pod.metadata.resource_version != sharer.rv:
                self._cache.note_pod(pod)
                renewed = may_renew and await self._renew(sharer, pod)
                metadata = self._metadata(sharer) if renewed else None
                if metadata is None:
                    because = "PodChanged: the pod is changed faster than it can be bound"
                    self._cache.cluster.commits.overtaken(sharer.placement.pod_uid, because, now_ns=monotonic_ns())
                    await self.give_back(sharer, "", "")
                    return False
                may_land = False
            elif not may_land:
                await self.give_back(sharer, sharer.placement.node, f"Refused: {detail}")
                return False
        return await self._fence(sharer, detail)

    async def _post_once(self, sharer: Sharer, metadata: BoundMetadata) -> binding.Accepted | binding.NotAccepted:
        placement = sharer.placement
        posted = await binding.post(self._api, sharer.identity, rv=sharer.rv, node=placement.node, metadata=metadata)
        if isinstance(posted, binding.Accepted):
            self._bound(sharer)
        return posted

    def _bound(self, sharer: Sharer) -> None:
        placement = sharer.placement
        self._cache.cluster.commits.settle(placement.pod_uid, attempt=placement.number)
        self._observer.ended(Ended.BOUND)
        self._cache.traces.attempted(placement, sharer.began_s, sharer.joined_s, None)
        regarding = ObjectReference(
            api_version="v1",
            kind="Pod",
            name=placement.name,
            namespace=placement.namespace,
            uid=placement.pod_uid,
        )
        pod = f"{placement.namespace}/{placement.name}"
        groups = [device.group for device in placement.devices]
        nano = sum(device.nano for device in placement.devices)
        extra = about(
            LogEvent.POD_BOUND, pod=pod, node=placement.node, groups=groups, gpus_nano=nano, **self._trace(sharer)
        )
        _log.info("bound", extra=extra)
        note = binding.scheduled_note(sharer.identity, placement.node)
        self._events.record(regarding, reason=names.REASON_SCHEDULED, action="Binding", note=note, is_final=True)

    async def _settled(self, sharer: Sharer, pod: Pod | None) -> bool:
        """A quorum read showed the end: bound by us after all, bound by others, going, or gone.

        Entries of a pod that is bound or gone stay in their books for the binder's collector: a Binding of ours may
        have landed before it went, and its containers may still run (protocol.md, step 5).
        """
        if pod is not None and _is_ours(pod, sharer):
            self._bound(sharer)
            self._cache.note_pod(pod)
            return True
        if pod is not None:
            self._cache.note_pod(pod)
        else:
            # Its event may be minutes late: until then the same pod would be placed and refused again and again.
            self._cache.forget_pod(sharer.placement.pod_uid)
        if pod is None or pod.spec.node_name:
            sharer.held.clear()
        await self.give_back(sharer, "", "")
        return False

    async def _renew(self, sharer: Sharer, pod: Pod) -> bool:
        """Go on with a pod that was changed without changing what it asks: entries move to its new version.

        At the version that they stand at they look dead, so the binder's collector may have taken some out meanwhile:
        those are joined for anew. If others have the room by then, the place is lost.
        """
        found = asked(pod)
        asks = None if isinstance(found, Refusal) else taken(found, sharer.placement.alternative)
        if asks is None or asks.request.shared != sharer.taken.request.shared or pod.spec.scheduling_gates:
            return False
        if sharer.attempt in fences(pod.metadata.annotations):
            return False
        rv = pod.metadata.resource_version
        done: list[str] = []
        for group, held in sharer.held.items():
            renewed = await self._books.rejoin(held, sharer.tenant(group), rv)
            if not isinstance(renewed, Reservation):
                for other in done:
                    await self._books.leave(sharer.held.pop(other), [sharer.tenant(other, rv)])
                return False
            sharer.held[group] = renewed
            done.append(group)
        sharer.rv, sharer.taken = rv, asks
        return True

    async def _fence(self, sharer: Sharer, detail: str) -> bool:
        """Answers kept failing: make the Binding that may still be on its way impossible, then give back."""
        text = FenceText(f"Refused: {detail}", f"Failed to bind pod: {detail}")
        while True:
            fenced = await until_answered(
                lambda: binding.fence(
                    self._api, sharer.identity, rv=sharer.rv, attempt=sharer.attempt, text=text, clock=self._clock
                )
            )
            if fenced is not None:
                self._cache.note_pod(fenced)
                break
            pod = await until_answered(lambda: binding.read(self._api, sharer.identity))
            if pod is None or pod.spec.node_name:
                return await self._settled(sharer, pod)
            if pod.metadata.resource_version != sharer.rv:
                break
        await self.give_back(sharer, sharer.placement.node, f"Refused: {detail}")
        return False

    async def give_back(self, sharer: Sharer, node: str, because: str) -> None:
        """Take our entries out, then the charge. ``because`` "" : nobody failed, the pod is decided on anew."""
        for group, held in sharer.held.items():
            await self._books.leave(held, [sharer.tenant(group)])
        placement = sharer.placement
        self._observer.ended(ended_by(because))
        self._cache.traces.attempted(placement, sharer.began_s, sharer.joined_s, because)
        if because:
            pod = f"{placement.namespace}/{placement.name}"
            extra = about(LogEvent.ATTEMPT_FAILED, pod=pod, node=placement.node, **self._trace(sharer))
            _log.info("not bound: %s", because, extra=extra)
            self._cache.cluster.commits.failed(placement.pod_uid, node, because, now_ns=monotonic_ns())
        self._cache.cluster.commits.release(placement.pod_uid, attempt=placement.number)
        self._cache.wake.set()

    def _trace(self, sharer: Sharer) -> Mapping[str, str]:
        return self._cache.traces.of(sharer.placement.pod_uid)

    def _metadata(self, sharer: Sharer) -> BoundMetadata | None:
        """What the Binding carries; None when a device is not the one that was verified, or the pod is gone."""
        planned = sharer.placement.devices
        if len(sharer.taken.request.shared) != len(planned):
            return None  # it was gone when its commit began
        held = [sharer.held[device.group] for device in planned]
        if not all(each.is_learned and self._cache.cluster.is_verified(each.uid, each.uuid) for each in held):
            return None
        devices = (
            DeviceGrant(device.group, each.uid, each.uuid, device.nano, each.resource, device.compute_percent)
            for device, each in zip(planned, held, strict=True)
        )
        grant = Grant(sharer.attempt, tuple(devices))
        node, at_ns = sharer.placement.node, self._clock.now_ns()
        given = bound.given(grant, held)
        return bound.metadata(sharer.taken, grant, given, node=node, at_ns=at_ns, cdi=self._cdi.is_on)


def _is_doomed(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _is_ours(pod: Pod, sharer: Sharer) -> bool:
    """Whether the Binding that landed is this attempt's. A pod without shares carries no attempt: its node tells."""
    if not pod.spec.node_name:
        return False
    if not sharer.placement.devices:
        return pod.spec.node_name == sharer.placement.node
    grant = grants.read(pod.metadata.annotations)
    return grant is not None and grant.attempt == sharer.attempt
