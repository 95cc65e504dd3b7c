"""Where tenants enter the books: by reservation pods that are created with them, or by joins, several in one write.

A reservation pod is created once under its one name, even if the answer is lost. The first attempt for a group waits a
moment, then writes for all that have come meanwhile; the others wait for that answer. No lock is held: a second binder,
or a scheduler that joins directly, is kept apart by compare-and-set alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from binder.core import reservation_pod
from binder.core.reservation_pod import ReservationTemplate
from binder.settings import BinderSettings
from binder.watch.view import View
from gpu import book as device_book
from gpu import reservation as reservations
from gpu.attempts import Cause
from gpu.book import Book, ComputeTaken, DeviceFull, ModeConflict, NotEntered, OtherAttempt, Tenant
from gpu.reservation import Reservation, name_for
from kube import books
from kube.client.api import Api
from kube.client.errors import AlreadyExists, ApiError, NotFound
from kube.client.resources import PODS
from kube.telemetry.logevents import LogEvent, about
from sharing.failure import Failure
from sharing.outcome import Failed, JoinedAs
from sharing.rebuilding import rebuild, resource_of

_CREATE_PAUSE_S: Final = 1.0


async def make(
    api: Api,
    template: ReservationTemplate,
    *,
    node: str,
    group: str,
    book: Book,
    resource: str,
    opened_for: str = "",
    memory_reserve: str = "",
) -> Reservation | Failed:
    """Create the reservation pod with this book, or find the one that is there, whose book may be another.

    A creation whose outcome is unknown is done again: the name tells whether it had landed. Raises ApiError when the
    server can't be asked.
    """
    manifest = reservation_pod.manifest(
        template,
        node=node,
        group=group,
        book=book,
        resource=resource,
        opened_for=opened_for,
        memory_reserve=memory_reserve,
    )
    held: Reservation | None = None
    while held is None:
        try:
            held = reservations.read(await api.create(PODS, manifest, namespace=template.namespace))
        except AlreadyExists:
            held = await books.read(api, template.namespace, name_for(node, group))
        except NotFound as error:
            return Failed(Failure(cause=Cause.REFUSED, detail=f"group {group}: reservation pod: {error}"))
        except ApiError as error:
            if not error.outcome_unknown:
                raise
            await anyio.sleep(_CREATE_PAUSE_S)
    if held.group != group:
        detail = f"group {group}: reservation pod {held.name} is another group's"
        return Failed(Failure(cause=Cause.NOT_JOINABLE, detail=detail))
    return held


_log: Final = logging.getLogger(__name__)

_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A join that waits for its answer."""

    tenant: Tenant
    #: Which devices it names (gpu/container_devices.py, hint).
    opened_for: str = ""
    answer: JoinedAs | Failed | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class JoinBatcher:
    """Joins tenants to groups of nodes."""

    def __init__(self, api: Api, view: View, settings: BinderSettings) -> None:
        self._api = api
        self._view = view
        self._settings = settings
        self._queues: dict[str, list[_Waiting]] = {}
        self._making = anyio.CapacityLimiter(settings.make_at_once)

    async def join(self, group: str, node: str, tenant: Tenant, *, opened_for: str = "") -> JoinedAs | Failed:
        """Enter the book of this group; the reservation pod is made when there is none.

        ``opened_for``: which devices the tenant names, as a new reservation says it. Goes on until the API server has
        answered.
        """
        waiting = _Waiting(tenant, opened_for)
        queue = self._queues.get(group)
        if queue is not None:
            queue.append(waiting)
            await waiting.answered.wait()
        else:
            self._queues[group] = [waiting]
            await self._serve(group, node)
        return waiting.answer or _refused(Cause.NOT_JOINABLE, group, "the write was given up")

    async def _serve(self, group: str, node: str) -> None:
        """Write for all who wait, until nobody does; if this is given up, those that are left get an answer, too."""
        batch: list[_Waiting] = []
        try:
            await anyio.sleep(self._settings.gather_s)
            while self._queues[group]:
                batch, self._queues[group] = self._queues[group], []
                await self._answer(group, node, batch)
                for waiting in batch:
                    waiting.answered.set()
        finally:
            for waiting in (*batch, *self._queues.pop(group, [])):
                waiting.answered.set()

    async def _answer(self, group: str, node: str, batch: Sequence[_Waiting]) -> None:
        """Have every join of the batch answered."""
        pause_s = _PAUSE_S
        while True:
            try:
                await self._write(group, node, batch)
            except ApiError as error:
                if books.is_final(error):
                    _answer_all(batch, _refused(Cause.REFUSED, group, str(error)))
                _log.warning("joining group %s: %s", group, error)
            if all(waiting.answer is not None for waiting in batch):
                return
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _write(self, group: str, node: str, batch: Sequence[_Waiting]) -> None:
        """All in one write; when they do not fit together, one by one. A contended book leaves joins unanswered."""
        open_ones = [waiting for waiting in batch if waiting.answer is None]
        held = await self._held(group, node, open_ones)
        if isinstance(held, Failed):
            _answer_all(batch, held)
        elif not await self._join_held(group, held, open_ones, is_last=len(open_ones) == 1):
            for waiting in open_ones:
                await self._join_held(group, self._view.reservations.get(group) or held, [waiting], is_last=True)

    async def _join_held(self, group: str, held: Reservation, batch: Sequence[_Waiting], *, is_last: bool) -> bool:
        joined = await books.join(self._api, held, [waiting.tenant for waiting in batch])
        if isinstance(joined, Reservation):
            self._view.note_reservation(joined)
            for waiting in batch:
                waiting.answer = _joined_as(joined, waiting.tenant)
            return True
        if is_last and not isinstance(joined, books.Contended):
            _answer_all(batch, _why(group, joined))
        return is_last

    async def _held(self, group: str, node: str, batch: Sequence[_Waiting]) -> Reservation | Failed:
        """The reservation to join: the one that is known, or a new one with the batch in its book."""
        known = self._view.reservations.get(group)
        if known is not None:
            if known.node != node:
                return _refused(Cause.NOT_JOINABLE, group, f"its device is on node {known.node}")
            return known
        bound = self._view.bound_in(group)
        resource = resource_of(group, bound, otherwise=batch[0].tenant.resource)
        if (there := self._view.devices.get(node)) is not None and not there.get(resource):
            # Where GPUs are handed out by DRA alone, kubelet would admit a reservation pod without one.
            return _refused(Cause.NOT_JOINABLE, group, f"no device plugin of node {node} has {resource}")
        async with self._making:
            first = self._first_book(group, node, [waiting for waiting in batch if waiting.tenant.resource == resource])
            if isinstance(first, Failed):
                return first
            held = await make(
                self._api,
                self._settings.reservation,
                node=node,
                group=group,
                book=first,
                resource=resource,
                opened_for=next((waiting.opened_for for waiting in batch if waiting.opened_for), ""),
                memory_reserve=self._view.memory_reserves.get(node, ""),
            )
        if isinstance(held, Failed):
            return held
        extra = about(LogEvent.RESERVATION_MADE, reservation=held.name, group=group, node=node, pods=len(batch))
        _log.info("a reservation pod takes a device", extra=extra)
        self._view.note_reservation(held)
        return held

    def _first_book(self, group: str, node: str, batch: Sequence[_Waiting]) -> Book | Failed:
        """Bound pods of the group come first (a lost reservation is rebuilt), then as many of the batch as fit."""
        card_mib, caps = self._view.cards_mib.get(node, 0), self._settings.memory_caps
        book = rebuild(group, self._view.bound_in(group), card_mib=card_mib, caps=caps)
        if not isinstance(book, Book):
            return _refused(Cause.DEVICE_CLAIMED, group, "its bound pods need more than one device")
        for waiting in batch:
            joined = device_book.join(book, [waiting.tenant])
            book = joined if isinstance(joined, Book) else book
        return book


