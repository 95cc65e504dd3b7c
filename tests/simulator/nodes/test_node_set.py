from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence

import anyio
import msgspec

from kube.client.api import Api
from kube.client.config import Authorization
from kube.client.errors import Unreachable
from kube.client.resources import NODES
from kube.client.retry import Retry
from kube.client.transport import Transport
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from simulator.nodes import shape
from simulator.nodes.api_access import PodTokens
from simulator.nodes.node_set import NodeSet
from simulator.nodes.shape import KubeletSettings
from tests.kube.scripted import Answer, ScriptedTransport, ok, refusal
from wire.core import ObjectMeta, Pod, PodSpec

VIRTUAL_TIME = True

LEASE_PERIOD_S = 10.0


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


async def test_no_nodes_leave_time_to_others() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
    nodes = NodeSet(
        server.transport("kubelets"), (), clock=clock, seed=1, settings=KubeletSettings(lease_period_s=LEASE_PERIOD_S)
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        await tasks.start(nodes.run)
        await anyio.sleep(2 * LEASE_PERIOD_S)
        tasks.cancel_scope.cancel()


POD = Pod(
    metadata=ObjectMeta(name="gpu-reservation-a", namespace="kai-resource-reservation", uid="u-1"),
    spec=PodSpec(service_account_name="kai-resource-reservation"),
)


class Mounts:
    """PodTokens over scripted answers; remembers the Authorization that each pod was given."""

    def __init__(self, *answers: Answer) -> None:
        self.server = ScriptedTransport(deque(answers))
        self.given: list[Authorization] = []
        api = Api(self.server, retry=Retry(random.Random(1)))
        self.tokens = PodTokens(api=api, under=self._under)

    def _under(self, authorization: Authorization) -> Transport:
        self.given.append(authorization)
        return self.server


def token(value: str) -> Answer:
    return ok({"spec": {"expirationSeconds": 600}, "status": {"token": value, "expirationTimestamp": "later"}})


async def test_a_pod_is_given_a_token_of_its_service_account_that_is_bound_to_itself() -> None:
    mounts = Mounts(token("one"))
    await mounts.tokens(POD)
    (request,) = mounts.server.requests
    account = "/api/v1/namespaces/kai-resource-reservation/serviceaccounts/kai-resource-reservation"
    assert (request.method, request.path) == ("POST", f"{account}/token")
    assert request.body["spec"]["boundObjectRef"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "gpu-reservation-a",
        "uid": "u-1",
    }
    assert await mounts.given[0]() == "Bearer one"


async def test_a_token_is_renewed_after_four_fifths_of_its_life_and_not_before() -> None:
    mounts = Mounts(token("one"), token("two"))
    await mounts.tokens(POD)
    await anyio.sleep(479)
    assert await mounts.given[0]() == "Bearer one"
    await anyio.sleep(1)
    assert await mounts.given[0]() == "Bearer two"
    assert await mounts.given[0]() == "Bearer two"


async def test_a_token_that_cannot_be_renewed_is_used_on() -> None:
    mounts = Mounts(token("one"), refusal(403, "Forbidden"), token("two"))
    await mounts.tokens(POD)
    await anyio.sleep(500)
    assert await mounts.given[0]() == "Bearer one"
    assert await mounts.given[0]() == "Bearer two"


async def test_a_container_waits_until_there_is_a_token() -> None:
    mounts = Mounts(refusal(404, "NotFound"), *[Unreachable("nobody there")] * 5, token("one"))
    await mounts.tokens(POD)
    assert await mounts.given[0]() == "Bearer one"


async def test_a_pod_without_a_named_account_has_that_of_its_namespace() -> None:
    mounts = Mounts(token("one"))
    await mounts.tokens(msgspec.structs.replace(POD, spec=PodSpec()))
    assert mounts.server.requests[0].path.endswith("/serviceaccounts/default/token")
