"""What the binder sees of the API server: a cache that also takes our own writes, and wakes those who wait.

Objects are kept by their newest resourceVersion, whether it came by watch or as the answer to a write of ours: own
writes are never read back through the cache (docs/design/protocol.md). Nothing here alone decides anything destructive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final

import anyio

from gpu.bind_request import Foreign
from gpu.reservation import Reservation
from kube.watch.signal import Signal
from sharing import attempt as attempts
from sharing import node_liveness
from sharing.attempt import Attempt
from sharing.node_liveness import Heard, Registration
from sharing.pods import PodView
from wire.crds.bindrequest import BindRequest
from wire.tombstones import Recent, is_older


class Subscriptions:
    """Who wants to be woken for which key."""

    def __init__(self) -> None:
        self._signals: dict[str, dict[Signal, None]] = {}

    def add(self, signal: Signal, keys: Iterable[str]) -> None:
        """Wake ``signal`` when one of ``keys`` changes."""
        for key in keys:
            self._signals.setdefault(key, {})[signal] = None

    def remove(self, signal: Signal, keys: Iterable[str]) -> None:
        """Take a subscription back."""
        for key in keys:
            waiting = self._signals.get(key, {})
            waiting.pop(signal, None)
            if not waiting:
                self._signals.pop(key, None)

    def is_awaited(self, key: str) -> bool:
        """Whether anybody wants to be woken for ``key``."""
        return key in self._signals

    def wake(self, key: str) -> None:
        """Wake all who wait for ``key``."""
        for signal in self._signals.get(key, ()):
            signal.set()


_log: Final = logging.getLogger(__name__)
_NOBODY: Final = frozenset[str]()


class View:
    """The cache. ``on_request`` is called for attempts that are new; ``dirty`` are groups to look over.

    Groups are only marked while somebody looks them over (from ``tend`` on): who merely follows would collect the
    marks of all groups that there ever were.
    """

    def __init__(self, *, on_request: Callable[[Attempt], None]) -> None:
        self.pods: dict[str, PodView] = {}
        #: Pod UID -> what is known of a pod that is gone (sharing/entries.py Evidence.last): of its end, no more.
        self.gone_pods: Recent[PodView | None] = Recent()
        #: By group.
        self.reservations: dict[str, Reservation] = {}
        #: (reservation UID, device UUID) of which no other claim was found.
        self.verified: set[tuple[str, str]] = set()
        #: The same by reservation UID.
        self._verified_of: dict[str, set[tuple[str, str]]] = {}
        #: Node -> whether it is cordoned.
        self.nodes: dict[str, bool] = {}
        #: Node -> since when its kubelet has been heard of; who is not in it is silent, or has no Node object.
        self.machines: dict[str, Heard] = {}
        #: Node -> resource -> how many such devices device plugins have there, unhealthy ones too, as far as it tells.
        self.devices: dict[str, Mapping[str, int]] = {}
        #: Node -> what it holds pods to, in words (gpu/limits.py).
        self.enforces: dict[str, tuple[str, ...]] = {}
        #: Nodes whose agent shows tenants their own shares.
        self.showing: set[str] = set()
        #: Nodes whose cards differ in memory.
        self.uneven: set[str] = set()
        #: Node -> what its administrator reserves of each card (gpu/node_resources.py), where he says that.
        self.memory_reserves: dict[str, str] = {}
        #: Node -> memory of its smallest card, where it says that.
        self.cards_mib: dict[str, int] = {}
        self.subscriptions = Subscriptions()
        self.dirty: set[str] = set()
        #: Groups that were found in order, and about which nothing was heard since; the collector adds them.
        self.at_rest: set[str] = set()
        self.collector = Signal()
        #: UIDs of reservation pods whose device kubelet has told.
        self._told: set[str] = set()
        self._is_tended = False
        #: UID of a reservation pod that is gone -> its group.
        self._lost: Recent[str] = Recent()
        self._requests: dict[str, Attempt] = {}
        #: Requests that we deleted; their deletion is still to be seen.
        self._dropped: set[str] = set()
        self._foreign: set[str] = set()
        #: Pod UID -> groups whose newest known book names it.
        self._tenancies: dict[str, set[str]] = {}
        #: Node -> groups whose reservation is there, in the order in which they were seen.
        self._groups_on: dict[str, dict[str, None]] = {}
        #: Group -> UIDs of bound pods that name it.
        self._bound: dict[str, set[str]] = {}
        #: Group -> devices (UUIDs) that its live bound pods were given, until one of them changes.
        self._given: dict[str, Set[str]] = {}
        self._on_request = on_request

    # --- pods ----------------------------------------------------------------------------------------------------
    def bound_in(self, group: str) -> list[PodView]:
        """Live pods that are bound to this group, as far as is seen."""
        pods = [self.pods[uid] for uid in sorted(self._bound.get(group, ()))]
        return [pod for pod in pods if not pod.ended]

    def bound_uids(self, group: str) -> Set[str]:
        """UIDs of pods that are bound to this group, ended ones among them."""
        return self._bound.get(group, _NOBODY)

    def given(self, group: str) -> Set[str]:
        """Devices (UUIDs) that live pods which are bound to this group were given there."""
        known = self._given.get(group)
        if known is None:
            pods = (self.pods[uid] for uid in self._bound.get(group, ()))
            grants = (pod.grant for pod in pods if pod.grant is not None and not pod.ended)
            known = frozenset(device.uuid for grant in grants for device in grant.devices if device.group == group)
            if group in self._bound:
                self._given[group] = known
        return known

    def bound_groups(self) -> list[str]:
        """Groups that bound pods name."""
        return list(self._bound)

    def note_pod(self, pod: PodView) -> None:
        """Take a pod from a watch or a quorum read; what is not newer than the known one, or is gone, is dropped."""
        known = self.pods.get(pod.uid)
        if pod.uid in self.gone_pods or (known is not None and not is_older(known.rv, pod.rv)):
            return
        self._index_groups(known, pod)
        self.pods[pod.uid] = pod
        self.subscriptions.wake(f"pod:{pod.uid}")
        if pod.ended or pod.is_bound:
            self._mark_groups_of(pod)

    def pod_seen(self, pod: PodView) -> None:
        """A watch or list shows it, so it is there, even if it was taken for gone."""
        self.gone_pods.forget(pod.uid)
        self.note_pod(pod)

    def forget_pod(self, pod: PodView, *, is_last: bool) -> None:
        """It is gone. ``is_last``: this is its last state; if not, it may have been bound since."""
        self._index_groups(self.pods.pop(pod.uid, None), None)
        self.gone_pods.put(pod.uid, _remains(pod) if is_last or pod.is_bound else None)
        self.subscriptions.wake(f"pod:{pod.uid}")
        self._mark_groups_of(pod)

    def _index_groups(self, before: PodView | None, after: PodView | None) -> None:
        if before is not None and before.is_bound:
            for group in before.held_groups:
                self._given.pop(group, None)
                self._bound[group].discard(before.uid)
                if not self._bound[group]:
                    del self._bound[group]
        if after is not None and after.is_bound:
            for group in after.held_groups:
                self._given.pop(group, None)
                self._bound.setdefault(group, set()).add(after.uid)

    # --- reservations --------------------------------------------------------------------------------------------
    def note_reservation(self, held: Reservation) -> None:
        """Take a reservation from a watch or as the answer to a write of ours."""
        known = self.reservations.get(held.group)
        if held.uid in self._lost or (known is not None and not is_older(known.rv, held.rv)):
            return
        if known is not None and (known.uid != held.uid or known.uuid != held.uuid):
            # One that tells a device again, after another one, may share it with those who came meanwhile.
            self._forget_verified(known)
        if known is not None and known.uid != held.uid:
            self._told.discard(known.uid)
        self.reservations[held.group] = held
        if held.allocated and not held.is_ill:
            self._told.add(held.uid)
        self._index(held.group, known, held)
        self.subscriptions.wake(f"group:{held.group}")
        self.mark(held.group)

    def reservation_seen(self, held: Reservation) -> None:
        """A watch or list shows it, so it is there, even if it was taken for gone."""
        self._lost.forget(held.uid)
        self.note_reservation(held)

    def forget_reservation(self, held: Reservation) -> None:
        """It is gone."""
        self._lost.put(held.uid, held.group)
        self._told.discard(held.uid)
        self._forget_verified(held)
        known = self.reservations.get(held.group)
        if known is not None and known.uid == held.uid:
            del self.reservations[held.group]
            self._index(held.group, known, None)
        self.subscriptions.wake(f"group:{held.group}")
        self.mark(held.group)

    def is_lost(self, uid: str) -> bool:
        """Whether a reservation pod is known to be gone."""
        return uid in self._lost

    def is_forgotten(self, held: Reservation) -> bool:
        """Whether kubelet told which device it gave to this pod, which runs, and does not any more.

        Then its device manager has lost its checkpoint, and takes the device for free.
        """
        return held.allocated == "" and held.uid in self._told

    def note_verified(self, held: Reservation) -> None:
        """No other claim on its device was found, and it is there still."""
        known = self.reservations.get(held.group)
        if known is not None and known.uid == held.uid:
            pair = (held.uid, held.uuid)
            self.verified.add(pair)
            self._verified_of.setdefault(held.uid, set()).add(pair)

    def _forget_verified(self, held: Reservation) -> None:
        self.verified -= self._verified_of.pop(held.uid, set())

    # --- machines ------------------------------------------------------------------------------------------------
    def note_machine(self, node: str, registration: Registration | None) -> bool:
        """Take what is heard of a machine (None: nothing); return whether that is news."""
        before = self.machines.get(node)
        heard = node_liveness.heard(before, registration, anyio.current_time())
        if heard is None:
            self.machines.pop(node, None)
        else:
            self.machines[node] = heard
        return heard is not before

    # --- requests ------------------------------------------------------------------------------------------------
    def note_request(self, request: BindRequest) -> None:
        """Take a BindRequest; a new attempt is handed on, a foreign one is left alone and told once."""
        uid = request.metadata.uid
        if uid in self._requests or uid in self._foreign:
            return
        attempt = attempts.read(request)
        if isinstance(attempt, Foreign):
            self._foreign.add(uid)
            place = f"{request.metadata.namespace}/{request.metadata.name}"
            _log.warning("BindRequest %s is not carried out: %s", place, attempt.why)
            return
        self._requests[uid] = attempt
        self._on_request(attempt)

    def request_dropped(self, uid: str) -> None:
        """We have deleted it; the watch will tell, too."""
        if uid in self._requests:
            self._dropped.add(uid)
            self.subscriptions.wake(f"request:{uid}")

    def forget_request(self, uid: str) -> None:
        """Its deletion was seen: no late event can bring it back (a deleted UID never returns)."""
        self._requests.pop(uid, None)
        self._dropped.discard(uid)
        self._foreign.discard(uid)
        self.subscriptions.wake(f"request:{uid}")

    def keep_requests(self, present: set[str]) -> None:
        """Forget all requests but these."""
        for uid in [uid for uid in (*self._requests, *self._foreign) if uid not in present]:
            self.forget_request(uid)

    def attempts(self) -> list[Attempt]:
        """All attempts whose BindRequests are there, as far as is seen, in the order in which they came."""
        return [attempt for uid, attempt in self._requests.items() if uid not in self._dropped]

    def has_request(self, uid: str) -> bool:
        """Whether a BindRequest is there, as far as is seen."""
        return uid in self._requests and uid not in self._dropped

    # --- the gone ------------------------------------------------------------------------------------------------
    def forget_gone(self) -> None:
        """A period is over (wire/tombstones.py). Waiting pods and tenants are judged by what is remembered here."""
        awaited = self.subscriptions.is_awaited
        self.gone_pods.age(lambda uid, _: uid in self._tenancies or awaited(f"pod:{uid}"))
        self._lost.age(lambda _, group: awaited(f"group:{group}"))

    # --- the collector's -----------------------------------------------------------------------------------------
    def tend(self) -> None:
        """From now on groups are looked over; all that there are have to be."""
        self._is_tended = True
        for group in (*self.reservations, *self._bound):
            self.mark(group)

    def mark(self, group: str) -> None:
        """Have the collector look at a group."""
        self.at_rest.discard(group)
        if self._is_tended:
            self.dirty.add(group)
            self.collector.set()

    def mark_node(self, node: str) -> None:
        """Have the collector look at the groups whose devices are on a node."""
        for group in self._groups_on.get(node, ()):
            self.mark(group)

    def _mark_groups_of(self, pod: PodView) -> None:
        for group in pod.held_groups | self._tenancies.get(pod.uid, set()):
            self.mark(group)

    def _index(self, group: str, before: Reservation | None, after: Reservation | None) -> None:
        had = set(before.book.entries) if before is not None and before.book is not None else set()
        has = set(after.book.entries) if after is not None and after.book is not None else set()
        for uid in had - has:
            groups = self._tenancies.get(uid, set())
            groups.discard(group)
            if not groups:
                self._tenancies.pop(uid, None)
        for uid in has - had:
            self._tenancies.setdefault(uid, set()).add(group)
        was_on, is_on = (held.node if held is not None else "" for held in (before, after))
        if was_on != is_on:
            self._index_node(group, was_on, is_on)

    def _index_node(self, group: str, before: str, after: str) -> None:
        if before:
            groups = self._groups_on[before]
            del groups[group]
            if not groups:
                del self._groups_on[before]
        if after:
            self._groups_on.setdefault(after, {})[group] = None


def _remains(pod: PodView) -> PodView:
    """What is needed to judge the entries of a pod that is gone (R10)."""
    return PodView(uid="", namespace="", name="", rv="", node=pod.node, ended=pod.ended, grace_s=pod.grace_s)
