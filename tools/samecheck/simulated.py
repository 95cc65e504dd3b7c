"""One side: what ``moorage simulate`` makes of manifests, on an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio
import msgspec

from kube.client import errors
from kube.client.resources import NODES, POD_GROUPS
from scheduler.core.model.settings import Settings, Strategy
from scheduler.settings import SchedulerSettings
from simulator import manifests
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.installation import SERVICE_ACCOUNTS
from simulator.manifests import MalformedManifest, Manifest, Reader
from simulator.nodes import node_object
from simulator.nodes.shape import NodeShape
from simulator.world import World, WorldSettings
from tools.samecheck.comparing import Json, Side, side
from wire.core import Node

#: By the default strategy a node's choice follows from all pods that came before, and the cluster has seen many.
STRATEGY = Strategy.BINPACK
_PACKED = SchedulerSettings(decisions=Settings(gpu_strategy=STRATEGY, cpu_strategy=STRATEGY))


@dataclass(frozen=True, slots=True)
class Simulation:
    """``accounts``: ServiceAccounts taken as present; ``broken``: invariants that did not hold."""

    side: Side
    accounts: tuple[tuple[str, str], ...] = ()
    broken: tuple[str, ...] = ()


def simulate(documents: Sequence[Json], shapes: Sequence[NodeShape], dress: Mapping[str, Json]) -> Simulation:
    """Run manifests on these nodes until nothing changes. ``dress``: a merge patch of some nodes, by name."""
    reader = Reader([_dressed(each, dress.get(each.name, {})) for each in shapes])
    try:
        objects = manifests.installed(reader.grouped(reader.read(documents, origin="manifest")))
    except MalformedManifest as error:
        return Simulation(side([], [], [str(error)]))
    accounts = [each for each in objects if each.resource.kind == SERVICE_ACCOUNTS.kind]
    found, broken = anyio.run(_live, objects, shapes, dress, backend_options={"loop_factory": VirtualTimeLoop})
    return Simulation(found, tuple((each.namespace, each.body["metadata"]["name"]) for each in accounts), broken)


def _dressed(shape: NodeShape, patch: Json) -> Node:
    node = node_object.node(shape, now="")
    labels = {**node["metadata"]["labels"], **patch.get("metadata", {}).get("labels", {})}
    spec = {**(node.get("spec") or {}), **patch.get("spec", {})}
    return msgspec.convert({**node, "metadata": {**node["metadata"], "labels": labels}, "spec": spec}, Node)


async def _live(
    objects: Sequence[Manifest], shapes: Sequence[NodeShape], dress: Mapping[str, Json]
) -> tuple[Side, tuple[str, ...]]:
    settings = WorldSettings(checks_queues=True, scheduler=_PACKED)
    async with World(shapes, clock=VirtualClock(asyncio.get_running_loop()), settings=settings) as world:
        for name, patch in dress.items():
            await world.api.patch(NODES, name, patch)
        try:
            await world.apply(objects)
        except errors.ApiError as error:
            return side([], [], [str(error)]), ()
        is_idle = await world.until_idle()
        found = side(world.pods, list(world.observers[POD_GROUPS.plural].latest.values()))
        if is_idle:
            await world.judge_rest()
        await world.clear()
        broken = [f"{name}: {said}" for name, said in world.finish().items() if said not in SOUND]
        return found, (*broken, *(() if is_idle else ("simulate did not come to rest",)))
    raise AssertionError("a world swallows no exception")
