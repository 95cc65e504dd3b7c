"""What was chosen for ResourceClaims, or why nothing could be."""

from __future__ import annotations

from enum import Enum

import msgspec

from scheduler.core.model.device_need import DeviceNeed, DeviceToleration, ResourceClaimKey
from scheduler.core.model.device_record import Awaited, DeviceId
from scheduler.core.model.pod_class import Term


class DeviceResult(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One device for one request (``request`` or ``request/subrequest``).

    ``consumed``: amounts in nano, by capacity, of a device that several claims may have; None: the whole device.
    ``share``: which part of such a device it is, "" until the allocation is written. ``awaited``: what pods wait for.
    """

    request: str
    driver: str
    pool: str
    device: str
    is_admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    consumed: tuple[tuple[str, int], ...] | None = None
    share: str = ""
    awaited: Awaited | None = None

    @property
    def id(self) -> DeviceId:
        """The device."""
        return self.driver, self.pool, self.device


class ClaimAllocation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The devices of one claim. ``terms``: nodes on which they can be used, None: all.

    ``ways``: which way of each request was taken, by number, as classes' parameters depend on it.
    """

    results: tuple[DeviceResult, ...] = ()
    terms: tuple[Term, ...] | None = None
    ways: tuple[int, ...] = ()


class RefusalCode(Enum):
    """Why a node has no devices for a pod's claims."""

    NO_DEVICES = "cannot allocate all claims"
    NOT_SHARED = "devices can't be shared"
    NO_CLASS = "device class does not exist"
    INCOMPLETE_POOL = "asks for all devices, but a pool is being updated"
    INVALID_POOL = "a pool of devices is invalid"
    SELECTOR_FAILED = "a selector could not be evaluated"
    TOO_MANY_RESULTS = "a claim can have 32 devices at most"
    SEARCH_CUT = "search for devices ended before all ways were tried"
    UNSUPPORTED = "a field is not supported"


class DeviceRefusal(msgspec.Struct, frozen=True, gc=False):
    """Why a node has none, and of what (pool, selector, field)."""

    code: RefusalCode
    detail: str = ""


class ResourceClaimRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A ResourceClaim. ``need`` None: what it asks can't be read or is not supported, and ``unsupported`` says what.

    ``allocation`` None: it has none yet. ``reserved_for``: UIDs of the pods that may use it; ``others``: how many
    consumers are not pods. ``owner``: UID of the pod that it was made for, "" if none: from a template, or
    (``is_extended``) by a scheduler, for extended resources of the pod. ``group``: name of the PodGroup of Kubernetes'
    Workload API that it was made for, "" if none: all pods of that group may use it. ``pending``: conditions of its
    devices that are not true yet; ``failure``: one that says that a device can't be used, and where, "" if none.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    owner: str = ""
    is_extended: bool = False
    group: str = ""
    is_leaving: bool = False
    need: DeviceNeed | None = None
    unsupported: str = ""
    allocation: ClaimAllocation | None = None
    reserved_for: tuple[str, ...] = ()
    others: int = 0
    pending: tuple[str, ...] = ()
    failure: str = ""

    @property
    def key(self) -> ResourceClaimKey:
        """What pods name it by."""
        return self.namespace, self.name
