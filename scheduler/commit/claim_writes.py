"""The writes of claims: of devices, of volumes, and of the claim for extended resources of a pod (KEP-5004).

Each is a compare-and-set on what was read, as kube-scheduler makes it, so that another scheduler that allocates the
same claim is not overwritten. Each can be repeated: what says already what is wanted is left alone. A write is tried
until the server has answered or nobody wants it any more. The name of a claim that is made follows from the pod's UID,
so that a repeated write does not make a second one; names of fields and annotations are kube-scheduler's, as kubelet
and kube-controller-manager read them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import msgspec

from kube import binding
from kube.binding import Identity
from kube.client.api import Api
from kube.client.backoff import until_answered
from kube.client.errors import AlreadyExists, Conflict, Forbidden, NotFound, Refused
from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, RESOURCE_CLAIMS
from scheduler.core.convert import extended_resources
from scheduler.core.convert.resource_claims import extended_for, quantity_text, resource_claim_record, written
from scheduler.core.model.device_requests import ClaimToMake
from scheduler.core.model.devices import ClaimChoice, DeviceClassRecord
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import VolumeChoice
from scheduler.core.nodes.resource_claims import MOST_USERS
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
    """Create the claim of a pod, or read it where it exists. Raises NotWritten if that one is for something else."""
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
        if extended_resources.claim_name(pod) != name:
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
