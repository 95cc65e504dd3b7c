"""Direct commits: pods that need no binder. Whole GPUs and CPU: one write. A share of a known device: join, bind.

What is written next is what the step function says (sharing/step.py), as at the binder. Here its actions are carried
out, and at the end the charge is settled or given back.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import msgspec

from gpu import bound_pod, grant, limits
from gpu.attempts import Cause
from gpu.book import Tenant
from gpu.grant import BoundMetadata
from gpu.limits import MemoryCaps
from gpu.request import NO_GPU
from gpu.reservation import Reservation
from gpu.translate.asked import PLAIN, asked
from gpu.translation import Refusal, Translation
from kube import binding
from kube.binding import FenceText, Identity
from kube.books import BookWriter
from kube.client.api import Api
from kube.client.clock import Clock, monotonic_ns
from kube.client.retry import until_answered
from kube.cluster_policies import CdiNames
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import name_of
from scheduler.telemetry.events import Attempted, Emit
from scheduler.watch.cache import Cache
from sharing import outcome
from sharing.attempt import Attempt
from sharing.failure import Failure
from sharing.outcome import Outcome, absorb
from sharing.pods import PodView, view
from sharing.state import Action, Fence, Join, Leave, Phase, PostBinding, ReadPod, Renew, State, World
from sharing.step import Next, step
from wire import names
from wire.core import ObjectReference, Pod
from wire.units import SECOND_NS

_log: Final = logging.getLogger(__name__)

#: Causes that end an attempt without anybody having failed: the pod is decided on again, if it is there.
_OVERTAKEN: Final = frozenset({Cause.POD_GONE, Cause.BOUND_ELSEWHERE, Cause.REQUEST_CHANGED, Cause.WITHDRAWN})
#: Those of them after which the same may happen at once, so that it is tried a few times only.
_CHANGED: Final = frozenset({Cause.REQUEST_CHANGED, Cause.WITHDRAWN})
_NO_ROOM: Final = "a device had no room any more"
_CHANGED_TOO_FAST: Final = "PodChanged: the pod is changed faster than it can be bound"


@dataclass(slots=True)
class Sharer:
    """One placement on its way: the state of its attempt, and the reservations whose books it has entered.

    ``pod``: as it was decided on, or read last; None where it was gone when this began. ``since``: Unix seconds, for
    people. ``began_s`` and ``joined_s``: when it began, and when all books were entered, by the event loop's clock.
    """

    placement: Placement
    state: State
    pod: PodView | None
    since: int
    began_s: float
    joined_s: float = 0.0
    held: dict[str, Reservation] = field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        """The pod by name and UID."""
        return Identity(self.placement.namespace, self.placement.name, self.placement.pod_uid)

    @property
    def place(self) -> str:
        """The pod as a line of the log names it."""
        return f"{self.placement.namespace}/{self.placement.name}"


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
        memory_caps: MemoryCaps,
        emit: Emit,
    ) -> None:
        self._api = api
        self._cache = cache
        self._pool = cache.cluster.settings.pool
        self._clock = clock
        self._rng = rng
        self._events = events
        self._cdi = cdi
        self._memory_caps = memory_caps
        self._emit = emit
        self._books = BookWriter(api)

    def sharer(self, placement: Placement, *, plan: str = "", members: int = 1) -> Sharer:
        """A placement on its way, under a fresh attempt that is never used again."""
        attempt = Attempt(
            id=str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
            namespace=placement.namespace,
            name=placement.name,
            pod_uid=placement.pod_uid,
            pod_name=placement.name,
            node=placement.node,
            rv=placement.rv,
            devices=placement.devices,
            plan=plan,
            members=members,
            alternative=placement.alternative,
            is_direct=True,
        )
        pod = self._cache.cluster.pod(placement.pod_uid)
        seen = _decided_on(pod, placement) if pod is not None else None
        since, began_s = self._clock.now_ns() // SECOND_NS, anyio.current_time()
        return Sharer(placement, State(attempt=attempt, rv=placement.rv), seen, since, began_s)

    async def bind(self, placement: Placement) -> None:
        """Join and bind a pod that stands alone. Joins of one book that come together are one write."""
        await self.finish(self.sharer(placement))

    async def join(self, placements: Sequence[Placement]) -> None:
        """Join and bind several, each alone."""
        async with anyio.create_task_group() as tasks:
            for placement in placements:
                tasks.start_soon(self.bind, placement)

    # --- walking -----------------------------------------------------------------------------------------------------
    async def prepare(self, sharers: Sequence[Sharer]) -> None:
        """Enter the books of a gang, until all of its members may bind, or none."""
        while True:
            moves = self._step(sharers)
            if all(sharer.state.phase is not Phase.PREPARE for sharer in sharers):
                return
            await self._carry_all(sharers, moves)

    async def finish(self, sharer: Sharer) -> bool:
        """Go on to the end; returns whether the pod is bound by this attempt. If not, the charge is given back."""
        while sharer.state.phase is not Phase.END:
            moves = self._step([sharer])
            if moves[0].state.phase is not Phase.END:
                await self._carry_all([sharer], moves)
        if sharer.state.failure is None:
            self._bound(sharer)
            return True
        self._give_back(sharer, sharer.state.failure)
        return False

    def _step(self, sharers: Sequence[Sharer]) -> list[Next]:
        states = [sharer.state for sharer in sharers]
        moves = step(states, {sharer.state.attempt.id: self._world(sharer) for sharer in sharers})
        for sharer, move in zip(sharers, moves, strict=True):
            sharer.state = move.state
        return moves

    def _world(self, sharer: Sharer) -> World:
        """The pod as it is known, and what the books' answers showed. Nothing is waited for."""
        is_verified = self._cache.cluster.is_verified
        node = self._cache.cluster.node(sharer.state.attempt.node)
        return World(
            pod=sharer.pod,
            pod_deleted=sharer.pod is None,
            reservations=sharer.held,
            verified=frozenset(
                (held.uid, held.uuid) for held in sharer.held.values() if is_verified(held.uid, held.uuid)
            ),
            late=True,
            enforces=None if node is None else node.enforces,
        )

    async def _carry_all(self, sharers: Sequence[Sharer], moves: Sequence[Next]) -> None:
        wanted = [(sharer, action) for sharer, move in zip(sharers, moves, strict=True) for action in move.actions]
        if not wanted:
            raise RuntimeError(f"nothing is left to do for {sharers[0].state}")
        if len(wanted) == 1:
            await self._carry(*wanted[0])
            return
        async with anyio.create_task_group() as tasks:
            for sharer, action in wanted:
                tasks.start_soon(self._carry, sharer, action)

    async def _carry(self, sharer: Sharer, action: Action) -> None:
        answer = await self._answer(sharer, action)
        sharer.state = absorb(sharer.state, answer)

    async def _answer(self, sharer: Sharer, action: Action) -> Outcome:
        match action:
            case Join(group=group):
                return await self._join(sharer, group)
            case PostBinding():
                return await self._post(sharer, action)
            case ReadPod():
                return outcome.PodRead(await self._read(sharer))
            case Renew(group=group, old_rv=old_rv, rv=rv):
                return await self._renew(sharer, group, old_rv, rv)
            case Fence(rv=rv, failure=failure):
                return await self._fence(sharer, rv, failure)
            case Leave(group=group, rv=rv):
                await self._books.leave(sharer.held[group], [sharer.state.attempt.tenant(group, rv)])
                return outcome.Left(group)
            case _:
                raise RuntimeError(f"no direct attempt is asked for {action}")

    # --- actions -----------------------------------------------------------------------------------------------------
    async def _join(self, sharer: Sharer, group: str) -> Outcome:
        held, rv = self._cache.reservations.get(group), sharer.state.rv
        joined = await self._books.join(held, [self._tenant(sharer, group, rv)]) if held is not None else None
        if not isinstance(joined, Reservation):
            return outcome.Failed(Failure(cause=Cause.DEVICE_TAKEN))
        sharer.held[group] = joined
        return outcome.JoinedAs(group, joined.uid, rv)

    def _tenant(self, sharer: Sharer, group: str, rv: str) -> Tenant:
        """The entry of a pod in the book of one of its devices."""
        attempt, pod = sharer.state.attempt, sharer.pod
        if pod is None:
            return attempt.tenant(group, rv, since=sharer.since)
        caps = pod.caps(attempt.alternative, self._memory_caps)
        return attempt.tenant(group, rv, since=sharer.since, grace_s=pod.grace_s, caps=caps)

    async def _post(self, sharer: Sharer, action: PostBinding) -> Outcome:
        sharer.joined_s = sharer.joined_s or anyio.current_time()
        node, at_ns = sharer.placement.node, self._clock.now_ns()
        known = self._cache.cluster.node(node)
        metadata = bound_pod.bound_metadata(
            action.taken,
            action.grant,
            action.devices,
            node=node,
            at_ns=at_ns,
            cdi=self._cdi.is_on,
            also=BoundMetadata(
                {} if self._pool is None else self._pool.labels, grant.render_charged(sharer.placement.charged)
            ),
            beside=limits.devices(
                sharer.identity.uid,
                action.taken,
                enforces=() if known is None else known.enforces,
                shows_tenants=known is not None and known.shows_tenants,
                memory_caps=self._memory_caps,
            ),
        )
        posted = await binding.post(self._api, sharer.identity, rv=action.rv, node=node, metadata=metadata)
        if isinstance(posted, binding.NotAccepted):
            return outcome.BindingNotAccepted(posted.detail, posted.is_unknown)
        return outcome.BindingAccepted()

    async def _read(self, sharer: Sharer) -> PodView | None:
        """Read the pod by quorum. What it shows is noted: its event may be minutes late.

        Until then a pod that is gone would be placed and refused again and again. At the version that is known there
        is nothing new.
        """
        pod = await until_answered(partial(binding.read, self._api, sharer.identity))
        if pod is None:
            self._cache.forget_pod(sharer.placement.pod_uid)
            return None
        if pod.metadata.resource_version != sharer.state.rv:
            self._cache.note_pod(pod)
            sharer.pod = _read(pod)
        return sharer.pod

    async def _renew(self, sharer: Sharer, group: str, old_rv: str, rv: str) -> Outcome:
        """Move our entry, or enter it at the new version where the binder's collector has taken it out meanwhile.

        At the version that it stands at it looks dead. If others have the room by then, the place is lost.
        """
        renewed = await self._books.rejoin(sharer.held[group], self._tenant(sharer, group, old_rv), rv)
        if not isinstance(renewed, Reservation):
            return outcome.Failed(Failure(cause=Cause.REQUEST_CHANGED))
        sharer.held[group] = renewed
        return outcome.Renewed(group, rv)

    async def _fence(self, sharer: Sharer, rv: str, failure: Failure) -> Outcome:
        text = FenceText(_because(failure), f"Failed to bind pod: {failure.detail or _because(failure)}")
        fenced = await until_answered(
            partial(
                binding.fence,
                self._api,
                sharer.identity,
                rv=rv,
                attempt=sharer.state.attempt.id,
                text=text,
                clock=self._clock,
            )
        )
        if fenced is None:
            return outcome.FenceMissed()
        self._cache.note_pod(fenced)
        return outcome.Fenced()

    # --- the end -----------------------------------------------------------------------------------------------------
    def _bound(self, sharer: Sharer) -> None:
        placement = sharer.placement
        self._cache.cluster.commits.settle(placement.pod_uid, attempt=placement.number)
        self._emit(Attempted(placement, sharer.began_s, sharer.joined_s, None))
        groups = [device.group for device in placement.devices]
        nano = sum(device.nano for device in placement.devices)
        told = {"node": placement.node, "groups": groups, "gpus_nano": nano, **self._cache.trace_of(placement.pod_uid)}
        _log.info("bound", extra=about(LogEvent.POD_BOUND, pod=sharer.place, **told))
        note = binding.scheduled_note(sharer.identity, placement.node, name_of(self._pool))
        self._events.record(
            _regarding(placement), reason=names.REASON_SCHEDULED, action="Binding", note=note, is_final=True
        )

    def tell_pending(self, placement: Placement, note: str) -> None:
        """Say that a pod waits for its devices, which are allocated."""
        self._events.record(_regarding(placement), reason=names.REASON_DEVICES_PENDING, action="Scheduling", note=note)

    def _give_back(self, sharer: Sharer, failure: Failure) -> None:
        """Give the charge back. Where nobody failed, the pod is decided on again."""
        placement, commits = sharer.placement, self._cache.cluster.commits
        because = "" if failure.cause in _OVERTAKEN else _because(failure)
        self._emit(Attempted(placement, sharer.began_s, sharer.joined_s, because))
        if failure.cause in _CHANGED:
            commits.overtaken(placement.pod_uid, _CHANGED_TOO_FAST, now_ns=monotonic_ns())
        if because:
            trace = self._cache.trace_of(placement.pod_uid)
            extra = about(LogEvent.ATTEMPT_FAILED, pod=sharer.place, node=placement.node, **trace)
            _log.info("not bound: %s", because, extra=extra)
            node = placement.node if failure.cause is Cause.REFUSED else ""
            commits.failed(placement.pod_uid, node, because, now_ns=monotonic_ns())
        commits.release(placement.pod_uid, attempt=placement.number)
        self._cache.wake.set()


