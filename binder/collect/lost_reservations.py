"""Makes books true that say too little: of lost reservations, of KAI's, and of those that a bound pod is missing from.

docs/design/protocol.md, "A lost or foreign reservation".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from binder.bind.create_reservation import make
from binder.settings import BinderSettings
from binder.watch.view import View
from gpu import reservation as reservations
from gpu.book import Book
from gpu.reservation import Reservation
from kube import binding, books
from kube.binding import Identity
from kube.client.api import Api, field_is
from kube.client.errors import Conflict, NotFound
from kube.client.resources import PODS
from kube.telemetry.logevents import LogEvent, about
from sharing.outcome import Failed
from sharing.pods import PodView
from sharing.pods import view as read_pod
from sharing.rebuilding import is_of_newer_version, rebuild, resource_of, tenant
from wire import names

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
