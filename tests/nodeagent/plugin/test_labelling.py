from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from kube.client.api import Api
from kube.client.resources import NODES
from kube.client.retry import Retry
from nodeagent.plugin.node import Labelling
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from tests.nodeagent.node import AGENT, NODE, Scene, scene

OURS = "nvidia.com/gfd.timestamp"
COUNT = "nvidia.com/gpu.count"
WANTED = {OURS: "moorage", COUNT: "2"}


@asynccontextmanager
async def labelling() -> AsyncIterator[tuple[Scene, Labelling]]:
    async with scene() as it:
        await it.start()
        api = Api(it.server.transport(AGENT), retry=Retry(random.Random(5)))
        made = Labelling(api, node=NODE, seen=lambda: it.agent.publishing.node, rng=random.Random(6))
        it.tasks.start_soon(made.run)
        yield it, made


async def labels(it: Scene) -> dict[str, str]:
    return dict((await it.api.get(NODES, NODE)).metadata.labels or {})


def writes(it: Scene) -> int:
    return it.writes().count("patch nodes")


async def test_what_is_wanted_is_written_once_and_set_right_half_a_minute_later() -> None:
    async with labelling() as (it, made):
        await anyio.sleep(600)
        assert writes(it) == 0
        made.want(WANTED)
        await anyio.sleep(2)
        assert await labels(it) == WANTED
        await anyio.sleep(3600)
        assert writes(it) == 1
        await it.api.patch(NODES, NODE, {"metadata": {"labels": {COUNT: "7"}}})
        await anyio.sleep(31)
        assert await labels(it) == WANTED
        assert writes(it) == 2


async def test_where_gpu_feature_discovery_comes_nothing_is_written_any_more() -> None:
    async with labelling() as (it, made):
        made.want(WANTED)
        await anyio.sleep(2)
        theirs = {OURS: "1764240000", COUNT: "1"}
        await it.api.patch(NODES, NODE, {"metadata": {"labels": theirs}})
        made.want({**WANTED, COUNT: "3"})
        await anyio.sleep(3600)
        assert await labels(it) == theirs
        assert writes(it) == 1


async def test_where_the_file_takes_labels_back_ours_go_and_others_stay() -> None:
    async with labelling() as (it, made):
        await it.api.patch(NODES, NODE, {"metadata": {"labels": {"zone": "a", "nvidia.com/gpu.present": "true"}}})
        made.want(WANTED)
        await anyio.sleep(2)
        made.want({})
        await anyio.sleep(31)
        assert await labels(it) == {"zone": "a", "nvidia.com/gpu.present": "true"}


async def test_a_refused_write_is_tried_again_ever_more_seldom() -> None:
    async with labelling() as (it, made):
        is_refused, tries = True, 0

        def refuse(call: Call) -> Fault:
            nonlocal tries
            if not is_refused or call.user != AGENT or (call.verb, call.kind.plural) != ("patch", "nodes"):
                return NOTHING
            tries += 1
            return Fault(refuse_with=403)

        it.server.faults.on_request.append(refuse)
        made.want(WANTED)
        await anyio.sleep(3600)
        assert 30 < tries < 70
        is_refused = False
        await anyio.sleep(130)
        assert await labels(it) == WANTED
