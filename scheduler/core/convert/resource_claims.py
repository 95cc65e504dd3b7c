"""ResourceClaims and extended resources of pods as records: what they ask and have, and allocations to be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from sys import intern
from typing import Final
from uuid import UUID, uuid5

import msgspec

from gpu.bound_pod import ClaimedShare, is_servable
from gpu.request import NO_GPU, ContainerKind, GpuRequest
from scheduler.core.convert import constraints, devices
from scheduler.core.convert.devices import read_selectors
from scheduler.core.convert.owners import controller_uid
from scheduler.core.model.device_requests import (
    AttributeRule,
    DeviceAsk,
    DeviceNeed,
    DeviceRequest,
    DeviceToleration,
    ExtendedAsk,
)
from scheduler.core.model.devices import ClaimAllocation, DeviceClassRecord, DeviceResult, ResourceClaimRecord
from scheduler.core.model.pod_class import Demand, PodClass, Requirement, Term
from wire import names, resource
from wire.core import (
    Container,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    Pod,
)
from wire.quantity import NANO, MalformedQuantity, binary_text, bytes_up, decimal_text, parse_nano
from wire.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from wire.rfc3339 import rfc3339

Written = str | int | float
#: A claim has 32 requests at most (resource/v1), one for each.
MOST_ASKS: Final = 32
_ALWAYS: Final = "Always"
_NATIVE: Final = "kubernetes.io/"


def extended_asks(pod: Pod) -> tuple[ExtendedAsk, ...]:
    """What each container requests; nothing if it is more than a claim can have."""
    found: list[ExtendedAsk] = []
    init = pod.spec.init_containers or ()
    for index, container in enumerate((*init, *pod.spec.containers)):
        is_brief = index < len(init) and container.restart_policy != _ALWAYS
        found += _of(container, index, is_brief=is_brief)
        if len(found) > MOST_ASKS:
            return ()
    return tuple(found)


def _of(container: Container, index: int, *, is_brief: bool) -> tuple[ExtendedAsk, ...]:
    resources = container.resources
    # The API server writes what is limited and not requested as requested.
    asked = resources.requests if resources.limits is None else {**resources.limits, **(resources.requests or {})}
    return _read(container.name, index, tuple(asked.items()), is_brief) if asked else ()


@lru_cache(maxsize=4096)
def _read(
    container: str, index: int, asked: tuple[tuple[str, Written], ...], is_brief: bool
) -> tuple[ExtendedAsk, ...]:
    """What many pods ask alike is kept once."""
    return tuple(
        ExtendedAsk(container=container, index=index, resource=name, place=place, amount=amount, is_brief=is_brief)
        for place, (name, written) in enumerate(sorted(asked, key=itemgetter(0)))
        if is_extended(name) and (amount := _amount(written))
    )


def is_extended(resource: str) -> bool:
    """Whether devices of a driver may stand for a resource: one of a domain that is not Kubernetes' own."""
    if resource.startswith(names.DEVICE_CLASS_PREFIX):
        return True
    return "/" in resource and _NATIVE not in resource and not resource.startswith("requests.")


def _amount(written: Written) -> int:
    """What can't be read keeps the pod waiting anyway (demand.py)."""
    try:
        return bytes_up(written)
    except MalformedQuantity:
        return 0


def claim_name(pod: Pod) -> str:
    """The claim that a pod's status names for its extended resources, "" if none."""
    status = pod.status.extended_resource_claim_status
    return "" if status is None else status.resource_claim_name


def by_claim(demand: Demand, pod: Pod) -> Demand:
    """What a pod takes of its node, without the resources that its status maps to requests of a claim."""
    status = pod.status.extended_resource_claim_status
    if status is None:
        return demand
    return demand.by_claim(frozenset(each.resource_name for each in status.request_mappings or ()))


def claimed(cls: PodClass, share: ClaimedShare | None) -> PodClass:
    """What a pod asks beside the part of a device that a claim gives it: of shared devices nothing."""
    if share is None:
        return cls
    return msgspec.structs.replace(
        cls,
        demand=msgspec.structs.replace(cls.demand, claimed_nano=share.nano),
        request=NO_GPU,
        alternatives=(),
        places=(),
        driver_caps=False,
    )


def without_share(demand: Demand, request: GpuRequest) -> Demand:
    """What a pod takes of its node without the extended resource of shares, which no node has."""
    if not demand.extended or not request.is_shared:
        return demand
    left = tuple(each for each in demand.extended if each[0] != names.GPU_SHARE_RESOURCE)
    return demand if len(left) == len(demand.extended) else msgspec.structs.replace(demand, extended=left)


def for_claims(pod: Pod, cls: PodClass) -> tuple[ExtendedAsk, ...]:
    """What containers request that claims may serve: a share only where exactly its containers request it.

    The webhook writes that request into them. A share that names GPUs, or takes parts of several, is none for a claim.
    """
    asks = extended_asks(pod)
    named = {each.index for each in asks if each.resource == names.GPU_SHARE_RESOURCE}
    if not named or (_is_servable(cls) and all(_indexes(each, pod) == named for each in cls.requests())):
        return asks
    return tuple(each for each in asks if each.resource != names.GPU_SHARE_RESOURCE)


def _is_servable(cls: PodClass) -> bool:
    names_gpus = bool(cls.demand.gpus or cls.uuids or cls.not_uuids)
    insists = bool(cls.constraints.enforced)  # claims have no entries in books, so no back end limits their pods
    return not names_gpus and not insists and all(map(is_servable, cls.requests()))


def _indexes(request: GpuRequest, pod: Pod) -> set[int]:
    """Where the containers with a share are among init containers and containers."""
    first = len(pod.spec.init_containers or ())
    return {ref.index if ref.kind is ContainerKind.INIT else first + ref.index for ref in request.devices()}


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
    pending, failure = devices.progress(claim.status)
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
        awaited=devices.awaited(written.binding_conditions, written.binding_failure_conditions),
    )


def _consumed(written: dict[str, resource.Written] | None) -> tuple[tuple[str, int], ...] | None:
    """Amounts of a shared device; None, the whole of it, where they can't be read."""
    try:
        return _amounts(written, "consumedCapacity")
    except _Unsupported:
        return None


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
    results = [_written_result(each, claim.metadata.uid, number) for number, each in enumerate(allocation.results)]
    chosen = _chosen(claim, allocation.ways)
    config = [*_of_classes(chosen, classes), *_of_claim(claim, chosen)]
    return AllocationResult(
        devices=resource.DeviceAllocationResult(results=results, config=config or None),
        node_selector=None
        if allocation.terms is None
        else NodeSelector(node_selector_terms=list(map(_term, allocation.terms))),
        allocation_timestamp=rfc3339(now_ns) if any(each.awaited for each in allocation.results) else None,
    )


def _written_result(result: DeviceResult, claim_uid: str, number: int) -> resource.DeviceRequestAllocationResult:
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
