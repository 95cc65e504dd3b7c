"""Claims that were made for extended resources of pods, and which DeviceClass stands for which resource (KEP-5004).

A claim is the pod's by its owner, so that one that a scheduler made before it died is found. A pod that waits is bound
with such a claim only if it has exactly one, and its status names it; all others are given back, which deletes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from gpu.request import NO_GPU, GpuRequest
from scheduler.core.claims.inventory import InventoryView
from scheduler.core.claims.requests import backed, backed_share, claim_to_make, claimed_share, share_to_make
from scheduler.core.model.device_requests import Backed, ClaimToMake, ExtendedAsk, ResourceClaimKey
from scheduler.core.model.devices import ClaimAllocation, ClaimChoice, DeviceClassRecord, ResourceClaimRecord
from scheduler.core.model.records import PodRecord
from wire import names

#: A name may have 253 characters.
_LONGEST_BASE: Final = 224
_SUFFIX: Final = 8
#: A pod has one. Of more, this many are looked at at once.
_MOST_CLAIMS: Final = 8
#: Kinds of asks of which the ways are kept.
_MOST_KEPT: Final = 1024


class ExtendedClaims:
    """``concerns`` is called with pods (UIDs) that wait, when the classes for their extended resources are others."""

    def __init__(self, concerns: Callable[[Iterable[PodRecord]], None]) -> None:
        self._concerns = concerns
        #: DeviceClass by extended resource.
        self._classes: dict[str, str] = {}
        #: Pods that wait and ask for extended resources, by UID.
        self._asking: dict[str, PodRecord] = {}
        #: Claims by namespace and UID of their pod, and the other way.
        self._of: dict[tuple[str, str], dict[ResourceClaimKey, None]] = {}
        self._owners: dict[ResourceClaimKey, str] = {}
        #: Ways by what containers request, with the share that a claim may give.
        self._ways: dict[tuple[tuple[ExtendedAsk, ...], GpuRequest], tuple[Backed, ...]] = {}

    # --- what is seen ------------------------------------------------------------------------------------------------
    def put_classes(self, classes: Iterable[DeviceClassRecord]) -> None:
        """Take all DeviceClasses as they are now."""
        now = class_by_resource(classes)
        if now == self._classes:
            return
        changed = {name for name, _ in now.items() ^ self._classes.items()}
        self._classes = now
        self._ways.clear()
        self._concerns([pod for pod in self._asking.values() if not changed.isdisjoint(_resources(pod))])

    def put_pod(self, pod: PodRecord) -> None:
        """Take a pod that waits."""
        if pod.extended_asks:
            self._asking[pod.uid] = pod

    def drop_pod(self, uid: str) -> None:
        """A pod is gone, or has a node."""
        self._asking.pop(uid, None)

    def put_claim(self, key: ResourceClaimKey, claim: ResourceClaimRecord | None) -> frozenset[str]:
        """Take a claim as it is now, None: it is gone. Return the pods (UIDs) that it is or was made for."""
        owner = claim.owner if claim is not None and claim.is_extended else ""
        before = self._owners.pop(key, "")
        if before:
            own = self._of[key[0], before]
            del own[key]
            if not own:
                del self._of[key[0], before]
        if owner:
            self._owners[key] = owner
            self._of.setdefault((key[0], owner), {})[key] = None
        return frozenset({before, owner} - {""})

    # --- what is asked -----------------------------------------------------------------------------------------------
    def class_of(self, resource: str) -> str | None:
        """The DeviceClass that stands for an extended resource."""
        return self._classes.get(resource)

    def asking(self, uid: str) -> PodRecord | None:
        """The pod that waits and asks for extended resources."""
        return self._asking.get(uid)

    def owner(self, key: ResourceClaimKey) -> str:
        """The pod (UID) that a claim was made for, "" if it was not made for extended resources."""
        return self._owners.get(key, "")

    def of(self, pod: PodRecord) -> list[ResourceClaimKey]:
        """Claims that were made for a pod, the first ones. One in another namespace is nobody's."""
        found = self._of.get((pod.namespace, pod.uid))
        return [] if found is None else list(islice(found, _MOST_CLAIMS))

    def concern(self, pod: PodRecord) -> bool:
        """Whether a pod that waits has such a claim, or a status that names one, or may need one."""
        return self.has_trace(pod) or self._is_backed(pod)

    def _is_backed(self, pod: PodRecord) -> bool:
        return bool(self._classes) and not self._classes.keys().isdisjoint(_resources(pod))

    def has_trace(self, pod: PodRecord) -> bool:
        """Whether there is something to give back."""
        return bool(pod.extended_claim) or (pod.namespace, pod.uid) in self._of

    def is_whole(self, pod: PodRecord) -> bool:
        """Whether the status of a pod names the only claim that was made for it; or there is neither."""
        return [name for _, name in self.of(pod)] == ([pod.extended_claim] if pod.extended_claim else [])

    def ways(self, pod: PodRecord) -> tuple[Backed, ...]:
        """How claims may give a pod its extended resources; nothing if it has a claim already."""
        if not pod.extended_asks or self.has_trace(pod) or not self._is_backed(pod):
            return ()
        share = pod.cls.request if _asks_share(pod) else NO_GPU
        known = self._ways.get((pod.extended_asks, share))
        if known is None:
            if len(self._ways) >= _MOST_KEPT:
                self._ways.clear()
            asks, classes = pod.extended_asks, self._classes
            known = backed_share(asks, classes, share) if share.is_shared else backed(asks, classes)
            self._ways[asks, share] = known
        return known


