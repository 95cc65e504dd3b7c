"""Extended resources that devices of a driver stand for, as a pod asks for them and as its claim does (KEP-5004).

On a node whose device plugin does not offer ``nvidia.com/gpu``, a pod that requests it gets a ResourceClaim for devices
of the class that maps the name. The scheduler makes the claim.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpu.claimedshare import ClaimedShare
from gpu.request import FractionAsk, GpuRequest, MemoryAsk
from scheduler.core.model.device_need import DeviceAsk, DeviceNeed, DeviceRequest

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
    """What a claim asks for a request that a claim can serve (gpu/claimedshare.py); limits are no matter of claims."""
    ask = request.shared[0]
    part = MemoryAsk(ask.mem_mib) if isinstance(ask, MemoryAsk) else FractionAsk(ask.nano)
    wanted = DeviceAsk(name=SHARE_REQUEST, device_class=device_class, part=part)
    return DeviceNeed(requests=(DeviceRequest((wanted,)),))
