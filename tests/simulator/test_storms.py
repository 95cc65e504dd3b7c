"""Random runs of the whole: arrivals, deletions, crashes, rejections and late events. Every invariant holds in each."""

from __future__ import annotations

import contextlib
import random

import anyio
import pytest

from kube.client.errors import NotFound
from kube.client.resources import PODS
from simulator import outcome
from simulator.manifests import Manifest
from simulator.world import World
from tests.conftest import AnyioBackend
from tests.simulator.test_world import HALF, HELD, gang, pods, world
from tests.whole import seeds


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def batches(rng: random.Random) -> list[list[Manifest]]:
    fraction = rng.choice(["0.25", "0.3", "0.5", "0.9"])
    drawn = [
        pods(rng.randrange(1, 12), f'gpu-fraction: "{fraction}"', prefix="fraction"),
        pods(rng.randrange(1, 6), 'gpu-memory: "20000"', prefix="memory"),
        pods(rng.randrange(1, 4), limits="nvidia.com/gpu: 1", prefix="whole"),
        pods(2, 'gpu-fraction: "0.4"', 'gpu-fraction-num-devices: "2"', prefix="two"),
        gang(4) + pods(4, 'pod-group-name: "gang"', HALF, prefix="member"),
    ]
    rng.shuffle(drawn)
    return drawn


async def delete_one(running: World, rng: random.Random) -> None:
    pod = rng.choice(outcome.pods(running))
    with contextlib.suppress(NotFound):
        await running.api.delete(PODS, pod.name, namespace=pod.namespace, grace_s=rng.choice([None, None, 0]))


@pytest.mark.parametrize("seed", seeds(12))
async def test_a_storm_breaks_nothing_and_leaves_nothing(seed: int) -> None:
    rng = random.Random(seed)
    async with world("3x4x80GiB", seed=seed, event_delay_s=rng.choice([0.0, 0.1, 1.0])) as running:
        for batch in batches(rng):
            await running.apply(batch)
            await anyio.sleep(rng.random() * 2)
            if rng.random() < 0.4:
                await running.restart(rng.choice([running.scheduler, running.binder]), pause_s=rng.random())
            if rng.random() < 0.3:
                await delete_one(running, rng)
            if rng.random() < 0.2:
                running.nodes[f"node-{rng.randrange(3)}"].reject_next(1)
        assert await running.until_idle()
        unlucky = [pod for pod in outcome.pods(running) if pod.phase != "Running"]
        assert all(pod.verdict for pod in unlucky)
        await running.clear()
        assert dict(running.finish()) == HELD
