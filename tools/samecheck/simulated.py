"""One side: what ``moorage simulate`` makes of manifests, on an API server in memory, in virtual time.

With the documents of a manifest that both sides can take, and why others are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio
import msgspec

from kube.client import errors
from kube.client.resources import NODES, POD_GROUPS
from scheduler.core.model.settings import Settings, Strategy
from scheduler.settings import SchedulerSettings
from simulator import manifests
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.controllers.pods import child
from simulator.installation import SERVICE_ACCOUNTS
from simulator.manifests import MalformedManifest, Manifest, Reader, admitted_by_kueue
from simulator.nodes import node_object
from simulator.nodes.containers import RUN_S
from simulator.nodes.shape import NodeShape
from simulator.world import World, WorldSettings
from tools.samecheck.comparing import Json, Side, side
from wire import names
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
    settings = WorldSettings(checks_queues=True, replaces_evicted=True, scheduler=_PACKED)
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


#: Of metadata: what simulate takes out, since it is true only where the object is stored.
_STORED: Final = frozenset({"ownerReferences", "resourceVersion", "uid"})


def items(documents: Iterable[object]) -> Iterator[Json]:
    """Yield the objects of documents, those of Lists one by one; containers that end do so after a second."""
    for document in documents:
        if isinstance(document, Mapping):
            yield from items(document.get("items") or ()) if document.get("kind") == "List" else (_brief(document),)


def _brief(value: Any) -> Any:
    """Return a value with "1" as the time that simulated containers run: a cluster really takes that time."""
    if isinstance(value, Mapping):
        return {key: "1" if key == RUN_S else _brief(each) for key, each in value.items()}
    return [*map(_brief, value)] if isinstance(value, list) else value


def adopted(value: Any) -> Any:
    """Return an object whose pods name Moorage's scheduler, as ``simulate --adopt-all`` takes those without a node."""
    if not isinstance(value, Mapping):
        return [*map(adopted, value)] if isinstance(value, list) else value
    made = {key: adopted(each) for key, each in value.items()}
    is_spec = isinstance(made.get("containers"), list) and not made.get("nodeName")
    return {**made, "schedulerName": names.SCHEDULER_NAME} if is_spec else made


def left_out(document: Json, serves: Callable[[Json], bool]) -> str:
    """Return why neither side gets an object, "" for one that both get."""
    kind, meta = document.get("kind"), document.get("metadata")
    if not kind or not isinstance(meta, Mapping):
        return "no object of Kubernetes"
    is_scheduled = kind == "CronJob" and not child(document.get("spec"), "suspend")
    is_held_back = admitted_by_kueue(document) is not document
    reasons = (
        (not serves(document), f"of {document.get('apiVersion')}: this control plane does not serve it"),
        (kind in {"CustomResourceDefinition", "Node"}, "is part of a cluster, not of a workload"),
        (is_scheduled, "makes pods at its time, and simulate at once"),
        (is_held_back, "of a Kueue queue: Kueue does not run here, and simulate takes it as admitted"),
        (not _STORED.isdisjoint(meta), "with an owner or version: simulate creates it as new, and a cluster does not"),
    )
    return next((f"{kind} {why}" for is_so, why in reasons if is_so), "")