def class_by_resource(classes: Iterable[DeviceClassRecord]) -> dict[str, str]:
    """DeviceClass by extended resource: of several that name one the newest, of those the first by name."""
    listed = sorted(classes, key=lambda each: each.name, reverse=True)
    listed.sort(key=lambda each: each.created)
    found = {each.extended_resource: each.name for each in listed if each.extended_resource}
    return found | {names.DEVICE_CLASS_PREFIX + each.name: each.name for each in listed}


def made_choice(pod: PodRecord, way: Backed, allocation: ClaimAllocation, view: InventoryView) -> ClaimChoice:
    """What is to be written for the extended resources of a pod, or its share: a claim that is made for it.

    Raises LookupError if the device of a share is not there: one that was just chosen is.
    """
    return ClaimChoice(
        claim=claim_name(pod.name, pod.uid),
        claim_uid=made_uid(pod.uid),
        allocation=allocation,
        made=_share(pod, way, allocation, view) if way.is_share else claim_to_make(pod.extended_asks, way),
    )


def _share(pod: PodRecord, way: Backed, allocation: ClaimAllocation, view: InventoryView) -> ClaimToMake:
    result, ask = allocation.results[0], way.need.asks()[0].part
    share = None if ask is None else claimed_share(result, ask, view)
    if share is None:
        raise LookupError(f"device {'/'.join(result.id)} has no memory to share")
    return share_to_make(pod.extended_asks, way, result, share)


def made_uid(pod_uid: str) -> str:
    """What stands for the UID of the claim of a pod (UID) that is not made yet."""
    return f"extended-resources/{pod_uid}"


def claim_name(pod: str, uid: str) -> str:
    """The name of the claim of a pod: always the same, so that a repeated write makes one."""
    base = pod[:_LONGEST_BASE].rstrip("-.")
    return f"{base}-extended-resources-{hashlib.sha256(uid.encode()).hexdigest()[:_SUFFIX]}"


def _resources(pod: PodRecord) -> set[str]:
    """What classes may stand for. A share is a part of what stands for whole GPUs."""
    named = {each.resource for each in pod.extended_asks}
    if names.GPU_SHARE_RESOURCE not in named:
        return named
    return {*(named - {names.GPU_SHARE_RESOURCE}), names.GPU_RESOURCE}


def _asks_share(pod: PodRecord) -> bool:
    return any(each.resource == names.GPU_SHARE_RESOURCE for each in pod.extended_asks)
