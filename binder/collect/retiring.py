"""Takes reservations away: idle, ended and departing ones (docs/design/protocol.md, step 6)."""

from __future__ import annotations

import logging
from typing import Final

from binder.watch.view import View
from gpu.reservation import Reservation
from kube import books
from kube.client.api import Api
from kube.client.errors import Conflict, NotFound
from kube.client.resources import PODS
from kube.telemetry.logevents import LogEvent, about
from wire import names

_log: Final = logging.getLogger(__name__)


class Retiring:
    """Every method raises ApiError when the server can't be asked."""

    def __init__(self, api: Api, *, view: View) -> None:
        self._api = api
        self._view = view

    async def retire(self, held: Reservation) -> bool:
        """Delete an idle reservation exactly as it was seen; False when it is another now: a tenant joined and wins.

        It is read then: a cache that is minutes old would have the same deletion refused again and again.
        """
        try:
            await self._api.delete(PODS, held.name, namespace=held.namespace, uid=held.uid, resource_version=held.rv)
        except NotFound:
            self._view.forget_reservation(held)
        except Conflict:
            await self._read_again(held)
            return False
        extra = about(LogEvent.RESERVATION_REMOVED, reservation=held.name, group=held.group, node=held.node)
        _log.info("nobody uses its device any more", extra=extra)
        return True

    async def _read_again(self, held: Reservation) -> None:
        found = await books.read(self._api, held.namespace, held.name)
        if found is None or found.uid != held.uid:
            self._view.forget_reservation(held)
        else:
            self._view.note_reservation(found)

    async def delete_ended(self, held: Reservation) -> None:
        """Delete what kubelet ended: it holds nothing. Its unbound tenants are withdrawn by their units."""
        try:
            await self._api.delete(PODS, held.name, namespace=held.namespace, uid=held.uid)
        except NotFound:
            self._view.forget_reservation(held)
        except Conflict:
            return

    async def let_go(self, held: Reservation) -> None:
        """Take the finalizer off a departing reservation when every entry left in it is bound to its group."""
        entries = held.book.entries if held.book is not None else {}
        if not held.finalized or not all(self._is_bound(uid, held.group) for uid in entries):
            return
        try:
            pod = await self._api.get(PODS, held.name, namespace=held.namespace)
            kept = [name for name in pod.metadata.finalizers or () if name != names.BOOK_FINALIZER]
            await self._api.patch(
                PODS,
                held.name,
                {"metadata": {"finalizers": kept}},
                namespace=held.namespace,
                uid=held.uid,
                resource_version=held.rv,
            )
        except (NotFound, Conflict):
            return  # gone, or changed: the watch will tell

    def _is_bound(self, uid: str, group: str) -> bool:
        """Once bound is bound for ever, so the cache may tell."""
        pod = self._view.pods.get(uid)
        return pod is not None and pod.is_bound and group in pod.held_groups
