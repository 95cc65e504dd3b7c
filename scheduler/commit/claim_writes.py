"""The writes of claims: of devices, of volumes, of the claim for extended resources of a pod (KEP-5004), and releases.

Each is a compare-and-set on what was read, as kube-scheduler makes it, so that another scheduler that allocates the
same claim is not overwritten. Each can be repeated: what says already what is wanted is left alone. A write is tried
until the server has answered or nobody wants it any more. Names of fields and annotations are kube-scheduler's, as
kubelet and kube-controller-manager read them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import msgspec

from kube import binding
from kube.binding import FenceText, Identity
from kube.client.api import Api
from kube.client.clock import Clock, monotonic_ns
from kube.client.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Refused
from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, RESOURCE_CLAIMS
from kube.client.retry import until_answered
from scheduler.core.convert import resource_claims
from scheduler.core.convert.resource_claims import extended_for, quantity_text, resource_claim_record, written
from scheduler.core.model.device_requests import ClaimToMake
from scheduler.core.model.devices import ClaimChoice, DeviceClassRecord, ResourceClaimRecord
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import VolumeChoice
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.resource_claims import MOST_USERS
from scheduler.watch.cache import Cache
from wire import names
from wire.core import ObjectReference, Pod
from wire.resource import ResourceClaim
from wire.storage import PersistentVolume, PersistentVolumeClaim

T = TypeVar("T")


class NotWritten(Exception):
    """Raised when a claim or a volume is not what was decided on, or the server refuses for good.

    ``is_overtaken``: nobody failed; a new decision finds what is there now.
    """

    def __init__(self, because: str, *, is_overtaken: bool) -> None:
        super().__init__(because)
        self.is_overtaken = is_overtaken


async def until_written(
    write: Callable[[], Awaitable[T]],
    *,
    named: str,
    changed: str,
    limiter: anyio.CapacityLimiter,
    is_wanted: Callable[[], bool],
) -> T | None:
    """Return what a write returns; None if nobody wants it any more. Raises NotWritten.

    ``named``: the object, for people; ``changed``: the reason where it is gone. ``limiter``: of requests at a time. A
    pause between two of them holds no place: a claim that the server refuses again and again would hold up those of
    others.
    """

    async def attempt() -> T | None:
        async with limiter:
            return await _tried(write, named, changed) if is_wanted() else None

    return await until_answered(attempt)


async def _tried(write: Callable[[], Awaitable[T]], named: str, changed: str) -> T:
    """Try once. What has changed since it was read is read again; rights that lack are given by a person."""
    try:
        return await write()
    except Conflict:
        raise
    except NotFound as error:
        raise NotWritten(f"{changed}: {named}: {error}", is_overtaken=True) from error
    except Refused as error:
        if error.outcome_unknown or isinstance(error, Forbidden):
            raise
        raise NotWritten(f"Refused: {named}: {error}", is_overtaken=False) from error


_GONE: Final = "the claim is gone"


async def choose_volume(
    api: Api,
    placement: Placement,
    choice: VolumeChoice,
    *,
    limiter: anyio.CapacityLimiter,
    is_wanted: Callable[[Placement], bool],
) -> None:
    """Write what was chosen for a claim, until the server has answered. Raises NotWritten."""
    await until_written(
        partial(_claim_volume if choice.volume else _select_node, api, placement, choice),
        named=f"claim {choice.claim}",
        changed="VolumeChanged",
        limiter=limiter,
        is_wanted=partial(is_wanted, placement),
    )


async def _select_node(api: Api, placement: Placement, choice: VolumeChoice) -> None:
    claim = await _read_claim(api, placement, choice)
    selected = (claim.metadata.annotations or {}).get(names.SELECTED_NODE, "")
    if claim.spec.volume_name or selected == choice.node:
        return
    if selected:
        raise NotWritten(f"VolumeChanged: claim {choice.claim} is provisioned for node {selected}", is_overtaken=True)
    await api.patch(
        PERSISTENT_VOLUME_CLAIMS,
        choice.claim,
        {"metadata": {"annotations": {names.SELECTED_NODE: choice.node}}},
        namespace=placement.namespace,
        uid=choice.claim_uid,
        resource_version=claim.metadata.resource_version,
    )


async def _claim_volume(api: Api, placement: Placement, choice: VolumeChoice) -> None:
    claim = await _read_claim(api, placement, choice)
    if claim.spec.volume_name:
        return
    volume = await _read_volume(api, choice)
    ref = volume.spec.claim_ref
    if ref is not None and not _names(ref, placement, choice):
        whose = f"claim {ref.name}" if ref.namespace == placement.namespace else "a claim of another namespace"
        because = f"VolumeTaken: persistent volume {choice.volume} is for {whose}"
        raise NotWritten(because, is_overtaken=True)
    if ref is not None and ref.uid:
        return
    by_us = {} if ref is not None else {"annotations": {names.BOUND_BY_CONTROLLER: "yes"}}
    await api.patch(
        PERSISTENT_VOLUMES,
        choice.volume,
        {"metadata": by_us, "spec": {"claimRef": _reference(claim)}},
        uid=volume.metadata.uid,
        resource_version=volume.metadata.resource_version,
    )


async def _read_claim(api: Api, placement: Placement, choice: VolumeChoice) -> PersistentVolumeClaim:
    try:
        claim = await api.get(PERSISTENT_VOLUME_CLAIMS, choice.claim, namespace=placement.namespace)
    except NotFound:
        raise NotWritten(f"VolumeChanged: {_GONE}: {choice.claim}", is_overtaken=True) from None
    if claim.metadata.uid != choice.claim_uid or claim.metadata.deletion_timestamp is not None:
        raise NotWritten(f"VolumeChanged: {_GONE}: {choice.claim}", is_overtaken=True)
    return claim


async def _read_volume(api: Api, choice: VolumeChoice) -> PersistentVolume:
    try:
        volume = await api.get(PERSISTENT_VOLUMES, choice.volume)
    except NotFound:
        because = f"VolumeTaken: persistent volume {choice.volume} is gone"
        raise NotWritten(because, is_overtaken=True) from None
    if volume.metadata.deletion_timestamp is not None:
        raise NotWritten(f"VolumeTaken: persistent volume {choice.volume} is being deleted", is_overtaken=True)
    return volume


def _names(ref: ObjectReference, placement: Placement, choice: VolumeChoice) -> bool:
    same = (ref.namespace, ref.name) == (placement.namespace, choice.claim)
    return same and ref.uid in {"", choice.claim_uid}


def _reference(claim: PersistentVolumeClaim) -> dict[str, Any]:
    meta = claim.metadata
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }


#: Nano by name of a capacity.
Amounts = tuple[tuple[str, int], ...]
#: A status that names no claim.
NO_CLAIM: Final[dict[str, object]] = {"extendedResourceClaimStatus": None}


async def make_claim(api: Api, placement: Placement, name: str, made: ClaimToMake) -> ResourceClaim:
    """Create the claim of a pod, or read it where it exists. Raises NotWritten if that one is for something else.

    Its name follows from the pod's UID, so that a repeated write does not make a second one.
    """
    owner = {"apiVersion": "v1", "kind": "Pod", "name": placement.name, "uid": placement.pod_uid, "controller": True}
    meta = {"name": name, "annotations": {names.EXTENDED_RESOURCE_CLAIM: "true"}, "ownerReferences": [owner]}
    requests = [_request(*each, made.capacity) for each in made.requests]
    body = {"metadata": meta, "spec": {"devices": {"requests": requests}}}
    try:
        return await api.create(RESOURCE_CLAIMS, body, namespace=placement.namespace)
    except AlreadyExists:
        claim = await api.get(RESOURCE_CLAIMS, name, namespace=placement.namespace)
    if not is_claim_for(claim, placement.pod_uid) or _requests(claim) != _wanted(made):
        raise NotWritten(f"ClaimChanged: ResourceClaim {name}: it is for something else", is_overtaken=True)
    return claim


def is_claim_for(claim: ResourceClaim, pod_uid: str) -> bool:
    """Whether a claim was made for extended resources of a pod (UID), and nobody else uses it."""
    return extended_for(claim) == pod_uid


async def name_in_status(
    api: Api,
    placement: Placement,
    name: str,
    made: ClaimToMake,
    *,
    annotations: Mapping[str, str],
    limiter: anyio.CapacityLimiter,
    is_wanted: Callable[[Placement], bool],
) -> Pod | None:
    """Write the claim and its mappings into the pod's status, at the version that was decided on; return the pod.

    ``annotations``: written with it, so that none is there without the other. None if nobody wants it any more. Raises
    NotWritten, also if the pod is not at that version any more.
    """
    mappings = [
        {"containerName": each.container, "resourceName": each.resource, "requestName": each.request}
        for each in made.mappings
    ]
    body: dict[str, Any] = {
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": mappings}}
    }
    if annotations:
        body["metadata"] = {"annotations": dict(annotations)}

    async def write() -> Pod:
        try:
            pod = await api.patch(
                PODS,
                placement.name,
                body,
                namespace=placement.namespace,
                subresource="status",
                uid=placement.pod_uid,
                resource_version=placement.rv,
            )
        except Conflict:
            current = await binding.read(api, Identity(placement.namespace, placement.name, placement.pod_uid))
            if current is not None and current.metadata.resource_version == placement.rv:
                raise
            because = f"PodChanged: it has changed since ResourceClaim {name} was made for it"
            raise NotWritten(because, is_overtaken=True) from None
        if resource_claims.claim_name(pod) != name:
            # The API server drops fields of features that are off.
            because = "Refused: the API server does not store extendedResourceClaimStatus; turn on DRAExtendedResource"
            raise NotWritten(because, is_overtaken=False)
        return pod

    return await until_written(
        write,
        named=f"status of pod {placement.name}",
        changed="PodChanged",
        limiter=limiter,
        is_wanted=partial(is_wanted, placement),
    )


async def remove_claim(api: Api, claim: ResourceClaim) -> None:
    """Delete a claim as it was read, with its allocation. Raises Conflict if it has changed since, and ApiError."""
    meta = claim.metadata
    at: Any = {"namespace": meta.namespace, "uid": meta.uid}
    try:
        if meta.finalizers and names.CLAIM_FINALIZER in meta.finalizers:
            kept = [each for each in meta.finalizers if each != names.CLAIM_FINALIZER]
            body = {"metadata": {"finalizers": kept or None}}
            claim = await api.patch(RESOURCE_CLAIMS, meta.name, body, resource_version=meta.resource_version, **at)
        if claim.metadata.deletion_timestamp is None:
            await api.delete(RESOURCE_CLAIMS, meta.name, resource_version=claim.metadata.resource_version, **at)
    except NotFound:
        return


def _request(name: str, device_class: str, count: int, capacity: Amounts) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    if capacity:
        exactly["capacity"] = {"requests": {each: quantity_text(nano) for each, nano in capacity}}
    return {"name": name, "exactly": exactly}


def _wanted(made: ClaimToMake) -> list[tuple[str, str, int, Amounts]]:
    return [(*each, made.capacity) for each in made.requests]


def _requests(claim: ResourceClaim) -> list[tuple[str, str, int, Amounts]] | None:
    """Name, class, count and capacity of each request; None if they can't be read."""
    need = resource_claim_record(claim).need
    if need is None or any(len(request.ways) > 1 for request in need.requests):
        return None
    return [(ask.name, ask.device_class, ask.count or 0, ask.capacity) for ask in need.asks()]


