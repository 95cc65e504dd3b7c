"""What is taken away by UID is gone afterwards, or was not there; a 409 alone says neither."""

from __future__ import annotations

import asyncio
import random

import pytest

from kube.client.api import Api, remove
from kube.client.errors import Conflict
from kube.client.resources import CONFIG_MAPS
from kube.client.retry import Retry
from simulator.apiserver.faults import Fault, once
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.conftest import AnyioBackend


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


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
