"""Changes of a device's book on the in-memory API server, whose writes get lost and come late."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from gpu import book as device_book
from gpu import reservation as reservations
from gpu.book import Book, DeviceFull, Entry, ModeConflict, OtherAttempt, Tenant
from gpu.reservation import Reservation
from kube import books
from kube.books import BookWriter, NotHeld, NotJoinable
from kube.client.api import Api
from kube.client.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Timeout,
    TooManyRequests,
)
from kube.client.resources import NAMESPACES, PODS, Resource
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault, once
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from simulator.installation import SERVICE_ACCOUNTS
from tests.scheduler.stage import is_call
from wire import names
from wire.core import Status

VIRTUAL_TIME = True

NS = names.RESERVATION_NAMESPACE
HALF = 500_000_000


class Shelf:
    """One reservation pod and its book."""

    def __init__(self, server: MemoryApiServer) -> None:
        self.server = server
        self.api = Api(server.transport("binder"), retry=Retry(random.Random(1)))

    async def put(self, **annotations: str) -> Reservation:
        meta = {"name": "r", "labels": {"runai-gpu-group": "g"}, "annotations": annotations}
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
        return reservations.read(await self.api.create(PODS, {"metadata": meta, "spec": spec}, namespace=NS))

    async def read(self) -> Reservation:
        held = await books.read(self.api, NS, "r")
        assert held is not None
        return held

    async def entries(self) -> dict[str, Entry]:
        book = (await self.read()).book
        assert book is not None
        return dict(book.entries)

    def writes(self) -> int:
        return sum(entry.verb == "patch" and entry.code == 200 for entry in self.server.audit)


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(2), auto_namespaces=True)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        account = b'{"metadata": {"name": "default"}}'
        await server.transport().request(
            "POST", f"/api/v1/namespaces/{NS}/serviceaccounts", query={}, body=account, timeout_s=1
        )
        yield Shelf(server)
        tasks.cancel_scope.cancel()


def tenant(name: str, *, nano: int = HALF, attempt: str = "a", rv: str = "1", mode: str = "") -> Tenant:
    return Tenant(name, Entry(nano, attempt, rv, 0, f"team/{name}", mode=mode))


async def test_several_tenants_join_in_one_write(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    joined = await books.join(shelf.api, held, [tenant("p"), tenant("q")])
    assert isinstance(joined, Reservation)
    assert joined == await shelf.read()
    assert set(await shelf.entries()) == {"p", "q"}
    assert shelf.writes() == 1


async def test_joining_again_writes_nothing(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    await books.join(shelf.api, held, [tenant("p")])
    again = await books.join(shelf.api, held, [tenant("p", rv="2")])
    assert isinstance(again, Reservation)
    assert (await shelf.entries())["p"].rv == "1"
    assert shelf.writes() == 1


async def test_a_late_view_loses_the_race_and_is_judged_anew(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    await books.join(shelf.api, held, [tenant("p")])
    await books.join(shelf.api, held, [tenant("q")])
    full = await books.join(shelf.api, held, [tenant("r", nano=1)])
    assert full == DeviceFull(asked_nano=1, free_nano=0)
    assert set(await shelf.entries()) == {"p", "q"}


async def test_a_refusal_from_a_late_view_is_checked_before_it_is_told(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    full = await books.join(shelf.api, held, [tenant("p"), tenant("q")])
    assert isinstance(full, Reservation)
    await books.leave(shelf.api, full, [tenant("q")])
    assert isinstance(await books.join(shelf.api, full, [tenant("r")]), Reservation)


async def test_an_entry_of_another_attempt_is_neither_overwritten_nor_adopted(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    await books.join(shelf.api, held, [tenant("p")])
    assert await books.join(shelf.api, held, [tenant("p", attempt="b")]) == OtherAttempt("p", "a")


async def test_who_comes_with_another_mode_loses_the_race_for_a_device(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    await books.join(shelf.api, held, [tenant("p", nano=1, mode="mps")])
    late = await books.join(shelf.api, held, [tenant("q", nano=1, mode="hami-core")])
    assert late == ModeConflict("hami-core", "mps")
    moved = await books.until_settled(lambda: books.join(shelf.api, held, [tenant("r", nano=1, mode="mps")]))
    assert isinstance(moved, Reservation)
    assert set(await shelf.entries()) == {"p", "r"}


async def test_who_was_promised_a_slice_never_joins_a_card_nor_is_moved_to_one(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    of_slice = msgspec.structs.replace(tenant("p"), resource="nvidia.com/mig-1g.10gb")
    refused = books.NotJoinable("it holds one of nvidia.com/gpu, and nvidia.com/mig-1g.10gb was asked")
    assert await books.join(shelf.api, held, [tenant("q"), of_slice]) == refused
    assert books.rejoining(of_slice, "2")(await shelf.read()) == refused
    assert await shelf.entries() == {}


async def test_what_is_gone_departing_or_without_a_book_can_not_be_joined(shelf: Shelf) -> None:
    held = await shelf.put()
    assert await books.join(shelf.api, held, [tenant("p")]) == books.NotJoinable("it has no book that can be read")
    await shelf.api.delete(PODS, "r", namespace=NS)
    assert await books.join(shelf.api, held, [tenant("p")]) == books.NotJoinable("it is being deleted")
    await shelf.api.delete(PODS, "r", namespace=NS, grace_s=0)
    assert await books.join(shelf.api, held, [tenant("p")]) == books.NotJoinable("it is gone")


async def test_a_later_pod_of_that_name_is_another_reservation(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    await shelf.api.delete(PODS, "r", namespace=NS, grace_s=0)
    await shelf.put(**{names.TENANTS: "{}"})
    assert await books.join(shelf.api, held, [tenant("p")]) == books.NotJoinable("it is gone")
    assert await shelf.entries() == {}


@pytest.mark.parametrize("stranger", [tenant("p", attempt="b"), tenant("p", rv="2"), tenant("q")])
async def test_exactly_the_named_entry_leaves(shelf: Shelf, stranger: Tenant) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    joined = await books.join(shelf.api, held, [tenant("p")])
    assert isinstance(joined, Reservation)
    await books.leave(shelf.api, joined, [stranger])
    assert set(await shelf.entries()) == {"p"}
    await books.leave(shelf.api, joined, [tenant("p")])
    assert await shelf.entries() == {}


async def test_an_entry_is_renewed_from_exactly_its_old_version_and_again_without_a_write(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    joined = await books.join(shelf.api, held, [tenant("p")])
    assert isinstance(joined, Reservation)
    for _ in range(2):
        assert isinstance(await books.renew(shelf.api, joined, tenant("p"), "2"), Reservation)
    assert (await shelf.entries())["p"].rv == "2"
    assert shelf.writes() == 2
    assert await books.renew(shelf.api, joined, tenant("p"), "3") == books.NotHeld()
    assert await books.renew(shelf.api, joined, tenant("p", attempt="b", rv="2"), "3") == books.NotHeld()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(lost="request"),
        Fault(lost="answer"),
        Fault(lost="request", lands_after_s=30.0),
        Fault(refuse_with=500),
        Fault(refuse_with=409),
    ],
)
async def test_a_write_whose_outcome_is_unknown_is_done_again_and_lands_once(shelf: Shelf, fault: Fault) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    struck: list[Call] = []

    def once(call: Call) -> Fault:
        if call.verb != "patch" or struck:
            return NOTHING
        struck.append(call)
        return fault

    shelf.server.faults.on_request.append(once)
    assert isinstance(await books.join(shelf.api, held, [tenant("p")]), Reservation)
    assert isinstance(await books.join(shelf.api, held, [tenant("q")]), Reservation)
    await anyio.sleep(60)
    assert struck
    assert set(await shelf.entries()) == {"p", "q"}


async def test_a_book_that_others_keep_changing_is_contended_and_settled_later(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    left = [20]

    def always(call: Call) -> Fault:
        if call.verb != "patch" or not left[0]:
            return NOTHING
        left[0] -= 1
        return Fault(refuse_with=409)

    shelf.server.faults.on_request.append(always)
    assert isinstance(await books.join(shelf.api, held, [tenant("p")]), books.Contended)
    settled = await books.until_settled(lambda: books.join(shelf.api, held, [tenant("p")]))
    assert isinstance(settled, Reservation)


async def test_a_lost_race_is_run_again_at_once_and_later_ones_after_growing_pauses(shelf: Shelf) -> None:
    held = await shelf.put(**{names.TENANTS: "{}"})
    times: list[float] = []

    def conflict(call: Call) -> Fault:
        if call.verb != "patch":
            return NOTHING
        times.append(anyio.current_time())
        return Fault(refuse_with=409)

    shelf.server.faults.on_request.append(conflict)
    assert isinstance(await books.join(shelf.api, held, [tenant("p")]), books.Contended)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == pytest.approx([0.0, 0.1, 0.2, 0.4], abs=0.02)


async def test_a_contended_book_is_tried_again_ever_more_rarely(shelf: Shelf) -> None:
    times: list[float] = []

    async def change() -> Reservation | books.Contended:
        times.append(anyio.current_time())
        return books.Contended("others") if len(times) <= 8 else settled

    settled = await shelf.put()
    assert await books.until_settled(change) is settled
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


async def test_the_first_book_of_a_foreign_reservation_is_written_as_it_was_read(shelf: Shelf) -> None:
    held = await shelf.put()
    touched = {"metadata": {"labels": {"x": "y"}}}
    await shelf.api.patch(PODS, "r", touched, namespace=NS)
    assert isinstance(await books.adopt(shelf.api, held, [tenant("p")]), books.Contended)
    adopted = await books.adopt(shelf.api, await shelf.read(), [tenant("p")])
    assert isinstance(adopted, Reservation)
    assert set(await shelf.entries()) == {"p"}
    assert isinstance(await books.adopt(shelf.api, adopted, []), books.NotJoinable)
    too_much = [tenant("p"), tenant("q", nano=HALF + 1)]
    fresh = msgspec.structs.replace(adopted, is_adoptable=True)
    assert isinstance(await books.adopt(shelf.api, fresh, too_much), DeviceFull)


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (Invalid(422, Status()), True),
        (Forbidden(403, Status()), True),
        (BadRequest(400, Status()), True),
        (Conflict(409, Status()), False),
        (NotFound(404, Status()), False),
        (TooManyRequests(429, Status()), False),
        (ServerError(500, Status()), False),
        (Timeout("late"), False),
    ],
)
def test_which_refusals_will_be_repeated(error: ApiError, is_final: bool) -> None:
    assert books.is_final(error) is is_final


async def test_no_charge_is_lowered_where_there_is_no_book_or_the_device_is_another_groups(shelf: Shelf) -> None:
    without = await shelf.put()
    assert without.book is None
    assert isinstance(books.lowering("g", {})(without), books.NotJoinable)
    held = msgspec.structs.replace(without, book=Book({"uid-a": tenant("a").entry}))
    assert isinstance(books.lowering("other", {"uid-a": 1})(held), books.NotJoinable)
    lowered = books.lowering("g", {"uid-a": 1})(held)
    assert isinstance(lowered, Book)
    assert [entry.nano for entry in lowered.entries.values()] == [1]


async def _shelf() -> tuple[MemoryApiServer, Api, Reservation]:
    """A server with one reservation pod and its empty book."""
    server = MemoryApiServer(clock=VirtualClock(asyncio.get_running_loop()), rng=random.Random(1))
    api = Api(server.transport("scheduler"), retry=Retry(random.Random(1)), timeout_s=1.0)
    needed: list[tuple[Resource[Any], str, str]] = [(NAMESPACES, NS, ""), (SERVICE_ACCOUNTS, "default", NS)]
    for resource, name, namespace in needed:
        await api.create(resource, {"metadata": {"name": name}}, namespace=namespace)
    metadata = {
        "name": "r",
        "labels": {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "g"},
        "annotations": {names.TENANTS: device_book.render(device_book.EMPTY)},
    }
    spec = {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]}
    return server, api, reservations.read(await api.create(PODS, {"metadata": metadata, "spec": spec}, namespace=NS))


def _tenant(number: int, nano: int = 10_000_000) -> Tenant:
    return Tenant(f"pod-{number}", Entry(nano, f"attempt-{number}", str(number + 1), 0, f"ns/pod-{number}"))


def _writes(server: MemoryApiServer) -> int:
    return sum(entry.verb == "patch" and entry.code == 200 for entry in server.audit)


async def _together(writer: BookWriter, held: Reservation, tenants: list[Tenant]) -> dict[str, Any]:
    answers: dict[str, Any] = {}

    async def join(tenant: Tenant) -> None:
        answers[tenant.pod_uid] = await writer.join(held, [tenant])

    async with anyio.create_task_group() as tasks:
        for tenant in tenants:
            tasks.start_soon(join, tenant)
    return answers


async def test_a_hundred_joins_that_come_together_are_one_write() -> None:
    server, api, held = await _shelf()
    answers = await _together(BookWriter(api), held, [_tenant(i) for i in range(100)])
    assert all(isinstance(answer, Reservation) for answer in answers.values())
    assert _writes(server) == 1


async def test_a_lost_race_is_run_again_at_once_and_later_ones_after_growing_pauses_without_end() -> None:
    server, api, held = await _shelf()
    times: list[float] = []

    def conflict(call: Call) -> Fault:
        if call.verb != "patch":
            return NOTHING
        times.append(anyio.current_time())
        return Fault(refuse_with=409) if len(times) < 10 else NOTHING

    server.faults.on_request.append(conflict)
    assert isinstance(await BookWriter(api).join(held, [_tenant(0)]), Reservation)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0], abs=0.02)


async def test_of_joins_that_do_not_fit_together_the_first_ones_get_in_and_each_is_told() -> None:
    _, api, held = await _shelf()
    answers = await _together(BookWriter(api), held, [_tenant(i, 400_000_000) for i in range(3)])
    assert [isinstance(answers[f"pod-{i}"], Reservation) for i in range(3)] == [True, True, False]
    assert answers["pod-2"] == DeviceFull(asked_nano=400_000_000, free_nano=200_000_000)


async def test_a_book_that_others_changed_is_read_and_changed_again() -> None:
    server, api, held = await _shelf()
    await books.join(api, held, [_tenant(9, 300_000_000)])
    answer = await BookWriter(api).join(held, [_tenant(1, 700_000_000)])
    assert isinstance(answer, Reservation)
    assert answer.book is not None
    assert set(answer.book.entries) == {"pod-1", "pod-9"}
    assert _writes(server) == 2


async def test_two_processes_that_write_the_same_book_lose_nothing() -> None:
    _, api, held = await _shelf()
    async with anyio.create_task_group() as tasks:
        for first in range(0, 40, 20):
            tasks.start_soon(_together, BookWriter(api), held, [_tenant(i) for i in range(first, first + 20)])
    now = await books.read(api, NS, "r")
    assert now is not None
    assert now.book is not None
    assert len(now.book.entries) == 40


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_a_write_without_an_answer_is_done_once(lost: str) -> None:
    server, api, held = await _shelf()
    fault = Fault(lost=lost)  # type: ignore[arg-type] # parametrised with the literals
    server.faults.on_request.append(once(fault, when=is_call("scheduler", "patch", "pods")))
    answer = await BookWriter(api).join(held, [_tenant(1)])
    assert isinstance(answer, Reservation)
    assert answer.book is not None
    assert set(answer.book.entries) == {"pod-1"}


async def test_a_reservation_that_is_gone_refuses() -> None:
    _, api, held = await _shelf()
    await api.delete(PODS, "r", namespace=NS, grace_s=0)
    assert await BookWriter(api).join(held, [_tenant(1)]) == NotJoinable("it is gone")


async def test_what_the_server_refuses_for_good_is_told_to_all_who_wait() -> None:
    server, api, held = await _shelf()
    refuse = is_call("scheduler", "patch", "pods")
    server.faults.on_request.append(lambda call: Fault(refuse_with=422) if refuse(call) else None)
    answers = await _together(BookWriter(api), held, [_tenant(1), _tenant(2)])
    assert all(isinstance(answer, NotJoinable) for answer in answers.values())


async def test_joins_and_leaves_that_come_together_see_each_other() -> None:
    _, api, held = await _shelf()
    writer = BookWriter(api)
    full = await writer.join(held, [_tenant(0, 1_000_000_000)])
    assert isinstance(full, Reservation)
    answers: list[Any] = []

    async def swap() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.leave, full, [_tenant(0, 1_000_000_000)])
            tasks.start_soon(join)

    async def join() -> None:
        answers.append(await writer.join(full, [_tenant(1, 600_000_000)]))

    await swap()
    assert isinstance(answers[0], Reservation)


async def test_an_entry_that_was_taken_out_is_entered_anew_at_the_new_version() -> None:
    _, api, held = await _shelf()
    writer = BookWriter(api)
    joined = await writer.join(held, [_tenant(0)])
    assert isinstance(joined, Reservation)
    for _ in range(2):
        again = await writer.rejoin(joined, _tenant(0), "7")
        assert isinstance(again, Reservation)
        assert again.book is not None
        assert again.book.entries["pod-0"].rv == "7"
        await books.leave(api, again, [Tenant("pod-0", again.book.entries["pod-0"])])


async def test_an_entry_that_stands_in_its_book_moves_and_is_not_charged_twice() -> None:
    server, api, held = await _shelf()
    writer = BookWriter(api)
    most = _tenant(0, nano=900_000_000)
    joined = await writer.join(held, [most])
    assert isinstance(joined, Reservation)
    assert isinstance(await writer.rejoin(joined, most, "7"), Reservation)
    assert isinstance(await writer.rejoin(joined, most, "7"), Reservation)
    assert _writes(server) == 2


@pytest.mark.parametrize("is_late", [False, True], ids=["fresh view", "late view"])
async def test_a_place_that_others_have_taken_is_lost(is_late: bool) -> None:
    _, api, held = await _shelf()
    writer = BookWriter(api)
    ours, theirs = _tenant(0, nano=600_000_000), _tenant(1, nano=600_000_000)
    joined = await writer.join(held, [ours])
    assert isinstance(joined, Reservation)
    left = await writer.leave(joined, [ours])
    assert isinstance(left, Reservation)
    taken = await writer.join(left, [theirs])
    assert isinstance(taken, Reservation)
    answer = await writer.rejoin(joined if is_late else taken, ours, "7")
    assert answer == DeviceFull(asked_nano=600_000_000, free_nano=400_000_000)


async def test_an_entry_of_another_attempt_or_at_a_third_version_is_neither_moved_nor_taken_over() -> None:
    _, api, held = await _shelf()
    writer = BookWriter(api)
    joined = await writer.join(held, [_tenant(0)])
    assert isinstance(joined, Reservation)
    entry = _tenant(0).entry
    for other in (msgspec.structs.replace(entry, attempt="another"), msgspec.structs.replace(entry, rv="0")):
        assert await writer.rejoin(joined, Tenant("pod-0", other), "7") == NotHeld()
    assert joined == await books.read(api, NS, "r")


async def test_nobody_joins_anew_where_the_reservation_is_going() -> None:
    _, api, held = await _shelf()
    writer = BookWriter(api)
    patch = {"metadata": {"finalizers": [names.BOOK_FINALIZER]}}
    await api.patch(PODS, "r", patch, namespace=NS)
    await api.delete(PODS, "r", namespace=NS)
    assert await writer.rejoin(held, _tenant(0), "7") == NotJoinable("it is being deleted")


async def test_all_of_a_batch_are_answered_though_others_come_while_it_is_written() -> None:
    server, api, held = await _shelf()
    writer = BookWriter(api)
    is_write = is_call("scheduler", "patch", "pods")
    answers: dict[str, Any] = {}

    async def join(number: int) -> None:
        answers[f"pod-{number}"] = await writer.join(held, [_tenant(number)])

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            late = iter([3])

            def come(call: Call) -> Fault:
                if is_write(call) and (number := next(late, None)) is not None:
                    tasks.start_soon(join, number)
                return NOTHING

            server.faults.on_request.append(come)
            tasks.start_soon(join, 1)
            tasks.start_soon(join, 2)
    assert {uid: type(answer) for uid, answer in answers.items()} == {f"pod-{i}": Reservation for i in (1, 2, 3)}
    assert _writes(server) == 2


async def test_who_waits_for_a_write_that_is_given_up_is_told() -> None:
    server, api, held = await _shelf()
    writer = BookWriter(api)
    server.faults.on_request.append(once(Fault(delay_s=5), when=is_call("scheduler", "patch", "pods")))
    answers: dict[int, Any] = {}

    async def join(number: int) -> None:
        answers[number] = await writer.join(held, [_tenant(number)])

    with anyio.fail_after(10):
        async with anyio.create_task_group() as others, anyio.create_task_group() as first:
            first.start_soon(join, 1)
            await anyio.sleep(0.1)
            # One of them comes while the write is on its way; both wait for the one who writes.
            others.start_soon(join, 2)
            await anyio.sleep(0.1)
            first.cancel_scope.cancel()
    assert answers == {2: NotJoinable("the write was given up")}
    assert isinstance(await writer.join(held, [_tenant(3)]), Reservation)


async def test_nobody_is_refused_by_a_late_view_though_another_of_the_batch_stands_in_it_already() -> None:
    _, api, held = await _shelf()
    writer = BookWriter(api)
    large, there, more = _tenant(0, 600_000_000), _tenant(1, 300_000_000), _tenant(2, 300_000_000)
    late = await writer.join(held, [large, there])
    assert isinstance(late, Reservation)
    await writer.leave(late, [large])
    answers = await _together(writer, late, [there, more])
    assert {uid: type(answer) for uid, answer in answers.items()} == {"pod-1": Reservation, "pod-2": Reservation}