#: Finds a DeviceClass by name.
Classes = Callable[[str], DeviceClassRecord | None]


class Written(NamedTuple):
    """A claim (UID) as of the version in which the pod is reserved."""

    uid: str
    version: str


_CHANGED: Final = "ClaimChanged: ResourceClaim {}: {}"


async def allocate(
    api: Api,
    placement: Placement,
    choice: ClaimChoice,
    classes: Classes,
    *,
    limiter: anyio.CapacityLimiter,
    is_wanted: Callable[[Placement], bool],
) -> Written | None:
    """Write an allocation and the pod's reservation, until the server has answered; return what was written.

    A claim that does not exist is made first. None if nobody wants it any more. Raises NotWritten.
    """
    return await until_written(
        _Allocating(api, placement, choice, classes).write,
        named=f"ResourceClaim {choice.claim}",
        changed="ClaimChanged",
        limiter=limiter,
        is_wanted=partial(is_wanted, placement),
    )


async def leave(api: Api, pod: Identity, claim: ResourceClaim) -> ResourceClaim:
    """Take a pod out of ``reservedFor`` of a claim as it was read, and clear the allocation if nobody is left.

    Return it as it is then. Raises Conflict if the claim has changed since, NotFound if it is gone, and ApiError.
    """
    left = [each for each in claim.status.reserved_for or () if each.uid != pod.uid]
    status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(left) if left else None}
    if not left:
        status |= {"allocation": None, "devices": None}
    return await _write(api, claim, {"status": status}, subresource="status")


