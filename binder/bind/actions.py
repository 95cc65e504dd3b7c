"""Carries out the actions of the step function, one method each, and brings the answers back as outcomes.

What is safe to repeat is repeated until it is answered; a Binding is posted once per action. KAI's ConfigMaps are
created once with their final content, never changed, never taken from somebody else. Failures are texts: for people in
KAI's words (kai-contract 5.2), for the scheduler as "Cause: detail".

Whether a device that a reservation pod just named is nobody else's is asked by one quorum LIST of all pods of its node
(docs/design/protocol.md, step 2). It shows reservation pods and tenants at one resourceVersion, as two LISTs in the
protocol's order would if nothing happened between them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import msgspec

from binder.bind.join_batches import JoinBatcher
from binder.core import reservation_pod
from binder.core.reservation_pod import Authorship, ReservationTemplate, authorship
from binder.settings import BinderSettings
from binder.telemetry.tracing import AttemptTraces
from binder.watch.view import View
from gpu import bound_pod, container_devices, limits
from gpu import reservation as reservations
from gpu.attempts import Cause
from gpu.reservation import Reservation
from kube import binding, books
from kube.binding import FenceText
from kube.client.api import Api, field_is, remove
from kube.client.clock import Clock
from kube.client.errors import AlreadyExists, ApiError, Forbidden, NotFound
from kube.client.resources import BIND_REQUESTS, CONFIG_MAPS, PODS
from kube.client.retry import doubled_s, until_answered
from kube.cluster_policies import CdiNames
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from sharing import claims, outcome
from sharing.attempt import Attempt
from sharing.failure import Failure
from sharing.outcome import Disputed, Failed, Outcome, Verified
from sharing.pods import PodView
from sharing.pods import view as read_pod
from sharing.state import (
    Action,
    DropRequest,
    Fence,
    Join,
    Leave,
    PostBinding,
    ReadPod,
    Renew,
    State,
    TellBound,
    Verify,
    WriteConfigMaps,
)
from wire import names
from wire.api_groups import NORMAL, WARNING
from wire.core import ConfigMap, ObjectReference
from wire.crds.podgroup import DEFAULT_NODE_POOL
from wire.units import SECOND_NS

_RESERVING = frozenset({
    Cause.DEVICE_TAKEN, Cause.NOT_JOINABLE, Cause.RESERVATION_FAILED, Cause.RESERVATION_LOST,
    Cause.RESERVATION_SILENT, Cause.DEVICE_CLAIMED, Cause.CARD_TOO_SMALL,
    Cause.OTHER_DEVICE,
})  # fmt: skip

_WORDS = {
    Cause.DEVICE_TAKEN: "the device has no room left",
    Cause.NOT_JOINABLE: "the GPU reservation pod can't be shared",
    Cause.RESERVATION_FAILED: "the GPU reservation pod was refused by the node",
    Cause.RESERVATION_LOST: "the GPU reservation pod is gone",
    Cause.RESERVATION_SILENT: "failed waiting for GPU reservation pod to allocate",
    Cause.DEVICE_CLAIMED: "the device is claimed twice",
    Cause.CARD_TOO_SMALL: "the device has less memory than the pod asked",
    Cause.OTHER_DEVICE: "the device is not one that the pod names; the next one is tried",
    Cause.NOT_ENFORCED: "the node has no memory caps by the driver any more",
    Cause.POD_GONE: "the pod is gone",
    Cause.BOUND_ELSEWHERE: "the pod is bound already",
    Cause.REQUEST_CHANGED: "the pod's request changed",
    Cause.WITHDRAWN: "the attempt was withdrawn",
    Cause.GANG_FAILED: "another pod of the gang could not be bound",
    Cause.GANG_LATE: "the gang was not handed over whole in time",
    Cause.REFUSED: "the API server refused",
}

#: Condition messages are for reading, and an annotation must not grow with what a server says.
_MAX = 512


def forbidden(attempt: Attempt, error: Forbidden) -> str:
    """Text for an attempt that has failed and can't be withdrawn; the server's words name who may not do what."""
    pod = f"{attempt.namespace}/{attempt.pod_name}"
    text = f"Failed to bind pod {pod}, and it can't be tried again before the binder may patch pods/status: {error}"
    return text[:_MAX]


def fence(attempt: Attempt, failure: Failure) -> FenceText:
    """Text for the write that ends an attempt."""
    what = _WORDS[failure.cause] + (f": {failure.detail}" if failure.detail else "")
    pod = f"{attempt.namespace}/{attempt.pod_name}"
    if failure.cause in _RESERVING:
        what = f"failed to reserve GPUs for pod <{pod}>: {what}"
    message = f"Failed to bind pod {pod} to node {attempt.node}: {what}"
    return FenceText(f"{failure.cause.value}: {failure.detail}"[:_MAX], message[:_MAX])


_IN_THE_WAY: Final = {
    Authorship.FOREIGN: (Cause.REFUSED, "belongs to somebody else"),
    Authorship.RIVAL: (Cause.DEVICE_TAKEN, "was written by another attempt of this pod"),
    Authorship.NEWER: (Cause.WITHDRAWN, "was written by a newer attempt of this pod"),
}


#: Before each try. The second one follows at once: what was written for an older version is replaced.
_PAUSES_S: Final = (0.0, 0.0, 0.1, 0.4, 1.6)


class _Open(msgspec.Struct, frozen=True, gc=False):
    """Neither there as it has to be, nor refused for good. ``why``: what stands against it."""

    why: str


async def write_config_map(api: Api, namespace: str, manifest: Mapping[str, Any]) -> Failure | None:
    """Create a ConfigMap, or find it as it has to be. One of an attempt that can't bind any more is replaced.

    Safe to repeat. Returns the Failure for one that has to stay as it is, that the server refuses for good, or that can
    be neither created nor read again and again; raises ApiError when no clear answer came.
    """
    why = ""
    for pause_s in _PAUSES_S:
        await anyio.sleep(pause_s)
        answer = await _create(api, namespace, manifest)
        if not isinstance(answer, _Open):
            return answer
        why = answer.why
    return Failure(cause=Cause.REFUSED, detail=f"ConfigMap {manifest['metadata']['name']} {why}")


async def _create(api: Api, namespace: str, manifest: Mapping[str, Any]) -> Failure | _Open | None:
    name = str(manifest["metadata"]["name"])
    try:
        await api.create(CONFIG_MAPS, manifest, namespace=namespace)
    except AlreadyExists:
        there = await _find(api, namespace, name)
        if there is None:
            return _Open("can't be created as one exists, and there is none when it is read")
        return await _meet(api, there, manifest, namespace=namespace)
    except ApiError as error:
        # NotFound: the namespace is gone, and the pod with it.
        if books.is_final(error) or isinstance(error, NotFound):
            return Failure(cause=Cause.REFUSED, detail=f"ConfigMap {name}: {error}")
        raise
    return None


async def _meet(api: Api, there: ConfigMap, manifest: Mapping[str, Any], *, namespace: str) -> Failure | _Open | None:
    """What to do about one that is there already: one that is older is taken away."""
    found = authorship(there, manifest)
    if found is Authorship.OURS:
        return None
    if found is not Authorship.OLDER:
        cause, why = _IN_THE_WAY[found]
        return Failure(cause=cause, detail=f"ConfigMap {there.metadata.name} {why}")
    await remove(api, CONFIG_MAPS, there.metadata.name, namespace=namespace, uid=there.metadata.uid)
    return _Open("was written by an older attempt of this pod, was deleted, and does not go away")


async def _find(api: Api, namespace: str, name: str) -> ConfigMap | None:
    try:
        return await api.get(CONFIG_MAPS, name, namespace=namespace)
    except NotFound:
        return None


Answer = Verified | Disputed | Failed
#: Reservation UID and device UUID.
Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Look:
    """One look at a node, for all devices that were wanted before it began."""

    wanted: dict[Key, Reservation] = field(default_factory=dict)
    answers: dict[Key, Answer] = field(default_factory=dict)
    ended: anyio.Event = field(default_factory=anyio.Event)


class Verifier:
    """Verifies devices: one look at a node at a time, a limited number of nodes side by side.

    What is wanted while a look is under way is answered by the next: the busier a node, the more devices a look
    answers for.
    """

    def __init__(self, api: Api, template: ReservationTemplate, *, at_once: int) -> None:
        self._api = api
        self._template = template
        self._limiter = anyio.CapacityLimiter(at_once)
        #: By node: the look that is under way, and the one that is next.
        self._running: dict[str, _Look] = {}
        self._next: dict[str, _Look] = {}

    async def verify(self, held: Reservation) -> Answer:
        """Look for other claims on the device of ``held``."""
        key = (held.uid, held.uuid)
        while True:
            look = self._next.get(held.node)
            if look is not None:
                look.wanted[key] = held
                await look.ended.wait()
            else:
                look = self._next[held.node] = _Look({key: held})
                await self._lead(held.node, look)
            if (answer := look.answers.get(key)) is not None:
                return answer

    async def _lead(self, node: str, look: _Look) -> None:
        """Have a look when the one before has ended. A caller that waits for one that was given up begins another."""
        try:
            while (before := self._running.get(node)) is not None:
                await before.ended.wait()
            async with self._limiter:
                self._running[node] = self._next.pop(node)
                look.answers = await until_answered(partial(self._list, node, look.wanted))
        finally:
            for looks in (self._running, self._next):
                if looks.get(node) is look:
                    del looks[node]
            look.ended.set()

    async def _list(self, node: str, wanted: Mapping[Key, Reservation]) -> dict[Key, Answer]:
        namespace = self._template.namespace
        listed = await self._api.list(PODS, field_selector=field_is("spec.nodeName", node))
        there = [
            reservations.read(pod)
            for pod in listed.items
            if reservations.is_reservation(pod, namespace, app=self._template.app)
        ]
        tenants = [read_pod(pod) for pod in listed.items if pod.metadata.namespace != namespace]
        return {key: _judged(held, there, tenants) for key, held in wanted.items()}


def _judged(held: Reservation, there: Sequence[Reservation], tenants: Sequence[PodView]) -> Answer:
    now = claims.held_alone(held, there)
    return claims.used_by_tenants(now, tenants) if isinstance(now, Reservation) else now


_log: Final = logging.getLogger(__name__)

#: Before a Binding is tried again: this, doubled with each refusal.
_RETRY_S: Final = 0.1
#: Before a pod is read a second time, and at most: it is being changed, and each read costs a renewal, or a fence.
_READ_S: Final = 0.05
_LONGEST_READ_S: Final = 1.0
#: Before a disputed device is looked at again.
_DISPUTE_S: Final = 0.5


class Carrier:
    """Talks to the API server for attempts."""

    def __init__(
        self,
        api: Api,
        *,
        view: View,
        desk: JoinBatcher,
        settings: BinderSettings,
        clock: Clock,
        events: EventRecorder,
        cdi: CdiNames,
        traces: AttemptTraces | None,
    ) -> None:
        self._api = api
        self._view = view
        self._desk = desk
        self._settings = settings
        self._clock = clock
        self._events = events
        self._cdi = cdi
        self._traces = traces
        #: Verifications list all pods of a node: some side by side are enough.
        self._verifier = Verifier(api, settings.reservation, at_once=settings.verify_at_once)

    async def carry(self, state: State, action: Action) -> Outcome:  # noqa: C901, PLR0911 - one case per action
        """Carry out one action."""
        match action:
            case Join(group=group):
                return await self._join(state, group)
            case Verify(group=group):
                return await self._verify(group)
            case ReadPod():
                await anyio.sleep(_read_pause_s(state.reads))
                return outcome.PodRead(await self._read_pod(state))
            case WriteConfigMaps():
                return await self._write_config_maps(state, action)
            case PostBinding():
                return await self._post(state, action)
            case TellBound():
                return await self._tell_bound(state)
            case Renew():
                return await self._renew(state, action)
            case DropRequest():
                return await self._drop(state)
            case Fence():
                return await self._fence(state, action)
            case Leave():
                return await self._leave(state, action)

    async def _join(self, state: State, group: str) -> Outcome:
        pod = self._view.pods.get(state.attempt.pod_uid) or await self._read_pod(state)
        if pod is None:
            return outcome.Failed(Failure(cause=Cause.POD_GONE))
        since = self._clock.now_ns() // SECOND_NS
        caps = pod.caps(state.attempt.alternative, self._settings.memory_caps)
        tenant = state.attempt.tenant(group, state.rv, since=since, grace_s=pod.grace_s, caps=caps)
        opened_for = container_devices.hint(pod.pin(state.attempt.alternative, state.attempt.number_of(group)))
        return await self._desk.join(group, state.attempt.node, tenant, opened_for=opened_for)

    async def _verify(self, group: str) -> Outcome:
        held = self._view.reservations.get(group)
        if held is None or not held.uuid:
            return outcome.Failed(Failure(cause=Cause.RESERVATION_LOST, detail=f"group {group}"))
        answer = await self._verifier.verify(held)
        if isinstance(answer, outcome.Verified):
            self._view.note_verified(held)
        elif isinstance(answer, outcome.Disputed):
            await anyio.sleep(_DISPUTE_S)
        return answer

    async def _read_pod(self, state: State) -> PodView | None:
        pod = await until_answered(partial(binding.read, self._api, _identity(state)))
        if pod is None:
            return None
        seen = read_pod(pod)
        self._view.note_pod(seen)
        return seen

    async def _write_config_maps(self, state: State, action: WriteConfigMaps) -> Outcome:
        attempt = state.attempt
        for manifest in reservation_pod.manifests(
            prefix=action.prefix,
            pod_name=attempt.pod_name,
            pod_uid=attempt.pod_uid,
            rv=state.rv,
            grant=action.grant,
            request=action.request,
            cdi=self._cdi.is_on,
        ):
            failure = await until_answered(partial(write_config_map, self._api, attempt.namespace, manifest))
            if failure is not None:
                return outcome.Failed(failure)
        return outcome.ConfigMapsWritten()

    async def _post(self, state: State, action: PostBinding) -> Outcome:
        attempt = state.attempt
        metadata = bound_pod.bound_metadata(
            action.taken,
            action.grant,
            action.devices,
            node=attempt.node,
            at_ns=self._clock.now_ns(),
            cdi=self._cdi.is_on,
            also=attempt.also_written,
            beside=limits.devices(
                attempt.pod_uid,
                action.taken,
                enforces=self._view.enforces.get(attempt.node, ()),
                shows_tenants=attempt.node in self._view.showing,
                memory_caps=self._settings.memory_caps,
            ),
        )
        if state.tries:
            await anyio.sleep(_RETRY_S * 2**state.tries)
        posted = await binding.post(self._api, _identity(state), rv=action.rv, node=attempt.node, metadata=metadata)
        if isinstance(posted, binding.NotAccepted):
            return outcome.BindingNotAccepted(posted.detail, posted.is_unknown)
        return outcome.BindingAccepted()

    async def _tell_bound(self, state: State) -> Outcome:
        attempt = state.attempt
        try:
            await binding.tell_bound(self._api, _identity(state), node=attempt.node, clock=self._clock)
        except ApiError as error:
            _log.warning("pod %s/%s is bound and was not told: %s", attempt.namespace, attempt.pod_name, error)
        return outcome.BoundTold()

    async def _renew(self, state: State, action: Renew) -> Outcome:
        held = self._held(action.group, state)
        if held is None:
            return outcome.EntryGone(action.group)
        tenant = state.attempt.tenant(action.group, action.old_rv)
        renewed = await books.until_settled(partial(books.renew, self._api, held, tenant, action.rv))
        if not isinstance(renewed, Reservation):
            return outcome.EntryGone(action.group)
        self._view.note_reservation(renewed)
        return outcome.Renewed(action.group, action.rv)

    async def _drop(self, state: State) -> Outcome:
        attempt = state.attempt
        if state.failure is None:
            groups = [device.group for device in attempt.devices]
            nano = sum(device.nano for device in attempt.devices)
            told = {"node": attempt.node, "groups": groups, "gpus_nano": nano, **self._trace_of(attempt)}
            extra = about(LogEvent.POD_BOUND, pod=_place(state), **told)
            _log.info("bound", extra=extra)
            note = binding.scheduled_note(_identity(state), attempt.node, attempt.node_pool or DEFAULT_NODE_POOL)
            self._tell(state, names.REASON_SCHEDULED, note)
        await until_answered(
            partial(remove, self._api, BIND_REQUESTS, attempt.name, namespace=attempt.namespace, uid=attempt.id)
        )
        self._view.request_dropped(attempt.id)
        return outcome.RequestDropped()

    async def _fence(self, state: State, action: Fence) -> Outcome:
        attempt = state.attempt
        text = fence(attempt, action.failure)
        fenced = await until_answered(
            partial(
                binding.fence,
                self._api,
                _identity(state),
                rv=action.rv,
                attempt=attempt.id,
                text=text,
                clock=self._clock,
            ),
            on_forbidden=partial(self._tell_forbidden, state),
        )
        if fenced is None:
            return outcome.FenceMissed()
        self._view.note_pod(read_pod(fenced))
        trace = self._trace_of(attempt)
        extra = about(LogEvent.ATTEMPT_FAILED, pod=_place(state), node=attempt.node, **trace)
        _log.info("not bound: %s", text.because, extra=extra)
        self._tell(state, names.REASON_BINDING_ERROR, text.message, type_=WARNING)
        return outcome.Fenced()

    def _trace_of(self, attempt: Attempt) -> Mapping[str, str]:
        """What a line of the log says of an attempt's trace."""
        return {} if self._traces is None else self._traces.of(attempt)

    async def _leave(self, state: State, action: Leave) -> Outcome:
        held = self._held(action.group, state)
        if held is not None:
            tenant = state.attempt.tenant(action.group, action.rv)
            left = await books.until_settled(partial(books.leave, self._api, held, [tenant]))
            if isinstance(left, Reservation):
                self._view.note_reservation(left)
        return outcome.Left(action.group)

    def _held(self, group: str, state: State) -> Reservation | None:
        """The reservation that was joined, unless it is gone (then its book is, too)."""
        held = self._view.reservations.get(group)
        return held if held is not None and held.uid == state.joined[group].reservation else None

    def _tell_forbidden(self, state: State, error: Forbidden) -> None:
        """A fence that is forbidden holds its pod up until somebody gives us the right."""
        self._tell(state, names.REASON_BINDING_ERROR, forbidden(state.attempt, error), type_=WARNING)

    def _tell(self, state: State, reason: str, note: str, *, type_: str = NORMAL) -> None:
        attempt = state.attempt
        pod = ObjectReference(
            api_version="v1", kind="Pod", name=attempt.pod_name, namespace=attempt.namespace, uid=attempt.pod_uid
        )
        is_final = reason == names.REASON_SCHEDULED
        self._events.record(pod, reason=reason, action="Binding", note=note, type=type_, is_final=is_final)


def _read_pause_s(reads: int) -> float:
    return doubled_s(_READ_S, reads - 1, longest_s=_LONGEST_READ_S) if reads else 0.0


def _identity(state: State) -> binding.Identity:
    return binding.Identity(state.attempt.namespace, state.attempt.pod_name, state.attempt.pod_uid)


def _place(state: State) -> str:
    return f"{state.attempt.namespace}/{state.attempt.pod_name}"
