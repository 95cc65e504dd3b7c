from __future__ import annotations

import random

import anyio
import pytest

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.resources import PODS
from kube.client.retry import Retry
from kube.client.server_time import WatchLag
from kube.watch.reflector import Reflector
from simulator.apiserver.server import MemoryApiServer
from tests.conftest import AnyioBackend
from tests.kube.watch.test_reflector import Cache
from wire.core import ObjectMeta


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


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
