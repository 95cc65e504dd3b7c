"""Carries out the actions of the step function, one method each, and brings the answers back as outcomes.

What is safe to repeat is repeated until it is answered; a Binding is posted once per action.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import anyio

from binder.bind.configmaps import write_config_map
from binder.bind.join_batches import Desk
from binder.bind.verifying import Verifier
from binder.core import configmaps
from binder.settings import BinderSettings
from binder.telemetry import reasons
from binder.telemetry.tracing import Traces
from binder.watch.view import View
from gpu import beside, bound, pinning
from gpu.cause import Cause
from gpu.reservation import Reservation
from kube import binding, books
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.errors import ApiError, Forbidden
from kube.client.patience import doubled_s, until_answered
from kube.client.removal import remove
from kube.client.resources import BIND_REQUESTS
from kube.clusterpolicies import CdiNames
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from sharing import outcome
from sharing.failure import Failure
from sharing.outcome import Outcome
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
from wire.core import ObjectReference
from wire.crds.podgroup import DEFAULT_NODE_POOL
from wire.events import NORMAL, WARNING

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
        desk: Desk,
        settings: BinderSettings,
        clock: Clock,
        events: EventRecorder,
        cdi: CdiNames,
        traces: Traces,
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
        since = self._clock.now_ns() // 1_000_000_000
        caps = pod.caps(state.attempt.alternative, self._settings.memory_caps)
        tenant = state.attempt.tenant(group, state.rv, since=since, grace_s=pod.grace_s, caps=caps)
        opened_for = pinning.hint(pod.pin(state.attempt.alternative, state.attempt.number_of(group)))
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
        for manifest in configmaps.manifests(
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
        metadata = bound.metadata(
            action.taken,
            action.grant,
            action.devices,
            node=attempt.node,
            at_ns=self._clock.now_ns(),
            cdi=self._cdi.is_on,
            also=attempt.also_written,
            beside=beside.devices(
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
            told = {"node": attempt.node, "groups": groups, "gpus_nano": nano, **self._traces.of(attempt)}
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
        text = reasons.fence(attempt, action.failure)
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
        trace = self._traces.of(attempt)
        extra = about(LogEvent.ATTEMPT_FAILED, pod=_place(state), node=attempt.node, **trace)
        _log.info("not bound: %s", text.because, extra=extra)
        self._tell(state, names.REASON_BINDING_ERROR, text.message, type_=WARNING)
        return outcome.Fenced()

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
        self._tell(state, names.REASON_BINDING_ERROR, reasons.forbidden(state.attempt, error), type_=WARNING)

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
