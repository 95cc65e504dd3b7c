"""Where tenants enter the books: joins of one group that come together are one write.

Whoever comes first for a group waits a moment, then writes for all who have come meanwhile; the others wait for that
answer. No lock is held: a second binder, or a scheduler that joins directly, is kept apart by compare-and-set alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from binder.core import reservation_pod
from binder.core.failure import Cause, Failure
from binder.core.pods import PodView
from binder.core.outcome import Failed, JoinedAs
from binder.settings import BinderSettings
from binder.view import View
from gpu import book as device_book
from gpu import reservation as reservations
from gpu.book import Book, DeviceFull, Entry, OtherAttempt, Tenant
from gpu.reservation import Reservation, name_for
from kube import books
from kube.api import Api
from kube.errors import AlreadyExists, ApiError, Refused
from kube.resources import PODS
from wire.core import Toleration


@dataclass(slots=True, eq=False)
class _Waiting:
    """A join that waits for its answer."""

    tenant: Tenant
    tolerations: tuple[Toleration, ...]
    answer: JoinedAs | Failed | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class Desk:
    """Joins tenants to groups of nodes."""

    def __init__(self, api: Api, view: View, settings: BinderSettings) -> None:
        self._api = api
        self._view = view
        self._settings = settings
        self._queues: dict[str, list[_Waiting]] = {}

    async def join(
        self, group: str, node: str, tenant: Tenant, tolerations: tuple[Toleration, ...] = ()
    ) -> JoinedAs | Failed:
        """Enter the book of this group; the reservation pod is made when there is none."""
        waiting = _Waiting(tenant, tolerations)
        queue = self._queues.get(group)
        if queue is not None:
            queue.append(waiting)
            await waiting.answered.wait()
        else:
            self._queues[group] = [waiting]
            await self._serve(group, node)
        assert waiting.answer is not None  # noqa: S101 - answered
        return waiting.answer

    async def _serve(self, group: str, node: str) -> None:
        """Write for all who wait, until nobody does."""
        await anyio.sleep(self._settings.gather_s)
        try:
            while self._queues[group]:
                batch, self._queues[group] = self._queues[group], []
                try:
                    await self._write(group, node, batch)
                finally:
                    for waiting in batch:
                        waiting.answer = waiting.answer or _refused(Cause.NOT_JOINABLE, group, "the write was given up")
                        waiting.answered.set()
        finally:
            for waiting in self._queues.pop(group, []):
                waiting.answer = _refused(Cause.NOT_JOINABLE, group, "the write was given up")
                waiting.answered.set()

    async def _write(self, group: str, node: str, batch: list[_Waiting]) -> None:
        """All in one write; when they do not fit together, one by one."""
        held = await self._held(group, node, batch)
        if isinstance(held, Failed):
            for waiting in batch:
                waiting.answer = held
            return
        for part in (batch, *([waiting] for waiting in batch)):
            open_ones = [waiting for waiting in part if waiting.answer is None]
            if open_ones:
                await self._join_held(group, held, open_ones, is_last=len(open_ones) == 1)

    async def _join_held(self, group: str, held: Reservation, batch: list[_Waiting], *, is_last: bool) -> None:
        held = self._view.reservation_of(group) or held
        joined = await books.join(self._api, held, [waiting.tenant for waiting in batch])
        if isinstance(joined, Reservation):
            self._view.note_reservation(joined)
            for waiting in batch:
                waiting.answer = _joined_as(joined, waiting.tenant)
        elif is_last:
            batch[0].answer = _why(group, joined)

    async def _held(self, group: str, node: str, batch: list[_Waiting]) -> Reservation | Failed:
        """The reservation to join: the one that is known, or a new one with the batch in its book."""
        known = self._view.reservation_of(group)
        if known is not None:
            if known.node != node:
                return _refused(Cause.NOT_JOINABLE, group, f"its device is on node {known.node}")
            return known
        first = self._first_book(group, batch)
        if isinstance(first, Failed):
            return first
        return await self.create(group, node, first, batch[0].tolerations)

    def _first_book(self, group: str, batch: list[_Waiting]) -> Book | Failed:
        """Bound pods of the group come first, so that a lost reservation is rebuilt; then as many of the batch as fit."""
        rebuilt = rebuild(group, self._view.bound_in(group))
        if isinstance(rebuilt, DeviceFull | OtherAttempt):
            return _refused(Cause.DEVICE_CLAIMED, group, "its bound pods need more than one device")
        for waiting in batch:
            joined = device_book.join(rebuilt, [waiting.tenant])
            rebuilt = joined if isinstance(joined, Book) else rebuilt
        return rebuilt

    async def create(
        self, group: str, node: str, book: Book, tolerations: tuple[Toleration, ...]
    ) -> Reservation | Failed:
        """Make the reservation pod, or find the one that is there. An unknown outcome is settled by reading."""
        template = self._settings.reservation
        manifest = reservation_pod.manifest(template, node=node, group=group, book=book, tolerations=tolerations)
        while True:
            try:
                held = reservations.read(await self._api.create(PODS, manifest, namespace=template.namespace))
            except AlreadyExists:
                found = await books.read(self._api, template.namespace, name_for(node, group))
                if found is None:
                    continue
                held = found
            except Refused as error:
                if not error.outcome_unknown:
                    return _refused(Cause.REFUSED, group, f"reservation pod: {error}")
                await anyio.sleep(1)
                continue
            except ApiError:
                await anyio.sleep(1)
                continue
            if held.group != group:
                return _refused(Cause.NOT_JOINABLE, group, f"{held.name} holds another group")
            self._view.note_reservation(held)
            return held


def rebuild(group: str, bound: list[PodView]) -> Book | DeviceFull | OtherAttempt:
    """The book of a group as its bound pods say (their protected annotations)."""
    tenants = []
    for pod in bound:
        for device in pod.grant.devices if pod.grant else ():
            if device.group == group:
                assert pod.grant is not None  # noqa: S101 - it has devices
                entry = Entry(device.nano, pod.grant.attempt, pod.rv, 0, f"{pod.namespace}/{pod.name}")
                tenants.append(Tenant(pod.uid, entry))
    return device_book.join(device_book.EMPTY, tenants)


def _joined_as(held: Reservation, tenant: Tenant) -> JoinedAs:
    entry = held.book.entries.get(tenant.pod_uid) if held.book else None
    return JoinedAs(held.group, held.uid, entry.rv if entry else tenant.entry.rv)


def _refused(cause: Cause, group: str, detail: str) -> Failed:
    return Failed(Failure(cause=cause, detail=f"group {group}: {detail}"))


def _why(group: str, refusal: DeviceFull | OtherAttempt | books.NotJoinable | books.Contended) -> Failed:
    match refusal:
        case DeviceFull(asked_nano=asked, free_nano=free):
            return _refused(Cause.DEVICE_TAKEN, group, f"{asked} nano-GPU asked, {free} free")
        case OtherAttempt(attempt=attempt):
            return _refused(Cause.DEVICE_TAKEN, group, f"the pod is there under attempt {attempt}")
        case books.NotJoinable(why=why) | books.Contended(why=why):
            return _refused(Cause.NOT_JOINABLE, group, why)
