"""What is written into ``status.allocation`` of a ResourceClaim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final
from uuid import UUID, uuid5

import msgspec

from scheduler.core.model.device_allocation import ClaimAllocation, DeviceResult
from scheduler.core.model.device_need import DeviceToleration
from scheduler.core.model.device_record import DeviceClassRecord
from scheduler.core.model.pod_class import Requirement, Term
from wire import resource
from wire.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from wire.quantity import NANO, binary_text, decimal_text
from wire.resource import AllocationResult, DeviceAllocationConfiguration, ResourceClaim
from wire.rfc3339 import rfc3339

#: A name space of our own for ids of parts of devices.
_SHARES: Final = UUID("5c1e3f5e-3b0e-5d7a-9a53-6d6f6f726167")
_FROM_CLASS: Final = "FromClass"
_FROM_CLAIM: Final = "FromClaim"


def written(
    allocation: ClaimAllocation,
    claim: ResourceClaim,
    classes: Callable[[str], DeviceClassRecord | None],
    *,
    now_ns: int = 0,
) -> AllocationResult:
    """The allocation of a claim as the API has it, with the parameters of classes and claim that apply.

    ``now_ns``: since when it is waited for conditions of its devices.
    Ids of parts of shared devices follow from the claim's UID and their place in it, so that a repeated write is equal.
    """
    results = [_result(each, claim.metadata.uid, number) for number, each in enumerate(allocation.results)]
    chosen = _chosen(claim, allocation.ways)
    config = [*_of_classes(chosen, classes), *_of_claim(claim, chosen)]
    return AllocationResult(
        devices=resource.DeviceAllocationResult(results=results, config=config or None),
        node_selector=None
        if allocation.terms is None
        else NodeSelector(node_selector_terms=list(map(_term, allocation.terms))),
        allocation_timestamp=rfc3339(now_ns) if any(each.awaited for each in allocation.results) else None,
    )


def _result(result: DeviceResult, claim_uid: str, number: int) -> resource.DeviceRequestAllocationResult:
    is_shared = result.consumed is not None
    return resource.DeviceRequestAllocationResult(
        request=result.request,
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        admin_access=True if result.is_admin else None,
        tolerations=list(map(_toleration, result.tolerations)) or None,
        share_id=str(uuid5(_SHARES, f"{claim_uid}/{number}")) if is_shared else None,
        consumed_capacity={name: quantity_text(nano) for name, nano in result.consumed or ()} or None,
        binding_conditions=None if result.awaited is None else list(result.awaited.conditions) or None,
        binding_failure_conditions=None if result.awaited is None else list(result.awaited.failures) or None,
    )


def _toleration(each: DeviceToleration) -> resource.DeviceToleration:
    return resource.DeviceToleration(
        key=each.key,
        operator=each.operator,
        value=each.value,
        effect=each.effect,
        toleration_seconds=each.toleration_s,
    )


def quantity_text(nano: int) -> str:
    """An amount in nano of its unit as the API has it."""
    return decimal_text(nano) if nano % NANO else binary_text(nano // NANO)


def _chosen(claim: ResourceClaim, ways: Sequence[int]) -> list[tuple[str, str, str]]:
    """Of each request its name, the full name of the way that was taken, and its class."""
    chosen = []
    for request, way in zip(claim.spec.devices.requests or (), ways, strict=True):
        if request.exactly is not None:
            chosen.append((request.name, request.name, request.exactly.device_class_name))
        else:
            taken = (request.first_available or ())[way]
            chosen.append((request.name, f"{request.name}/{taken.name}", taken.device_class_name))
    return chosen


def _of_classes(
    chosen: Sequence[tuple[str, str, str]], classes: Callable[[str], DeviceClassRecord | None]
) -> Iterator[DeviceAllocationConfiguration]:
    """Each class once, for all requests that name it."""
    for name in dict.fromkeys(each for _, _, each in chosen):
        record = classes(name)
        for driver, parameters in record.configs if record is not None else ():
            yield DeviceAllocationConfiguration(
                source=_FROM_CLASS,
                requests=[full for _, full, each in chosen if each == name],
                opaque=resource.OpaqueDeviceConfiguration(driver=driver, parameters=msgspec.json.decode(parameters)),
            )


def _of_claim(claim: ResourceClaim, chosen: Sequence[tuple[str, str, str]]) -> Iterator[DeviceAllocationConfiguration]:
    """What the claim says itself, of requests and of ways that were taken."""
    taken = {each for name, full, _ in chosen for each in (name, full)}
    for config in claim.spec.devices.config or ():
        if not config.requests or not taken.isdisjoint(config.requests):
            yield DeviceAllocationConfiguration(source=_FROM_CLAIM, requests=config.requests, opaque=config.opaque)


def _term(term: Term) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=list(map(_requirement, term.labels)) or None,
        match_fields=list(map(_requirement, term.fields)) or None,
    )


def _requirement(each: Requirement) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=each.key, operator=each.operator, values=list(each.values) or None)
