from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import NODES
from kube.client.retry import Retry
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from simulator.nodes import shape
from simulator.nodes.node_set import NodeSet
from simulator.nodes.shape import KubeletSettings
from tests.conftest import AnyioBackend

LEASE_PERIOD_S = 10.0


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def _readiness(api: Api) -> Sequence[str]:
    nodes = (await api.list(NODES)).items
    return [each.status for node in nodes for each in node.status.conditions or () if each.type == "Ready"]


async def test_a_node_that_was_given_up_says_that_it_is_well_with_its_next_heartbeat() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
    settings = KubeletSettings(lease_period_s=LEASE_PERIOD_S)
    nodes = NodeSet(server.transport("kubelets"), shape.parse(["2x1x80GiB"]), clock=clock, seed=1, settings=settings)
    controller = Api(server.transport("controller"), retry=Retry(random.Random(2)))
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        await tasks.start(nodes.run)
        (name, away) = nodes.kubelets
        nodes[away].freeze()
        for each in (name, away):
            await controller.patch(NODES, each, unknown, subresource="status")
        await anyio.sleep(1.1 * LEASE_PERIOD_S)
        assert await _readiness(controller) == ["True", "Unknown"]
        nodes[away].thaw()
        await anyio.sleep(1.1 * LEASE_PERIOD_S)
        assert await _readiness(controller) == ["True", "True"]
        tasks.cancel_scope.cancel()
