"""A simulated run judges evictions by the record of nominations as it is stored."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from kube.client.api import Api
from kube.client.resources import CONFIG_MAPS, PODS
from kube.client.retry import Retry
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator import manifests
from simulator.checks.violations import HELD
from simulator.clock import VirtualClock
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.conftest import AnyioBackend

PAIR = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, image: work, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def world() -> World:
    """A cluster whose record nobody writes but the test."""
    settings = WorldSettings(scheduler=SchedulerSettings(decisions=Settings(preemption=False)))
    return World(shape.parse(["1x1x1GiB"]), clock=VirtualClock(asyncio.get_running_loop()), settings=settings)


@pytest.mark.parametrize(
    ("name", "namespace", "s7"),
    [
        ("moorage-nominations", "kai-scheduler", True),
        ("moorage-nominations", "team", False),
        ("room", "kai-scheduler", False),
    ],
)
async def test_an_eviction_is_held_against_the_record_that_is_stored(name: str, namespace: str, s7: bool) -> None:
    async with world() as running:
        await running.apply(manifests.load(PAIR.replace("NAME", "v")))
        assert await running.until_idle()
        await running.apply(manifests.load(PAIR.replace("NAME", "h")))
        assert await running.until_idle()
        uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in running.pods}
        victim = ["=" + uids["v"], "default", "v", "node-0", "=owner"]
        nomination = {"id": "a", "places": [["=" + uids["h"], "node-0"]], "victims": [victim]}
        scheduler = Api(running.server.transport("scheduler"), retry=Retry(random.Random(1)))
        written = {
            "metadata": {"name": name},
            "data": {"room": json.dumps({"nominations": [nomination], "evicted": {}})},
        }
        await scheduler.create(CONFIG_MAPS, written, namespace=namespace)
        await scheduler.evict("default", "v", uid=uids["v"])
        assert await running.until_idle()
        assert (await running.api.get(PODS, "h", namespace="default")).spec.node_name
        report = running.finish()
        assert (report["S7"] == HELD) is s7
        assert report["S14"] == HELD
