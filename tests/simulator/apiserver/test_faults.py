"""What goes wrong when it is told to: requests, answers, watches, clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio
import msgspec
import pytest

from kube.client.errors import Timeout, Unreachable
from kube.client.transport import Response
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import End, Fault, once
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.transport import BrokenOff, come_through
from tests.simulator.apiserver.calls import CONFIG_MAPS, PODS, decoded, pod, send


def _creates(call: Call) -> bool:
    return call.verb == "create"


async def _exists(server: MemoryApiServer, name: str) -> bool:
    return (await send(server.transport("observer"), "GET", f"{PODS}/{name}")).status == 200


async def test_a_delayed_request_is_carried_out_later(server: MemoryApiServer) -> None:
    server.faults.on_request.append(once(Fault(delay_s=3), when=_creates))
    began = anyio.current_time()
    assert (await send(server.transport(), "POST", PODS, pod("p"))).status == 201
    assert anyio.current_time() - began == 3


@pytest.mark.parametrize(("lost", "happened"), [("request", False), ("answer", True)])
async def test_a_time_out_does_not_tell_whether_the_write_happened(
    server: MemoryApiServer, lost: str, happened: bool
) -> None:
    fault = Fault(lost="request") if lost == "request" else Fault(lost="answer")
    server.faults.on_request.append(once(fault, when=_creates))
    began = anyio.current_time()
    with pytest.raises(Timeout):
        await send(server.transport(), "POST", PODS, pod("p"), timeout_s=7)
    assert anyio.current_time() - began == 7
    assert await _exists(server, "p") is happened


async def test_a_late_write_lands_after_its_sender_gave_up(server: MemoryApiServer) -> None:
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        server.faults.on_request.append(once(Fault(lost="request", lands_after_s=30), when=_creates))
        with pytest.raises(Timeout):
            await send(server.transport(), "POST", PODS, pod("p"), timeout_s=10)
        await anyio.sleep(19.9)
        assert not await _exists(server, "p")
        await anyio.sleep(0.2)
        assert await _exists(server, "p")
        group.cancel_scope.cancel()


async def test_watch_lines_can_be_late_and_stay_in_order(server: MemoryApiServer) -> None:
    delays = iter((5.0, 1.0))
    server.faults.on_watch_line.append(lambda call, _: next(delays) if call.user == "slow" else 0.0)
    seen: list[tuple[float, str]] = []
    transport = server.transport("slow")
    async with transport.stream(PODS, query={"watch": "1", "timeoutSeconds": "20"}, timeout_s=5) as (_, lines):
        began = anyio.current_time()
        for name in ("a", "b"):
            await send(server.transport(), "POST", PODS, pod(name))
        seen += [(anyio.current_time() - began, "a" if b'"name":"a"' in line else "b") async for line in lines]
    assert seen == [(5, "a"), (5, "b")]


async def test_a_late_error_is_heard_before_its_watch_ends(server: MemoryApiServer) -> None:
    await send(server.transport(), "POST", PODS, pod("p"))
    server.compact()
    server.faults.on_watch_line.append(lambda call, line: 5.0)
    query = {"watch": "true", "resourceVersion": "1"}
    async with server.transport().stream(PODS, query=query, timeout_s=1) as (_, lines):
        (heard,) = [line async for line in lines]
    assert heard.startswith(b'{"type":"ERROR"')
    assert b'"code":410' in heard


async def test_a_cut_watch_breaks_and_others_do_not(server: MemoryApiServer) -> None:
    query = {"watch": "1", "timeoutSeconds": "20"}
    async with (
        server.transport("one").stream(PODS, query=query, timeout_s=5) as (_, first),
        server.transport("two").stream(PODS, query=query, timeout_s=5) as (_, second),
    ):
        assert server.cut_watches(lambda call: call.user == "one") == 1
        with pytest.raises(Unreachable):
            await anext(aiter(first))
        assert [line async for line in second] == []


async def test_a_watch_of_one_namespace_does_not_say_that_all_was_handed_over(server: MemoryApiServer) -> None:
    query = {"watch": "1", "timeoutSeconds": "20"}
    one, all_of_them = server.transport("one"), "/api/v1/pods"
    async with one.stream(PODS, query=query, timeout_s=5):
        assert server.undelivered("one") == {}
        async with one.stream(all_of_them, query=query, timeout_s=5):
            assert server.undelivered("one") == {"pods": 0}
            await send(server.transport(), "POST", PODS, pod("p"))
            assert server.undelivered("one") == {"pods": 1}


async def test_a_dead_client_hears_and_does_nothing_more(server: MemoryApiServer) -> None:
    transport = server.transport("victim")
    server.faults.on_request.append(once(Fault(delay_s=5), when=_creates))
    server.faults.on_request.append(once(Fault(lost="request"), when=lambda call: call.kind.plural == "configmaps"))
    ended: list[str] = []

    async def write() -> None:
        await send(transport, "POST", PODS, pod("p"), timeout_s=8)
        ended.append("write")

    async def watch() -> None:
        async with transport.stream(PODS, query={"watch": "1", "timeoutSeconds": "9"}, timeout_s=5) as (_, lines):
            ended.extend([f"line {line!r}" async for line in lines])
        ended.append("watch")

    async def watch_that_is_slow_to_open() -> None:
        async with transport.stream(CONFIG_MAPS, query={"watch": "1"}, timeout_s=5):
            ended.append("opened")

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        group.start_soon(watch)
        group.start_soon(watch_that_is_slow_to_open)
        await anyio.sleep(1)
        transport.kill()
        await send(server.transport(), "POST", PODS, pod("q"))
        await anyio.sleep(3600)
        with anyio.move_on_after(60) as later:
            await send(transport, "GET", PODS)
        assert later.cancelled_caught
        assert ended == []
        assert not await _exists(server, "p")
        group.cancel_scope.cancel()


async def test_what_a_client_says_while_it_is_cut_off_arrives_when_that_is_mended(server: MemoryApiServer) -> None:
    transport = server.transport()
    transport.mend()
    transport.cut()
    async with anyio.create_task_group() as group:
        group.start_soon(send, transport, "POST", PODS, pod("p"))
        with pytest.raises(Timeout):
            await send(transport, "POST", PODS, pod("given-up"), timeout_s=5)
        assert not await _exists(server, "p")
        transport.mend()
    assert await _exists(server, "p")
    assert not await _exists(server, "given-up")


async def test_a_write_carried_out_before_the_death_stays(server: MemoryApiServer) -> None:
    transport = server.transport("victim")
    server.faults.on_request.append(once(Fault(answer_delay_s=5), when=_creates))
    async with anyio.create_task_group() as group:
        group.start_soon(send, transport, "POST", PODS, pod("p"))
        await anyio.sleep(1)
        transport.kill()
        assert await _exists(server, "p")
        group.cancel_scope.cancel()


@pytest.mark.parametrize(("lost", "happened"), [("request", False), ("answer", True)])
async def test_a_connection_that_breaks_is_heard_of_at_once(server: MemoryApiServer, lost: str, happened: bool) -> None:
    fault = Fault(lost="request", breaks=True) if lost == "request" else Fault(lost="answer", breaks=True)
    server.faults.on_request.append(once(fault, when=_creates))
    began = anyio.current_time()
    with pytest.raises(Unreachable, match="reset"):
        await send(server.transport(), "POST", PODS, pod("p"), timeout_s=7)
    assert anyio.current_time() == began
    assert await _exists(server, "p") is happened


async def test_a_client_can_be_killed_when_its_write_is_done_and_before_it_hears(server: MemoryApiServer) -> None:
    transport = server.transport("victim")
    told: list[tuple[str, int]] = []

    def kill(call: Call, code: int) -> None:
        if call.verb == "create":
            told.append((call.user, code))
            transport.kill()

    server.faults.on_answer.append(kill)
    with anyio.move_on_after(60) as writing:
        await send(transport, "POST", PODS, pod("p"))
    assert writing.cancelled_caught
    assert told == [("victim", 201)]
    assert await _exists(server, "p")


async def test_an_answer_can_say_failure_though_the_write_was_carried_out(server: MemoryApiServer) -> None:
    server.faults.on_request.append(once(Fault(refuse_with=500, carried_out=True), when=_creates))
    assert (await send(server.transport(), "POST", PODS, pod("p"))).status == 500
    assert await _exists(server, "p")


@pytest.mark.parametrize(
    ("fault", "is_carried_out"),
    [
        (Fault(delay_s=1), True),
        (Fault(refuse_with=409), False),
        (Fault(refuse_with=500, carried_out=True), True),
        (Fault(lost="answer"), True),
        (Fault(lost="request", breaks=True), False),
        (Fault(lost="request", lands_after_s=5), True),
    ],
)
async def test_who_listens_is_told_of_strikes_and_whether_the_server_does_what_is_asked(
    server: MemoryApiServer, fault: Fault, is_carried_out: bool
) -> None:
    told: list[tuple[str, bool]] = []
    server.faults.on_strike.append(lambda call, what: told.append((call.verb, what.is_carried_out)))
    server.faults.on_request.append(once(fault, when=_creates))
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        with contextlib.suppress(Timeout, Unreachable):
            await send(server.transport(), "POST", PODS, pod("p"), timeout_s=7)
        assert told == [("create", is_carried_out)]
        assert await _exists(server, "p") is is_carried_out
        assert told == [("create", is_carried_out)]
        group.cancel_scope.cancel()


async def _names_seen(server: MemoryApiServer, *names: str) -> list[str]:
    async with server.transport("one").stream(PODS, query={"watch": "1", "timeoutSeconds": "20"}, timeout_s=5) as (
        _,
        lines,
    ):
        for name in names:
            await send(server.transport(), "POST", PODS, pod(name))
        return [decoded(Response(200, {}, line))["object"]["metadata"]["name"] async for line in lines]


@pytest.mark.parametrize(
    ("newest", "seen"),
    [(0, ["x", "y", "z"]), (1, ["x", "y", "z", "z"]), (2, ["x", "y", "z", "y", "z"]), (9, ["x", "y", "z"] * 2)],
)
async def test_the_newest_lines_of_a_watch_can_come_again(
    server: MemoryApiServer, newest: int, seen: list[str]
) -> None:
    server.faults.on_watch_repeat.append(lambda _, line: newest if b'"name":"z"' in line else 0)
    assert await _names_seen(server, "x", "y", "z") == seen


@pytest.mark.parametrize(("permille", "kept"), [(1, b"a"), (500, b"ab"), (999, b"abc")])
def test_what_is_cut_has_lost_something_and_not_all(permille: int, kept: bytes) -> None:
    assert Fault(kept_permille=permille).cut(b"abcd") == kept


@pytest.mark.parametrize(
    ("end", "seen", "ended"),
    [
        (End.BREAKS, ["x"], "broken"),
        (End.BREAKS_INSIDE, ["x"], "broken"),
        (End.CLOSES, ["x"], "closed"),
        (End.CLOSES_INSIDE, ["x"], "broken"),
        (End.GARBLES, ["x", "garbled", "z"], "closed"),
        (End.EXPIRES, ["x", "410"], "closed"),
        (End.FALLS_SILENT, ["x"], "silent"),
    ],
)
async def test_a_watch_ends_as_its_fault_says(server: MemoryApiServer, end: End, seen: list[str], ended: str) -> None:
    told: list[Fault] = []
    server.faults.on_strike.append(lambda _, fault: told.append(fault))
    server.faults.on_request.append(once(Fault(end=end, after_lines=1), when=lambda call: call.verb == "watch"))
    transport, lines, how = server.transport("one"), list[str](), "silent"
    with anyio.move_on_after(60):
        try:
            async with transport.stream(PODS, query={"watch": "1", "timeoutSeconds": "20"}, timeout_s=5) as (_, stream):
                for name in ("x", "y", "z"):
                    await send(server.transport(), "POST", PODS, pod(name))
                assert told == []
                async for line in stream:
                    lines.append(_brief(line))
            how = "closed"
        except Unreachable:
            how = "broken"
    assert (lines, how, len(told)) == (seen, ended, 1)


@pytest.mark.parametrize(
    ("end", "rest", "closes"),
    [(End.BREAKS, b"", False), (End.BREAKS_INSIDE, b"se", False), (End.CLOSES_INSIDE, b"se", True)],
)
async def test_whoever_carries_a_watch_is_told_what_of_a_line_came_and_whether_the_stream_ends_in_order(
    end: End, rest: bytes, *, closes: bool
) -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield b"first"
        yield b"second"

    fault, came = Fault(end=end, after_lines=1, kept_permille=400), list[bytes]()

    async def carry() -> None:
        async for each in come_through(lines(), fault, lambda: None):
            came.append(each)

    with pytest.raises(BrokenOff) as broken:
        await carry()
    assert (came, broken.value.rest, broken.value.closes) == ([b"first"], rest, closes)


def _brief(line: bytes) -> str:
    try:
        told = msgspec.json.decode(line)["object"]
    except msgspec.DecodeError:
        return "garbled"
    return str(told.get("code") or told["metadata"]["name"])
