"""Conditions: true, in KAI's words, and written only when they would change."""

from __future__ import annotations

import anyio

from kube.client.resources import PODS
from simulator.apiserver.faults import Fault
from tests.scheduler import stage
from tests.scheduler.stage import (
    all_writes,
    cordon,
    create,
    create_gang,
    is_call,
    phases,
    pod,
    settle,
    share,
    waits_because,
    writes,
)
from wire import names


async def test_a_pod_that_fits_nowhere_says_so_once_and_then_nothing_is_written() -> None:
    async with stage.stage("2x4x80GiB") as world:
        await create(world, pod("big", gpus=8))
        await settle()
        assert waits_because(world, "big") == (
            "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs. "
            "The best node lacks 4 GPU(s)."
        )
        before = len(world.server.write_log)
        await settle(600)
        assert len(world.server.write_log) == before


async def test_who_asks_as_at_gpushare_is_told_in_its_words_that_no_device_has_enough() -> None:
    """A3: the node has the memory, but not one of its devices."""
    asked = pod("large")
    asked["spec"]["containers"][0]["resources"] = {"limits": {"aliyun.com/gpu-mem": "100"}}
    async with stage.stage("1x4x80GiB") as world:
        await create(world, asked, pod("larger", annotations={names.GPU_MEMORY: str(100 * 1024)}))
        await settle()
        assert waits_because(world, "large") == (
            "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPU memory "
            "(Insufficient GPU Memory in one device). The best node lacks 102400 MiB of GPU memory."
        )
        assert "Insufficient GPU Memory" not in waits_because(world, "larger")


async def test_the_reason_follows_the_cluster() -> None:
    async with stage.stage("2x4x80GiB") as world:
        await create(world, pod("big", gpus=8))
        await settle()
        await cordon(world, "node-0")
        await settle(20)
        assert "1 node(s) were unschedulable" in waits_because(world, "big")
        assert len(writes(world, "scheduler", "pods", "status")) == 2


async def test_a_pod_that_waits_runs_as_soon_as_there_is_room() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, pod("a", gpus=1))
        await settle()
        await create(world, pod("b", gpus=1))
        await settle()
        assert phases(world)["b"] == "Pending"
        await world.api.delete(PODS, "a", namespace=stage.TEAM)
        await settle(5)
        assert phases(world) == {"b": "Running"}


async def test_a_whole_gpu_pod_takes_the_device_of_an_idle_reservation_at_once() -> None:
    async with stage.stage("1x1x80GiB", settings=stage.quick_idle(3600)) as world:
        await create(world, share("a"))
        await settle()
        await world.api.delete(PODS, "a", namespace=stage.TEAM)
        await settle(5)
        await create(world, pod("whole", gpus=1))
        await settle(20)
        assert phases(world) == {"whole": "Running"}


async def test_an_answer_that_arrives_after_the_watch_does_not_make_the_condition_old() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, pod("a", gpus=1))
        await settle(5)
        slow = is_call("scheduler", "patch", "pods", "status")
        world.server.faults.on_request.append(lambda call: Fault(answer_delay_s=3.0) if slow(call) else None)
        await create(world, pod("b", gpus=2))
        await settle(1)
        await world.api.patch(PODS, "b", {"metadata": {"annotations": {"note": "changed"}}}, namespace=stage.TEAM)
        await settle(10)
        world.server.faults.clear()
        await cordon(world, "node-0")
        await settle(30)
        assert "unschedulable" in waits_because(world, "b")
        before = len(world.server.write_log)
        await settle(600)
        assert len(world.server.write_log) == before


async def test_counts_follow_the_cluster_a_while_later() -> None:
    """A reason that stays is not written for its counts at once, and a few seconds later it is."""
    async with stage.stage("3x4x80GiB") as world:
        await create(world, pod("big", gpus=8))
        await settle()
        await cordon(world, "node-0")
        await settle(20)
        before = len(writes(world, "scheduler", "pods", "status"))
        await cordon(world, "node-1")
        await settle(4)
        assert "1 node(s) were unschedulable" in waits_because(world, "big")
        await settle(20)
        assert "2 node(s) were unschedulable" in waits_because(world, "big")
        assert len(writes(world, "scheduler", "pods", "status")) == before + 1


async def test_a_cordon_writes_counts_to_a_few_pods_a_second_however_many_wait() -> None:
    async with stage.stage("3x4x80GiB") as world:
        await create(world, *(pod(f"big-{number:03}", gpus=8) for number in range(100)))
        await settle(60)
        await cordon(world, "node-0")
        await settle(60)
        before = len(writes(world, "scheduler", "pods", "status"))
        await cordon(world, "node-1")
        await settle(20)
        assert len(writes(world, "scheduler", "pods", "status")) - before <= 4 * 20
        await settle(60)
        told = {waits_because(world, f"big-{number:03}") for number in range(100)}
        assert len(told) == 1
        assert "2 node(s) were unschedulable" in told.pop()


