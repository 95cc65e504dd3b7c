"""Changes of books that come together are one write.

The first caller for a reservation writes for all that have come meanwhile, and goes on until none waits. Each
change is evaluated on the book that the changes before it left, and answered for itself. No lock is held: other
processes are kept apart by compare-and-set alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec

from gpu.book import Book, NotEntered, Tenant
from gpu.reservation import Reservation
from kube import books
from kube.books import NotHeld, NotJoinable
from kube.client.api import Api
from kube.client.errors import ApiError, Conflict, NotFound
from kube.client.patience import until_answered

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Wanted:
    """A change that waits for its answer."""

    change: Callable[[Reservation], Any]
    refusal: Any = None
    answer: Any = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class BookWriter:
    """Writes books for one process. Every method goes on until the API server has answered."""

    def __init__(self, api: Api) -> None:
        self._api = api
        #: Changes that wait, by reservation UID; there is an entry while somebody writes.
        self._queues: dict[str, list[_Wanted]] = {}

    async def join(self, held: Reservation, tenants: Iterable[Tenant]) -> Reservation | NotEntered | NotJoinable:
        """Enter tenants, all or none."""
        answer: Reservation | NotEntered | NotJoinable
        answer = await self._change(held, books.joining(tenants))
        return answer

    async def leave(self, held: Reservation, tenants: Iterable[Tenant]) -> Reservation | NotJoinable:
        """Take out exactly these entries."""
        answer: Reservation | NotJoinable = await self._change(held, books.leaving(tenants))
        return answer

    async def rejoin(
        self, held: Reservation, tenant: Tenant, rv: str
    ) -> Reservation | NotEntered | NotHeld | NotJoinable:
        """Move our entry to a new ``rv``, or enter it again where it was taken out."""
        answer: Reservation | NotEntered | NotHeld | NotJoinable
        answer = await self._change(held, books.rejoining(tenant, rv))
        return answer

    async def _change(self, held: Reservation, change: Callable[[Reservation], Any]) -> Any:
        wanted = _Wanted(change)
        queue = self._queues.get(held.uid)
        if queue is None:
            self._queues[held.uid] = [wanted]
            await self._serve(held)
        else:
            queue.append(wanted)
            await wanted.answered.wait()
        return wanted.answer or NotJoinable("the write was given up")

    async def _serve(self, held: Reservation) -> None:
        """Write until nobody waits; if this is cancelled, those that are left get that as their answer."""
        newest: Reservation = held
        batch: list[_Wanted] = []
        try:
            while self._queues[held.uid]:
                await anyio.lowlevel.checkpoint()  # who comes in the same breath is in the same write
                batch, self._queues[held.uid] = self._queues[held.uid], []
                newest = await self._write(newest, batch)
                for wanted in batch:
                    wanted.answered.set()
        finally:
            for wanted in (*batch, *self._queues.pop(held.uid)):
                wanted.answered.set()

    async def _write(self, held: Reservation, batch: list[_Wanted]) -> Reservation:
        """Write a batch; returns the newest view. A refusal is given on a fresh read only: a cache may be late."""
        now: Reservation | None = held
        is_fresh = False
        lost = 0
        while True:
            if now is None or now.uid != held.uid:
                return _refuse(held, batch, NotJoinable("it is gone"))
            wanted_book = _evaluate(now, batch)
            if is_fresh or not any(wanted.refusal for wanted in batch):
                if wanted_book == now.book:
                    return _answer(now, batch)
                try:
                    return _answer(await books.write(self._api, now, wanted_book or Book()), batch)
                except ApiError as error:
                    if books.is_final(error):
                        return _refuse(now, batch, NotJoinable(str(error)))
                    if not isinstance(error, Conflict | NotFound):
                        _log.warning("the book of %s: %s", held.name, error)
                    pause_s = books.race_pause_s(lost, error)
                await anyio.sleep(pause_s)
                lost += 1
            now = await until_answered(lambda: books.read(self._api, held.namespace, held.name))
            is_fresh = True


def _evaluate(now: Reservation, batch: list[_Wanted]) -> Book | None:
    """Evaluate all changes in order, each on what the others left; notes refusals."""
    running = now
    for wanted in batch:
        changed = wanted.change(running)
        is_book = isinstance(changed, Book)
        wanted.refusal = None if is_book else changed
        if is_book:
            running = msgspec.structs.replace(running, book=changed)
    return running.book


def _answer(now: Reservation, batch: list[_Wanted]) -> Reservation:
    for wanted in batch:
        wanted.answer = wanted.refusal or now
    return now


def _refuse(now: Reservation, batch: list[_Wanted], refusal: NotJoinable) -> Reservation:
    for wanted in batch:
        wanted.answer = refusal
    return now