def _answer_all(batch: Sequence[_Waiting], answer: Failed) -> None:
    for waiting in batch:
        waiting.answer = waiting.answer or answer


def _joined_as(held: Reservation, tenant: Tenant) -> JoinedAs:
    entry = held.book.entries.get(tenant.pod_uid) if held.book else None
    return JoinedAs(held.group, held.uid, entry.rv if entry else tenant.entry.rv)


def _refused(cause: Cause, group: str, detail: str) -> Failed:
    return Failed(Failure(cause=cause, detail=f"group {group}: {detail}"))


def _why(group: str, refusal: NotEntered | books.NotJoinable) -> Failed:
    match refusal:
        case DeviceFull(asked_nano=asked, free_nano=free):
            return _refused(Cause.DEVICE_TAKEN, group, f"{asked} nano-GPU asked, {free} free")
        case OtherAttempt(attempt=attempt):
            return _refused(Cause.DEVICE_TAKEN, group, f"the pod is there under attempt {attempt}")
        case ModeConflict(asked=mode, there=there):
            return _refused(Cause.DEVICE_TAKEN, group, f"mode {mode} asked, its tenants run in mode {there}")
        case ComputeTaken(asked_percent=asked, free_percent=free):
            return _refused(Cause.DEVICE_TAKEN, group, f"{asked} percent of its compute asked, {free} free")
        case books.NotJoinable(why=why):
            return _refused(Cause.NOT_JOINABLE, group, why)
