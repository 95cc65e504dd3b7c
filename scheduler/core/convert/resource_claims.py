"""ResourceClaims: what they ask, and what they have; wire objects in, slim records out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from sys import intern
from typing import Final

import msgspec

from scheduler.core.convert import binding_conditions, constraints
from scheduler.core.convert.controllers import controller_uid
from scheduler.core.convert.device_classes import read_selectors
from scheduler.core.model.device_allocation import ClaimAllocation, DeviceResult, ResourceClaimRecord
from scheduler.core.model.device_need import AttributeRule, DeviceAsk, DeviceNeed, DeviceRequest, DeviceToleration
from wire import names, resource
from wire.core import ObjectMeta, OwnerReference
from wire.quantity import MalformedQuantity, parse_nano
from wire.resource import AllocationResult, DeviceSubRequest, ExactDeviceRequest, ResourceClaim

#: Kubernetes' own limits (resource/v1): requests and constraints of a claim, ways of a request, tolerations of one.
_MOST_REQUESTS: Final = 32
_MOST_RULES: Final = 32
_MOST_WAYS: Final = 8
_MOST_TOLERATIONS: Final = 16
#: What of one claim is kept: within Kubernetes' own limits its selectors alone may fill an object of 1.5 MiB.
_MOST_BYTES: Final = 65_536
#: Kubernetes' own PodGroup, of any version.
_GROUP_KIND: Final = "PodGroup"
_GROUP_API: Final = "scheduling.k8s.io/"
_EXACT: Final = ("", "ExactCount")
_ALL: Final = "All"
_encode: Final = msgspec.json.Encoder().encode


class _Unsupported(Exception):
    """Raised with the field that is not read."""


def resource_claim_record(claim: ResourceClaim) -> ResourceClaimRecord:
    """Read a claim. One whose requests can't be read keeps its pods waiting, and says why."""
    meta, unsupported = claim.metadata, ""
    need: DeviceNeed | None = None
    try:
        need = _need(claim.spec.devices, meta.namespace)
    except _Unsupported as error:
        unsupported = str(error)
    consumers = claim.status.reserved_for or ()
    pods = tuple(each.uid for each in consumers if each.resource == "pods" and not each.api_group)
    pending, failure = binding_conditions.progress(claim.status)
    group = _group(meta)
    return ResourceClaimRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        owner="" if group else controller_uid(meta),
        is_extended=not group and bool(extended_for(claim)),
        group=group,
        is_leaving=meta.deletion_timestamp is not None,
        need=need,
        unsupported=unsupported,
        allocation=_allocation(claim.status.allocation),
        reserved_for=pods,
        others=len(consumers) - len(pods),
        pending=pending,
        failure=failure,
    )


def extended_for(claim: ResourceClaim) -> str:
    """UID of the pod for whose extended resources a claim was made, "" if it is an ordinary one.

    Anybody can write annotation and owner. Where somebody else uses the claim, it is an ordinary one: taking it away
    would free devices that are in use.
    """
    meta = claim.metadata
    if (meta.annotations or {}).get(names.EXTENDED_RESOURCE_CLAIM) != "true":
        return ""
    owner = controller_uid(meta)
    return owner if all(each.uid == owner for each in claim.status.reserved_for or ()) else ""


def _group(meta: ObjectMeta) -> str:
    """The PodGroup of Kubernetes' Workload API for which a claim was made, "" if it was made for none."""
    controllers = (each for each in meta.owner_references or () if each.controller)
    return next((intern(each.name) for each in controllers if _is_group(each)), "")


def _is_group(owner: OwnerReference) -> bool:
    return owner.kind == _GROUP_KIND and owner.api_version.startswith(_GROUP_API)


def _need(asked: resource.DeviceClaim, namespace: str) -> DeviceNeed:
    requests, rules = asked.requests or (), asked.constraints or ()
    _bound("spec.devices.requests", len(requests), _MOST_REQUESTS)
    _bound("spec.devices.constraints", len(rules), _MOST_RULES)
    need = DeviceNeed(
        requests=tuple(_request(each, f"spec.devices.requests[{number}]") for number, each in enumerate(requests)),
        rules=tuple(_rule(each, f"spec.devices.constraints[{number}]") for number, each in enumerate(rules)),
        namespace=namespace,
    )
    _bound("spec.devices, in bytes", len(_encode(need)), _MOST_BYTES)
    return need