def _because(failure: Failure) -> str:
    """What the scheduler says of a failure: "Cause: detail"."""
    detail = failure.detail or (_NO_ROOM if failure.cause in {Cause.DEVICE_TAKEN, Cause.GANG_FAILED} else "")
    return f"{failure.cause.value}: {detail}" if detail else failure.cause.value


def _decided_on(pod: PodRecord, placement: Placement) -> PodView:
    """A pod at the version that was decided on, as the step function sees it."""
    asks = pod.recorded or Translation(dialect=PLAIN, request=pod.cls.request)
    return PodView(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        rv=placement.rv,
        grace_s=pod.grace_s,
        request=asks.request,
        recorded=asks,
    )


def _read(pod: Pod) -> PodView:
    """A pod with all that it asks: of whole devices, too, which the binder does not read.

    KAI's ConfigMaps are the binder's: a pod that names some since it was decided on gets none here.
    """
    found = asked(pod) if bound_pod.read_claimed(pod) is None else Translation(dialect=PLAIN, request=NO_GPU)
    asks = None if isinstance(found, Refusal) else found
    request = asks.request if asks is not None else None
    return msgspec.structs.replace(view(pod), request=request, recorded=asks, config_maps="")


def _regarding(placement: Placement) -> ObjectReference:
    return ObjectReference(
        api_version="v1",
        kind="Pod",
        name=placement.name,
        namespace=placement.namespace,
        uid=placement.pod_uid,
    )
