"""A filter that only a test knows, in a whole simulated cluster: what pods say, and when they are bound."""

from __future__ import annotations

import random
from typing import Any

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import NODES
from kube.events import EventRecorder
from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from simulator.components import Parts
from tests.scheduler.core.stories.test_adding_a_filter import MOST, NOISE, WITH_QUIET
from tests.scheduler.stage import bound, create, pod, settle, stage, waits_because


def _with_quiet(api: Api, *, settings: Any, clock: Clock, rng: random.Random, events: EventRecorder) -> Scheduler:
    cluster = Cluster(settings.decisions, WITH_QUIET)
    return Scheduler(api, settings=settings, clock=clock, rng=rng, events=events, cluster=cluster)


async def test_a_pod_waits_in_the_words_of_a_new_filter_until_it_lets_the_pod_on_a_node() -> None:
    async with stage("1x2x80GiB", parts=Parts(scheduler=_with_quiet)) as world:
        await create(world, pod("light", gpus=1, annotations={MOST: "50"}), pod("heavy", gpus=1))
        await settle()
        assert bound(world) == {"heavy"}
        assert "1 node(s) are too loud" in waits_because(world, "light")
        (node,) = (await world.api.list(NODES)).items
        await world.api.patch(NODES, node.metadata.name, {"metadata": {"labels": {NOISE: "40"}}})
        await settle()
        assert bound(world) == {"heavy", "light"}
