"""Karpenter with its kwok provider beside Moorage: shares and gangs bring the nodes that they need, and no more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.controllers.autoscaled import Autoscaled, autoscaled
from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, share
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.controllers.catalogue import KARPENTER
from tools.controllers.running import Running
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.nightly, pytest.mark.timeout(400)]

CONTROLLERS = (KARPENTER,)

#: ``async with set_pool("one-gpu") as at:``.
SetPool = Callable[[str], AbstractAsyncContextManager[Autoscaled]]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane, controllers: tuple[Running, ...]) -> Iterator[Deployment]:
    scaling = ["--cluster-autoscaling", "--scaling-pod-image", "none/there"]
    with Deployment(plane, Options(arguments={"binder": ["--idle-s", "1"], "scheduler": scaling})) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
def set_pool(plane: ControlPlane, controllers: tuple[Running, ...], moorage: Deployment) -> SetPool:
    """Set a scene without nodes, and a NodePool of one instance type."""
    for each in controllers:
        each.check()
    moorage.check()
    return lambda instance_type: autoscaled(plane, f"scaled-{next(_numbers)}", instance_type)


def of_gang(name: str, *, gpus: int = 0, fraction: str = "", cpu: str = "") -> Pod:
    made = pod(name, gpus=gpus, annotations={names.GPU_FRACTION: fraction} if fraction else {})
    if cpu:
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return made


async def all_run(at: Autoscaled, count: int) -> dict[str, Pod]:
    """Wait until all pods run and no scaling pod is left."""
    pods = await at.on.running(count)
    await at.without_scaling_pods()
    return pods


@pytest.mark.parametrize(
    ("instance_type", "fractions", "count"),
    [
        ("one-gpu", ["0.5"], 1),
        ("one-gpu", ["0.5", "0.5"], 1),
        ("one-gpu", ["0.7", "0.7", "0.3"], 2),
        ("four-gpus", ["0.6", "0.6", "0.6", "0.6"], 1),
        ("four-gpus", ["0.6", "0.6", "0.6", "0.6", "0.6"], 2),
    ],
    ids=["one", "two of one card", "three of two cards", "four cards of one node", "five cards of two nodes"],
)
async def test_shares_bring_the_nodes_that_their_devices_need(
    set_pool: SetPool, instance_type: str, fractions: list[str], count: int
) -> None:
    async with set_pool(instance_type) as at:
        await at.on.create(*(share(f"share-{number}", part) for number, part in enumerate(fractions)))
        await all_run(at, len(fractions))
        assert len(await at.claims()) == count


@pytest.mark.parametrize(
    ("instance_type", "members", "asked", "count"),
    [
        ("one-gpu", 3, {"gpus": 1}, 3),
        ("four-gpus", 5, {"gpus": 2}, 3),
        ("one-gpu", 4, {"fraction": "0.6"}, 4),
        ("one-gpu", 4, {"fraction": "0.5"}, 2),
    ],
    ids=["whole GPUs", "pairs of GPUs", "a card each", "half a card each"],
)
async def test_a_gang_brings_the_nodes_that_it_needs_and_starts_whole(
    set_pool: SetPool, instance_type: str, members: int, asked: dict[str, Any], count: int
) -> None:
    async with set_pool(instance_type) as at:
        await at.on.create_gang("gang", members, *(of_gang(f"gang-{number}", **asked) for number in range(members)))
        pods = await all_run(at, members)
        assert len(await at.claims()) == count
        came = max(node["metadata"]["creationTimestamp"] for node in (await at.nodes()).values())
        assert min(map(placed_at, pods.values())) >= came


def placed_at(found: Pod) -> str:
    """When a pod got its node; RFC 3339 in UTC sorts by time."""
    (time,) = (each["lastTransitionTime"] for each in found["status"]["conditions"] if each["type"] == "PodScheduled")
    return str(time)


@pytest.mark.parametrize("asked", [{"gpus": 2}, {"fraction": "0.5", "cpu": "64"}], ids=["whole GPUs", "shares"])
async def test_a_gang_that_no_instance_type_holds_brings_none(set_pool: SetPool, asked: dict[str, Any]) -> None:
    async with set_pool("one-gpu") as at:
        await at.on.create_gang("gang", 2, *(of_gang(f"gang-{number}", **asked) for number in range(2)))

        async def judged() -> bool | None:
            if "gpus" in asked:
                return {"gang-0", "gang-1"} <= await at.refused(at.on.namespace) or None
            made = (await at.scaling_pods()).keys()
            return (made and made <= await at.refused(names.SCALE_ADJUST_NAMESPACE)) or None

        await eventually(judged, "Karpenter to judge the gang", within_s=PATIENCE_S)
        assert await at.claims() == []


async def test_a_gang_with_a_member_that_no_instance_type_holds_brings_nodes_for_the_others(set_pool: SetPool) -> None:
    """Autoscalers see pods and no gangs (docs/design/autoscaling.md, Limits)."""
    async with set_pool("one-gpu") as at:
        await at.on.create_gang("gang", 2, of_gang("fits", gpus=1), of_gang("fits-nowhere", gpus=4))

        async def has_come() -> bool | None:
            ready = ["karpenter.sh/initialized" in node["metadata"]["labels"] for node in (await at.nodes()).values()]
            return (await at.refused(at.on.namespace) == {"fits-nowhere"} and ready == [True]) or None

        await eventually(has_come, "a node for one member", within_s=PATIENCE_S)
        assert [name for name, found in (await at.on.pods()).items() if found["spec"].get("nodeName")] == []


async def test_a_share_on_a_card_with_room_brings_none(set_pool: SetPool) -> None:
    async with set_pool("one-gpu") as at:
        await at.on.create(share("first", "0.5"))
        await all_run(at, 1)
        await at.on.create(share("second", "0.5"))
        await all_run(at, 2)
        assert len(await at.claims()) == 1


async def test_a_node_with_a_tenant_stays_and_goes_with_its_last_one(set_pool: SetPool) -> None:
    async with set_pool("one-gpu") as at:
        await at.on.create(share("goes", "0.7"), share("stays", "0.7"))
        pods = await all_run(at, 2)
        await at.on.delete("goes")

        async def one_left() -> bool | None:
            return len(await at.nodes()) == 1 or None

        await at.shrink()
        await eventually(one_left, "the node without a tenant to go", within_s=PATIENCE_S)
        assert (await at.on.pod("stays"))["metadata"]["uid"] == pods["stays"]["metadata"]["uid"]
        assert [*await at.nodes()] == [pods["stays"]["spec"]["nodeName"]]
        await at.on.delete("stays")
        await at.without_nodes()
