"""Changes of books that come together: one write, one answer each, whatever others and the network do."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import anyio
import msgspec
import pytest

from gpu import book as device_book
from gpu import reservation as reservations
from gpu.book import DeviceFull, Entry, Tenant
from gpu.reservation import Reservation
from kube import books
from kube.books import BookWriter, NotHeld, NotJoinable
from kube.client.api import Api
from kube.client.resources import NAMESPACES, PODS, Resource
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault, once
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from simulator.installation import SERVICE_ACCOUNTS
from tests.conftest import AnyioBackend
from tests.scheduler.stage import is_call
from wire import names

NS = names.RESERVATION_NAMESPACE


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


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