@dataclass(slots=True)
class _Allocating:
    """One allocation, tried again until it is answered. ``is_sent``: its write may have been carried out."""

    api: Api
    placement: Placement
    choice: ClaimChoice
    classes: Classes
    is_sent: bool = False

    async def write(self) -> Written:
        api, placement, choice = self.api, self.placement, self.choice
        if choice.made is None:
            claim = await api.get(RESOURCE_CLAIMS, choice.claim, namespace=placement.namespace)
        else:
            claim = await make_claim(api, placement, choice.claim, choice.made)
        _check(claim, choice)
        users = claim.status.reserved_for or []
        if any(each.uid == placement.pod_uid for each in users):
            if self.is_sent:
                return _written(claim)
            # Seen late. The process that wrote it may have a withdrawal at this version on its way (rule 5).
            raise NotWritten(_CHANGED.format(choice.claim, "it is reserved for the pod already"), is_overtaken=True)
        if len(users) >= MOST_USERS:
            raise NotWritten(_CHANGED.format(choice.claim, f"{MOST_USERS} others use it"), is_overtaken=True)
        finalizers = claim.metadata.finalizers or []
        if claim.status.allocation is None and names.CLAIM_FINALIZER not in finalizers:
            claim = await _write(api, claim, {"metadata": {"finalizers": [*finalizers, names.CLAIM_FINALIZER]}})
        status: dict[str, Any] = {"reservedFor": [*msgspec.to_builtins(users), _consumer(placement)]}
        if claim.status.allocation is None:
            now_ns = api.clock.now_ns()
            status["allocation"] = msgspec.to_builtins(written(choice.allocation, claim, self.classes, now_ns=now_ns))
        self.is_sent = True
        return _written(await _write(api, claim, {"status": status}, subresource="status"))


