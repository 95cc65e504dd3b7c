"""Keeps books true and takes away what nobody needs: dead entries, idle, failed and departing reservations.

Runs when events point at a group, and looks everything over every few seconds. A cached view only makes it look; what
it takes out or deletes is judged on quorum reads, in the order that docs/design/protocol.md gives (steps 5 and 6).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio

from binder.core import entries
from binder.core.entries import Evidence, Judgement
from binder.core.pods import PodView, view
from binder.desk import Desk, rebuild
from binder.settings import BinderSettings
from binder.view import View
from gpu.book import Book, Entry, Tenant
from gpu.reservation import Reservation
from kube import binding, books
from kube.api import Api
from kube.binding import FenceText
from kube.clock import Clock
from kube.errors import ApiError, Conflict, NotFound
from kube.resources import BIND_REQUESTS, PODS
from wire import names

_log: Final = logging.getLogger(__name__)

_WITHDRAWN = FenceText("Withdrawn: left over", "Failed to bind pod: an attempt was left over and was withdrawn")


class Collector:
    """``at_work`` tells the pods (UIDs) that units are working on."""

    def __init__(
        self,
        api: Api,
        *,
        view: View,
        desk: Desk,
        settings: BinderSettings,
        clock: Clock,
        at_work: Callable[[], set[str]],
    ) -> None:
        self._api = api
        self._view = view
        self._desk = desk
        self._settings = settings
        self._clock = clock
        self._at_work = at_work
        #: Reservation UID -> when its book was first seen empty (event loop's time).
        self._idle_since: dict[str, float] = {}
        #: Pod UID -> when it was first found missing.
        self._missing_since: dict[str, float] = {}
        #: Group -> when it was first seen to have bound pods and no reservation.
        self._bare_since: dict[str, float] = {}

    async def run(self) -> None:
        """Look at what events point at, and at everything now and then."""
        next_sweep = anyio.current_time() + self._settings.sweep_s
        while True:
            now = anyio.current_time()
            if now >= next_sweep:
                self._mark_all()
                next_sweep = now + self._settings.sweep_s
            groups, self._view.dirty = sorted(self._view.dirty), set()
            async with anyio.create_task_group() as tasks:
                for group in groups:
                    tasks.start_soon(self._look_safely, group)
            if not self._view.dirty:
                with anyio.move_on_after(min(self._next_idle_s(), next_sweep - anyio.current_time())):
                    await self._view.collector.wait()

    def _mark_all(self) -> None:
        """What a sweep looks at: all reservations, and groups whose bound pods have none."""
        self._view.dirty |= set(self._view.reservations.items)
        for pod in self._view.pods.items.values():
            if pod.is_bound and not pod.ended and pod.grant:
                self._view.dirty |= {d.group for d in pod.grant.devices if d.group not in self._view.reservations.items}

    def _next_idle_s(self) -> float:
        """Seconds until the first idle reservation's time is over."""
        now = anyio.current_time()
        waits = [since + self._settings.idle_s - now for since in self._idle_since.values()]
        return max(0.05, min(waits, default=self._settings.sweep_s))

    async def _look_safely(self, group: str) -> None:
        """One group that can't be looked at now does not keep the others waiting."""
        try:
            await self._look(group)
        except ApiError as error:
            _log.warning("group %s can't be looked at now: %s", group, error)

    async def _look(self, group: str) -> None:
        held = self._view.reservation_of(group)
        if held is None:
            await self._restore(group)
            return
        self._bare_since.pop(group, None)
        if held.book is None:
            return
        held = await self._clean(held)
        if held is None or held.book is None:
            return
        if held.deleting:
            await self._let_go(held)
        elif not held.book.entries:
            await self._retire(held)
        else:
            self._idle_since.pop(held.uid, None)
            if held.is_terminal:
                await self._delete_ended(held)

    # --- entries -------------------------------------------------------------------------------------------------
    async def _clean(self, held: Reservation) -> Reservation | None:
        """Take out dead entries; returns the reservation as it is then."""
        suspects = self._suspects(held)
        if not suspects:
            return held
        fresh = await books.read(self._api, held.namespace, held.name)
        if fresh is None or fresh.uid != held.uid or fresh.book is None:
            return fresh if fresh is None or fresh.uid == held.uid else None
        self._view.note_reservation(fresh)
        dead = []
        for uid, entry in fresh.book.entries.items():
            if uid in suspects and await self._is_dead(fresh, uid, entry):
                dead.append(Tenant(uid, entry))
        if not dead:
            return fresh
        left = await books.leave(self._api, fresh, dead)
        if not isinstance(left, Reservation):
            return None
        for tenant in dead:
            self._missing_since.pop(tenant.pod_uid, None)
        self._view.note_reservation(left)
        return left

    def _suspects(self, held: Reservation) -> set[str]:
        assert held.book is not None  # noqa: S101 - looked at by the caller
        at_work = self._at_work()
        now_s = self._now_s()
        return {
            uid
            for uid, entry in held.book.entries.items()
            if entries.is_suspicious(entry, held.group, self._view.pod(uid), at_work=uid in at_work, now_s=now_s)
        }

    async def _is_dead(self, held: Reservation, uid: str, entry: Entry) -> bool:
        """Judge an entry of a book that was read just before; the fence, where needed, comes first."""
        namespace, _, name = entry.pod.partition("/")
        identity = binding.Identity(namespace, name, uid)
        found = await binding.read(self._api, identity)
        judgement = entries.judge(entry, await self._evidence(held, uid, entry, view(found) if found else None))
        if judgement is Judgement.FENCE_FIRST:
            fenced = await binding.fence(
                self._api, identity, rv=entry.rv, attempt=entry.attempt, text=_WITHDRAWN, clock=self._clock
            )
            return fenced is not None
        return judgement is Judgement.DEAD

    async def _evidence(self, held: Reservation, uid: str, entry: Entry, pod: PodView | None) -> Evidence:
        now = anyio.current_time()
        gone_for_s = 0.0
        if pod is None:
            gone_for_s = now - self._missing_since.setdefault(uid, now)
        return Evidence(
            group=held.group,
            pod=pod,
            last=self._view.last_seen.get(uid),
            gone_for_s=gone_for_s,
            has_request=pod is not None and not pod.is_bound and await self._has_request(entry, pod),
            node_gone=bool(self._view.nodes) and held.node not in self._view.nodes,
            now_s=self._now_s(),
        )

    async def _has_request(self, entry: Entry, pod: PodView) -> bool:
        try:
            request = await self._api.get(BIND_REQUESTS, pod.name, namespace=pod.namespace)
        except NotFound:
            return False
        return request.metadata.uid == entry.attempt

    # --- reservations --------------------------------------------------------------------------------------------
    async def _retire(self, held: Reservation) -> None:
        """Remove an idle reservation when its time is over: at once where no share can come any more."""
        now = anyio.current_time()
        since = self._idle_since.setdefault(held.uid, now)
        at_once = held.is_terminal or self._view.is_cordoned(held.node)
        if not at_once and now - since < self._settings.idle_s:
            return
        self._idle_since.pop(held.uid, None)
        try:
            await self._api.delete(PODS, held.name, namespace=held.namespace, uid=held.uid, resource_version=held.rv)
        except NotFound:
            self._view.forget_reservation(held)
        except Conflict:
            return  # a tenant joined in between, and wins; the watch will tell

    async def _delete_ended(self, held: Reservation) -> None:
        """A reservation that kubelet ended holds nothing; its unbound tenants are withdrawn by their units."""
        try:
            await self._api.delete(PODS, held.name, namespace=held.namespace, uid=held.uid)
        except (NotFound, Conflict):
            return

    async def _let_go(self, held: Reservation) -> None:
        """Take the finalizer off a departing reservation when every entry left in it is bound to its group."""
        assert held.book is not None  # noqa: S101 - looked at by the caller
        if not held.finalized or any(not self._is_bound_here(uid, held.group) for uid in held.book.entries):
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
            return

    def _is_bound_here(self, uid: str, group: str) -> bool:
        pod = self._view.pod(uid)
        return pod is not None and pod.is_bound and group in pod.groups

    async def _restore(self, group: str) -> None:
        """A group with bound pods and no reservation: its device is unprotected. Make the reservation anew."""
        bound = self._view.bound_in(group)
        if not bound or any(pod.grant is None for pod in bound):
            self._bare_since.pop(group, None)
            return
        now = anyio.current_time()
        if now - self._bare_since.setdefault(group, now) < 1.0:
            self._view.dirty.add(group)
            await anyio.sleep(1.0)
            return
        book = rebuild(group, bound)
        if isinstance(book, Book):
            _log.warning("the reservation of group %s on node %s was lost; making it anew", group, bound[0].node)
            await self._desk.create(group, bound[0].node, book, bound[0].tolerations)

    def _now_s(self) -> int:
        return self._clock.now_ns() // 1_000_000_000
