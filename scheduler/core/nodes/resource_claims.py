"""What the ResourceClaims of a pod that waits say of it: why it may not be placed yet, what is to be allocated, where.

The semantics are kube-scheduler's (DynamicResources). Devices of all allocated claims are taken. A pod that waits may
have claims that are reserved for it: it is bound by them only where this process reserved them, for the version of the
pod that is known (docs/design/claims.md, rule 5). All others are given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from scheduler.core.claims.devices_in_use import Taken, clashes
from scheduler.core.claims.inventory import Inventory
from scheduler.core.claims.selectors import Compiler
from scheduler.core.convert import constraints
from scheduler.core.convert.constraints import MOST_CLAIMS
from scheduler.core.model.device_requests import Backed, DeviceNeed, ResourceClaimKey, ResourceClaimUse
from scheduler.core.model.devices import DeviceResult, ResourceClaimRecord
from scheduler.core.model.facts import Facts
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.extended_claims import ExtendedClaims
from scheduler.core.nodes.vanished_users import VanishedUsers
from wire.tombstones import is_older


class _Since(msgspec.Struct, frozen=True, gc=False):
    """When an allocation was written: at this version, or (not ``is_exact``) there or before."""

    results: tuple[DeviceResult, ...]
    version: int
    is_exact: bool


class AllocationOrder:
    """Claims by UID, as they are seen."""

    def __init__(self) -> None:
        self._since: dict[str, _Since | None] = {}
        self._is_listing = False

    @contextmanager
    def listing(self) -> Iterator[None]:
        """What is put meanwhile was listed, so that nothing is known of the order of writes."""
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False

    def put(self, claim: ResourceClaimRecord, results: Sequence[DeviceResult]) -> None:
        """Take what a claim has now; nothing: it has none."""
        now, known = tuple(results), self._since.get(claim.uid)
        if not now:
            self._since[claim.uid] = None
        elif known is None or known.results != now:
            is_exact = not self._is_listing and claim.uid in self._since
            self._since[claim.uid] = _Since(now, _number(claim.resource_version), is_exact)

    def forget(self, uid: str) -> None:
        """A claim is gone."""
        self._since.pop(uid, None)

    def is_later(self, uid: str, than: str) -> bool:
        """Whether a claim (UID) was surely allocated after another one."""
        one, other = self._since.get(uid), self._since.get(than)
        return one is not None and other is not None and one.is_exact and one.version > other.version


def _number(version: str) -> int:
    """A resourceVersion as a number (KEP-5504); those of other API servers are before all others."""
    return int(version) if version.isdecimal() else 0


#: Of the second time.
_FIRST_S: Final = 1
#: As long as a scheduler waits for devices to get ready.
READY_WITHIN_S: Final = 600


class ReservedElsewhere:
    """Pods by UID."""

    def __init__(self) -> None:
        #: For how long the next one is left alone; none: it was the first.
        self._pauses_s: dict[str, int] = {}
        self._left_alone: set[str] = set()

    def pause_s(self, uid: str) -> int:
        """For how many seconds what another process reserved for a pod is left alone before it is given back."""
        return self._pauses_s.get(uid, 0)

    def note_given_back(self, uid: str) -> None:
        """What another process reserved for a pod was given back."""
        self._pauses_s[uid] = min(READY_WITHIN_S, max(_FIRST_S, 2 * self.pause_s(uid)))

    def leave_alone(self, uid: str) -> None:
        """The pause of a pod begins."""
        self._left_alone.add(uid)

    def end(self, uid: str) -> None:
        """The pause of a pod is over."""
        self._left_alone.discard(uid)

    def is_left_alone(self, uid: str) -> bool:
        """Whether a pod is left to another process: a write of its status would end what that one waits for."""
        return uid in self._left_alone

    def drop(self, uid: str) -> None:
        """A pod is gone, or has a node."""
        self._pauses_s.pop(uid, None)


#: What a verdict names while a kind can't be read.
_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_SLICES: Final = "resourceslices.resource.k8s.io"
_CLASSES: Final = "deviceclasses.resource.k8s.io"
_RULES: Final = "devicetaintrules.resource.k8s.io"
#: Pods that may use a claim at once (resource/v1).
MOST_USERS: Final = 256


class ResourceClaims:
    """Claims, slices and classes, and who waits with which claim.

    ``changed`` is called when a decision on a pod of ours may change, ``touched`` with the UID of each pod of which
    that is known. ``compiler``: of selectors. ``pod``: finds a pod that has not ended, by its UID.
    """

    def __init__(
        self,
        changed: Callable[..., None],
        touched: Callable[[str], None],
        *,
        compiler: Compiler,
        pod: Callable[[str], PodRecord | None],
    ) -> None:
        self._told = changed
        self._touched = touched
        self.claims: Facts[ResourceClaimKey, ResourceClaimRecord] = Facts(
            self._claim_changed, read_changed=self._all_changed
        )
        self.inventory = Inventory(lambda _: self._all_changed(), read_changed=self._all_changed, compiler=compiler)
        #: Claims for extended resources, and the version of the classes that it knows.
        self.extended = ExtendedClaims(self._concern_again)
        self._classes_seen = 0
        #: Devices of claims that are allocated, as far as is seen; and which claim was allocated first.
        self.taken = Taken()
        self.order = AllocationOrder()
        #: Devices that pods which vanished may still use.
        self.vanished = VanishedUsers(self.taken, pod, self._all_changed)
        #: Claims (UIDs) that have devices which others have, too, with these others.
        self.clashing: dict[str, frozenset[str]] = {}
        #: Pods that wait and use claims, by UID; and who uses which, in the order in which that was seen.
        self._pods: dict[str, PodRecord] = {}
        self._users: dict[ResourceClaimKey, dict[str, None]] = {}
        #: UID -> version of the pod for which this process has reserved its claims.
        self._own: dict[str, str] = {}
        #: Pods (UIDs) whose claims are being given back: None while that is written, then what was (``note_left``).
        self._leaving: dict[str, Mapping[str, str] | None] = {}
        #: Pods (UIDs) that wait, with claims that are reserved for them, in the order in which that was seen.
        self._reserved: dict[str, None] = {}
        #: UIDs of claims, and the other way: one may be made again under its name.
        self._uid_of: dict[ResourceClaimKey, str] = {}
        self._key_of: dict[str, ResourceClaimKey] = {}
        self.elsewhere = ReservedElsewhere()
        self._has_changed_for_all = False

    # --- what is seen ------------------------------------------------------------------------------------------------
    def put_pod(self, pod: PodRecord) -> None:
        """Take a pod as it is now. One that has a node waits for no claims any more."""
        if not (pod.resource_claims or pod.extended_asks or pod.extended_claim or pod.uid in self._pods):
            return
        if pod.node:
            self.drop_pod(pod.uid)
            return
        self.extended.put_pod(pod)
        if pod.resource_claims or self.extended.concern(pod):
            self._put_user(pod)
        elif pod.uid in self._pods:
            self._drop_user(pod.uid)

    def _put_user(self, pod: PodRecord) -> None:
        before = self._pods.get(pod.uid)
        if before is not None and before.resource_claims != pod.resource_claims:
            self._leave_users(before)
        self._pods[pod.uid] = pod
        for use in pod.resource_claims:
            self._use((pod.namespace, use.name), pod.uid)
        self._note_reserved(pod)

    def _use(self, key: ResourceClaimKey, uid: str) -> None:
        """A pod uses a claim; one that another pod alone used is no longer that pod's alone."""
        users = self._users.setdefault(key, {})
        if len(users) == 1 and uid not in users:
            self._touched(*users)
        users[uid] = None

    def drop_pod(self, uid: str) -> None:
        """A pod is gone, or has a node."""
        self.extended.drop_pod(uid)
        self._drop_user(uid)

    def _drop_user(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        self._own.pop(uid, None)
        self._reserved.pop(uid, None)
        self._leaving.pop(uid, None)
        self.elsewhere.drop(uid)
        if pod is not None:
            self._leave_users(pod)

    def _concern_again(self, pods: Iterable[PodRecord]) -> None:
        """Other classes stand for the extended resources of these pods."""
        for pod in pods:
            self.put_pod(pod)
            self._touched(pod.uid)

    def _leave_users(self, pod: PodRecord) -> None:
        for use in pod.resource_claims:
            users = self._users.get((pod.namespace, use.name), {})
            users.pop(pod.uid, None)
            if len(users) == 1:
                self._touched(*users)
            if not users:
                self._users.pop((pod.namespace, use.name), None)

    def _claim_changed(self, record: ResourceClaimRecord) -> None:
        before, now = self._uid_of.pop(record.key, None), self.claims.get(record.key)
        owners = {*self.extended.put_claim(record.key, now)}
        # Not a set: events and withdrawals are written in this order.
        concerned: dict[ResourceClaimKey, None] = {record.key: None}
        if before is not None and (now is None or now.uid != before):
            concerned |= self._sharing(before)
            self.order.forget(before)
            self.vanished.see(before, None)
            self.taken.drop(before)
            del self._key_of[before]
            self.clashing.pop(before, None)
        if now is not None:
            self._uid_of[now.key], self._key_of[now.uid] = now.uid, now.key
            results = now.allocation.results if now.allocation is not None else ()
            concerned |= self._sharing(now.uid)
            self.order.put(now, results)
            self.vanished.see(now.uid, now)
            self.taken.put(now.uid, results)
            concerned |= self._sharing(now.uid)
        self._note_clashes(concerned)
        for uid in [uid for key in concerned for uid in self._users.get(key, ())]:
            self._note_reserved(self._pods[uid])
            self._touched(uid)
        owners.update(self.extended.owner(key) for key in concerned)
        self._concern_again([pod for uid in sorted(owners) if (pod := self.extended.asking(uid)) is not None])
        if self._pods:
            self._told()

    def _note_clashes(self, keys: Iterable[ResourceClaimKey]) -> None:
        for uid in [uid for key in keys if (uid := self._uid_of.get(key)) is not None]:
            others = self._sharing(uid)
            self.clashing.pop(uid, None)
            if others:
                self.clashing[uid] = frozenset(self._uid_of[key] for key in others)

    def by_uid(self, uid: str) -> ResourceClaimRecord | None:
        """The claim of this UID."""
        key = self._key_of.get(uid)
        return None if key is None else self.claims.get(key)

    def _sharing(self, uid: str) -> dict[ResourceClaimKey, None]:
        """Claims that can't have what they have beside this claim (UID), in the order in which they are found."""
        found = clashes(uid, self.inventory.view(), self.taken) if self.taken.get(uid) else {}
        return {key: None for each in found if (key := self._key_of.get(each)) is not None}

    def _note_reserved(self, pod: PodRecord) -> None:
        if self.held(pod) or pod.extended_claim:
            self._reserved[pod.uid] = None
        else:
            self._reserved.pop(pod.uid, None)
        self._note_seen(pod.uid)

    def _note_seen(self, uid: str) -> None:
        """A pod's claims have left it if nothing is seen any more of what was given back, be others reserved or not."""
        left, pod = self._leaving.get(uid), self._pods.get(uid)
        if left is None:
            return
        held = () if pod is None else self.held(pod)
        if not any(_is_of_before(claim, left.get(claim.uid)) for claim in held):
            del self._leaving[uid]

    def _all_changed(self) -> None:
        self._has_changed_for_all = True
        if self._pods or self._classes_seen != self.inventory.classes_version:
            self._told()

    def touch_all(self) -> None:
        """Touch all pods that wait, if something that all depend on has changed."""
        if self._classes_seen != self.inventory.classes_version:
            self._classes_seen = self.inventory.classes_version
            self.extended.put_classes(self.inventory.classes.all())
        if self._has_changed_for_all:
            self._has_changed_for_all = False
            for uid in self._pods:
                self._touched(uid)

    # --- what this process does --------------------------------------------------------------------------------------
    def note_own(self, uid: str, rv: str) -> None:
        """This process has reserved all claims of a pod, for the version that it decided on."""
        self._own[uid] = rv
        self._touched(uid)

    def is_own(self, uid: str) -> bool:
        """Whether this process has reserved claims for a pod, of any version."""
        return uid in self._own

    def note_leaving(self, uid: str) -> None:
        """The claims of a pod are being given back: it is not decided on until that is seen."""
        self._leaving[uid] = None
        self._own.pop(uid, None)
        self._touched(uid)
        self._told()

    def note_left(self, uid: str, left: Mapping[str, str]) -> None:
        """They were given back; the watch may have shown it already.

        ``left``: claims (UIDs), with the version of each as of which it is not reserved for the pod; "" if the claim is
        gone, or its pod is or has a node. What is reserved beside them, or later, is to be given back once more.
        """
        self._leaving[uid] = left
        self._look_again(uid)

    def note_kept(self, uid: str) -> None:
        """They could not be given back now."""
        self._leaving.pop(uid, None)
        self._look_again(uid)

    def _look_again(self, uid: str) -> None:
        self._note_seen(uid)
        self._touched(uid)
        self._told()

    def held_by_waiting(self) -> list[PodRecord]:
        """Pods that wait with claims that are reserved for them, and are not being given back."""
        return [pod for uid in self._reserved if uid not in self._leaving and (pod := self._pods.get(uid)) is not None]

    def reserved_for(self, pod: PodRecord) -> list[ResourceClaimRecord]:
        """The claims that a pod uses and that are reserved for it, each once."""
        names = dict.fromkeys(use.name for use in self.uses(pod))
        found = (self.claims.get((pod.namespace, name)) for name in names)
        return [claim for claim in found if claim is not None and pod.uid in claim.reserved_for]

    def held(self, pod: PodRecord) -> list[ResourceClaimRecord]:
        """What is to be given back if a pod can't be bound: claims that are reserved for it, or were made for it."""
        made = (self.claims.get(key) for key in self.extended.of(pod))
        unreserved = [claim for claim in made if claim is not None and pod.uid not in claim.reserved_for]
        return [*self.reserved_for(pod), *unreserved]

    def uses(self, pod: PodRecord) -> tuple[ResourceClaimUse, ...]:
        """The claims of a pod, with those that were made for its extended resources."""
        made = self.extended.of(pod)
        return (*pod.resource_claims, *(ResourceClaimUse(name, name, is_own=True) for _, name in made))

    def is_usable(self, pod: PodRecord) -> bool:
        """Whether a pod can be bound by what is reserved for it."""
        is_own = self._own.get(pod.uid) == pod.rv and pod.uid not in self._leaving
        if not (is_own and self.extended.is_whole(pod)):
            return False
        held = self.reserved_for(pod)
        if any(claim.pending or claim.failure for claim in held):
            return False
        return not any(self._has_earlier(claim.uid) for claim in held)

    def prepared(self, pods: Mapping[str, PodRecord]) -> Iterator[PodRecord]:
        """Pods that wait and can be bound by what is reserved for them. ``pods``: all, by UID."""
        known = (pods.get(uid) for uid in self._own)
        return (pod for pod in known if pod is not None and not pod.node and self.is_usable(pod))

    def _has_earlier(self, uid: str) -> bool:
        """Whether another claim has a device of this claim (UID), and was not surely allocated later."""
        found = clashes(uid, self.inventory.view(), self.taken)
        return any(not self.order.is_later(other, than=uid) for other in found if other in self._key_of)

    # --- what decisions read -----------------------------------------------------------------------------------------
    def judged(self, pod: PodRecord) -> PodRecord:
        """A pod that waits, with what its claims ask, or with the reason why they keep it waiting."""
        if pod.blocker is not None or not (pod.resource_claims or pod.uid in self._pods):
            return pod
        obstacle = self._obstacle(pod)
        if obstacle is not None:
            return msgspec.structs.replace(pod, blocker=obstacle)
        claims = [self.claims.get((pod.namespace, use.name)) for use in self.uses(pod)]
        used = list({claim.key: claim for claim in claims if claim is not None}.values())
        needed = [claim for claim in used if claim.allocation is None]
        allocated = [claim for claim in used if claim.allocation is not None]
        places = (claim.allocation.terms for claim in allocated if claim.allocation is not None)
        cls = msgspec.structs.replace(
            pod.cls,
            devices=tuple(need for claim in needed if (need := self._need(claim)) is not None),
            backed=self._ways(pod),
            constraints=msgspec.structs.replace(
                pod.cls.constraints, allocated=tuple(dict.fromkeys(terms for terms in places if terms is not None))
            ),
        )
        if too_many := constraints.excessive(cls):
            return msgspec.structs.replace(pod, blocker=_unsupported(too_many))
        return msgspec.structs.replace(
            pod,
            cls=cls,
            to_allocate=tuple((claim.name, claim.uid) for claim in needed),
            to_reserve=tuple((claim.name, claim.uid) for claim in allocated if pod.uid not in claim.reserved_for),
        )

    def _ways(self, pod: PodRecord) -> tuple[Backed, ...]:
        """How claims may give a pod its extended resources, as far as it is known which devices there are."""
        kinds = (self.claims, self.inventory.slices, self.inventory.classes, self.inventory.rules)
        return self.extended.ways(pod) if all(kind.is_current for kind in kinds) else ()

    def _need(self, claim: ResourceClaimRecord) -> DeviceNeed | None:
        """What a claim asks; one that several pods use is chosen for once, for all of them."""
        is_alone = claim.owner or len(self._users.get(claim.key, ())) < 2
        return claim.need if is_alone or claim.need is None else msgspec.structs.replace(claim.need, claim=claim.key)

    def _obstacle(self, pod: PodRecord) -> Verdict | None:
        """Why its claims keep a pod waiting on all nodes."""
        if len(pod.resource_claims) > MOST_CLAIMS:
            return _unsupported(f"more than {MOST_CLAIMS} ResourceClaims")
        if not self.claims.is_current:
            return _not_read(_CLAIMS) if pod.resource_claims or self.extended.has_trace(pod) else None
        found = (self._wrong(pod, use) for use in self.uses(pod))
        wrong = next((verdict for verdict in found if verdict is not None), None)
        if wrong is not None:
            return wrong
        # The watch may show a withdrawal before it is answered: a reservation in between would look like the old one.
        if pod.uid in self._leaving or (pod.uid in self._reserved and not self.is_usable(pod)):
            return Verdict(code=Code.RESOURCE_CLAIM_GIVEN_BACK)
        return self._unread_devices(pod)

    def _wrong(self, pod: PodRecord, use: ResourceClaimUse) -> Verdict | None:
        if not use.name:
            return Verdict(code=Code.RESOURCE_CLAIM_NOT_MADE, detail=use.entry)
        claim = self.claims.get((pod.namespace, use.name))
        if claim is not None and claim.allocation is None and claim.need is None:
            return _unsupported(f"{claim.unsupported} of ResourceClaim {use.name}")
        wrong = Code.RESOURCE_CLAIM_NOT_FOUND if claim is None else _state(pod, use, claim)
        return None if wrong is None else Verdict(code=wrong, detail=use.name)

    def _unread_devices(self, pod: PodRecord) -> Verdict | None:
        """Whether it is unknown what there is for its claims, or a class is not there."""
        claims = (self.claims.get((pod.namespace, use.name)) for use in pod.resource_claims)
        needs = [claim.need for claim in claims if claim is not None and claim.allocation is None and claim.need]
        if not needs:
            return None
        if not self.inventory.slices.is_current:
            return _not_read(_SLICES)
        if not self.inventory.rules.is_current:
            return _not_read(_RULES)
        missing = self.inventory.view().missing(needs)
        if missing is None:
            return None
        is_current = self.inventory.classes.is_current
        return Verdict(code=Code.DEVICE_CLASS_NOT_FOUND, detail=missing) if is_current else _not_read(_CLASSES)


def _state(pod: PodRecord, use: ResourceClaimUse, claim: ResourceClaimRecord) -> Code | None:
    """Why a claim that is there can't be had by its pod."""
    if claim.is_leaving:
        return Code.RESOURCE_CLAIM_LEAVING
    if use.is_own and not (claim.group == use.group if claim.group else claim.owner == pod.uid):
        return Code.RESOURCE_CLAIM_OF_GROUP if claim.group else Code.RESOURCE_CLAIM_NOT_OWN
    if claim.failure and any(uid != pod.uid for uid in claim.reserved_for):
        return Code.RESOURCE_CLAIM_FAILED
    is_full = len(claim.reserved_for) + claim.others >= MOST_USERS and pod.uid not in claim.reserved_for
    return Code.RESOURCE_CLAIM_IN_USE if is_full else None


def _is_of_before(claim: ResourceClaimRecord, left: str | None) -> bool:
    """Whether a reservation is seen only as its end, at this version, is not seen yet. None: it was not given back."""
    return left is not None and (not left or is_older(claim.resource_version, left))


def _unsupported(what: str) -> Verdict:
    return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=what)


def _not_read(kind: str) -> Verdict:
    return Verdict(code=Code.NOT_READ, detail=kind)
