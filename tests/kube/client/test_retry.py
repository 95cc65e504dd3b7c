"""Tries again, deadlines, pauses, lag and the fence of writes."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Awaitable, Callable

import anyio
import pytest

from kube.client import errors
from kube.client.api import Api, remove
from kube.client.clock import SystemClock
from kube.client.errors import ApiError, BadName, Conflict, Forbidden, ServerError, Timeout, TooLate, Unreachable
from kube.client.fence import WriteFence, WriteTimes
from kube.client.resources import CONFIG_MAPS, PODS
from kube.client.retry import LIMIT_S, TRIES, Retry, doubled_s, until_answered
from kube.client.server_time import WatchLag
from kube.client.transport import deadline
from kube.watch.reflector import Reflector
from simulator.apiserver.faults import Fault, once
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.kube.watch.test_reflector import Cache
from wire.core import ObjectMeta, Status

VIRTUAL_TIME = True


def refused(code: int, retry_after_s: float | None = None) -> errors.Refused:
    return errors.refused(code, Status(), retry_after_s=retry_after_s)


class Flaky:
    """Raises the errors in turn, then answers; remembers when it was called."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.times: list[float] = []

    async def __call__(self) -> str:
        self.times.append(anyio.current_time())
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


@pytest.mark.parametrize("error", [errors.Unreachable(), errors.Timeout(), refused(429), refused(500), refused(503)])
async def test_a_read_is_tried_again_on_what_may_pass(error: Exception) -> None:
    call = Flaky(error, error)
    assert await Retry(random.Random(1)).read(call) == "answer"
    assert len(call.times) == 3


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422])
async def test_a_read_is_not_tried_again_on_an_answer(code: int) -> None:
    call = Flaky(refused(code))
    with pytest.raises(errors.Refused):
        await Retry(random.Random(1)).read(call)
    assert len(call.times) == 1


@pytest.mark.parametrize("error", [errors.Unreachable(), errors.Timeout(), refused(500), refused(409), refused(404)])
async def test_a_write_that_may_have_happened_is_never_repeated(error: Exception) -> None:
    call = Flaky(error)
    with pytest.raises(type(error)):
        await Retry(random.Random(1)).write(call)
    assert len(call.times) == 1


async def test_a_write_that_was_turned_away_comes_back_no_earlier_than_asked() -> None:
    call = Flaky(refused(429, retry_after_s=3.0), refused(429, retry_after_s=3.0))
    assert await Retry(random.Random(1)).write(call) == "answer"
    assert all(3.0 <= later - earlier < 4.0 for earlier, later in itertools.pairwise(call.times))


@pytest.mark.parametrize("method", ["read", "write"])
async def test_the_last_failure_is_raised_as_it_was_after_five_tries(method: str) -> None:
    call = Flaky(*(refused(429) for _ in range(9)))
    repeat: Callable[[Callable[[], Awaitable[str]]], Awaitable[str]] = getattr(Retry(random.Random(1)), method)
    with pytest.raises(errors.TooManyRequests):
        await repeat(call)
    assert len(call.times) == TRIES


async def test_no_try_starts_after_the_limit() -> None:
    async def slow() -> str:
        await anyio.sleep(6.0)
        raise errors.Timeout

    started = anyio.current_time()
    with pytest.raises(errors.Timeout):
        await Retry(random.Random(1)).read(slow)
    assert anyio.current_time() - started <= LIMIT_S + 6.0


async def test_a_server_that_asks_for_more_patience_than_there_is_gets_none() -> None:
    call = Flaky(refused(429, retry_after_s=60.0))
    with pytest.raises(errors.TooManyRequests):
        await Retry(random.Random(1)).write(call)
    assert anyio.current_time() == call.times[0]


async def test_waits_grow_and_come_from_the_seed() -> None:
    async def waits(seed: int) -> list[float]:
        call = Flaky(*(errors.Unreachable() for _ in range(4)))
        await Retry(random.Random(seed)).read(call)
        return [round(later - earlier, 6) for earlier, later in itertools.pairwise(call.times)]

    first = await waits(1)
    assert first == await waits(1)
    assert first != await waits(2)
    assert all(0.5 * nominal <= wait <= nominal for wait, nominal in zip(first, (0.25, 0.5, 1.0, 2.0), strict=True))


async def test_a_cancelled_call_is_not_tried_again() -> None:
    call = Flaky()

    async def hang() -> str:
        await call()
        await anyio.sleep_forever()
        return "never"

    with anyio.move_on_after(5.0) as scope:
        await Retry(random.Random(1)).read(hang)
    assert scope.cancelled_caught
    assert len(call.times) == 1


# Pauses between tries.


@pytest.mark.parametrize(("times", "pause_s"), [(0, 2.0), (1, 4.0), (4, 32.0), (5, 60.0), (60, 60.0), (5000, 60.0)])
def test_each_failure_doubles_the_pause_up_to_the_longest_however_many_there_were(times: int, pause_s: float) -> None:
    assert doubled_s(2.0, times, longest_s=60.0) == pause_s


