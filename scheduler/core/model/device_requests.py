"""What ResourceClaims ask for, as pods name them and as they say it themselves (resource.k8s.io/v1).

Extended resources that devices of a driver stand for are requests too (KEP-5004): on a node whose device plugin does
not offer ``nvidia.com/gpu``, a pod that requests it gets a ResourceClaim for devices of the class that maps the name.
The scheduler makes the claim.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpu.bound_pod import ClaimedShare
from gpu.request import FractionAsk, GpuRequest, MemoryAsk


class ResourceClaimUse(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim that a pod uses. ``entry``: what the pod calls it. ``is_own``: made for it from a template.

    ``name`` "": it was not made yet. ``group``: PodGroup of Kubernetes' Workload API that the pod is in, "" for none;
    the claim may have been made for it.
    """

    entry: str
    name: str = ""
    is_own: bool = False
    group: str = ""


#: Namespace and name of a ResourceClaim.
ResourceClaimKey = tuple[str, str]


class DeviceToleration(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A toleration of device taints, as written. ``operator`` "" is ``Equal``; ``effect`` "" takes every effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_s: int | None = None


class DeviceAsk(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """One way to satisfy a request. ``name``: the request's, or ``request/subrequest``.

    ``count`` None asks for all devices that match (``allocationMode: All``). ``selectors``: CEL expressions that all
    have to be true. ``is_admin``: devices in use will do, and stay free for others. ``capacity``: amounts in nano, by
    name: the least a device has to have, and what is used of one that several claims may have at once. ``part``: only
    devices that several claims may have at once will do, and this part of the memory of one is used.
    """

    name: str
    device_class: str
    count: int | None = 1
    selectors: tuple[str, ...] = ()
    is_admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()
    part: FractionAsk | MemoryAsk | None = None


class DeviceRequest(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A request of a claim: one way, or several in order of preference (``firstAvailable``)."""

    ways: tuple[DeviceAsk, ...]

    @property
    def name(self) -> str:
        """The request's name, without that of a way."""
        return self.ways[0].name.partition("/")[0]


class AttributeRule(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A constraint: devices of these requests (none: of all) agree on an attribute, or (``is_distinct``) all differ."""

    attribute: str
    requests: tuple[str, ...] = ()
    is_distinct: bool = False


class DeviceNeed(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """What a claim without an allocation asks. ``claim``: its key, if several pods use it: one choice is for all.

    ``namespace``: the claim's, which has a share of the answers that are kept; "" for what no claim asks.

    Claims of several pods of a namespace that ask the same have equal needs, so their pods are one class.
    """

    requests: tuple[DeviceRequest, ...]
    rules: tuple[AttributeRule, ...] = ()
    claim: ResourceClaimKey | None = None
    namespace: str = ""

    def asks(self) -> tuple[DeviceAsk, ...]:
        """Every way of every request."""
        return tuple(way for request in self.requests for way in request.ways)


#: The only request of a claim for a share.
SHARE_REQUEST: Final = "share"


class ExtendedAsk(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """What one container requests of one extended resource.

    ``index``: of the container among init containers and containers, in this order. ``place``: of the resource among
    the names of all that the container requests. ``is_brief``: it ends before containers start, so that devices of
    later ones serve it, too.
    """

    container: str
    index: int
    resource: str
    place: int
    amount: int
    is_brief: bool = False


class Mapping(msgspec.Struct, frozen=True, gc=False):
    """A container gets its extended resource from the devices of this request of the claim."""

    container: str
    resource: str
    request: str


class Backed(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A way to get some extended resources by a claim: each with the DeviceClass that stands for it.

    ``need``: what the claim asks, for a pod that is on a node without a device plugin for these resources.
    ``is_share``: it gives a part of a device, in place of what the pod requests of a shared one.
    """

    classes: tuple[tuple[str, str], ...]
    need: DeviceNeed
    is_share: bool = False

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources."""
        return tuple(name for name, _ in self.classes)

    def for_request(self, request: GpuRequest) -> Backed:
        """The same for another request of the pod: another share is another need."""
        if not self.is_share:
            return self
        return Backed(self.classes, share_need(request, self.classes[0][1]), is_share=True)


class ClaimToMake(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A claim that does not exist yet: for a pod (UID), with these requests (name, class, count).

    ``mappings``: what the pod's status says of it. ``capacity``: what each request asks of a device, in nano by name.
    ``share``: the part of a device that it gives.
    """

    requests: tuple[tuple[str, str, int], ...]
    mappings: tuple[Mapping, ...]
    capacity: tuple[tuple[str, int], ...] = ()
    share: ClaimedShare | None = None

    @property
    def resources(self) -> frozenset[str]:
        """Extended resources that the pod gets by the claim."""
        return frozenset(each.resource for each in self.mappings)


def share_need(request: GpuRequest, device_class: str) -> DeviceNeed:
    """What a claim asks for a request that a claim can serve (gpu/bound_pod.py); limits are no matter of claims."""
    ask = request.shared[0]
    part = MemoryAsk(ask.mem_mib) if isinstance(ask, MemoryAsk) else FractionAsk(ask.nano)
    wanted = DeviceAsk(name=SHARE_REQUEST, device_class=device_class, part=part)
    return DeviceNeed(requests=(DeviceRequest((wanted,)),))
