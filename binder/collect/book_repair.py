"""Books made true: dead entries are removed, and unreadable books are made from the bound pods.

A cached view only makes it look. What it takes out is judged on quorum reads, the reservation first and then the pod,
and removed by compare-and-set on the reservation that was read (docs/design/protocol.md, step 5).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import msgspec

from binder.bind.join_batches import make
from binder.settings import BinderSettings
from binder.watch.view import View
from gpu import reservation as reservations
from gpu.book import Book, Entry, Tenant
from gpu.reservation import Reservation
from kube import binding, books
from kube.binding import FenceText, Identity
from kube.client.api import Api, field_is
from kube.client.clock import Clock
from kube.client.errors import ApiError, Conflict, Forbidden, NotFound
from kube.client.resources import BIND_REQUESTS, NODES, PODS
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from sharing import entries, node_liveness
from sharing.entries import LONGEST_SILENCE_S, Evidence, Judgement, vanished_wait_s
from sharing.outcome import Failed
from sharing.pods import PodView
from sharing.pods import view as read_pod
from sharing.rebuilding import is_of_newer_version, may_stand_in_a_book, rebuild, resource_of, tenant
from wire import names
from wire.api_groups import WARNING
from wire.core import ObjectReference

_log: Final = logging.getLogger(__name__)

_WITHDRAWN: Final = FenceText(
    "Withdrawn: left over", "Failed to bind pod: an attempt that nobody carries on was withdrawn"
)

#: The attempt of a pod that is fenced because its entry may have been lost with a book.
_LOST_BOOK: Final = "book"

#: Before a fence that is forbidden is asked for again, doubled each time: a person has to give the right.
_FIRST_PUT_OFF_S: Final = 10.0
_LONGEST_PUT_OFF_S: Final = 300.0


class _PutOff(msgspec.Struct, frozen=True, gc=False):
    """How long this time, and until when (event loop's time)."""

    pause_s: float
    until_s: float


class Clearing:
    """``at_work`` tells the pods (UIDs) that units are working on."""

    def __init__(self, api: Api, *, view: View, clock: Clock, at_work: Callable[[], Collection[str]]) -> None:
        self._api = api
        self._view = view
        self._clock = clock
        self._at_work = at_work
        #: Group -> pod UID and attempt -> since when the entry has been seen unbound (event loop's time).
        self._unbound_since: dict[str, dict[tuple[str, str], float]] = {}
        #: The same, of those whose fence is forbidden.
        self._put_offs: dict[str, dict[tuple[str, str], _PutOff]] = {}
        #: Group -> pods (UIDs) whose entries wait for a silent machine, as was told.
        self._told: dict[str, set[str]] = {}

    def suspects(self, held: Reservation) -> set[str]:
        """Pod UIDs whose entries look dead from here."""
        found = held.book.entries if held.book is not None else {}
        self._note_unbound(held.group, found)
        pods, at_work = self._view.pods, self._at_work()
        return {
            uid
            for uid, entry in found.items()
            if not entries.is_plain(held.group, pod := pods.get(uid))
            and entries.is_suspicious(
                entry,
                held.group,
                pod,
                at_work=uid in at_work,
                seen_for_s=self._seen_for_s(held.group, uid, entry),
            )
        }

    def is_plain(self, held: Reservation) -> bool:
        """Whether each entry is that of a live pod that is bound with the group."""
        found = held.book.entries if held.book is not None else {}
        return all(entries.is_plain(held.group, self._view.pods.get(uid)) for uid in found)

    def forget(self, group: str) -> None:
        """The group has no book any more."""
        self._unbound_since.pop(group, None)
        self._put_offs.pop(group, None)
        self._told.pop(group, None)

    def _note_unbound(self, group: str, found: Mapping[str, Entry]) -> None:
        """Note entries that are seen unbound for the first time; others are forgotten, bound or gone as they are."""
        unbound = [(uid, entry.attempt) for uid, entry in found.items() if not self._is_bound(uid)]
        if not unbound:
            self.forget(group)
            return
        known, now = self._unbound_since.get(group, {}), anyio.current_time()
        self._unbound_since[group] = {key: known.get(key, now) for key in unbound}
        if group in self._put_offs:
            self._put_offs[group] = {key: one for key, one in self._put_offs[group].items() if key in unbound}

    def _is_bound(self, uid: str) -> bool:
        pod = self._view.pods.get(uid)
        return pod is not None and pod.is_bound

    def _seen_for_s(self, group: str, uid: str, entry: Entry) -> float:
        """For how long an entry has been seen without its pod being bound; 0 for one that is bound, new, or put off."""
        key, now = (uid, entry.attempt), anyio.current_time()
        put_off = self._put_offs.get(group, {}).get(key)
        if put_off is not None and now < put_off.until_s:
            return 0.0
        return now - self._unbound_since.get(group, {}).get(key, now)

    async def clear(self, held: Reservation, missing_since: dict[str, float]) -> Reservation | None:
        """Take out dead entries; returns the reservation as it is then, None when it is gone or has no book.

        ``missing_since``: pod UID -> since when (event loop's time) it has been found missing, kept between calls.
        Raises ApiError.
        """
        suspects = self.suspects(held)
        if not suspects:
            return held
        fresh = await books.read(self._api, held.namespace, held.name)
        if fresh is None or fresh.uid != held.uid or fresh.book is None:
            return None
        self._view.note_reservation(fresh)
        for gone in missing_since.keys() - fresh.book.entries.keys():
            del missing_since[gone]  # somebody else took it out
        looked_at = [Tenant(uid, entry) for uid, entry in fresh.book.entries.items() if uid in suspects]
        dead = [tenant for tenant in looked_at if await self._is_dead(fresh, tenant, missing_since)]
        if not dead:
            return fresh
        left = await books.leave(self._api, fresh, dead)
        if not isinstance(left, Reservation):
            return None
        for each in dead:
            missing_since.pop(each.pod_uid, None)
        self._view.note_reservation(left)
        return left

    async def lower(self, held: Reservation) -> Reservation:
        """Lower charges to what their pods are bound with: less than was joined for, on a card larger than feared.

        A Binding can't be taken back, so a cached view of a bound pod is true. Raises ApiError.
        """
        entries_ = held.book.entries if held.book is not None else {}
        nano_of = {uid: self._granted_nano(uid, entry, held.group) for uid, entry in entries_.items()}
        if all(nano_of[uid] >= entry.nano for uid, entry in entries_.items()):
            return held
        lowered = await books.lower(self._api, held, nano_of)
        if not isinstance(lowered, Reservation):
            return held
        self._view.note_reservation(lowered)
        return lowered

    def _granted_nano(self, uid: str, entry: Entry, group: str) -> int:
        pod = self._view.pods.get(uid)
        if pod is None or pod.grant is None or not pod.was_bound_by(entry.attempt):
            return entry.nano
        return next((device.nano for device in pod.grant.devices if device.group == group), entry.nano)

    async def withdraw_unbound(self, text: FenceText, withdrawn: set[str]) -> str:
        """Fence every unbound pod that may be in a book, but for those that are ``withdrawn`` (UIDs) already.

        Returns which pod the server refuses to have fenced, and why; "" when there is none. Raises ApiError.

        For a book that can't be read: each entry that it had when it was lost was of this version of its pod or an
        older one, as nobody joins such a book. So no Binding of theirs can land any more, unless it has landed already:
        a pod that was not met at its version any more has changed, is gone, or is bound.
        """
        listed = await self._api.list(PODS, field_selector="spec.nodeName=")
        unbound = [pod for pod in map(read_pod, listed.items) if may_stand_in_a_book(pod)]
        refused = ""
        for pod in unbound:
            if pod.uid in withdrawn:
                continue
            identity = Identity(pod.namespace, pod.name, pod.uid)
            try:
                attempt = binding.named_at(_LOST_BOOK, pod.rv)
                fenced = await binding.fence(
                    self._api, identity, rv=pod.rv, attempt=attempt, text=text, clock=self._clock
                )
            except ApiError as error:
                if not books.is_final(error):
                    raise
                refused = refused or f"pod {pod.namespace}/{pod.name} can't be withdrawn: {error}"
                continue
            withdrawn.add(pod.uid)
            if fenced is not None:
                self._view.note_pod(read_pod(fenced))
        return refused

    async def _is_dead(self, held: Reservation, tenant: Tenant, missing_since: dict[str, float]) -> bool:
        """Judge an entry of a book that was read just before; the fence, where needed, comes first."""
        entry = tenant.entry
        namespace, _, name = entry.pod.partition("/")
        if not namespace or not name:
            return False  # not written by us: nobody can be asked about it
        identity = Identity(namespace, name, tenant.pod_uid)
        found = await binding.read(self._api, identity)
        pod = read_pod(found) if found else None
        judgement = entries.judge(entry, await self._evidence(held, tenant, pod, missing_since))
        may_run = pod is None and not entries.was_over(self._view.gone_pods.get(tenant.pod_uid))
        if judgement is Judgement.DEAD and may_run:
            await self.listen(held.node)
            judgement = entries.judge(entry, await self._evidence(held, tenant, pod, missing_since))
        if judgement is Judgement.WAIT and pod is None:
            self._tell_wait(held, tenant)
        if judgement is not Judgement.FENCE_FIRST:
            return judgement is Judgement.DEAD
        try:
            fenced = await binding.fence(
                self._api, identity, rv=entry.rv, attempt=entry.attempt, text=_WITHDRAWN, clock=self._clock
            )
        except Forbidden as error:
            self._put_off(held.group, tenant, error)
            return False
        return fenced is not None

    def _tell_wait(self, held: Reservation, tenant: Tenant) -> None:
        """Say once why the entry of a pod that vanished stays for longer than its grace."""
        told = self._told.setdefault(held.group, set())
        if held.node in self._view.machines:
            told.discard(tenant.pod_uid)
        elif tenant.pod_uid not in told:
            told.add(tenant.pod_uid)
            _log.warning(
                "the share of pod %s on %s, group %s, is kept: the pod is gone, but its node is gone or not ready, so "
                "it may still run there; the grace period begins when the node is heard of",
                tenant.entry.pod, held.node, held.group,
            )  # fmt: skip

    def _put_off(self, group: str, tenant: Tenant, error: Forbidden) -> None:
        """The right to fence is missing: it is asked for ever more rarely; the other entries are cleared as before."""
        key, put_offs = (tenant.pod_uid, tenant.entry.attempt), self._put_offs.setdefault(group, {})
        before = put_offs.get(key)
        if before is None:
            _log.error("pod %s can't be withdrawn before the binder may patch pods/status: %s", tenant.entry.pod, error)
        pause_s = _FIRST_PUT_OFF_S if before is None else min(before.pause_s * 2, _LONGEST_PUT_OFF_S)
        put_offs[key] = _PutOff(pause_s, anyio.current_time() + pause_s)

    async def _evidence(
        self, held: Reservation, tenant: Tenant, pod: PodView | None, missing_since: dict[str, float]
    ) -> Evidence:
        now = anyio.current_time()
        uid, heard = tenant.pod_uid, self._view.machines.get(held.node)
        if pod is not None:
            missing_since.pop(uid, None)
        gone_for_s = now - missing_since.setdefault(uid, now) if pod is None else 0.0
        return Evidence(
            group=held.group,
            pod=pod,
            last=self._view.gone_pods.get(uid),
            gone_for_s=gone_for_s,
            heard_for_s=min(gone_for_s, now - heard.since_s) if heard is not None else 0.0,
            has_request=pod is not None and not pod.is_bound and await self._has_request(tenant.entry, pod),
            seen_for_s=self._seen_for_s(held.group, uid, tenant.entry),
        )

    async def listen(self, node: str) -> None:
        """Read by quorum whether the machine is still registered and heard of as it was: a cache may be late.

        Raises ApiError.
        """
        listed = await self._api.list(NODES, field_selector=field_is("metadata.name", node), skip_undecodable=True)
        registrations = [node_liveness.registration(found) for found in listed.items]
        self._view.note_machine(node, registrations[0] if registrations else None)

    async def _has_request(self, entry: Entry, pod: PodView) -> bool:
        try:
            request = await self._api.get(BIND_REQUESTS, pod.name, namespace=pod.namespace)
        except NotFound:
            return False
        return bool(request.metadata.uid == entry.attempt)


class Restoring:
    """Writes books from what bound pods carry. Every method raises ApiError when the server can't be asked."""

    def __init__(self, api: Api, *, view: View, settings: BinderSettings) -> None:
        self._api = api
        self._view = view
        self._settings = settings

    async def restore(self, group: str, bound: Sequence[PodView]) -> None:
        """Create the reservation of a group again, whose bound pods have lost it."""
        node = bound[0].node
        book = rebuild(group, bound, card_mib=self._view.cards_mib.get(node, 0), caps=self._settings.memory_caps)
        if not isinstance(book, Book):
            _log.error("group %s on node %s: its pods were given more than one device: %s", group, node, book)
            return
        extra = about(LogEvent.RESERVATION_LOST, group=group, node=node, pods=len(bound))
        _log.warning("the reservation of group %s on node %s was lost; creating it again", group, node, extra=extra)
        template = self._settings.reservation
        resource = resource_of(group, bound)
        reserve = self._view.memory_reserves.get(node, "")
        made = await make(
            self._api, template, node=node, group=group, book=book, resource=resource, memory_reserve=reserve
        )
        if isinstance(made, Failed):
            _log.error("the reservation of group %s can't be made: %s", group, made.failure.detail)
        else:
            self._view.note_reservation(made)

    async def adopt(self, held: Reservation) -> None:
        """Write the first book of a reservation that KAI made: read it, then the pods of its node, then write.

        Nobody of ours may join it meanwhile, because it has no book.
        """
        fresh = await books.read(self._api, held.namespace, held.name)
        if fresh is None or fresh.uid != held.uid or not fresh.is_adoptable or fresh.deleting:
            return
        bound = await self._listed_in(held)
        card_mib = self._card_mib(fresh)
        caps = self._settings.memory_caps
        tenants = [tenant(held.group, pod, card_mib=card_mib, caps=caps) for pod in bound]
        adopted = await books.adopt(self._api, fresh, tenants)
        if isinstance(adopted, Reservation):
            extra = about(LogEvent.RESERVATION_ADOPTED, reservation=held.name, group=held.group, node=held.node)
            _log.info("reservation %s adopted with %d tenants", held.name, len(bound), extra=extra)
            self._view.note_reservation(adopted)
        elif not isinstance(adopted, books.Contended):
            _log.error("reservation %s can't be adopted: %s", held.name, adopted)

    def _card_mib(self, held: Reservation) -> int:
        """What its process told; KAI's tells no memory, so as its node says, by which KAI shared it, too."""
        return held.mem_mib or self._view.cards_mib.get(held.node, 0)

    async def _listed_in(self, held: Reservation) -> list[PodView]:
        """Live pods that are bound to the group, by quorum."""
        listed = await self._api.list(PODS, field_selector=field_is("spec.nodeName", held.node))
        pods = [read_pod(pod) for pod in listed.items if pod.metadata.namespace != held.namespace]
        return [pod for pod in pods if not pod.ended and held.group in pod.held_groups]

    async def unreadable(self, held: Reservation) -> Reservation | str | None:
        """Read a reservation whose book is lost; why it can't be written again, or None when there is nothing to do."""
        try:
            pod = await self._api.get(PODS, held.name, namespace=held.namespace)
        except NotFound:
            return None
        fresh = reservations.read(pod)
        if fresh.uid != held.uid or fresh.book is not None:
            self._view.note_reservation(fresh)
            return None
        if is_of_newer_version((pod.metadata.annotations or {}).get(names.TENANTS, "")):
            return "it was written by a newer version of the scheduler or the binder"
        book = rebuild(held.group, await self._listed_in(fresh), card_mib=self._card_mib(fresh))
        return fresh if isinstance(book, Book) else f"its bound pods were given more than one device: {book}"

    async def rewrite(self, fresh: Reservation, *, known: Collection[str]) -> Reservation | None:
        """Write the book again, at exactly the version that was read; None when it is another now.

        Only after everybody who stood in the lost book is bound, or can't be bound any more. ``known`` are pods (UIDs)
        that were bound when all who vanished had been waited for: one that went since then may still run.
        """
        bound = await self._listed_in(fresh)
        book = rebuild(fresh.group, bound, card_mib=self._card_mib(fresh), caps=self._settings.memory_caps)
        if not isinstance(book, Book) or not {pod.uid for pod in bound}.issuperset(known):
            return None
        try:
            written = await books.write(self._api, fresh, book)
        except (Conflict, NotFound):
            return None
        self._view.note_reservation(written)
        return written

    def strays(self, held: Reservation) -> list[PodView]:
        """Pods that are bound to the group and missing from its book, as far as is seen."""
        known = held.book.entries if held.book is not None else {}
        if self._view.bound_uids(held.group) <= known.keys():
            return []
        return [pod for pod in self._view.bound_in(held.group) if pod.uid not in known]

    async def charge_strays(self, held: Reservation) -> Reservation:
        """Enter bound pods that the book does not know: it was rebuilt before they were seen. Read each first."""
        if not held.is_joinable:
            return held
        missing = []
        for pod in self.strays(held):
            found = await binding.read(self._api, Identity(pod.namespace, pod.name, pod.uid))
            now = read_pod(found) if found is not None else None
            if now is not None and not now.ended and held.group in now.held_groups:
                missing.append(now)
        if not missing:
            return held
        card_mib, caps = self._card_mib(held), self._settings.memory_caps
        tenants = [tenant(held.group, pod, card_mib=card_mib, caps=caps) for pod in missing]
        joined = await books.join(self._api, held, tenants)
        if isinstance(joined, Reservation):
            self._view.note_reservation(joined)
            return joined
        _log.error("reservation %s: bound pods can't be charged: %s", held.name, joined)
        return held


#: Before it is tried again what could not be done.
_AGAIN_S: Final = 60.0
#: How long pods that vanished before the loss was found are waited for.
_UNSEEN_S: Final = float(vanished_wait_s(0, was_seen=False))


@dataclass(slots=True)
class _Loss:
    """A book of a reservation (UID) that was found lost; times are the event loop's.

    ``until_s``: when no pod that vanished can run any more. ``gone_s``: when a pod was found to have vanished last, or
    the loss itself; from then on, and from when the machine is heard of, pods that vanished run for ``wait_s`` at most.
    ``bound``: grace periods of the group's bound pods (UIDs) at the last look. ``told``: why it can't be repaired, as
    it was told last. ``withdrawn``: unbound pods (UIDs) that were fenced while the reservation was at version ``rv``:
    as long as it is, nobody can have joined since.
    """

    uid: str
    until_s: float
    gone_s: float
    wait_s: float = _UNSEEN_S
    bound: Mapping[str, int] = field(default_factory=dict)
    told: str = ""
    rv: str = ""
    withdrawn: set[str] = field(default_factory=set)


class Repairing:
    """Looks at reservations of ours that have no book, or one that can't be read."""

    def __init__(self, *, view: View, clearing: Clearing, restoring: Restoring, events: EventRecorder) -> None:
        self._view = view
        self._clearing = clearing
        self._restoring = restoring
        self._events = events
        #: By group.
        self._losses: dict[str, _Loss] = {}

    def forget(self, group: str) -> None:
        """The group has a book that can be read, or none at all."""
        self._losses.pop(group, None)

    async def repair(self, held: Reservation) -> float:
        """Repair a book when its time has come; returns when to look again. Raises ApiError."""
        now = anyio.current_time()
        loss = self._losses.get(held.group)
        if loss is None or loss.uid != held.uid:
            loss = self._losses[held.group] = _Loss(held.uid, now + _UNSEEN_S, now)
            self._tell(held, "the book of this device can't be read: nobody joins it, and it is written again soon")
        self._wait_for_vanished(held, loss, now)
        if now < loss.until_s:
            return loss.until_s
        await self._clearing.listen(held.node)
        self._wait_for_machine(held, loss, now)
        if now < loss.until_s:
            return loss.until_s
        loss.until_s = now + _AGAIN_S
        await self._repair(held, loss)
        return loss.until_s

    def _wait_for_vanished(self, held: Reservation, loss: _Loss, now: float) -> None:
        """Wait for bound pods that went without their end being seen: nobody else remembers their shares."""
        bound = {pod.uid: pod.grace_s for pod in self._view.bound_in(held.group)}
        for uid, grace_s in loss.bound.items():
            if uid not in bound and not self._has_ended(uid):
                loss.gone_s, loss.wait_s = now, max(loss.wait_s, vanished_wait_s(grace_s))
                loss.until_s = max(loss.until_s, now + vanished_wait_s(grace_s))
        loss.bound = bound
        self._wait_for_machine(held, loss, now)

    def _wait_for_machine(self, held: Reservation, loss: _Loss, now: float) -> None:
        """Who vanished runs on until the kubelet hears of it (sharing/entries.py)."""
        heard, latest_s = self._view.machines.get(held.node), loss.gone_s + LONGEST_SILENCE_S + loss.wait_s
        if heard is None:
            loss.until_s = max(loss.until_s, min(now + _AGAIN_S, latest_s))
        elif heard.since_s > loss.gone_s:
            loss.until_s = max(loss.until_s, min(heard.since_s + loss.wait_s, latest_s))

    def _has_ended(self, uid: str) -> bool:
        seen = self._view.pods.get(uid) or self._view.gone_pods.get(uid)
        return seen is not None and seen.ended

    async def _repair(self, held: Reservation, loss: _Loss) -> None:
        fresh = await self._restoring.unreadable(held)
        if isinstance(fresh, str):
            self._tell_why(held, loss, fresh)
            return
        if fresh is None:
            return
        if loss.rv != fresh.rv:
            loss.rv, loss.withdrawn = fresh.rv, set()
        because = f"the book of reservation pod {held.name} was lost"
        text = FenceText(f"Withdrawn: {because}", f"Failed to bind pod: {because}, so it is decided on again")
        refused = await self._clearing.withdraw_unbound(text, loss.withdrawn)
        if refused:
            self._tell_why(held, loss, refused)
            return
        written = await self._restoring.rewrite(fresh, known=loss.bound)
        if written is not None and written.book is not None:
            tenants = len(written.book.entries)
            withdrawn = len(loss.withdrawn)
            outcome = f"the book was written again with {tenants} bound pods; {withdrawn} unbound were withdrawn"
            self._tell(held, outcome)

    def _tell_why(self, held: Reservation, loss: _Loss, why: str) -> None:
        if loss.told != why:
            loss.told = why
            self._tell(held, f"the book of this device can't be read and stays as it is, as {why}")

    def _tell(self, held: Reservation, note: str) -> None:
        _log.error("reservation %s of group %s: %s", held.name, held.group, note)
        about = ObjectReference(api_version="v1", kind="Pod", name=held.name, namespace=held.namespace, uid=held.uid)
        self._events.record(about, reason=names.REASON_BOOK_LOST, action="Binding", note=note, type=WARNING)