@pytest.mark.parametrize(
    ("error", "pauses_s"),
    [
        (Unreachable("away"), [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]),
        (Forbidden(403, Status()), [0.2 * 2**n for n in range(11)] + [300.0, 300.0]),
    ],
)
async def test_what_is_not_answered_is_asked_ever_more_rarely(error: ApiError, pauses_s: list[float]) -> None:
    times: list[float] = []

    async def call() -> str:
        times.append(anyio.current_time())
        if len(times) > len(pauses_s):
            return "answer"
        raise error

    assert await until_answered(call) == "answer"
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == pytest.approx(pauses_s)


async def test_what_can_not_be_sent_is_not_asked_again() -> None:
    times: list[float] = []

    async def call() -> str:
        times.append(anyio.current_time())
        raise BadName("name", "../x", "a name")

    with pytest.raises(BadName):
        await until_answered(call)
    assert len(times) == 1


async def test_a_call_that_takes_too_long_ends_when_its_time_is_over() -> None:
    with pytest.raises(Timeout, match=r"GET /pods: no answer within 3\.0 s"), deadline(3, "GET /pods"):
        await anyio.sleep(60)
    assert anyio.current_time() == 3


async def test_a_call_in_time_is_left_alone() -> None:
    began_s = anyio.current_time()
    with deadline(3, "GET /pods"):
        await anyio.sleep(2)
    await anyio.sleep(10)
    assert anyio.current_time() == began_s + 12


async def test_the_time_out_of_a_socket_is_told_in_the_same_way_and_other_errors_as_they_are() -> None:
    with pytest.raises(Timeout, match="no answer within"), deadline(3, "GET /pods"):
        raise TimeoutError("[Errno 110] Connection timed out")
    with pytest.raises(ValueError, match="other"), deadline(3, "GET /pods"):
        raise ValueError("other")


async def test_who_is_stopped_from_outside_hears_of_no_time_out() -> None:
    with anyio.move_on_after(1) as outer:
        with deadline(3, "GET /pods"):
            await anyio.sleep(60)
    assert outer.cancelled_caught


def meta(rv: str, uid: str = "u") -> ObjectMeta:
    return ObjectMeta(name="a", uid=uid, resource_version=rv)


@pytest.mark.parametrize(
    ("steps", "lags"),
    [
        (["wrote 5", "shown 5"], [1.0]),
        (["wrote 5", "shown 4", "shown 5"], [2.0]),
        (["shown 5", "wrote 5"], [0.0]),
        (["wrote 5", "shown 5", "shown 6"], [1.0]),
        (["wrote 5", "wrote 7", "shown 5", "shown 7"], [2.0]),
        # Version 5 was shown before: the write changed nothing.
        (["wrote 5", "shown 9"], []),
        (["wrote 5", "listed", "shown 5"], []),
        (["shown 5"], []),
    ],
    ids=lambda given: ", ".join(map(str, given)),
)
async def test_lag_is_from_the_answer_to_the_very_version_that_it_told(steps: list[str], lags: list[float]) -> None:
    seen: list[tuple[str, float]] = []
    lag = WatchLag(lambda resource, seconds: seen.append((resource, seconds)))
    lag.follow("pods")
    for step in steps:
        what, _, rv = step.partition(" ")
        match what:
            case "wrote":
                lag.wrote("pods", meta(rv))
            case "shown":
                lag.shown("pods", meta(rv))
            case _:
                lag.listed("pods")
        await anyio.sleep(1)
    assert seen == [("pods", seconds) for seconds in lags]


async def test_what_nobody_watches_is_not_waited_for() -> None:
    seen: list[tuple[str, float]] = []
    lag = WatchLag(lambda resource, seconds: seen.append((resource, seconds)))
    lag.wrote("leases", meta("5"))
    lag.shown("leases", meta("5"))
    assert seen == []


async def test_what_is_never_shown_is_forgotten_in_the_end() -> None:
    seen: list[tuple[str, float]] = []
    lag = WatchLag(lambda resource, seconds: seen.append((resource, seconds)))
    lag.follow("pods")
    for number in range(10_000):
        lag.wrote("pods", meta("5", uid=f"u{number}"))
    for number in range(10_000):
        lag.shown("pods", meta("5", uid=f"u{number}"))
    assert 0 < len(seen) < 5_000
    assert len(lag._written) + len(lag._shown) < 5_000


async def test_an_api_and_its_reflectors_measure_by_themselves() -> None:
    server = MemoryApiServer(clock=SystemClock(), rng=random.Random(1), auto_namespaces=True)
    seen: list[str] = []
    lag = WatchLag(lambda resource, _: seen.append(resource))
    api = Api(server.transport("user"), retry=Retry(random.Random(2)), lag=lag)
    reflector = Reflector(api, PODS, Cache(), rng=random.Random(3))
    async with anyio.create_task_group() as tasks:
        await tasks.start(reflector.run)
        await anyio.sleep(5)
        spec = {"containers": [{"name": "c", "image": "i"}]}
        for name in ("a", "b"):
            await api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace="default")
        await api.patch(PODS, "a", {"metadata": {"labels": {"is": "changed"}}}, namespace="default")
        await anyio.sleep(5)
        assert seen == ["pods"] * 3
        assert anyio.current_time() - reflector.heard_at == 5
        tasks.cancel_scope.cancel()