def _written(claim: ResourceClaim) -> Written:
    return Written(claim.metadata.uid, claim.metadata.resource_version)


def _check(claim: ResourceClaim, choice: ClaimChoice) -> None:
    """Raise NotWritten if a claim is not what was decided on."""
    is_other = choice.made is None and claim.metadata.uid != choice.claim_uid
    if is_other or claim.metadata.deletion_timestamp is not None:
        raise NotWritten(_CHANGED.format(choice.claim, "it is gone"), is_overtaken=True)
    found = resource_claim_record(claim).allocation
    if found is None and choice.is_allocated:
        raise NotWritten(_CHANGED.format(choice.claim, "it is not allocated any more"), is_overtaken=True)
    if found is not None and _devices(found.results) != _devices(choice.allocation.results):
        raise NotWritten(_CHANGED.format(choice.claim, "it has other devices"), is_overtaken=True)


def _devices(results: Any) -> list[tuple[str, ...]]:
    return [(each.request, *each.id) for each in results]


async def _write(api: Api, claim: ResourceClaim, body: dict[str, Any], *, subresource: str = "") -> ResourceClaim:
    meta = claim.metadata
    return await api.patch(
        RESOURCE_CLAIMS,
        meta.name,
        body,
        namespace=meta.namespace,
        subresource=subresource,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def _consumer(placement: Placement) -> dict[str, str]:
    return {"resource": "pods", "name": placement.name, "uid": placement.pod_uid}


_log: Final = logging.getLogger(__name__)
#: Before claims that could not be given back are looked at again: twice as long each time. Each try fences the pod.
_AGAIN_S: Final = 1.0
_MOST_AGAIN_S: Final = 60.0
_IN_VAIN: Final = "ClaimsGivenBack: its ResourceClaims were allocated, and it could not be bound with them"
_TEXT: Final = FenceText(
    "ClaimsGivenBack: the pod can't be bound with the devices that its ResourceClaims have",
    "Failed to bind pod: its ResourceClaims are released, and it is scheduled again",
)


class _Changed(Exception):
    """Raised when a pod has changed since it was read."""


class LeavingClaims:
    """Gives claims back, for each pod once at a time.

    Claims are given back that are reserved for pods that wait, where they can't be bound by them: those of pods that
    don't fit with them, that another process reserved, for a version of the pod that is past, or whose devices an
    earlier claim has (docs/design/claims.md, rules 4 to 7). The claims are read, then the pod is fenced, then each
    claim is written at the version that was read. Claims that were made for extended resources of the pod are deleted.
    """

    def __init__(self, api: Api, cache: Cache, *, clock: Clock) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        #: Pods (UIDs) whose claims could not be given back, and how long the next pause is.
        self._pauses_s: dict[str, float] = {}
        self._stopped = anyio.Event()

    def stop(self) -> None:
        """Wait for nothing any more; the next leader gives back what is left."""
        self._stopped.set()

    def due(self, *, is_whole: bool) -> Iterator[PodRecord]:
        """Pods whose claims are to be given back after a decision.

        ``is_whole``: the decision has left nobody to the next one, so that a pod without a placement has none for now.
        """
        claims = self._cache.cluster.claims
        for pod in claims.held_by_waiting():
            if self._is_due(pod) and (is_whole or not claims.is_usable(pod)):
                yield pod

    def _is_due(self, pod: PodRecord) -> bool:
        claims, commits = self._cache.cluster.claims, self._cache.cluster.commits
        is_left_alone = claims.elsewhere.is_left_alone(pod.uid) and not claims.is_own(pod.uid)
        return not (pod.deleting or pod.is_elsewhere or commits.is_spoken_for(pod.uid) or is_left_alone)

    async def leave(self, pod: PodRecord) -> None:
        """Give back the claims that are reserved for a pod; it is not decided on meanwhile.

        Where this process has reserved them in vain, the pod is tried again at once a few times, and then backs off.
        What another process reserved may be left to it for a while first (core/nodes/resource_claims.py).
        """
        claims = self._cache.cluster.claims
        is_in_vain = claims.is_own(pod.uid)
        if not is_in_vain and (pause_s := claims.elsewhere.pause_s(pod.uid)):
            found = await self._after_pause(pod.uid, pause_s)
            if found is None:
                self._cache.wake.set()
                return
            pod = found
        claims.note_leaving(pod.uid)
        try:
            left = await self._leave(pod, claims.held(pod))
            if is_in_vain:
                self._cache.cluster.commits.overtaken(pod.uid, _IN_VAIN, now_ns=monotonic_ns())
            else:
                claims.elsewhere.note_given_back(pod.uid)
            claims.note_left(pod.uid, left)
            self._pauses_s.pop(pod.uid, None)
        except (Conflict, _Changed):
            claims.note_kept(pod.uid)
            _log.info("claims of pod %s/%s have changed, and are looked at again", pod.namespace, pod.name)
        except ApiError as error:
            _log.warning("claims of pod %s/%s can't be given back now: %s", pod.namespace, pod.name, error)
            await self._pause(pod.uid)
            claims.note_kept(pod.uid)
        self._cache.wake.set()

    async def _after_pause(self, uid: str, pause_s: int) -> PodRecord | None:
        """Leave a pod alone, and return it if what another process reserved for it is still to be given back."""
        claims = self._cache.cluster.claims
        claims.elsewhere.leave_alone(uid)
        with anyio.move_on_after(pause_s):
            await self._stopped.wait()
        claims.elsewhere.end(uid)
        pod = self._cache.cluster.pod(uid)
        if pod is None or pod.node or claims.is_own(uid) or self._stopped.is_set():
            return None
        return pod if self._is_due(pod) and claims.held(pod) else None

    async def _pause(self, uid: str) -> None:
        pause_s = self._pauses_s.get(uid, _AGAIN_S)
        with anyio.move_on_after(pause_s):
            await self._stopped.wait()
        self._pauses_s[uid] = min(2 * pause_s, _MOST_AGAIN_S)
        if self._cache.cluster.pod(uid) is None:
            del self._pauses_s[uid]

    async def _leave(self, pod: PodRecord, held: Sequence[ResourceClaimRecord]) -> dict[str, str]:
        """Return the claims (UIDs) that were given back, each with its version (``note_left``)."""
        identity = Identity(pod.namespace, pod.name, pod.uid)
        read = [claim for each in held if (claim := await self._read(pod.namespace, each.name)) is not None]
        left = dict.fromkeys((claim.uid for claim in held), "")
        if not await self._fence(identity):
            return left
        for claim in read:
            if is_claim_for(claim, pod.uid):
                # A finalizer of somebody else would keep it, and its allocation with it.
                is_kept = bool(set(claim.metadata.finalizers or ()) - {names.CLAIM_FINALIZER})
                await remove_claim(self._api, await leave(self._api, identity, claim) if is_kept else claim)
                continue
            is_reserved = any(each.uid == pod.uid for each in claim.status.reserved_for or ())
            try:
                seen = await leave(self._api, identity, claim) if is_reserved else claim
            except NotFound:
                continue
            left[seen.metadata.uid] = seen.metadata.resource_version
        return left

    async def _read(self, namespace: str, name: str) -> ResourceClaim | None:
        try:
            return await self._api.get(RESOURCE_CLAIMS, name, namespace=namespace)
        except NotFound:
            return None

    async def _fence(self, identity: Identity) -> bool:
        """Make sure that no Binding can land any more; return whether the pod is there, and unbound.

        Raises _Changed.
        """
        pod = await binding.read(self._api, identity)
        if pod is None or pod.spec.node_name:
            return False
        rv = pod.metadata.resource_version
        attempt = binding.named_at("claims", rv)
        fenced = await binding.fence(
            self._api,
            identity,
            rv=rv,
            attempt=attempt,
            text=_TEXT,
            clock=self._clock,
            status=NO_CLAIM if resource_claims.claim_name(pod) else binding.NOTHING,
        )
        if fenced is None:
            raise _Changed
        self._cache.note_pod(fenced)
        return True
