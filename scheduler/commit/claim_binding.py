"""Binding the claims of pods that were placed, before anything is written for the pods (docs/design/volumes.md).

Their placements are charged meanwhile. When all claims of pods that start together are bound, the charges are given
back and the pods are decided on again: where the volumes are is known then, and the usual rules hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import anyio
import msgspec

from gpu import bound_pod
from kube import binding
from kube.binding import Identity
from kube.client.api import Api
from kube.client.clock import monotonic_ns
from kube.client.errors import Conflict
from kube.client.resources import PODS
from kube.telemetry.logevents import LogEvent, about
from scheduler.commit import claim_writes
from scheduler.commit.claim_writes import NotWritten, Written, choose_volume, name_in_status, until_written
from scheduler.core.model.device_requests import ClaimToMake
from scheduler.core.model.devices import ClaimChoice, ResourceClaimRecord
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import VolumeChoice
from scheduler.core.nodes.resource_claims import READY_WITHIN_S
from scheduler.watch.cache import Cache, Waiting
from wire import names
from wire.core import Condition, Pod
from wire.rfc3339 import rfc3339
from wire.tombstones import is_older
from wire.units import SECOND_NS

#: Devices have this long to be ready for their pod once they are allocated, as with kube-scheduler.
BINDING_S: Final = float(READY_WITHIN_S)
#: The most claims that the message names, and conditions that an event does.
_NAMED: Final = 3
_log: Final = logging.getLogger(__name__)

#: Claims that are reserved, each for a pod.
Reserved: TypeAlias = Sequence[tuple[Placement, ClaimChoice]]
#: A pod that has changed since, one of its claims, and why that ends the attempt.
Changed: TypeAlias = tuple[Placement, ClaimChoice, str]


class PendingDevices:
    """Has pods say that their devices are not ready. ``tell`` records an event. ``limiter``: of requests at a time.

    The condition is written after the pod's claims are reserved. A pod is bound only at the version that they are
    reserved for (docs/design/claims.md, rule 5), so the version that this write makes takes its place.
    """

    def __init__(
        self, api: Api, cache: Cache, *, limiter: anyio.CapacityLimiter, tell: Callable[[Placement, str], None]
    ) -> None:
        self._api = api
        self._cache = cache
        self._limiter = limiter
        self._tell = tell

    async def say(
        self, reserved: Reserved, versions: dict[str, str], *, is_wanted: Callable[[Placement], bool]
    ) -> Changed | None:
        """Write the condition of each pod that waits; return the first pod that has changed since the decision.

        ``versions``: of pods (UIDs) whose status was written since the decision; takes those of these writes.
        """
        changed: list[Changed] = []

        async def write(placement: Placement, choices: Sequence[ClaimChoice]) -> None:
            try:
                await self._write(placement, sorted(choice.claim for choice in choices), versions, is_wanted)
            except NotWritten as error:
                if error.is_overtaken:
                    changed.append((placement, choices[0], str(error)))
                else:
                    _log.warning("the condition of pod %s/%s: %s", placement.namespace, placement.name, error)

        async with anyio.create_task_group() as tasks:
            for placement, choices in self._waiting(reserved):
                tasks.start_soon(write, placement, choices)
        return changed[0] if changed else None

    def _waiting(self, reserved: Reserved) -> list[tuple[Placement, list[ClaimChoice]]]:
        """Pods with those of their claims of which devices are not ready. An event names what these lack."""
        found: dict[str, tuple[Placement, list[ClaimChoice]]] = {}
        for placement, choice in reserved:
            claim = self._cache.cluster.claims.claims.get((placement.namespace, choice.claim))
            if claim is not None and claim.pending:
                named = ", ".join(claim.pending[:_NAMED])
                self._tell(placement, f"waiting on node {placement.node} for {named} (ResourceClaim {choice.claim})")
                found.setdefault(placement.pod_uid, (placement, []))[1].append(choice)
        return [*found.values()]

    async def _write(
        self,
        placement: Placement,
        claims: Sequence[str],
        versions: dict[str, str],
        is_wanted: Callable[[Placement], bool],
    ) -> None:
        uid = placement.pod_uid
        seen = self._cache.waiting.get(uid)
        if seen is None or seen.rv != versions.get(uid, placement.rv):
            return  # it has changed, so it will not be bound by these reservations, and the attempt ends
        pod = await _written(
            self._api, placement, seen, message(placement, claims), limiter=self._limiter, is_wanted=is_wanted
        )
        if pod is not None:
            versions[uid] = pod.metadata.resource_version
            self._cache.note_pod(pod)


def message(placement: Placement, claims: Sequence[str]) -> str:
    """Say what a pod waits for. ``claims``: its ResourceClaims with devices that are not ready."""
    more = f" and {len(claims) - _NAMED} more" if len(claims) > _NAMED else ""
    of = "ResourceClaim" if len(claims) == 1 else "ResourceClaims"
    return (
        f"Waiting for devices of {of} {', '.join(claims[:_NAMED])}{more} to get ready on node {placement.node}; "
        f"if they don't within {BINDING_S / 60:.0f} minutes, the pod is tried again"
    )


async def _written(
    api: Api,
    placement: Placement,
    waiting: Waiting,
    text: str,
    *,
    limiter: anyio.CapacityLimiter,
    is_wanted: Callable[[Placement], bool],
) -> Pod | None:
    """Write the condition at the version of ``waiting``; return the pod. None: nobody wants it, or it says so already.

    Raises NotWritten, also if the pod is not at that version any more.
    """
    if any(each.type == names.CONDITION_POD_SCHEDULED and _says(each, text) for each in waiting.conditions):
        return None
    others = [each for each in waiting.conditions if each.type != names.CONDITION_POD_SCHEDULED]
    condition = {
        "type": names.CONDITION_POD_SCHEDULED,
        "status": "False",
        "reason": names.REASON_DEVICES_PENDING,
        "message": text,
        "lastTransitionTime": rfc3339(api.clock.now_ns()),
    }
    status = {"conditions": [*msgspec.to_builtins(others), condition]}

    async def patch() -> Pod:
        try:
            return await api.patch(
                PODS,
                placement.name,
                {"status": status},
                namespace=placement.namespace,
                subresource="status",
                uid=placement.pod_uid,
                resource_version=waiting.rv,
            )
        except Conflict:
            current = await binding.read(api, Identity(placement.namespace, placement.name, placement.pod_uid))
            if current is not None and current.metadata.resource_version == waiting.rv:
                raise
            because = "PodChanged: it has changed since its ResourceClaims were reserved"
            raise NotWritten(because, is_overtaken=True) from None

    return await until_written(
        patch,
        named=f"status of pod {placement.name}",
        changed="PodChanged",
        limiter=limiter,
        is_wanted=partial(is_wanted, placement),
    )


def _says(condition: Condition, text: str) -> bool:
    said = condition.status, condition.reason, condition.message
    return said == ("False", names.REASON_DEVICES_PENDING, text)


#: The UID of the pod for which a ResourceClaim is reserved ("" for the claim of a volume), namespace, name.
_Key: TypeAlias = tuple[str, str, str]
_Choice: TypeAlias = VolumeChoice | ClaimChoice
#: A pod that goes meanwhile is noticed within this time.
_LOOK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Failed:
    """Why a placement's claims were not bound. ``claim``: the UID of the first. ``node`` "": it is not to blame."""

    placement: Placement
    claim: str
    because: str
    node: str = ""
    is_overtaken: bool = False


