"""Direct commits: one write for a whole GPU, join and bind for a further share, and what goes wrong on the way."""

from __future__ import annotations

import pytest

from kube.memory.faults import Fault, once
from kube.resources import PODS
from tests.scheduler import stage
from tests.scheduler.stage import create, find, is_call, phases, pod, settle, share, waits_because, writes
from wire import names


async def test_a_whole_gpu_pod_costs_one_binding_and_one_event() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create(world, pod("a", gpus=1))
        await settle()
        assert phases(world) == {"a": "Running"}
        assert len(writes(world, "scheduler", "pods", "binding")) == 1
        assert len(writes(world, "scheduler", "events")) == 1
        assert not writes(world, "scheduler", "pods", "status")
        assert not writes(world, "binder", "pods")


async def test_a_further_share_joins_the_book_and_binds_without_the_binder() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create(world, share("a"))
        await settle()
        world.server.audit.clear()
        await create(world, share("b"))
        await settle()
        assert find(world, "a")["metadata"]["labels"] == find(world, "b")["metadata"]["labels"]
        assert len(writes(world, "scheduler", "pods", verb="patch")) == 1
        assert len(writes(world, "scheduler", "pods", "binding")) == 1
        assert not writes(world, "scheduler", "bindrequests")


async def test_shares_of_one_decision_enter_a_book_in_one_write() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, share("first", "0.2"))
        await settle()
        world.server.audit.clear()
        await create(world, *(share(f"s{i}", "0.2") for i in range(4)))
        await settle()
        assert set(phases(world).values()) == {"Running"}
        assert len(writes(world, "scheduler", "pods", verb="patch")) <= 2
        assert len(writes(world, "scheduler", "pods", "binding")) == 4


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("wanted", [pod("b", gpus=1), share("b")], ids=["whole", "share"])
async def test_a_binding_without_an_answer_is_settled_by_reading_the_pod(lost: str, wanted: dict[str, object]) -> None:
    async with stage.stage("1x2x80GiB") as world:
        await create(world, share("a"))
        await settle()
        fault = Fault(lost=lost)  # type: ignore[arg-type] # parametrised with the literals
        world.server.faults.on_request.append(once(fault, when=is_call("scheduler", "create", "pods", "binding")))
        await create(world, wanted)
        await settle(40)
        assert phases(world) == {"a": "Running", "b": "Running"}


async def test_a_binding_that_lands_after_its_time_out_is_not_done_twice() -> None:
    async with stage.stage("1x2x80GiB") as world:
        fault = Fault(lost="request", lands_after_s=25.0)
        world.server.faults.on_request.append(once(fault, when=is_call("scheduler", "create", "pods", "binding")))
        await create(world, pod("a", gpus=1))
        await settle(60)
        assert phases(world) == {"a": "Running"}
        assert len(writes(world, "scheduler", "pods", "binding")) == 1


async def test_a_pod_that_is_changed_between_decision_and_binding_is_decided_on_anew() -> None:
    async with stage.stage("1x2x80GiB") as world:
        world.server.faults.on_request.append(
            once(Fault(delay_s=1.0), when=is_call("scheduler", "create", "pods", "binding"))
        )
        await create(world, pod("a", gpus=1))
        await settle(0.5)
        await world.api.patch(PODS, "a", {"metadata": {"annotations": {"note": "changed"}}}, namespace=stage.TEAM)
        await settle()
        assert phases(world) == {"a": "Running"}


async def test_a_pod_deleted_on_its_way_leaves_nothing_in_a_book() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, share("a"))
        await settle()
        world.server.faults.on_request.append(
            once(Fault(delay_s=2.0), when=is_call("scheduler", "create", "pods", "binding"))
        )
        await create(world, share("b"))
        await settle(1)
        await world.api.delete(PODS, "b", namespace=stage.TEAM)
        await settle(20)
        await create(world, share("c"))
        await settle()
        assert phases(world) == {"a": "Running", "c": "Running"}


async def test_a_pod_that_is_gone_is_tried_once_however_late_its_deletion_shows() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await settle(1)
        world.server.faults.on_watch_line.append(lambda call, _: 5.0 if call.user == "scheduler" else 0.0)
        await create(world, pod("a", gpus=1))
        await settle(1)
        await world.api.delete(PODS, "a", namespace=stage.TEAM)
        await settle(20)
        tried = [entry.code for entry in world.server.audit if entry.subresource == "binding"]
        assert tried == [404]


async def test_a_binding_refused_for_good_backs_off_and_says_so() -> None:
    async with stage.stage("1x1x80GiB") as world:
        world.server.faults.on_request.append(
            lambda call: Fault(refuse_with=403) if is_call("scheduler", "create", "pods", "binding")(call) else None
        )
        await create(world, pod("a", gpus=1))
        await settle(60)
        assert phases(world) == {"a": "Pending"}
        assert waits_because(world, "a")
        bindings = [e for e in world.server.audit if e.subresource == "binding"]
        assert len(bindings) < 10
        world.server.faults.clear()
        await settle(120)
        assert phases(world) == {"a": "Running"}


async def test_a_device_that_changed_under_a_group_is_not_joined() -> None:
    async with stage.stage("1x3x80GiB") as world:
        await create(world, share("a"))
        await settle()
        held = next(p for p in world.pods if p["metadata"]["namespace"] == names.RESERVATION_NAMESPACE)
        await stage.api_of(world, "reservation").patch(
            PODS,
            held["metadata"]["name"],
            {"metadata": {"annotations": {names.RESERVE_FOR_GPU_INDEX: "GPU-somebody-elses"}}},
            namespace=names.RESERVATION_NAMESPACE,
        )
        await create(world, share("b"))
        await settle(30)
        groups = {find(world, name)["metadata"]["labels"][names.GPU_GROUP_LABEL] for name in ("a", "b")}
        assert len(groups) == 2


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
async def test_a_binder_whose_wall_clock_is_wrong_takes_no_join_for_abandoned(ahead_s: int) -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, share("first", "0.2"))
        await settle()
        world.clocks["binder"].ahead_ns = ahead_s * 1_000_000_000
        slow = is_call("scheduler", "create", "pods", "binding")
        world.server.faults.on_request.append(lambda call: Fault(delay_s=6) if slow(call) else None)
        await create(world, share("second", "0.2"))
        await settle(30)
        assert phases(world) == {"first": "Running", "second": "Running"}
        assert not writes(world, "binder", "pods", "status")


async def test_a_join_whose_scheduler_died_is_taken_back_whatever_the_wall_clocks_say() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, share("first", "0.2"))
        await settle()
        world.clocks["binder"].ahead_ns = -3600 * 1_000_000_000
        posting = is_call("scheduler", "create", "pods", "binding")
        world.server.faults.on_request.append(lambda call: Fault(lost="request") if posting(call) else None)
        await create(world, share("second", "0.2"))
        await settle(2)
        world.scheduler.crash()
        await settle(60)
        held = next(p for p in world.pods if p["metadata"]["namespace"] == names.RESERVATION_NAMESPACE)
        assert stage.find(world, "second")["metadata"]["uid"] not in held["metadata"]["annotations"][names.TENANTS]
        world.server.faults.clear()
        await world.restart(world.scheduler)
        await settle(60)
        assert phases(world) == {"first": "Running", "second": "Running"}
