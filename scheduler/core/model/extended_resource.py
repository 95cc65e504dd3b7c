"""Extended resources that devices of a driver stand for, as a pod asks for them and as its claim does (KEP-5004).

On a node whose device plugin does not offer ``nvidia.com/gpu``, a pod that requests it gets a ResourceClaim for devices
of the class that maps the name. The scheduler makes the claim.
"""

from __future__ import annotations

import msgspec

from scheduler.core.model.device_need import DeviceNeed


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
    """

    classes: tuple[tuple[str, str], ...]
    need: DeviceNeed

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources."""
        return tuple(name for name, _ in self.classes)


class ClaimToMake(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A claim that does not exist yet: for a pod (UID), with these requests (name, class, count).

    ``mappings``: what the pod's status says of it.
    """

    requests: tuple[tuple[str, str, int], ...]
    mappings: tuple[Mapping, ...]

    @property
    def resources(self) -> frozenset[str]:
        """Extended resources that the pod gets by the claim."""
        return frozenset(each.resource for each in self.mappings)
