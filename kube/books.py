"""Changing the book of a device: compare-and-set on its reservation pod, until it is answered.

The arithmetic is gpu/book.py's; here is only the writing. Each change is evaluated on the book that was read, written
with that pod's UID and resourceVersion as preconditions, and evaluated again on a quorum read when it lost. All changes
of a book are idempotent for their maker, so a write whose outcome is unknown is simply done again: had it landed after
all, the second one finds its work done, and if it lands later, its precondition is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import anyio
import msgspec
from anyio import lowlevel

from gpu import book as device_book
from gpu import reservation as reservations
from gpu.book import Book, NotEntered, Tenant
from gpu.reservation import Reservation
from kube.client.api import Api
from kube.client.errors import ApiError, BadName, BadRequest, Conflict, Forbidden, Invalid, NotFound, Refused
from kube.client.resources import PODS
from kube.client.retry import doubled_s, until_answered

#: Lost races in a row after which a change gives up (its caller asks again later).
_TRIES = 5
#: Before the third try and each later one, doubled each time: one lost race is common, two in a row show contention.
_RETRY_S = 0.05
#: Between rounds of ``_TRIES`` tries.
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class NotJoinable(msgspec.Struct, frozen=True, gc=False):
    """The reservation is gone, another one of its name, ending, ended, or has no book. ``why`` says which."""

    why: str


class NotHeld(msgspec.Struct, frozen=True, gc=False):
    """Our entry is not in the book any more."""


class Contended(msgspec.Struct, frozen=True, gc=False):
    """Others changed the book each time we tried, or the API server kept failing."""

    why: str


def is_final(error: ApiError) -> bool:
    """Whether a change of a book was refused for what it says, and will be refused again."""
    return isinstance(error, BadName | Refused) and type(error) in {BadName, BadRequest, Forbidden, Invalid, Refused}


def joining(tenants: Iterable[Tenant]) -> Callable[[Reservation], Book | NotEntered | NotJoinable]:
    """The change that enters tenants, all or none."""
    entering = tuple(tenants)

    def change(now: Reservation) -> Book | NotEntered | NotJoinable:
        if now.book is None or not now.is_joinable:
            return NotJoinable(_why_not(now))
        if other := next((one.resource for one in entering if one.resource != now.resource), ""):
            return NotJoinable(f"it holds one of {now.resource}, and {other} was asked")
        return device_book.join(now.book, entering)

    return change


def leaving(tenants: Iterable[Tenant]) -> Callable[[Reservation], Book | NotJoinable]:
    """The change that takes out exactly these entries (pod UID, attempt, rv)."""
    going = tuple(tenants)

    def change(now: Reservation) -> Book | NotJoinable:
        return NotJoinable("it has no book") if now.book is None else device_book.leave(now.book, going)

    return change


def renewing(tenant: Tenant, rv: str) -> Callable[[Reservation], Book | NotHeld | NotJoinable]:
    """The change that moves our entry from exactly the old ``rv`` to the new one. Finding it there is success."""

    def change(now: Reservation) -> Book | NotHeld | NotJoinable:
        if now.book is None:
            return NotJoinable("it has no book")
        known = now.book.entries.get(tenant.pod_uid)
        if known is not None and (known.attempt, known.rv) == (tenant.entry.attempt, rv):
            return now.book
        return device_book.renew(now.book, tenant, rv) or NotHeld()

    return change


def rejoining(tenant: Tenant, rv: str) -> Callable[[Reservation], Book | NotEntered | NotHeld | NotJoinable]:
    """The change that moves our entry to ``rv``, or enters it again where somebody has taken it out.

    ``tenant`` is the entry at the old version, at which no Binding can land any more. Where it is gone this is a join,
    with all that a join demands; an entry of this pod that is not ours, or at a third version, is left as it is.
    """
    renew = renewing(tenant, rv)
    join = joining([msgspec.structs.replace(tenant, entry=msgspec.structs.replace(tenant.entry, rv=rv))])

    def change(now: Reservation) -> Book | NotEntered | NotHeld | NotJoinable:
        is_there = now.book is not None and tenant.pod_uid in now.book.entries
        return renew(now) if is_there else join(now)

    return change


def lowering(group: str, nano_of: Mapping[str, int]) -> Callable[[Reservation], Book | NotJoinable]:
    """The change that lowers charges (by pod UID) to what their pods are bound with; it never raises one."""

    def change(now: Reservation) -> Book | NotJoinable:
        if now.book is None or now.group != group:
            return NotJoinable("it has no book")
        return device_book.lower(now.book, nano_of)

    return change


async def join(
    api: Api, held: Reservation, tenants: Iterable[Tenant]
) -> Reservation | NotEntered | NotJoinable | Contended:
    """Enter tenants into the book, all or none. Returns the reservation as it is after the write."""
    return await _compare_and_set(api, held, joining(tenants))


async def leave(api: Api, held: Reservation, tenants: Iterable[Tenant]) -> Reservation | NotJoinable | Contended:
    """Take out exactly these entries (pod UID, attempt, rv). A reservation that is gone has no entries left."""
    return await _compare_and_set(api, held, leaving(tenants))


async def renew(
    api: Api, held: Reservation, tenant: Tenant, rv: str
) -> Reservation | NotHeld | NotJoinable | Contended:
    """Move our entry from exactly the old ``rv`` to the new one. Finding it there already is success."""
    return await _compare_and_set(api, held, renewing(tenant, rv))


async def lower(api: Api, held: Reservation, nano_of: Mapping[str, int]) -> Reservation | NotJoinable | Contended:
    """Lower charges (by pod UID) to what their pods are bound with (protocol.md, step 5)."""
    return await _compare_and_set(api, held, lowering(held.group, nano_of))


async def adopt(
    api: Api, held: Reservation, tenants: Iterable[Tenant]
) -> Reservation | NotEntered | NotJoinable | Contended:
    """Write the first book of a reservation pod that has none (KAI's), exactly as it was read in ``held``."""
    first = device_book.join(device_book.EMPTY, tenants)
    if not isinstance(first, Book):
        return first
    if not held.is_adoptable or held.deleting:
        return NotJoinable("it has a book, or is being deleted")
    patch = {"metadata": {"annotations": reservations.annotations_of(first)}}
    try:
        pod = await api.patch(PODS, held.name, patch, namespace=held.namespace, uid=held.uid, resource_version=held.rv)
    except (Conflict, NotFound) as error:
        return Contended(str(error))
    return reservations.read(pod)


R = TypeVar("R", bound=msgspec.Struct)


async def until_settled(change: Callable[[], Awaitable[R | Contended]]) -> R:
    """Repeat a change while others keep changing the book, or no clear answer comes."""
    pause_s = _FIRST_PAUSE_S
    while isinstance(answer := await until_answered(change), Contended):
        await anyio.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
    return answer


def race_pause_s(lost: int, error: ApiError) -> float:
    """Before a change is tried again whose write failed with ``error``, after ``lost`` earlier failures in a row.

    One lost race is common and costs no pause. After two in a row, or where no answer came, the pauses double.
    """
    return doubled_s(_RETRY_S, lost, longest_s=_LONGEST_PAUSE_S) if lost or error.outcome_unknown else 0.0


async def _compare_and_set(
    api: Api, held: Reservation, change: Callable[[Reservation], Book | R]
) -> Reservation | R | NotJoinable | Contended:
    now: Reservation | None = held
    why = ""
    for attempt in range(_TRIES):
        if now is None or now.uid != held.uid:
            return NotJoinable("it is gone")
        changed = change(now)
        if not isinstance(changed, Book):
            # A cache may be late: only a fresh read may refuse.
            if attempt > 0:
                return changed
        elif changed == now.book:
            return now
        else:
            try:
                return await write(api, now, changed)
            except ApiError as error:
                if not isinstance(error, Conflict | NotFound) and not error.outcome_unknown:
                    raise
                why = str(error)
                await anyio.sleep(race_pause_s(attempt, error))
        now = await read(api, held.namespace, held.name)
    return Contended(why)


async def read(api: Api, namespace: str, name: str) -> Reservation | None:
    """Quorum read of a reservation pod; None when it is gone."""
    try:
        return reservations.read(await api.get(PODS, name, namespace=namespace))
    except NotFound:
        return None


async def write(api: Api, now: Reservation, book: Book) -> Reservation:
    """Write a book at exactly the version that was read. Raises ApiError."""
    patch = {"metadata": {"annotations": reservations.annotations_of(book)}}
    pod = await api.patch(PODS, now.name, patch, namespace=now.namespace, uid=now.uid, resource_version=now.rv)
    return reservations.read(pod)


def _why_not(held: Reservation) -> str:
    if held.deleting:
        return "it is being deleted"
    if held.is_terminal:
        return f"it has ended ({held.phase})"
    return "it has no book that can be read"


_log: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Wanted:
    """A change that waits for its answer."""

    change: Callable[[Reservation], Any]
    refusal: Any = None
    answer: Any = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class BookWriter:
    """Writes books for one process. Every method goes on until the API server has answered.

    Changes that come together are one write. The first caller for a reservation writes for all that have come
    meanwhile, and goes on until none waits. Each change is evaluated on the book that the changes before it left, and
    answered for itself. No lock is held: other processes are kept apart by compare-and-set alone.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        #: Changes that wait, by reservation UID; there is an entry while somebody writes.
        self._queues: dict[str, list[_Wanted]] = {}

    async def join(self, held: Reservation, tenants: Iterable[Tenant]) -> Reservation | NotEntered | NotJoinable:
        """Enter tenants, all or none."""
        answer: Reservation | NotEntered | NotJoinable
        answer = await self._change(held, joining(tenants))
        return answer

    async def leave(self, held: Reservation, tenants: Iterable[Tenant]) -> Reservation | NotJoinable:
        """Take out exactly these entries."""
        answer: Reservation | NotJoinable = await self._change(held, leaving(tenants))
        return answer

    async def rejoin(
        self, held: Reservation, tenant: Tenant, rv: str
    ) -> Reservation | NotEntered | NotHeld | NotJoinable:
        """Move our entry to a new ``rv``, or enter it again where it was taken out."""
        answer: Reservation | NotEntered | NotHeld | NotJoinable
        answer = await self._change(held, rejoining(tenant, rv))
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
                await lowlevel.checkpoint()  # who comes in the same breath is in the same write
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
                    return _answer(await write(self._api, now, wanted_book or Book()), batch)
                except ApiError as error:
                    if is_final(error):
                        return _refuse(now, batch, NotJoinable(str(error)))
                    if not isinstance(error, Conflict | NotFound):
                        _log.warning("the book of %s: %s", held.name, error)
                    pause_s = race_pause_s(lost, error)
                await anyio.sleep(pause_s)
                lost += 1
            now = await until_answered(lambda: read(self._api, held.namespace, held.name))
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
