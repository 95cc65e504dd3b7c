"""The writes of a claim for extended resources of a pod: make it, name it in the pod's status, delete it (KEP-5004).

The names of fields and annotations are kube-scheduler's: kubelet and kube-controller-manager read them. The claim's
name follows from the pod's UID, so that a write that is repeated does not make a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio

from kube import binding
from kube.binding import Identity
from kube.client.api import Api
from kube.client.errors import AlreadyExists, Conflict, NotFound
from kube.client.resources import PODS, RESOURCE_CLAIMS
from scheduler.commit.until_written import NotWritten, until_written
from scheduler.core.convert import extended_resources
from scheduler.core.convert.resource_claims import extended_for, quantity_text, resource_claim_record
from scheduler.core.model.device_requests import ClaimToMake
from scheduler.core.model.plan import Placement
from wire import names
from wire.core import Pod
from wire.resource import ResourceClaim

#: Nano by name of a capacity.
Amounts = tuple[tuple[str, int], ...]
#: A status that names no claim.
NO_CLAIM: Final[dict[str, object]] = {"extendedResourceClaimStatus": None}


async def make(api: Api, placement: Placement, name: str, made: ClaimToMake) -> ResourceClaim:
    """Create the claim of a pod, or read it where it exists. Raises NotWritten if that one is for something else."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": placement.name, "uid": placement.pod_uid, "controller": True}
    meta = {"name": name, "annotations": {names.EXTENDED_RESOURCE_CLAIM: "true"}, "ownerReferences": [owner]}
    requests = [_request(*each, made.capacity) for each in made.requests]
    body = {"metadata": meta, "spec": {"devices": {"requests": requests}}}
    try:
        return await api.create(RESOURCE_CLAIMS, body, namespace=placement.namespace)
    except AlreadyExists:
        claim = await api.get(RESOURCE_CLAIMS, name, namespace=placement.namespace)
    if not is_for(claim, placement.pod_uid) or _requests(claim) != _wanted(made):
        raise NotWritten(f"ClaimChanged: ResourceClaim {name}: it is for something else", is_overtaken=True)
    return claim


def is_for(claim: ResourceClaim, pod_uid: str) -> bool:
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


async def remove(api: Api, claim: ResourceClaim) -> None:
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