async def test_a_pod_that_its_predecessor_told_the_truth_is_told_other_counts_by_its_successor() -> None:
    async with stage.stage("3x4x80GiB") as world:
        await create(world, pod("big", gpus=8))
        await settle()
        await cordon(world, "node-0")
        await settle(20)
        world.scheduler.crash()
        await world.restart(world.scheduler)
        await settle(20)
        await cordon(world, "node-1")
        await settle(20)
        assert "2 node(s) were unschedulable" in waits_because(world, "big")


async def test_a_gang_whose_members_come_one_after_the_other_costs_two_writes_a_member() -> None:
    async with stage.stage("4x4x80GiB") as world:
        await create_gang(world, "g", 16)
        for number in range(16):
            await create(world, pod(f"m-{number:02}", gpus=1, annotations={names.POD_GROUP_NAME: "g"}))
            await anyio.sleep(0.15)
        await settle(20)
        assert set(phases(world).values()) == {"Running"}
        assert writes(world, "scheduler", "pods", "status") == []
        assert len(writes(world, "scheduler", "events", "")) == 16
        # Bindings, the plan that is written to the PodGroup and taken away, and nothing else.
        assert len(all_writes(world, "scheduler")) <= 16 * 2.1 + 2


async def test_a_gang_that_does_not_grow_says_how_many_members_it_has() -> None:
    async with stage.stage("4x4x80GiB") as world:
        await create_gang(world, "g", 16)
        for number in range(3):
            await create(world, pod(f"m-{number}", gpus=1, annotations={names.POD_GROUP_NAME: "g"}))
            await anyio.sleep(0.15)
        await anyio.sleep(1.1)
        told = {waits_because(world, f"m-{number}") for number in range(3)}
        assert told == {
            "Job is not ready for scheduling. Waiting for 16 pods, currently 3 exist, 0 are gated",
        }
        assert len(writes(world, "scheduler", "pods", "status")) == 3


async def test_a_gang_that_grows_slowly_says_so_after_five_seconds() -> None:
    async with stage.stage("4x4x80GiB") as world:
        await create_gang(world, "g", 16)
        for number in range(7):
            await create(world, pod(f"m-{number}", gpus=1, annotations={names.POD_GROUP_NAME: "g"}))
            await anyio.sleep(0.8)
        assert "currently 7 exist" in waits_because(world, "m-0")


async def test_all_members_of_a_gang_that_is_whole_and_hopeless_say_why_within_a_second() -> None:
    async with stage.stage("4x4x80GiB") as world:
        await create_gang(world, "g", 10)
        early, late = [f"m-{number}" for number in range(5)], [f"m-{number}" for number in range(5, 10)]
        await create(world, *(pod(name, gpus=4, annotations={names.POD_GROUP_NAME: "g"}) for name in early))
        await anyio.sleep(3.0)
        assert all("currently 5 exist" in waits_because(world, name) for name in early)
        await create(world, *(pod(name, gpus=4, annotations={names.POD_GROUP_NAME: "g"}) for name in late))
        await anyio.sleep(1.0)
        told = {waits_because(world, name) for name in (*early, *late)}
        assert len(told) == 1
        assert told.pop().startswith("Resources were found for 4 pods while 10 are required")
        assert len(writes(world, "scheduler", "pods", "status")) == 15


async def test_a_gang_that_is_whole_now_and_then_is_not_rewritten_each_time() -> None:
    async with stage.stage("4x4x80GiB") as world:
        await create_gang(world, "g", 2)
        await create(world, pod("stays", gpus=8, annotations={names.POD_GROUP_NAME: "g"}))
        for number in range(20):
            await create(world, pod(f"comes-{number}", gpus=8, annotations={names.POD_GROUP_NAME: "g"}))
            await anyio.sleep(1.5)
            await world.api.delete(PODS, f"comes-{number}", namespace=stage.TEAM)
            await anyio.sleep(1.5)
        written = [entry for entry in writes(world, "scheduler", "pods", "status") if entry.name == "stays"]
        # A minute: two writes in five seconds at most.
        assert len(written) <= 2 * 12 + 2


async def test_a_condition_that_somebody_else_overwrites_is_written_again() -> None:
    """After a restore of etcd a kubelet that was away says that a pod is bound which is bound no more."""
    async with stage.stage("1x4x80GiB") as world:
        await create(world, pod("big", gpus=8))
        await settle()
        told = waits_because(world, "big")
        stale = {"type": names.CONDITION_POD_SCHEDULED, "status": "True"}
        await world.api.patch(
            PODS, "big", {"status": {"conditions": [stale]}}, namespace=stage.TEAM, subresource="status"
        )
        await settle(30)
        assert waits_because(world, "big") == told
        assert len(writes(world, "scheduler", "pods", "status")) == 2
        await settle(600)
        assert len(writes(world, "scheduler", "pods", "status")) == 2
