"""Carries out the actions of the step function, one method each, and brings the answers back as outcomes.

What is safe to repeat is repeated until it is answered; a Binding is posted once per action.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
import msgspec

from binder import reasons
from binder.core import configmaps, outcome
from binder.core.failure import Cause, Failure
from binder.core.outcome import Outcome
from binder.core.pods import PodView, view
from binder.core.state import (
    Action,
    DropRequest,
    Fence,
    Join,
    Leave,
    PostBinding,
    ReadPod,
    Renew,
    State,
    Verify,
    WriteConfigMaps,
)
from binder.desk import Desk
from binder.verifying import verify
from binder.view import View
from gpu import grant as grants
from gpu.book import Entry, Tenant
from gpu.reservation import Reservation
from kube import binding, books
from kube.api import Api
from kube.clock import Clock
from kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Refused
from kube.events import EventRecorder
from kube.resources import BIND_REQUESTS, CONFIG_MAPS

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)


class Carrier:
    """Talks to the API server for attempts."""

    def __init__(
        self, api: Api, *, view: View, desk: Desk, clock: Clock, events: EventRecorder, verified: set[tuple[str, str]]
    ) -> None:
        self._api = api
        self._view = view
        self._desk = desk
        self._clock = clock
        self._events = events
        self._verified = verified

    async def carry(self, state: State, action: Action) -> Outcome:
        """Carry out one action."""
        match action:
            case Join(group=group):
                return await self._join(state, group)
            case Verify(group=group):
                return await self._verify(group)
            case ReadPod():
                return outcome.PodRead(await self._read_pod(state))
            case WriteConfigMaps():
                return await self._write_config_maps(state, action)
            case PostBinding():
                return await self._post(state, action)
            case Renew():
                return await self._renew(state, action)
            case DropRequest():
                return await self._drop(state)
            case Fence():
                return await self._fence(state, action)
            case Leave():
                return await self._leave(state, action)

    async def _join(self, state: State, group: str) -> Outcome:
        pod = self._view.pod(state.attempt.pod_uid) or await self._read_pod(state)
        if pod is None:
            return outcome.Failed(Failure(cause=Cause.POD_GONE))
        tenant = _tenant(state, group, state.rv, since=self._clock.now_ns() // 1_000_000_000)
        return await self._desk.join(group, state.attempt.node, tenant, pod.tolerations)

    async def _verify(self, group: str) -> Outcome:
        held = self._view.reservation_of(group)
        if held is None or not held.uuid:
            return outcome.Failed(Failure(cause=Cause.RESERVATION_LOST, detail=f"group {group}"))
        answer = await self._until_answered(lambda: verify(self._api, held))
        if isinstance(answer, outcome.Verified):
            self._verified.add((held.uid, held.uuid))
        return answer

    async def _read_pod(self, state: State) -> PodView | None:
        pod = await self._until_answered(lambda: binding.read(self._api, _identity(state)))
        if pod is None:
            return None
        seen = view(pod)
        self._view.note_pod(seen)
        return seen

    async def _write_config_maps(self, state: State, action: WriteConfigMaps) -> Outcome:
        pod = state.pod or self._view.pod(state.attempt.pod_uid)
        prefix = pod.config_maps if pod is not None else ""
        attempt = state.attempt
        for manifest in configmaps.manifests(
            prefix=prefix,
            pod_name=attempt.pod_name,
            pod_uid=attempt.pod_uid,
            grant=action.grant,
            request=action.request,
        ):
            failure = await self._until_answered(lambda m=manifest: self._write_config_map(attempt.namespace, m))
            if failure is not None:
                return outcome.Failed(failure)
        return outcome.ConfigMapsWritten()

    async def _write_config_map(self, namespace: str, manifest: dict[str, object]) -> Failure | None:
        """Create it, or find it as it has to be. One of an earlier attempt of this pod is replaced, a foreign one never."""
        wanted = msgspec.convert(manifest, CONFIG_MAPS.type)
        name = wanted.metadata.name
        try:
            await self._api.create(CONFIG_MAPS, manifest, namespace=namespace)
        except AlreadyExists:
            there = await self._api.get(CONFIG_MAPS, name, namespace=namespace)
            owners = [owner.uid for owner in there.metadata.owner_references or ()]
            if owners != [owner.uid for owner in wanted.metadata.owner_references or ()]:
                return Failure(cause=Cause.REFUSED, detail=f"ConfigMap {name} belongs to somebody else")
            if (there.data or {}) != (wanted.data or {}):
                await self._api.delete(CONFIG_MAPS, name, namespace=namespace, uid=there.metadata.uid)
                return await self._write_config_map(namespace, manifest)
        except Refused as error:
            if error.outcome_unknown:
                raise
            return Failure(cause=Cause.REFUSED, detail=f"ConfigMap {name}: {error}")
        return None

    async def _post(self, state: State, action: PostBinding) -> Outcome:
        attempt = state.attempt
        metadata = (
            grants.shared_metadata(action.grant, action.request)
            if attempt.devices
            else grants.whole_metadata(action.request)
        )
        posted = await binding.post(self._api, _identity(state), rv=action.rv, node=attempt.node, metadata=metadata)
        if isinstance(posted, binding.NotAccepted):
            return outcome.BindingNotAccepted(posted.detail)
        self._events.scheduled(attempt.namespace, attempt.pod_name, attempt.pod_uid, attempt.node)
        return outcome.BindingAccepted()

    async def _renew(self, state: State, action: Renew) -> Outcome:
        held = await self._held(action.group, state)
        if held is None:
            return outcome.EntryGone(action.group)
        tenant = _tenant(state, action.group, action.old_rv)
        renewed = await self._until_settled(lambda: books.renew(self._api, held, tenant, action.rv))
        if not isinstance(renewed, Reservation):
            return outcome.EntryGone(action.group)
        self._view.note_reservation(renewed)
        return outcome.Renewed(action.group, action.rv)

    async def _drop(self, state: State) -> Outcome:
        attempt = state.attempt

        async def drop() -> None:
            try:
                await self._api.delete(BIND_REQUESTS, attempt.name, namespace=attempt.namespace, uid=attempt.id)
            except (NotFound, Conflict):
                return  # gone, or another of that name

        await self._until_answered(drop)
        self._view.forget_request(attempt.id)
        return outcome.RequestDropped()

    async def _fence(self, state: State, action: Fence) -> Outcome:
        text = reasons.fence(state.attempt, action.failure)
        fenced = await self._until_answered(
            lambda: binding.fence(
                self._api, _identity(state), rv=action.rv, attempt=state.attempt.id, text=text, clock=self._clock
            )
        )
        if fenced is None:
            return outcome.FenceMissed()
        self._view.note_pod(view(fenced))
        _log.info("attempt failed pod=%s/%s: %s", state.attempt.namespace, state.attempt.pod_name, text.because)
        return outcome.Fenced()

    async def _leave(self, state: State, action: Leave) -> Outcome:
        held = await self._held(action.group, state)
        if held is not None:
            tenant = _tenant(state, action.group, action.rv)
            left = await self._until_settled(lambda: books.leave(self._api, held, [tenant]))
            if isinstance(left, Reservation):
                self._view.note_reservation(left)
        return outcome.Left(action.group)

    async def _held(self, group: str, state: State) -> Reservation | None:
        joined = state.joined[group]
        held = self._view.reservation_of(group)
        return held if held is not None and held.uid == joined.reservation else None

    async def _until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call that is safe to repeat until the server gives a clear answer."""
        delay_s = 0.2
        while True:
            try:
                return await call()
            except ApiError as error:
                _log.warning("no clear answer, asking again: %s", error)
            await anyio.sleep(delay_s)
            delay_s = min(delay_s * 2, 10.0)

    async def _until_settled(self, change: Callable[[], Awaitable[T | books.Contended]]) -> T:
        """Repeat a change of a book while others keep changing it."""
        while True:
            answer = await self._until_answered(change)
            if not isinstance(answer, books.Contended):
                return answer
            await anyio.sleep(0.1)


def _identity(state: State) -> binding.Identity:
    return binding.Identity(state.attempt.namespace, state.attempt.pod_name, state.attempt.pod_uid)


def _tenant(state: State, group: str, rv: str, *, since: int = 0) -> Tenant:
    attempt = state.attempt
    nano = next(device.nano for device in attempt.devices if device.group == group)
    return Tenant(attempt.pod_uid, Entry(nano, attempt.id, rv, since, f"{attempt.namespace}/{attempt.pod_name}"))
