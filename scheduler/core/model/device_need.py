"""What ResourceClaims ask for: requests for devices, and constraints between them (resource.k8s.io/v1).

Claims of several pods of a namespace that ask the same have equal needs, so their pods are one class.
"""

from __future__ import annotations

import msgspec

from gpu.request import FractionAsk, MemoryAsk

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
    """

    requests: tuple[DeviceRequest, ...]
    rules: tuple[AttributeRule, ...] = ()
    claim: ResourceClaimKey | None = None
    namespace: str = ""

    def asks(self) -> tuple[DeviceAsk, ...]:
        """Every way of every request."""
        return tuple(way for request in self.requests for way in request.ways)
