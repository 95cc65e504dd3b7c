"""The writes of ResourceClaims: allocate and reserve, as kube-scheduler does it, and leave and clear.

Each is a compare-and-set on what was read, so that another scheduler that allocates the same claim is not overwritten.
Allocating can be repeated: a claim that says already what is wanted is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
import msgspec

from kube.binding import Identity
from kube.client.api import Api
from kube.client.resources import RESOURCE_CLAIMS
from scheduler.commit import extended_writes
from scheduler.commit.until_written import NotWritten, until_written
from scheduler.core.convert.resource_claims import resource_claim_record, written
from scheduler.core.model.devices import ClaimChoice, DeviceClassRecord
from scheduler.core.model.plan import Placement
from scheduler.core.nodes.resource_claims import MOST_USERS
from wire import names
from wire.resource import ResourceClaim

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
            claim = await extended_writes.make(api, placement, choice.claim, choice.made)
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
