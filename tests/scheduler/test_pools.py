"""Two schedulers share a cluster by node pools: one for objects without the label, one for pool ``a``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kube.client.resources import NODES, POD_GROUPS, QUEUES
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import bound, create, create_gang, find, settle, share, waits_because, writes
from wire import names

KEY = names.NODE_POOL_LABEL
A = {KEY: "a"}
NODE, NODE_A = "node-0", "node-1"
SETTLE_S = WorldSettings().scheduler.settle_s


@asynccontextmanager
async def _divided(shape: str = "2x2x80GiB") -> AsyncIterator[World]:
    """A cluster whose second node is of pool ``a``."""
    async with stage.stage(shape, settings=WorldSettings(seed=1, pools=("a",))) as world:
        await _label(world, NODE_A, "a")
        await settle(SETTLE_S + 1)
        yield world


async def _label(world: World, node: str, value: str | None) -> None:
    await world.api.patch(NODES, node, {"metadata": {"labels": {KEY: value}}})


def _of_a(wanted: dict[str, Any]) -> dict[str, Any]:
    wanted["metadata"]["labels"] = A
    return wanted


def _node_of(world: World, name: str) -> str:
    return str(find(world, name)["spec"].get("nodeName", ""))


async def test_a_gang_is_told_in_the_condition_of_its_pool_and_gets_its_label() -> None:
    async with _divided() as world:
        await create_gang(world, "g", 2, *(stage.pod(f"p{i}", gpus=2) for i in range(2)))
        await world.api.patch(POD_GROUPS, "g", {"metadata": {"labels": A}}, namespace=stage.TEAM)
        await settle(30)
        group = await world.api.get(POD_GROUPS, "g", namespace=stage.TEAM)
        conditions = {each.node_pool: each.status for each in group.status.scheduling_conditions or ()}
        assert conditions["a"] == "True"
        await _label(world, NODE, "a")
        await settle(SETTLE_S + 5)
        assert {_node_of(world, f"p{i}") for i in range(2)} == {NODE, NODE_A}
        assert find(world, "p0")["metadata"]["labels"][KEY] == "a"


async def test_a_scheduler_that_is_killed_costs_the_other_pool_nothing() -> None:
    async with _divided("2x4x80GiB") as world:
        world.scheduler.crash()
        await create(world, *(_of_a(stage.pod(f"pa{i}", gpus=1)) for i in range(3)), _of_a(share("sa")))
        await create(world, stage.pod("p", gpus=1))
        await settle(5)
        assert bound(world) == {"pa0", "pa1", "pa2", "sa"}
        await world.restart(world.scheduler)
        await settle()
        assert bound(world) == {"pa0", "pa1", "pa2", "sa", "p"}


async def test_each_scheduler_binds_its_own_pods_to_its_own_nodes() -> None:
    async with _divided() as world:
        pods = [stage.pod("p", gpus=1), share("s"), _of_a(stage.pod("pa", gpus=1)), _of_a(share("sa"))]
        await create(world, *pods)
        await settle()
        assert {name: _node_of(world, name) for name in ("p", "s", "pa", "sa")} == {
            "p": NODE,
            "s": NODE,
            "pa": NODE_A,
            "sa": NODE_A,
        }
        assert {entry.name for entry in writes(world, "scheduler-a", "pods", "binding")} == {"pa"}
        assert {entry.name for entry in writes(world, "scheduler", "pods", "binding")} == {"p"}
        assert len(writes(world, "scheduler-a", "bindrequests", verb="create")) == 1


async def test_queues_of_a_pool_are_its_schedulers() -> None:
    async with _divided() as world:
        limited = {"resources": {"gpu": {"quota": 0, "limit": 1}, "cpu": {"limit": -1}, "memory": {"limit": -1}}}
        for name, labels in (("of-a", A), ("of-none", {})):
            queue = {"metadata": {"name": name, "labels": labels}, "spec": limited}
            await world.api.create(QUEUES, {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, **queue})
        pods = {name: stage.pod(name, gpus=1) for name in ("in-a", "in-none", "wrong")}
        pods["in-a"]["metadata"]["labels"] = {**A, names.QUEUE_LABEL: "of-a"}
        pods["in-none"]["metadata"]["labels"] = {names.QUEUE_LABEL: "of-none"}
        pods["wrong"]["metadata"]["labels"] = {**A, names.QUEUE_LABEL: "of-none"}
        await create(world, *pods.values())
        await settle(30)
        assert bound(world) == {"in-a", "in-none"}
        assert waits_because(world, "wrong") == "Queue of-none belongs to node pool default; the pod is in a"
        for name in ("of-a", "of-none"):
            queue_read = await world.api.get(QUEUES, name)
            assert (queue_read.status.allocated or {}).get(names.GPU_RESOURCE) == "1"
        assert {entry.name for entry in writes(world, "scheduler-a", "queues", "status")} == {"of-a"}
        assert {entry.name for entry in writes(world, "scheduler", "queues", "status")} == {"of-none"}


async def test_a_pod_whose_queue_is_of_another_pool_waits_until_it_is_of_its_own() -> None:
    async with _divided() as world:
        free = {"resources": {each: {"quota": 0, "limit": -1} for each in ("gpu", "cpu", "memory")}}
        for name, parent, labels in (("top", "", A), ("low", "top", A), ("of-a", "", A), ("default-queue", "", {})):
            queue = {"metadata": {"name": name, "labels": labels}, "spec": {**free, "parentQueue": parent}}
            await world.api.create(QUEUES, {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, **queue})
        wanted = stage.pod("p", gpus=1)
        wanted["metadata"]["labels"] = {names.QUEUE_LABEL: "low"}
        await create(world, wanted)
        await settle(30)
        assert waits_because(world, "p") == "Queue low belongs to node pool a; the pod is in default"
        await world.api.patch(QUEUES, "low", {"metadata": {"labels": {KEY: None}}})
        await settle(30)
        parent = "queue top, a parent of it, belongs to node pool a; low is in default"
        assert waits_because(world, "p") == f"Queue low can't be used: {parent}"
        await world.api.patch(QUEUES, "top", {"metadata": {"labels": {KEY: None}}})
        await settle(30)
        assert bound(world) == {"p"}
        late = stage.pod("late", gpus=1)
        late["metadata"]["labels"] = {names.QUEUE_LABEL: "low", **A}
        await create(world, late)
        await settle(30)
        assert waits_because(world, "late") == "Queue low belongs to node pool default; the pod is in a"
        await world.api.delete(QUEUES, "low")
        await settle(30)
        assert waits_because(world, "late") == "Queue low does not exist"


async def test_a_node_that_changes_pools_keeps_what_runs_there_and_takes_nobody_for_a_while() -> None:
    async with _divided() as world:
        await create(world, stage.pod("stays", gpus=1), share("half"))
        await settle()
        await _label(world, NODE, "a")
        await create(world, _of_a(stage.pod("full", gpus=2)))
        await settle(2)
        await create(world, _of_a(share("next", "0.5")), stage.pod("late", gpus=1))
        await settle(5)
        assert bound(world) == {"stays", "half", "full"}
        assert _node_of(world, "full") == NODE_A
        await settle(SETTLE_S)
        # On what is left of the node that has come: half a GPU. Nothing that runs there was touched.
        assert bound(world) == {"stays", "half", "full", "next"}
        assert _node_of(world, "next") == NODE
        assert "another node pool" in waits_because(world, "late")
