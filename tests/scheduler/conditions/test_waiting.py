"""Conditions: true, in KAI's words, and written only when they would change."""

from __future__ import annotations

import math

import anyio
import pytest

from kube.client.resources import PODS
from scheduler.conditions.paced_writes import ByNamespace, Turns
from scheduler.conditions.pod_scheduled import PASSING, DelayedReasons
from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import Code, Verdict
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
    strike_all,
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
        strike_all(world, is_call("scheduler", "patch", "pods", "status"), Fault(answer_delay_s=3.0))
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


@pytest.mark.thorough
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
        assert told == {"Job is not ready for scheduling. Waiting for 16 pods, currently 3 exist, 0 are gated"}
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


GANG = ("ns", "g")


def says(*uids: str, code: Code = Code.GANG_NOT_READY, group: tuple[str, str] | None = GANG) -> Explain:
    return Explain(pods=uids, pod_group=group, verdict=Verdict(code=code))


def test_a_member_is_told_a_second_after_the_last_one_came() -> None:
    growing = DelayedReasons()
    growing.take(says("a"), 10.0)
    assert growing.told_from("a") == 11.0
    growing.take(says("a", "b"), 10.8)
    assert growing.told_from("a") == growing.told_from("b") == 11.8


def test_a_member_that_said_it_already_does_not_count_as_growth() -> None:
    growing = DelayedReasons()
    growing.take(says("a", "b"), 10.0)
    growing.take(says("a", "b"), 12.0)
    assert growing.told_from("a") == 11.0


def test_a_member_is_told_after_five_seconds_however_the_gang_grows() -> None:
    growing = DelayedReasons()
    for number in range(10):
        growing.take(says(f"m{number}"), 10.0 + number)
    assert growing.told_from("m0") == 15.0
    assert growing.told_from("m9") == 20.0


def test_pods_of_no_gang_do_not_wait_for_each_other() -> None:
    growing = DelayedReasons()
    growing.take(says("a", code=Code.OWNER_NOT_SEEN, group=None), 10.0)
    growing.take(says("b", code=Code.OWNER_NOT_SEEN, group=None), 10.8)
    assert (growing.told_from("a"), growing.told_from("b")) == (11.0, 11.8)


@pytest.mark.parametrize("code", sorted(set(Code) - PASSING - {Code.WAITS_FOR_VICTIMS}, key=str))
def test_another_reason_is_told_at_once(code: Code) -> None:
    growing = DelayedReasons()
    growing.take(says("a"), 10.0)
    growing.take(says("a", code=code), 10.1)
    assert growing.told_from("a") < 10.1


def test_a_pod_for_which_room_is_made_is_told_ten_seconds_later() -> None:
    growing = DelayedReasons()
    growing.take(says("a", code=Code.WAITS_FOR_VICTIMS), 10.0)
    growing.take(says("a", code=Code.WAITS_FOR_VICTIMS), 15.0)  # another count: one victim is gone
    assert growing.told_from("a") == 20.0


@pytest.mark.parametrize("code", [Code.NO_NODE_FITS, Code.GANG_NOT_READY])
def test_its_time_begins_again_when_it_had_another_reason_in_between(code: Code) -> None:
    growing = DelayedReasons()
    growing.take(says("a", code=Code.WAITS_FOR_VICTIMS), 10.0)
    growing.take(says("a", code=code), 15.0)
    assert growing.told_from("a") < 20.0
    growing.take(says("a", code=Code.WAITS_FOR_VICTIMS), 17.0)
    assert growing.told_from("a") == 27.0


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    growing = DelayedReasons()
    growing.take(says("a", "b"), 10.0)
    growing.take(says("c", code=Code.WAITS_FOR_VICTIMS), 10.0)
    growing.forget(("a", "b", "c"))
    assert not growing._evicting_since
    assert not growing._since
    assert not growing._added_at
    assert not growing._members


def always(_: str) -> bool:
    return True


def test_the_first_to_come_has_the_first_turn_and_the_next_one_waits_for_its_own() -> None:
    turns = Turns(per_s=4)
    for uid in ("a", "b", "a"):
        turns.put(uid, "team")
    assert turns.take(10.0, always) == "a"
    assert turns.next_at == 10.25
    assert turns.take(10.2, always) is None
    assert turns.take(10.25, always) == "b"
    assert turns.take(20.0, always) is None


def test_a_pod_that_is_not_due_any_more_takes_no_turn() -> None:
    turns = Turns(per_s=4)
    for uid in ("a", "b", "c"):
        turns.put(uid, "team")
    assert turns.take(10.0, lambda uid: uid == "c") == "c"
    assert turns.next_at == math.inf


def test_where_nobody_is_due_the_next_one_has_its_turn_at_once() -> None:
    turns = Turns(per_s=4)
    turns.put("a", "team")
    assert turns.take(10.0, lambda _: False) is None
    turns.put("b", "team")
    assert turns.take(10.0, always) == "b"


def test_turns_that_nobody_took_are_not_made_up_for() -> None:
    turns = Turns(per_s=4)
    turns.put("a", "team")
    assert turns.take(10.0, always) == "a"
    for uid in ("b", "c"):
        turns.put(uid, "team")
    assert turns.take(100.0, always) == "b"
    assert turns.take(100.0, always) is None


def test_a_namespace_with_many_pods_holds_up_no_other_one() -> None:
    turns = Turns(per_s=1)
    for number in range(1000):
        turns.put(f"flood-{number}", "flood")
    for uid in ("honest-0", "honest-1"):
        turns.put(uid, "honest")
    assert [turns.take(float(second), always) for second in range(5)] == [
        "flood-0",
        "honest-0",
        "flood-1",
        "honest-1",
        "flood-2",
    ]


def test_a_pod_that_is_taken_out_has_no_turn_and_leaves_no_namespace() -> None:
    pods = ByNamespace[str]()
    for uid, namespace in (("a", "one"), ("b", "two"), ("c", "one")):
        pods.put(uid, namespace)
    for uid in ("b", "x"):
        pods.discard(uid)
    assert (len(pods), pods.pop(), pods.pop(), len(pods)) == (2, "a", "c", 0)
    with pytest.raises(StopIteration):
        pods.pop()


def test_a_pod_that_is_queued_keeps_its_place() -> None:
    pods = ByNamespace[str]()
    for uid in ("a", "b", "a"):
        pods.put(uid, "one")
    assert [pods.pop(), pods.pop()] == ["a", "b"]
