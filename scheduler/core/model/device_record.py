"""Devices that drivers offer: slices, pools and classes, as decisions know them (resource.k8s.io/v1).

Amounts are whole nano of their unit (wire/quantity.py).
"""

from __future__ import annotations

import msgspec

from scheduler.core.model.pod_class import Term

#: Driver, pool and name of a device.
DeviceId = tuple[str, str, str]
#: Driver and name of a pool.
PoolId = tuple[str, str]


class Value(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """An attribute's value. ``kind``: ``int``, ``bool``, ``string``, ``version``; "" is one that can't be read."""

    kind: str
    value: int | bool | str


class Policy(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """Which amounts of a capacity a claim may have: ``values``, or a range with steps. Without a range: any."""

    default_nano: int | None = None
    values_nano: tuple[int, ...] = ()
    least_nano: int | None = None
    most_nano: int | None = None
    step_nano: int | None = None


class Capacity(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """How much of something a device has, and what a claim may have of it (None: all of it)."""

    nano: int
    policy: Policy | None = None


class DeviceKind(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """What selectors may read of a device. Names: ``domain/name`` as written, or ``name`` in the driver's domain."""

    driver: str
    attributes: tuple[tuple[str, Value], ...] = ()
    capacity: tuple[tuple[str, Capacity], ...] = ()
    is_shared: bool = False


class DeviceTaint(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A taint of a device."""

    key: str
    value: str
    effect: str


class TaintRuleRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A DeviceTaintRule: a taint of all devices that it selects. None: of any driver, any pool, any name."""

    name: str
    taint: DeviceTaint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    @property
    def key(self) -> str:
        """Its name."""
        return self.name


class DevicePlace(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """From which nodes a device can be used: ``node``, or all (``is_everywhere``), or those that ``terms`` take."""

    node: str = ""
    is_everywhere: bool = False
    terms: tuple[Term, ...] | None = None


#: Amounts of counters that a device draws: counter set, and (counter, nano).
Draws = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


class Awaited(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Conditions of a device that have to be true before pods are bound with it, and those that tell a failure."""

    conditions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class DeviceRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A device. ``place`` None: its slice's. ``unsupported``: a field that no rule reads, so that nobody gets it.

    ``awaited`` None: its pod is bound at once. ``binds_to_node``: once allocated it can be used on one node only.
    """

    name: str
    kind: DeviceKind
    taints: tuple[DeviceTaint, ...] = ()
    draws: Draws = ()
    place: DevicePlace | None = None
    awaited: Awaited | None = None
    binds_to_node: bool = False
    unsupported: str = ""


class SliceRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A ResourceSlice. ``counters``: what its counter sets have. ``wrong``: why nothing of its pool can be used."""

    name: str
    driver: str
    pool: str
    generation: int
    #: How many slices the pool has in this generation.
    slices: int
    place: DevicePlace | None = None
    devices: tuple[DeviceRecord, ...] = ()
    counters: Draws = ()
    wrong: str = ""

    @property
    def key(self) -> str:
        """Its name."""
        return self.name

    @property
    def pool_id(self) -> PoolId:
        """Its pool."""
        return self.driver, self.pool


class DeviceClassRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A DeviceClass. ``configs``: drivers and their parameters as JSON, in order. ``wrong``: why none can use it.

    ``extended_resource``: pods may ask for its devices by this name, "" if there is none. ``created``: as written.
    """

    name: str
    created: str = ""
    selectors: tuple[str, ...] = ()
    configs: tuple[tuple[str, str], ...] = ()
    extended_resource: str = ""
    wrong: str = ""

    @property
    def key(self) -> str:
        """Its name."""
        return self.name
