"""Extended resources of a pod, container by container, and the claim that its status names for them."""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import Final

import msgspec

from gpu.bound_pod import ClaimedShare, is_servable
from gpu.request import NO_GPU, ContainerKind, GpuRequest
from scheduler.core.model.device_requests import ExtendedAsk
from scheduler.core.model.pod_class import Demand, PodClass
from wire import names
from wire.core import Container, Pod
from wire.quantity import MalformedQuantity, bytes_up

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
