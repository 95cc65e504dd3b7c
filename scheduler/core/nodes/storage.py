"""What the claims of a pod that waits say of it: why it may not be placed yet, or on which nodes its volumes can be.

The semantics are kube-scheduler's (VolumeBinding, VolumeZone, VolumeRestrictions, NodeVolumeLimits). While a kind can't
be read, what was read of it before counts where it can't have changed: a claim stays bound to its volume, and a volume
stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final, TypeAlias

import msgspec

from scheduler.core.convert import constraints
from scheduler.core.convert.volumes import ClaimKey, ClaimRecord, StorageClassRecord, VolumeRecord, driver_of
from scheduler.core.model.facts import Facts
from scheduler.core.model.pod_class import VolumeNeed
from scheduler.core.model.records import ClaimUse, PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes import volume_limits
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.nodes.volume_limits import Attached, Attachments, Offers

#: What a verdict names while a kind can't be read.
_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_CLASSES: Final = "storageclasses.storage.k8s.io"
_LIMITS: Final = "csinodes.storage.k8s.io"
_ATTACHMENTS: Final = "volumeattachments.storage.k8s.io"
_DRIVERS: Final = "csidrivers.storage.k8s.io"
_CAPACITIES: Final = "csistoragecapacities.storage.k8s.io"
#: Volumes for all are looked for on each node. Nobody means that many.
_MOST_UNBOUND: Final = 32

#: Says of a claim which pods (UIDs) have a node, or are on their way to one.
Holders: TypeAlias = Callable[[ClaimKey], tuple[str, ...]]


class Storage:
    """Claims, volumes, storage classes and limits, and who mounts which claim.

    ``changed`` is called with nodes, or with none, when a decision on a pod of ours may change, ``touched`` with the
    UID of each pod of which that is known.
    """

    def __init__(self, changed: Callable[..., None], touched: Callable[[str], None]) -> None:
        self._told = changed
        self._touched = touched
        read_changed = self._all_changed
        self.claims: Facts[ClaimKey, ClaimRecord] = Facts(
            lambda claim: self._claim_changed(claim.key), read_changed=read_changed
        )
        self.volumes: Facts[str, VolumeRecord] = Facts(self._volume_changed, read_changed=read_changed)
        self.classes: Facts[str, StorageClassRecord] = Facts(self._class_changed, read_changed=read_changed)
        #: What claims that are not bound yet may have.
        self.offers = Offers(self.classes, self._offer_changed, read_changed=read_changed)
        #: Pods (UIDs) that wait and have such claims, by the class of these.
        self._wanting: dict[str, set[str]] = {}
        self.attachments = Attachments(
            volumes_of=self.attached,
            handle_of=self._handle_of,
            limits_changed=self._all_changed,
            attached_changed=self._attached_changed,
            read_changed=read_changed,
        )
        #: Pods that mount claims, by UID; and who mounts which.
        self._pods: dict[str, PodRecord] = {}
        self._users: dict[ClaimKey, set[str]] = {}
        self._has_changed_for_all = False
        #: UID -> a pod that waits, as it is and as it was judged; until something about its claims changes.
        self._judged: dict[str, tuple[PodRecord, PodRecord]] = {}

    # --- what is seen ------------------------------------------------------------------------------------------------
    def holder_changed(self, uid: str) -> None:
        """A pod holds its claims now, or does so no more: others may wait for those that one pod at a time may use."""
        pod = self._pods.get(uid)
        if pod is not None:
            self._touch_users(pod)

    def _touch_users(self, pod: PodRecord) -> None:
        for use in pod.claims:
            key = (pod.namespace, use.name)
            claim = self.claims.get(key)
            if claim is not None and claim.is_alone:
                for uid in self._users.get(key, ()):
                    if uid != pod.uid and not self._pods[uid].node:
                        self._touched(uid)

    def touch_all(self) -> None:
        """Touch all pods that wait, if something that all depend on has changed."""
        if self._has_changed_for_all:
            self._has_changed_for_all = False
            for pod in self._pods.values():
                if not pod.node:
                    self._touched(pod.uid)

    def put_pod(self, pod: PodRecord) -> None:
        """Take a pod as it is now."""
        self.drop_pod(pod.uid)
        if not (pod.claims or pod.inline_volumes):
            return
        self._pods[pod.uid] = pod
        for use in pod.claims:
            self._mount((pod.namespace, use.name), pod.uid)
        if pod.node:
            self.attachments.put(pod)
            self._touch_users(pod)

    def _mount(self, key: ClaimKey, uid: str) -> None:
        """A pod mounts a claim. One that is chosen for by another pod is no longer that pod's alone."""
        users = self._users.setdefault(key, set())
        users.add(uid)
        claim = self.claims.get(key)
        if len(users) == 2 and claim is not None and not claim.is_bound:
            for other in sorted(users - {uid}):
                self._forget_judged(other)
                self._touched(other)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._forget_judged(uid)
        for use in pod.claims:
            users = self._users[pod.namespace, use.name]
            users.discard(uid)
            if not users:
                del self._users[pod.namespace, use.name]
        if pod.node:
            self.attachments.drop(pod)
            self._touch_users(pod)

    def _class_changed(self, _: StorageClassRecord) -> None:
        self.offers.classes_changed()
        self._all_changed()

    def _forget_judged(self, uid: str) -> None:
        judged = self._judged.pop(uid, None)
        for need in () if judged is None else judged[1].cls.unbound:
            wanting = self._wanting.get(need.storage_class, set())
            wanting.discard(uid)
            if not wanting:
                self._wanting.pop(need.storage_class, None)

    def _offer_changed(self, storage_class: str) -> None:
        wanting = sorted(self._wanting.get(storage_class, ()))
        for uid in wanting:
            self._forget_judged(uid)
            self._touched(uid)
        if wanting:
            self._told()

    def _claim_changed(self, key: ClaimKey) -> None:
        self.offers.claim_changed(key, self.claims.get(key))
        users = self._users.get(key)
        if not users:
            return
        for pod in map(self._pods.__getitem__, users):
            self._forget_judged(pod.uid)
            if pod.node:
                self.attachments.count_again(pod.node)
            else:
                self._touched(pod.uid)
        self._told()

    def _volume_changed(self, volume: VolumeRecord) -> None:
        self.attachments.volume_changed(volume.name)
        self.offers.volume_changed(volume.name, self.volumes.get(volume.name))
        if volume.claim is not None:
            self._claim_changed(volume.claim)

    def _handle_of(self, volume: str) -> Attached | None:
        """Of what is attached, as kube-scheduler counts it: not those of drivers that were inside Kubernetes."""
        found = self.volumes.get(volume)
        return None if found is None or found.is_in_tree else found.attached

    def _attached_changed(self, node: str) -> None:
        if self._pods:
            self._told(node)

    def _all_changed(self, *nodes: str) -> None:
        self._judged.clear()
        self._wanting.clear()
        self._has_changed_for_all = True
        if self._pods:
            self._told(*nodes)

    # --- what decisions read -----------------------------------------------------------------------------------------
    def holders(self, is_on_its_way: Callable[[str], bool]) -> Holders:
        """Say of claims which pods (UIDs) hold them. Each claim is looked at once, however many pods mount it."""

        @cache
        def holding(key: ClaimKey) -> tuple[str, ...]:
            return tuple(uid for uid in self._users.get(key, ()) if self._pods[uid].node or is_on_its_way(uid))

        return holding

    def judged(self, pod: PodRecord, holders: Holders) -> PodRecord:
        """A pod that waits, with what its claims ask of nodes, or with the reason why they keep it waiting."""
        if not (pod.claims or pod.inline_volumes) or pod.blocker is not None:
            return pod
        known = self._judged.get(pod.uid)
        if known is None or known[0] is not pod:
            known = self._judged[pod.uid] = (pod, self._judge(pod))
            for need in known[1].cls.unbound:
                self._wanting.setdefault(need.storage_class, set()).add(pod.uid)
        judged = known[1]
        for name in judged.alone:
            if any(uid != pod.uid for uid in holders((pod.namespace, name))):
                return msgspec.structs.replace(pod, blocker=Verdict(code=Code.CLAIM_IN_USE, detail=name))
        return judged

    def in_flight(self, charges: Iterable[Charge]) -> list[tuple[str, tuple[Attached, ...]]]:
        """Nodes of pods that are on their way, with the volumes that drivers attach for them."""
        pods = ((charge.node, self._pods.get(charge.pod_uid)) for charge in charges)
        return [(node, (*self.attached(pod), *self._to_come(pod))) for node, pod in pods if pod is not None]

    def limited_driver(self, storage_class: str) -> str:
        """The CSI driver that makes the volumes of a class; "" if there is none, or no node limits it."""
        kind = self.classes.get(storage_class)
        driver = "" if kind is None else driver_of(kind.provisioner)
        return driver if self.attachments.is_limited(driver) else ""

    def _to_come(self, pod: PodRecord) -> Iterator[Attached]:
        """Volumes of its claims that are not bound, of drivers that nodes limit."""
        for key in ((pod.namespace, use.name) for use in pod.claims):
            claim = self.claims.get(key)
            if claim is not None and not claim.is_bound and (driver := self.limited_driver(claim.storage_class)):
                yield driver, volume_limits.coming_of_claim(key)

    def attached(self, pod: PodRecord) -> tuple[Attached, ...]:
        """Volumes of a pod that a CSI driver attaches: of claims that are bound, and without a claim."""
        found = (self._volume(pod, use) for use in pod.claims)
        of_claims = {v.attached for v in found if v is not None and v.attached is not None}
        return tuple(sorted(of_claims.union(pod.inline_volumes)))

    def _volume(self, pod: PodRecord, use: ClaimUse) -> VolumeRecord | None:
        claim = self.claims.get((pod.namespace, use.name))
        return self.volumes.get(claim.volume) if claim is not None and claim.is_bound else None

    def _judge(self, pod: PodRecord) -> PodRecord:
        obstacle = next((found for use in pod.claims if (found := self._obstacle(pod, use)) is not None), None)
        obstacle = obstacle or self._unread_limits(pod)
        if obstacle is not None:
            return msgspec.structs.replace(pod, blocker=obstacle)
        claims = [self.claims.get((pod.namespace, use.name)) for use in pod.claims]
        volumes = [self._volume(pod, use) for use in pod.claims]
        rules = {volume.rule: None for volume in volumes if volume is not None and volume.rule is not None}
        unbound = sorted(
            ((self._need(claim), claim) for claim in claims if claim is not None and not claim.is_bound),
            key=lambda found: (found[0].size_bytes, found[0].storage_class),
        )
        if len(unbound) > _MOST_UNBOUND:
            too_many = f"more than {_MOST_UNBOUND} claims that wait for their first consumer"
            return msgspec.structs.replace(pod, blocker=Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=too_many))
        cls = msgspec.structs.replace(
            pod.cls,
            unbound=tuple(need for need, _ in unbound),
            constraints=msgspec.structs.replace(pod.cls.constraints, volumes=tuple(rules)),
            attached=tuple(v for v in self.attached(pod) if self.attachments.is_limited(v[0])),
        )
        if too_many := constraints.excessive(cls):
            return msgspec.structs.replace(pod, blocker=Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=too_many))
        alone = tuple(claim.name for claim in claims if claim is not None and claim.is_alone)
        named = tuple((claim.name, claim.uid) for _, claim in unbound)
        return msgspec.structs.replace(pod, cls=cls, alone=alone, unbound_claims=named)

    def _need(self, claim: ClaimRecord) -> VolumeNeed:
        """What a claim needs that is bound with its pod's placement (``_unbound``)."""
        if claim.need is None:
            raise ValueError(f"claim {claim.key} can't be read")
        shared = claim.key if len(self._users.get(claim.key, ())) > 1 else None
        return msgspec.structs.replace(claim.need, volume=self.offers.named_for(claim), claim=shared)

    def _obstacle(self, pod: PodRecord, use: ClaimUse) -> Verdict | None:
        """Why a claim keeps its pod waiting on all nodes."""
        claim = self.claims.get((pod.namespace, use.name))
        wrong = None if claim is None else _wrong(pod, use, claim)
        if not self.claims.is_current and (claim is None or wrong is not None or not claim.is_bound):
            return _not_read(_CLAIMS)
        if claim is None:
            return Verdict(code=Code.CLAIM_NOT_MADE if use.is_own else Code.CLAIM_NOT_FOUND, detail=use.name)
        if wrong is not None:
            return Verdict(code=wrong, detail=claim.name)
        return self._volume_obstacle(claim) if claim.is_bound else self._unbound(claim)

    def _volume_obstacle(self, claim: ClaimRecord) -> Verdict | None:
        if claim.volume in self.volumes:
            return None
        missing = Verdict(code=Code.VOLUME_NOT_FOUND, detail=claim.volume)
        return missing if self.volumes.is_current else _not_read(_VOLUMES)

    def _unbound(self, claim: ClaimRecord) -> Verdict | None:
        """Why a claim that is not bound can't be bound when its pod is placed; None if it can."""
        kind = self.classes.get(claim.storage_class)
        if kind is None and claim.storage_class and not self.classes.is_current:
            return _not_read(_CLASSES)
        if kind is None or not kind.waits or claim.volume:
            return Verdict(code=Code.CLAIM_UNBOUND, detail=claim.name)
        if claim.need is None:
            return Verdict(code=Code.CLAIM_NOT_READABLE, detail=claim.name)
        if not self.volumes.is_current:
            return _not_read(_VOLUMES)  # one that would do may be there
        return self._unread_space(kind)

    def _unread_space(self, kind: StorageClassRecord) -> Verdict | None:
        """Whether it is unknown how much of a class can be provisioned; drivers hardly change, so old ones count."""
        if not kind.provisioner:
            return None
        if not self.offers.drivers.is_read:
            return _not_read(_DRIVERS)
        tells = self.offers.capacities_of(kind.name) is not None
        return _not_read(_CAPACITIES) if tells and not self.offers.capacities.is_current else None

    def _unread_limits(self, pod: PodRecord) -> Verdict | None:
        """Whether it is unknown how many of a pod's volumes a node takes.

        Limits hardly change, so old ones count. What is attached changes all the time.
        """
        volumes = (*self.attached(pod), *self._to_come(pod))
        if volumes and not self.attachments.limits.is_read:
            return _not_read(_LIMITS)
        is_limited = any(self.attachments.is_limited(driver) for driver, _ in volumes)
        return _not_read(_ATTACHMENTS) if is_limited and not self.attachments.attached.is_current else None


def _not_read(kind: str) -> Verdict:
    return Verdict(code=Code.NOT_READ, detail=kind)


def _wrong(pod: PodRecord, use: ClaimUse, claim: ClaimRecord) -> Code | None:
    """What is wrong with a claim that is there."""
    if claim.is_lost:
        return Code.CLAIM_LOST
    if claim.is_leaving:
        return Code.CLAIM_LEAVING
    return Code.CLAIM_NOT_OWN if use.is_own and claim.owner != pod.uid else None