def _bound(field: str, count: int, most: int) -> None:
    if count > most:
        raise _Unsupported(f"{field}: {count}, at most {most} are read")


def _request(written: resource.DeviceRequest, field: str) -> DeviceRequest:
    if written.exactly is not None:
        is_admin = bool(written.exactly.admin_access)
        return DeviceRequest((_ask(written.exactly, written.name, f"{field}.exactly", is_admin=is_admin),))
    ways = written.first_available or ()
    if not ways:
        raise _Unsupported(field)
    _bound(f"{field}.firstAvailable", len(ways), _MOST_WAYS)
    return DeviceRequest(
        tuple(
            _ask(way, f"{written.name}/{way.name}", f"{field}.firstAvailable[{number}]", is_admin=False)
            for number, way in enumerate(ways)
        )
    )


def _ask(written: ExactDeviceRequest | DeviceSubRequest, name: str, field: str, *, is_admin: bool) -> DeviceAsk:
    if not written.device_class_name:
        raise _Unsupported(f"{field}.deviceClassName")
    if written.allocation_mode not in {*_EXACT, _ALL}:
        raise _Unsupported(f"{field}.allocationMode: {written.allocation_mode}")
    selectors, wrong = read_selectors(written.selectors)
    if wrong:
        raise _Unsupported(f"{field}.{wrong}")
    _bound(f"{field}.tolerations", len(written.tolerations or ()), _MOST_TOLERATIONS)
    return DeviceAsk(
        name=name,
        device_class=written.device_class_name,
        # The API server writes the default, 1.
        count=None if written.allocation_mode == _ALL else max(1, written.count),
        selectors=selectors,
        is_admin=is_admin,
        tolerations=tuple(_tolerations(written.tolerations)),
        capacity=_amounts(written.capacity.requests if written.capacity else None, f"{field}.capacity.requests"),
    )


def _rule(written: resource.DeviceConstraint, field: str) -> AttributeRule:
    if (written.match_attribute is None) == (written.distinct_attribute is None):
        raise _Unsupported(field)
    return AttributeRule(
        attribute=written.match_attribute or written.distinct_attribute or "",
        requests=tuple(written.requests or ()),
        is_distinct=written.distinct_attribute is not None,
    )


def _tolerations(written: Iterable[resource.DeviceToleration] | None) -> Iterator[DeviceToleration]:
    for each in written or ():
        yield DeviceToleration(each.key, each.operator, each.value, each.effect, each.toleration_seconds)


def _amounts(written: dict[str, resource.Written] | None, field: str) -> tuple[tuple[str, int], ...]:
    try:
        return tuple(sorted((name, parse_nano(each)) for name, each in (written or {}).items()))
    except MalformedQuantity as error:
        raise _Unsupported(f"{field}: {error}") from error


def _allocation(written: AllocationResult | None) -> ClaimAllocation | None:
    if written is None:
        return None
    selector = written.node_selector
    return ClaimAllocation(
        results=tuple(map(_result, written.devices.results or ())),
        terms=None if selector is None else constraints.terms(selector),
    )


def _result(written: resource.DeviceRequestAllocationResult) -> DeviceResult:
    return DeviceResult(
        request=written.request,
        driver=written.driver,
        pool=written.pool,
        device=written.device,
        is_admin=bool(written.admin_access),
        tolerations=tuple(_tolerations(written.tolerations)),
        consumed=None if written.share_id is None else _consumed(written.consumed_capacity),
        share=written.share_id or "",
        awaited=binding_conditions.awaited(written.binding_conditions, written.binding_failure_conditions),
    )


def _consumed(written: dict[str, resource.Written] | None) -> tuple[tuple[str, int], ...] | None:
    """Amounts of a shared device; None, the whole of it, where they can't be read."""
    try:
        return _amounts(written, "consumedCapacity")
    except _Unsupported:
        return None
