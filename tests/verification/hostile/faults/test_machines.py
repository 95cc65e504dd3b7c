"""Machines under another's name and kubelets without a memory: what their cards are then, and who has them."""

from __future__ import annotations

from tests.verification.hostile.faults.grounds import Stage, stage
from verification.hostile.faults.nodes import KubeletForgets, NodeReplaced
from wire import names


async def gpus(on: Stage) -> int:
    return int(((await on.node()).status.allocatable or {}).get("nvidia.com/gpu", 0))


def uuids(on: Stage) -> set[str]:
    return {device.uuid for device in on.world.nodes["node-0"].devices}


async def test_a_replaced_machine_has_other_cards_and_its_node_says_so() -> None:
    async with stage("1x2x40GiB") as on:
        old = uuids(on)
        before = (await on.node()).metadata.uid
        await on.pod("p", gpu_fraction="0.5")
        on.strike(NodeReplaced(at_s=10, for_s=60, node="node-0", cards_mib=(16384, 16384, 24576), forget_s=20.0))
        await on.until(72)
        node = await on.node()
        assert node.metadata.uid != before
        assert (await gpus(on), len(uuids(on)), uuids(on) & old) == (3, 3, set())
        assert (node.metadata.labels or {})[names.NODE_GPU_MEMORY] == "16384"
        assert (node.metadata.annotations or {})[names.NODE_CARDS] == "16384,16384,24576"
        await on.pod("q", gpu_memory="20000")
        await on.until(100)
        assert await on.phase("q") == "Running"


async def test_pods_that_are_still_bound_to_a_replaced_machine_find_none_of_their_devices() -> None:
    async with stage("1x2x40GiB") as on:
        before = (await on.node()).metadata.uid
        await on.pod("p", gpu_fraction="0.5")
        await on.until(10)
        seen = set(on.world.nodes.ground_truth.running[-1].devices)
        assert seen < uuids(on)
        on.strike(NodeReplaced(at_s=10, for_s=20, node="node-0", cards_mib=(81920,)))
        await on.until(31)
        assert ((await on.node()).metadata.uid, await gpus(on)) == (before, 1)
        assert not seen & uuids(on)
        await on.pod("q", gpu_fraction="0.5")
        await on.until(200)
        assert await on.phase("q") == "Running"


async def test_a_kubelet_without_its_checkpoint_gives_out_again_what_its_containers_have() -> None:
    async with stage("1x1x40GiB") as on:
        await on.pod("p", gpus=1)
        await on.until(10)
        manager = on.world.nodes["node-0"].intake.manager
        (held,) = manager.pods
        on.strike(KubeletForgets(at_s=10, for_s=1, node="node-0"))
        await on.until(12)
        assert (manager.pods, len(on.world.nodes.ground_truth.running), await on.phase("p")) == (set(), 1, "Running")
        on.world.nodes["node-0"].kill(held)
        await on.until(30)
        assert (manager.pods, await on.phase("p")) == ({held}, "Running")
