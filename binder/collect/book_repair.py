"""Books that can't be read or say too little, made true from the bound pods.

Makes books true that say too little: of lost reservations, of KAI's, and of those that a bound pod is missing from.

docs/design/protocol.md, "A lost or foreign reservation".

Books that can't be read: written again from the bound pods, when no other tenant of theirs can come back.

A reservation of KAI's has no book because nobody of ours ever joined it. A book that is lost is another matter
(docs/design/protocol.md, "A lost or foreign reservation"): it named unbound pods whose Bindings may be on their way,
and pods that vanished and may still run. Nobody joins meanwhile, as there is no book to join.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from binder.bind.create_reservation import make
from binder.collect.dead_entries import Clearing
from binder.settings import BinderSettings
from binder.watch.view import View
from gpu import reservation as reservations
from gpu.book import Book
from gpu.reservation import Reservation
from kube import binding, books
from kube.binding import FenceText, Identity
from kube.client.api import Api, field_is
from kube.client.errors import Conflict, NotFound
from kube.client.resources import PODS
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from sharing.entries import LONGEST_SILENCE_S, vanished_wait_s
from sharing.outcome import Failed
from sharing.pods import PodView
from sharing.pods import view as read_pod
from sharing.rebuilding import is_of_newer_version, rebuild, resource_of, tenant
from wire import names
from wire.core import ObjectReference
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)


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
        made = await make(self._api, template, node=node, group=group, book=book, resource=resource)
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
