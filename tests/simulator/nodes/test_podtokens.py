from __future__ import annotations

import random
from collections import deque

import anyio
import msgspec
import pytest

from kube.client.api import Api
from kube.client.config import Authorization
from kube.client.errors import Unreachable
from kube.client.retry import Retry
from kube.client.transport import Transport
from simulator.nodes.api_access import PodTokens
from tests.conftest import AnyioBackend
from tests.kube.scripted import Answer, ScriptedTransport, ok, refusal
from wire.core import ObjectMeta, Pod, PodSpec

POD = Pod(
    metadata=ObjectMeta(name="gpu-reservation-a", namespace="kai-resource-reservation", uid="u-1"),
    spec=PodSpec(service_account_name="kai-resource-reservation"),
)


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


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
