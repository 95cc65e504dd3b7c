"""A driver that gets devices ready after they were allocated."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import RESOURCE_CLAIMS
from kube.client.retry import Retry
from simulator.controllers.claims import DRIVER_USER, DeviceReadiness
from tests.conftest import AnyioBackend
from tests.scheduler.stage import TEAM, stage


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize(
    ("faults", "reported"),
    [
        pytest.param({}, ["ready", "ready"], id="it reports within its time"),
        pytest.param({"fails_per_mille": 1000}, ["failed", "failed"], id="a failure stays"),
        pytest.param({"silent_per_mille": 1000}, ["", "ready"], id="what it was silent of comes in the end"),
    ],
)
async def test_each_device_is_reported_once(faults: dict[str, Any], reported: list[str]) -> None:
    async with stage("1x1x80GiB") as world:
        result: dict[str, Any] = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
        result |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {}}}
        await world.api.create(RESOURCE_CLAIMS, claim, namespace=TEAM)
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        await world.api.patch(RESOURCE_CLAIMS, "c", status, namespace=TEAM, subresource="status")
        rng = random.Random(1)
        api = Api(world.server.transport(DRIVER_USER), retry=Retry(rng))
        world.start_soon(DeviceReadiness(api, rng, takes_s=5.0, until_s=anyio.current_time() + 60, **faults).run)
        found: list[str] = []
        for _ in range(2):
            await anyio.sleep(40)
            stored = await world.api.get(RESOURCE_CLAIMS, "c", namespace=TEAM)
            found.append("".join(each.type for one in stored.status.devices or () for each in one.conditions or ()))
        assert found == reported
        writes = [each for each in world.server.audit if (each.user, each.verb) == (DRIVER_USER, "patch")]
        assert len(writes) == 1