# What is taken away by UID is gone afterwards, or was not there; a 409 alone says neither.


def _start() -> tuple[MemoryApiServer, Api]:
    server = MemoryApiServer(clock=VirtualClock(asyncio.get_running_loop()), rng=random.Random(1), auto_namespaces=True)
    return server, Api(server.transport(), retry=Retry(random.Random(1)))


async def _create(api: Api) -> str:
    made = await api.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, namespace="team")
    return str(made.metadata.uid)


async def _there(api: Api) -> list[str]:
    return [str(item.metadata.uid) for item in (await api.list(CONFIG_MAPS, namespace="team")).items]


async def test_what_is_there_goes_and_what_is_gone_is_no_fault() -> None:
    _, api = _start()
    uid = await _create(api)
    for _ in range(2):
        await remove(api, CONFIG_MAPS, "c", namespace="team", uid=uid)
        assert await _there(api) == []


async def test_another_object_of_that_name_stays() -> None:
    _, api = _start()
    uid = await _create(api)
    await remove(api, CONFIG_MAPS, "c", namespace="team", uid="of an earlier one")
    assert await _there(api) == [uid]


async def test_a_conflict_with_the_object_still_there_is_not_taken_for_an_answer() -> None:
    server, api = _start()
    uid = await _create(api)
    server.faults.on_request.append(once(Fault(refuse_with=409), when=lambda call: call.verb == "delete"))
    with pytest.raises(Conflict):
        await remove(api, CONFIG_MAPS, "c", namespace="team", uid=uid)
    await remove(api, CONFIG_MAPS, "c", namespace="team", uid=uid)
    assert await _there(api) == []


async def test_a_conflict_about_an_object_that_is_gone_is_no_fault() -> None:
    """An answer that got lost on the way, and the same request again: the first one took it away."""
    server, api = _start()
    uid = await _create(api)
    fault = Fault(refuse_with=409, carried_out=True)
    server.faults.on_request.append(once(fault, when=lambda call: call.verb == "delete"))
    await remove(api, CONFIG_MAPS, "c", namespace="team", uid=uid)
    assert await _there(api) == []


@pytest.mark.parametrize(
    ("left_s", "times"),
    [
        (math.inf, WriteTimes(10.0, 11.0)),
        (21.0, WriteTimes(10.0, 11.0)),
        (15.0, WriteTimes(7.0, 8.0)),
        (3.0, WriteTimes(1.0, 2.0)),
        (2.0, WriteTimes(0.5, 1.5)),
    ],
)
async def test_way_and_work_of_a_write_are_over_before_the_lease_is(left_s: float, times: WriteTimes) -> None:
    with WriteFence(lambda: left_s).write(10.0) as given:
        assert given == times
        assert given.wait_s + given.server_s <= left_s


@pytest.mark.parametrize("left_s", [1.99, 0.0, -5.0, -math.inf])
async def test_what_could_not_be_over_in_time_is_not_sent(left_s: float) -> None:
    with pytest.raises(TooLate, match=r"has \d\.\d+ s left, 2\.0 s needed"), WriteFence(lambda: left_s).write(10.0):
        raise AssertionError


async def test_what_was_answered_lands_no_more() -> None:
    fence = WriteFence()
    with fence.write(10.0):
        assert fence.lands_until == 21.0
    assert fence.lands_until == -math.inf
    with pytest.raises(Conflict), fence.write(10.0):
        raise Conflict(409, Status())
    assert fence.lands_until == -math.inf


@pytest.mark.parametrize("error", [Timeout(), ServerError(504, Status())])
async def test_what_was_not_clearly_answered_may_land_until_both_its_times_are_over(error: Exception) -> None:
    fence = WriteFence()
    with pytest.raises(type(error)), fence.write(4.0):
        raise error
    assert fence.lands_until == 9.0


async def test_what_was_broken_off_may_land_all_the_same() -> None:
    fence = WriteFence()
    with anyio.move_on_after(1.0), fence.write(4.0):
        await anyio.sleep_forever()
    assert anyio.current_time() == 1.0
    assert fence.lands_until == 9.0


async def test_a_closed_fence_lets_nothing_through_and_what_is_under_way_ends() -> None:
    fence = WriteFence()

    async def write() -> None:
        with fence.write(10.0):
            await anyio.sleep(2.0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await anyio.sleep(1.0)
        fence.close()
        with pytest.raises(TooLate, match="ending"), fence.write(10.0):
            raise AssertionError
        await fence.settled()
        assert anyio.current_time() == 2.0
    await fence.settled()
