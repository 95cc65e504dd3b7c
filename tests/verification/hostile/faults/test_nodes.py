"""What happens to a node, as its kubelet, its containers and the API server show it; and that it is over in the end."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import PODS
from tests.verification.hostile.faults.grounds import NAMESPACE, Stage, stage
from verification.hostile.faults.nodes import (
    GpuIll,
    KubeletRefuses,
    NodeCordoned,
    NodeCutOff,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRebooted,
    NodeReinstalled,
    PluginDown,
    PluginLags,
    SlowStarts,
)

pytestmark = pytest.mark.thorough

UNREACHABLE = "node.kubernetes.io/unreachable"


def processes(on: Stage) -> int:
    return len(on.world.nodes.ground_truth.running)


async def is_ready(on: Stage) -> str:
    (condition,) = [c for c in (await on.node()).status.conditions or () if c.type == "Ready"]
    return condition.status


async def gpus(on: Stage) -> int:
    return int(((await on.node()).status.allocatable or {}).get("nvidia.com/gpu", 0))


async def a_share_runs(on: Stage, name: str = "p") -> None:
    await on.pod(name, gpu_fraction="0.5")
    await on.until(on.now_s + 20)
    assert await on.phase(name) == "Running"


async def test_a_lost_node_that_is_deleted_comes_back_as_another() -> None:
    async with stage() as on:
        await a_share_runs(on)
        before = (await on.node()).metadata.uid
        on.strike(NodeLost(at_s=20, for_s=100, node="node-0", forget_s=50))
        await on.until(71)
        assert await on.ground.insist(on.node) is None
        await on.until(80)
        assert on.world.pods == []
        await on.until(121)
        assert (await on.node()).metadata.uid != before
        await a_share_runs(on, "q")


@pytest.mark.parametrize(
    ("tolerations", "is_evicted"),
    [
        pytest.param([], True, id="none: the API server gives it 300 s"),
        pytest.param([{"operator": "Exists"}], False, id="everything, for ever, as reservations do"),
        pytest.param([{"operator": "Exists", "effect": "NoSchedule"}], True, id="only what keeps it from coming"),
        pytest.param([{"key": UNREACHABLE, "operator": "Exists"}], False, id="this, for ever"),
        pytest.param(
            [{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300}], True, id="this, for 300 s"
        ),
        pytest.param([{"key": UNREACHABLE, "value": "x"}], True, id="this with a value, which it has not"),
        pytest.param(
            [{"operator": "Exists"}, {"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300}],
            True,
            id="for ever and for 300 s: the shorter counts",
        ),
        pytest.param([{"key": "other", "operator": "Exists"}], True, id="something else"),
    ],
)
async def test_a_silent_node_loses_all_pods_but_those_that_tolerate_it_for_ever(
    tolerations: list[dict[str, Any]], is_evicted: bool
) -> None:
    async with stage() as on:
        container = {"name": "main", "image": "work"}
        spec = {"schedulerName": "kai-scheduler", "containers": [container], "tolerations": tolerations}
        await on.world.api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace=NAMESPACE)
        await on.until(20)
        on.strike(NodeCutOff(at_s=20, for_s=400, node="node-0"))
        await on.until(370)
        assert ((await on.read("p")).metadata.deletion_timestamp is not None) is is_evicted


async def test_a_reservation_outlives_the_eviction_of_its_tenant_and_no_longer() -> None:
    async with stage() as on:
        await a_share_runs(on)
        on.strike(NodeCutOff(at_s=20, for_s=400, node="node-0"))
        await on.until(370)
        deleted = {raw["metadata"]["name"]: "deletionTimestamp" in raw["metadata"] for raw in on.world.pods}
        (held,) = deleted.keys() - {"p"}
        assert deleted == {"p": True, held: False}
        await on.until(600)
        assert on.world.pods == []


async def test_a_forgotten_node_ends_what_was_deleted_when_it_is_back() -> None:
    async with stage() as on:
        await a_share_runs(on)
        on.strike(NodeForgotten(at_s=20, for_s=60, node="node-0", forget_s=30))
        await on.until(79)
        assert (processes(on), on.world.pods) == (2, [])
        await on.until(90)
        assert processes(on) == 0
        await a_share_runs(on, "q")


async def test_refusals_that_met_nobody_are_taken_back() -> None:
    async with stage() as on:
        on.strike(KubeletRefuses(at_s=0, for_s=30, node="node-0", count=5))
        await on.until(31)
        await on.pod("taken", gpus=1)
        await on.until(40)
        assert await on.phase("taken") == "Running"


async def test_without_its_device_plugin_a_node_has_no_gpu_to_give() -> None:
    async with stage() as on:
        await a_share_runs(on)
        on.strike(PluginDown(at_s=20, for_s=30, node="node-0"))
        await on.until(21)
        await on.pod("q", gpus=1)
        await on.until(49)
        assert (await gpus(on), await on.phase("p"), (await on.read("q")).spec.node_name) == (0, "Running", "")
        await on.until(80)
        assert (await gpus(on), await on.phase("q")) == (2, "Running")


async def card_of(on: Stage, name: str) -> int:
    """The index of the card that a pod with a share uses."""
    uuid = ((await on.read(name)).metadata.annotations or {})["moorage.dev/visible-devices.c0"]
    return next(device.index for device in on.world.nodes["node-0"].devices if device.uuid == uuid)


async def test_tenants_of_a_gpu_that_is_soon_well_again_stay() -> None:
    async with stage() as on:
        await a_share_runs(on)
        on.strike(GpuIll(at_s=20, for_s=20, node="node-0", card=await card_of(on, "p")))
        await on.until(150)
        assert (await gpus(on), await on.phase("p")) == (2, "Running")


async def test_a_pod_that_comes_before_the_plugin_is_seen_to_be_down_is_refused() -> None:
    async with stage() as on:
        on.world.nodes["node-0"].intake.plugin_is_down = True
        await on.pod("p", gpus=1)
        await on.until(5)
        assert (await on.read("p")).status.reason == "UnexpectedAdmissionError"


@pytest.mark.parametrize(("lag_s", "wait_s", "reason"), [(30.0, 5, "UnexpectedAdmissionError"), (3.0, 5, "")])
async def test_a_device_is_free_again_some_time_after_its_pod_has_ended(
    lag_s: float, wait_s: float, reason: str
) -> None:
    async with stage("1x1x40GiB") as on:
        await on.pod("p", gpus=1)
        on.strike(PluginLags(at_s=1, for_s=60, node="node-0", lag_s=lag_s))
        await on.until(5)
        await on.world.api.delete(PODS, "p", namespace=NAMESPACE)
        await on.until(5 + wait_s)
        await on.pod("q", gpus=1)
        await on.until(20)
        assert (await on.read("q")).status.reason == reason


async def test_devices_that_lag_are_free_when_the_fault_is_over() -> None:
    async with stage("1x1x40GiB") as on:
        await on.pod("p", gpus=1)
        on.strike(PluginLags(at_s=1, for_s=10, node="node-0", lag_s=1000.0))
        await on.until(5)
        await on.world.api.delete(PODS, "p", namespace=NAMESPACE)
        await on.until(10.9)
        assert on.world.nodes["node-0"].intake.manager.pods
        await on.until(11.1)
        assert not on.world.nodes["node-0"].intake.manager.pods


@pytest.mark.parametrize("kind", [NodeLost, NodeRebooted, NodeCutOff])
async def test_a_node_that_is_away_already_is_left_to_the_first_fault(kind: type[NodeLost]) -> None:
    async with stage() as on:
        await a_share_runs(on)
        on.strike(kind(at_s=20, for_s=30, node="node-0"))
        on.strike(NodeLost(at_s=30, for_s=100, node="node-0", forget_s=1.0))
        await on.until(49)
        assert not on.world.nodes["node-0"].is_answering
        await on.until(75)
        assert (processes(on), await is_ready(on), await on.phase("p")) == (2, "True", "Running")


async def is_cordoned(on: Stage) -> bool:
    return bool((await on.node()).spec.unschedulable)


async def test_a_lost_node_runs_nothing_is_called_unready_and_comes_back() -> None:
    async with stage() as on:
        await a_share_runs(on)
        on.strike(NodeLost(at_s=20, for_s=100, node="node-0"))
        await on.until(59)
        assert (processes(on), await is_ready(on)) == (0, "True")
        await on.until(61)
        assert await is_ready(on) == "Unknown"
        await on.until(150)
        assert (processes(on), await is_ready(on), await on.phase("p")) == (2, "True", "Running")


@pytest.mark.parametrize(
    ("fault", "guards", "late"),
    [
        (NodeRebooted(at_s=20, for_s=30, node="node-0"), 0, False),
        (NodeReinstalled(at_s=20, for_s=30, node="node-0"), 1, False),
        (NodeReinstalled(at_s=20, for_s=30, node="node-0", plugin_s=8), 0, True),
    ],
)
async def test_a_rebooted_node_starts_its_containers_again(
    fault: NodeRebooted | NodeReinstalled, guards: int, late: bool
) -> None:
    """Where devices are given out anew, the one that the share goes on using has another reservation, as a guard."""
    async with stage() as on:
        await a_share_runs(on)
        on.strike(fault)
        await on.until(21)
        assert processes(on) == 0
        await on.until(49)
        assert await gpus(on) == (0 if late else 2)
        await on.until(80)
        assert (processes(on), await gpus(on), await on.phase("p")) == (2 + guards, 2, "Running")


@pytest.mark.parametrize(("kind", "is_kept"), [(NodeRebooted, True), (NodeReinstalled, False)])
async def test_only_a_reinstalled_node_gives_its_pods_other_devices(
    kind: type[NodeRebooted | NodeReinstalled], is_kept: bool
) -> None:
    async with stage("1x8x40GiB") as on:
        for number in range(4):
            await on.pod(f"p-{number}", gpus=1)
        await on.until(10)
        before = {uid: dict(on.world.nodes.ground_truth.seen_by(uid)) for uid in on.world.observers["pods"].latest}
        on.strike(kind(at_s=10, for_s=5, node="node-0"))
        await on.until(30)
        after = {uid: dict(on.world.nodes.ground_truth.seen_by(uid)) for uid in before}
        assert (before == after) is is_kept


@pytest.mark.parametrize(("for_s", "after"), [(300, 1), (400, 0)])
async def test_containers_of_a_node_that_is_cut_off_go_on_until_it_hears_otherwise(for_s: float, after: int) -> None:
    async with stage() as on:
        await a_share_runs(on)
        on.strike(NodeCutOff(at_s=20, for_s=for_s, node="node-0"))
        await on.until(20 + for_s - 1)
        assert (processes(on), await is_ready(on)) == (2, "Unknown")
        # Evicted after 340 s; the pod stays on the API server until its node says that it ended.
        assert len(on.world.pods) == 2
        await on.until(20 + for_s + 30)
        assert (processes(on), await is_ready(on)) == (2 * after, "True")


async def test_a_cordoned_node_takes_no_pod_until_it_is_opened() -> None:
    async with stage() as on:
        on.strike(NodeCordoned(at_s=0, for_s=30, node="node-0"))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(29)
        assert (await is_cordoned(on), (await on.read("p")).spec.node_name) == (True, "")
        await on.until(60)
        assert (await is_cordoned(on), await on.phase("p")) == (False, "Running")


async def test_a_drained_node_is_empty_and_then_open() -> None:
    async with stage() as on:
        await a_share_runs(on)
        on.strike(NodeDrained(at_s=20, for_s=40, node="node-0"))
        await on.until(55)
        assert (processes(on), on.world.pods, await is_cordoned(on)) == (0, [], True)
        await on.until(61)
        assert not await is_cordoned(on)


async def test_a_kubelet_refuses_so_many_pods_and_only_for_a_while() -> None:
    async with stage() as on:
        on.strike(KubeletRefuses(at_s=0, for_s=30, node="node-0", count=1))
        await on.until(1)
        for name in ("refused", "taken"):
            await on.pod(name, gpus=1)
            await on.until(on.now_s + 5)
        refused = (await on.read("refused")).status
        assert (refused.phase, refused.reason) == ("Failed", "UnexpectedAdmissionError")
        assert await on.phase("taken") == "Running"
        assert on.world.nodes["node-0"].intake.reject_next == 0


async def is_there(on: Stage, name: str) -> bool:
    pods = (await on.world.api.list(PODS, namespace=NAMESPACE)).items
    return any(pod.metadata.name == name for pod in pods)


async def test_tenants_of_a_gpu_that_stays_ill_are_evicted_and_others_are_not() -> None:
    async with stage() as on:
        await on.pod("p", gpu_fraction="0.6")
        await on.pod("q", gpu_fraction="0.6")
        await on.until(20)
        ill = await card_of(on, "p")
        assert ill != await card_of(on, "q")
        on.strike(GpuIll(at_s=20, for_s=100, node="node-0", card=ill))
        await on.until(40)
        assert (await gpus(on), await is_there(on, "p")) == (1, True)
        await on.pod("r", gpu_fraction="0.3")
        await on.until(100)
        assert not await is_there(on, "p")
        assert (await on.phase("q"), await card_of(on, "r")) == ("Running", await card_of(on, "q"))
        await on.pod("s", gpu_fraction="0.6")
        await on.until(119)
        assert await on.phase("s") == "Pending"
        await on.until(170)
        assert (await gpus(on), await on.phase("s"), await card_of(on, "s")) == (2, "Running", ill)


async def test_pods_take_longer_to_start_for_a_while() -> None:
    async with stage() as on:
        on.strike(SlowStarts(at_s=0, for_s=10, node="node-0", slow_s=40.0))
        await on.until(1)
        await on.pod("slow", gpus=1)
        await on.until(11)
        await on.pod("quick", gpus=1)
        await on.until(30)
        assert (await on.phase("slow"), await on.phase("quick")) == ("Pending", "Running")
        await on.until(50)
        assert await on.phase("slow") == "Running"


async def test_a_node_that_is_not_there_is_not_struck() -> None:
    async with stage() as on:
        await NodeLost(at_s=0, for_s=1000, node="node-7").strike(on.ground)
        assert on.now_s < 1