class _NotBound(Exception):
    """Raised when a claim will not be bound by this attempt."""

    def __init__(self, failed: _Failed) -> None:
        super().__init__(failed.because)
        self.failed = failed


class Preparing:
    """Has claims bound. ``timeout_s``: pods that start together wait so long for theirs.

    ``tell_pending`` is called with pods whose devices are not ready yet.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        timeout_s: float,
        in_flight: int,
        tell_pending: Callable[[Placement, str], None],
    ) -> None:
        self._api = api
        self._cache = cache
        self._timeout_s = timeout_s
        self._limiter = anyio.CapacityLimiter(in_flight)
        self._pending = PendingDevices(api, cache, limiter=self._limiter, tell=tell_pending)
        self._is_stopped = False
        #: Versions of pods (UIDs) whose status was written for their claims.
        self._versions: dict[str, str] = {}
        #: Who waits for a claim (namespace, name) or a volume (name) to change, by its number.
        self._waiting: dict[Hashable, dict[int, _Watch]] = {}

    def stop(self) -> None:
        """Wait for nothing any more: what is charged stays so, and the next leader goes on from what is written."""
        self._is_stopped = True
        self.stored_changed(None)

    def stored_changed(self, key: Hashable) -> None:
        """A claim or a volume has changed; None: any may have.

        What it says is noted at once: it may be taken back by the next event, before anybody who waits runs.
        """
        keys = [*self._waiting] if key is None else [key]
        for watch in (watch for each in keys for watch in self._waiting.get(each, {}).values()):
            if isinstance(watch, _VolumeWatch):
                watch.was_chosen |= self._is_chosen(watch)
            watch.event.set()

    async def prepare(self, placements: Sequence[Placement]) -> None:
        """Have the claims of pods bound that start together, and give their charges back."""
        failed = await self._bound_in_time(placements)
        if self._is_stopped:
            return
        if failed is None:
            self._note_own(placements)
            self._cache.preemption.note_claims_bound(_uids_of(placements))
        else:
            self._note(failed, beside=_uids_of(placements))
        for placement in placements:
            self._versions.pop(placement.pod_uid, None)
            self._cache.cluster.commits.release(placement.pod_uid, attempt=placement.number)
        self._cache.wake.set()

    async def _bound_in_time(self, placements: Sequence[Placement]) -> _Failed | None:
        """Return the first failure, None if all are bound."""
        failures: list[_Failed] = []
        left = {**_volumes_of(placements), **_claims_of(placements)}
        devices: dict[_Key, tuple[Placement, ClaimChoice]] = {}
        with anyio.move_on_after(self._timeout_s) as scope:
            async with anyio.create_task_group() as tasks:

                async def bind(key: _Key) -> None:
                    placement, choice = left[key]
                    try:
                        if isinstance(choice, ClaimChoice):
                            await self._allocate(placement, choice)
                            devices[key] = placement, choice
                        else:
                            await self._bind(placement, choice)
                    except _NotBound as error:
                        failures.append(error.failed)
                        tasks.cancel_scope.cancel()
                    del left[key]

                for key in [*left]:
                    tasks.start_soon(bind, key)
        if not failures and scope.cancelled_caught and left:
            named = ", ".join(sorted({claim for *_, claim in left})[:_NAMED])
            because = f"VolumeTimeout: {len(left)} claims were not bound within {self._timeout_s:.0f} s: {named}"
            placement, choice = next(iter(left.values()))
            failures.append(_Failed(placement, choice.claim_uid, because))
        return failures[0] if failures else await self._failed_devices(list(devices.values()))

    async def _failed_devices(self, reserved: Sequence[tuple[Placement, ClaimChoice]]) -> _Failed | None:
        """Wait until the devices of claims that are reserved are ready; return the first failure, None if all are."""
        left = list(reserved)
        with anyio.move_on_after(BINDING_S):
            changed = await self._pending.say(reserved, self._versions, is_wanted=self._is_under_way)
            if changed is not None:
                placement, choice, because = changed
                return _Failed(placement, choice.claim_uid, because, is_overtaken=True)
            while left:
                placement, choice = left[-1]
                watch = _Watch()
                try:
                    self._look_for_edits(reserved)
                    while self._is_under_way(placement) and not self._is_ready(placement, choice):
                        with self._watching(watch, *_keys(left)), anyio.move_on_after(_LOOK_S):
                            await watch.event.wait()
                        watch.event = anyio.Event()
                        self._look_for_edits(reserved)
                        for each in left:  # one that fails is not waited for behind others
                            if self._is_under_way(each[0]):
                                self._is_ready(*each)
                except _NotBound as error:
                    return error.failed
                left.pop()
        if not left:
            return None
        placement, choice = left[-1]
        pending = ", ".join(self._claim(placement, choice).pending[:_NAMED])
        because = f"BindingTimeout: within {BINDING_S:.0f} s devices of ResourceClaim {choice.claim} lack {pending}"
        return _Failed(placement, choice.claim_uid, because, node=placement.node)

    def _look_for_edits(self, reserved: Sequence[tuple[Placement, ClaimChoice]]) -> None:
        """Raise _NotBound if a pod is at a later version than its claims are reserved for: none binds it (rule 5)."""
        for placement, choice in reserved:
            seen = self._cache.waiting.get(placement.pod_uid)
            if seen is not None and is_older(self._versions.get(placement.pod_uid, placement.rv), seen.rv):
                because = "PodChanged: it has changed since its ResourceClaims were reserved"
                raise _NotBound(_Failed(placement, choice.claim_uid, because, is_overtaken=True))

    def _is_ready(self, placement: Placement, choice: ClaimChoice) -> bool:
        """Whether devices of a claim report all that they have to. Raises _NotBound if one failed, or it was taken."""
        claim = self._claim(placement, choice)
        if claim.failure:
            because = f"BindingFailed: ResourceClaim {choice.claim}: {claim.failure} is true"
            raise _NotBound(_Failed(placement, choice.claim_uid, because, node=placement.node))
        return not claim.pending

    def _claim(self, placement: Placement, choice: ClaimChoice) -> ResourceClaimRecord:
        """A claim that was reserved for a pod. Raises _NotBound if it is not any more."""
        claim = self._cache.cluster.claims.claims.get((placement.namespace, choice.claim))
        if claim is None or placement.pod_uid not in claim.reserved_for:
            because = f"ClaimChanged: ResourceClaim {choice.claim} is not reserved any more"
            raise _NotBound(_Failed(placement, choice.claim_uid, because, is_overtaken=True))
        return claim

    async def _bind(self, placement: Placement, choice: VolumeChoice) -> None:
        watch = _VolumeWatch(placement, choice)
        with self._watching(watch, (placement.namespace, choice.claim), choice.volume):
            try:
                await choose_volume(self._api, placement, choice, limiter=self._limiter, is_wanted=self._is_under_way)
            except NotWritten as error:
                raise _NotBound(
                    _Failed(placement, choice.claim_uid, str(error), is_overtaken=error.is_overtaken)
                ) from error
            watch.event = anyio.Event()
            while self._is_under_way(placement) and not self._is_bound(watch):
                with self._watching(watch, watch.volume), anyio.move_on_after(_LOOK_S):
                    await watch.event.wait()
                watch.event = anyio.Event()

    async def _allocate(self, placement: Placement, choice: ClaimChoice) -> None:
        """Allocate a ResourceClaim and reserve it, and wait until the watch shows that."""
        classes = self._cache.cluster.claims.inventory.classes.get
        try:
            written = await claim_writes.allocate(
                self._api, placement, choice, classes, limiter=self._limiter, is_wanted=self._is_under_way
            )
            if choice.made is not None and written is not None:
                await self._name_in_status(placement, choice, choice.made)
        except NotWritten as error:
            raise _NotBound(
                _Failed(placement, choice.claim_uid, str(error), is_overtaken=error.is_overtaken)
            ) from error
        watch = _Watch()
        while written and self._is_under_way(placement) and not self._is_reserved(placement, choice, written):
            with self._watching(watch, (placement.namespace, choice.claim)), anyio.move_on_after(_LOOK_S):
                await watch.event.wait()
            watch.event = anyio.Event()

    async def _name_in_status(self, placement: Placement, choice: ClaimChoice, made: ClaimToMake) -> None:
        """Write into the pod's status which claim was made for it. That is the version by which it is bound."""
        pod = await name_in_status(
            self._api,
            placement,
            choice.claim,
            made,
            annotations=self._annotations(placement, made),
            limiter=self._limiter,
            is_wanted=self._is_under_way,
        )
        if pod is not None:
            self._versions[placement.pod_uid] = pod.metadata.resource_version
            self._cache.note_pod(pod)

    def _annotations(self, placement: Placement, made: ClaimToMake) -> dict[str, str]:
        """What containers read of the share that a claim gives.

        Raises NotWritten if the pod was seen in a later version than was decided on: another scheduler may have named
        a claim in its status, and what it asks is that claim then.
        """
        pod = self._cache.cluster.pod(placement.pod_uid)
        if pod is not None and is_older(placement.rv, pod.rv):
            raise NotWritten("PodChanged: it has changed since it was placed", is_overtaken=True)
        taken = None if pod is None else pod.taken(placement.alternative)
        if made.share is None or taken is None:
            return {}
        return bound_pod.claimed_metadata(made.share, taken, node=placement.node, at_ns=self._api.clock.now_ns())

    def _is_reserved(self, placement: Placement, choice: ClaimChoice, written: Written) -> bool:
        """Whether what was written is seen. Raises _NotBound if a later write has taken it back."""
        claim = self._cache.cluster.claims.claims.get((placement.namespace, choice.claim))
        if claim is None and choice.made is not None:
            return False  # it is not seen yet; if it is gone already, the time for it ends
        is_gone = claim is None or claim.uid != written.uid
        if claim is not None and not is_gone and is_older(claim.resource_version, written.version):
            return False
        if claim is None or is_gone or placement.pod_uid not in claim.reserved_for:
            because = f"ClaimChanged: ResourceClaim {choice.claim} is not reserved any more"
            raise _NotBound(_Failed(placement, choice.claim_uid, because, is_overtaken=True))
        return True

    def _note_own(self, placements: Sequence[Placement]) -> None:
        """Pods are bound by reservations that this process has written for the version that it decided on."""
        cluster = self._cache.cluster
        for placement in placements:
            pod = cluster.pod(placement.pod_uid)
            version = self._versions.pop(placement.pod_uid, placement.rv)
            if pod is not None and (pod.resource_claims or pod.extended_claim):
                cluster.claims.note_own(placement.pod_uid, version)

    def _is_under_way(self, placement: Placement) -> bool:
        commits = self._cache.cluster.commits
        return not self._is_stopped and commits.is_under_way(placement.pod_uid, attempt=placement.number)

    @contextmanager
    def _watching(self, watch: _Watch, *keys: Hashable) -> Iterator[None]:
        added = [key for key in keys if id(watch) not in self._waiting.setdefault(key, {})]
        for key in added:
            self._waiting[key][id(watch)] = watch
        try:
            yield
        finally:
            for key in added:
                del self._waiting[key][id(watch)]
                if not self._waiting[key]:
                    del self._waiting[key]

    def _is_bound(self, watch: _VolumeWatch) -> bool:
        """Whether a claim is bound to a volume that is known, as far as is seen. Raises _NotBound."""
        storage, placement, choice = self._cache.cluster.storage, watch.placement, watch.choice
        claim = storage.claims.get((placement.namespace, choice.claim))
        if claim is None or claim.uid != choice.claim_uid or claim.is_leaving:
            because = f"VolumeChanged: claim {choice.claim} is gone"
            raise _NotBound(_Failed(placement, choice.claim_uid, because, is_overtaken=True))
        if claim.is_bound:
            watch.volume = claim.volume
            return claim.volume in storage.volumes
        is_chosen = self._is_chosen(watch)
        if watch.was_chosen and not is_chosen:
            raise _NotBound(self._taken_back(placement, choice))
        watch.was_chosen |= is_chosen
        return False

    def _is_chosen(self, watch: _VolumeWatch) -> bool:
        """Whether what was chosen for a claim is written, as far as is seen."""
        storage, choice = self._cache.cluster.storage, watch.choice
        claim = storage.claims.get((watch.placement.namespace, choice.claim))
        if claim is None or claim.uid != choice.claim_uid:
            return False
        if choice.volume:
            volume = storage.volumes.get(choice.volume)
            return volume is not None and volume.claim == claim.key
        return claim.need is None or claim.need.node == choice.node

    def _taken_back(self, placement: Placement, choice: VolumeChoice) -> _Failed:
        if choice.volume:
            because = f"VolumeTaken: persistent volume {choice.volume} is for claim {choice.claim} no more"
            return _Failed(placement, choice.claim_uid, because, is_overtaken=True)
        because = f"ProvisioningFailed: no volume was made for claim {choice.claim} on node {choice.node}"
        # Of a pod that is elsewhere no node is to blame: another one is selected in a new decision.
        is_elsewhere = placement.node != choice.node
        return _Failed(placement, choice.claim_uid, because, node=choice.node, is_overtaken=is_elsewhere)

    def _note(self, failed: _Failed, *, beside: Sequence[str]) -> None:
        placement, commits, now_ns = failed.placement, self._cache.cluster.commits, monotonic_ns()
        place = f"{placement.namespace}/{placement.name}"
        extra = about(LogEvent.ATTEMPT_FAILED, pod=place, node=placement.node)
        _log.info("its claims were not bound: %s", failed.because, extra=extra)
        if failed.is_overtaken:
            commits.overtaken(placement.pod_uid, failed.because, now_ns=now_ns)
        else:
            at_s = self._api.clock.now_ns() // SECOND_NS
            self._cache.preemption.note_claim_failed(failed.claim, at_s=at_s, beside=beside)
            commits.failed(placement.pod_uid, failed.node, failed.because, now_ns=now_ns)


def _volumes_of(placements: Sequence[Placement]) -> dict[_Key, tuple[Placement, _Choice]]:
    """Each claim of a volume once: of the pod for whose node it is bound, if that is one of these."""
    found: dict[_Key, tuple[Placement, _Choice]] = {}
    for placement in placements:
        for choice in placement.volumes:
            key = "", placement.namespace, choice.claim
            if key not in found or found[key][0].node != choice.node == placement.node:
                found[key] = placement, choice
    return found


def _keys(reserved: Sequence[tuple[Placement, ClaimChoice]]) -> set[Hashable]:
    return {(placement.namespace, choice.claim) for placement, choice in reserved}


def _uids_of(placements: Sequence[Placement]) -> list[str]:
    volumes = [choice.claim_uid for each in placements for choice in each.volumes]
    return [*volumes, *(choice.claim_uid for each in placements for choice in each.claims)]


def _claims_of(placements: Sequence[Placement]) -> dict[_Key, tuple[Placement, _Choice]]:
    """Each ResourceClaim for each of its pods, since it is reserved for each."""
    return {
        (each.pod_uid, each.namespace, choice.claim): (each, choice) for each in placements for choice in each.claims
    }


@dataclass(slots=True)
class _Watch:
    """Somebody who waits for a claim or a volume to change. ``event``: set when one has."""

    event: anyio.Event = field(default_factory=anyio.Event, kw_only=True)


@dataclass(slots=True)
class _VolumeWatch(_Watch):
    """A claim whose binding is waited for. ``volume``: what it is bound to. ``was_chosen``: the write was seen."""

    placement: Placement
    choice: VolumeChoice
    volume: str = ""
    was_chosen: bool = False
