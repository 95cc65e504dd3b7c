"""Direct commits: one write for a whole GPU, join and bind for a further share, and what goes wrong on the way."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gpu.container_devices import Cdi
from gpu.limits import MemoryCaps
from kube.client.resources import NODES, PODS
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import (
    BINDING,
    create,
    find,
    phases,
    pod,
    settle,
    share,
    strike,
    strike_all,
    waits_because,
    writes,
)
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


async def test_with_cdi_binder_and_scheduler_name_devices_alike_and_a_further_share_is_let_in_as_ever() -> None:
    plain = WorldSettings(seed=1)
    settings = msgspec.structs.replace(
        plain,
        binder=msgspec.structs.replace(plain.binder, cdi=Cdi.ON),
        scheduler=msgspec.structs.replace(plain.scheduler, cdi=Cdi.ON),
    )
    async with stage.stage("1x1x80GiB", settings=settings) as world:
        await create(world, share("first"))
        await settle()
        await create(world, share("further"))
        await settle()
        assert set(phases(world).values()) == {"Running"}
        assert not writes(world, "scheduler", "bindrequests", verb="create")[1:]
        for name in ("first", "further"):
            annotations = find(world, name)["metadata"]["annotations"]
            (device,) = json.loads(annotations[names.GRANT])["devices"]
            assert annotations[f"{names.VISIBLE_DEVICES_PREFIX}c0"] == names.CDI_DEVICE_PREFIX + device["uuid"]


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
        strike(world, BINDING, fault)
        await create(world, wanted)
        await settle(40)
        assert phases(world) == {"a": "Running", "b": "Running"}


async def test_a_binding_that_lands_after_its_time_out_is_not_done_twice() -> None:
    async with stage.stage("1x2x80GiB") as world:
        fault = Fault(lost="request", lands_after_s=25.0)
        strike(world, BINDING, fault)
        await create(world, pod("a", gpus=1))
        await settle(60)
        assert phases(world) == {"a": "Running"}
        assert len(writes(world, "scheduler", "pods", "binding")) == 1


async def test_a_pod_that_is_changed_between_decision_and_binding_is_decided_on_anew() -> None:
    async with stage.stage("1x2x80GiB") as world:
        strike(world, BINDING, Fault(delay_s=1.0))
        await create(world, pod("a", gpus=1))
        await settle(0.5)
        await world.api.patch(PODS, "a", {"metadata": {"annotations": {"note": "changed"}}}, namespace=stage.TEAM)
        await settle()
        assert phases(world) == {"a": "Running"}


async def test_a_pod_deleted_on_its_way_leaves_nothing_in_a_book() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, share("a"))
        await settle()
        strike(world, BINDING, Fault(delay_s=2.0))
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


async def test_a_pod_that_goes_between_decision_and_join_breaks_nothing_off(caplog: pytest.LogCaptureFixture) -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, share("first", "0.2"))
        await settle()
        for after_ms in range(12):
            await create(world, share("brief", "0.2"))
            await settle(after_ms / 1000)
            await world.api.delete(PODS, "brief", namespace=stage.TEAM, grace_s=0)
            await settle(60)
        assert [record.message for record in caplog.records if "broken off" in record.message] == []


@pytest.mark.parametrize("wanted", [pod("b", gpus=1), share("b")], ids=["whole", "share"])
async def test_a_pod_whose_commit_was_broken_off_is_bound_after_all(wanted: dict[str, Any]) -> None:
    async with stage.stage("1x2x80GiB") as world:
        await create(world, share("a"))
        await settle()
        struck = stage.break_off(world, BINDING)
        await create(world, wanted)
        await settle(5)
        assert (struck, phases(world)["b"]) == (["create pods"], "Pending")
        await settle(60)
        assert phases(world) == {"a": "Running", "b": "Running"}


async def test_a_binding_refused_for_good_backs_off_and_says_so() -> None:
    async with stage.stage("1x1x80GiB") as world:
        world.server.faults.on_request.append(lambda call: Fault(refuse_with=403) if BINDING(call) else None)
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
        strike_all(world, BINDING, Fault(delay_s=6))
        await create(world, share("second", "0.2"))
        await settle(30)
        assert phases(world) == {"first": "Running", "second": "Running"}
        assert not writes(world, "binder", "pods", "status")


async def test_a_join_whose_scheduler_died_is_taken_back_whatever_the_wall_clocks_say() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, share("first", "0.2"))
        await settle()
        world.clocks["binder"].ahead_ns = -3600 * 1_000_000_000
        strike_all(world, BINDING, Fault(lost="request"))
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


# --- pods in the words of other systems ---------------------------------------------------------------------------


def foreign(name: str, *limits: dict[str, str], **annotations: str) -> dict[str, Any]:
    """A pod whose containers name these resources."""
    made = pod(name, annotations=annotations)
    made["spec"]["containers"] = [
        {"name": f"c{number}", "image": "cuda-app", "resources": {"limits": limit}}
        for number, limit in enumerate(limits)
    ]
    return made


#: Keys whose values are times, of the second or the nanosecond of the Binding.
TIMES = {
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
    "hami.io/vgpu-time",
    "volcano.sh/vgpu-time",
    "volcano.sh/bind-time",
    "volcano.sh/predicate-time",
}


def written(world: World, name: str) -> dict[str, str]:
    """Annotations of a pod without what is another in each."""
    annotations: dict[str, str] = find(world, name)["metadata"]["annotations"]
    return {key: "" if key in TIMES else value for key, value in annotations.items() if key != names.GRANT}


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (({"aliyun.com/gpu-mem": "8"}, {"aliyun.com/gpu-mem": "4"}), "ALIYUN_COM_GPU_MEM_POD"),
        (({"cnvrg.io/metagpu": "30"},), "env.moorage.dev/c0.METAGPU_MAX_MEM"),
        (({"nvidia.com/gpumem": "8000"}, {}, {"nvidia.com/gpumem": "4000"}), "hami.io/vgpu-devices-allocated"),
        (({"volcano.sh/vgpu-memory": "8000"},), "volcano.sh/vgpu-ids-new"),
        (({"volcano.sh/gpu-memory": "8000"},), "volcano.sh/gpu-index"),
        (({"koordinator.sh/gpu": "30"},), "scheduling.koordinator.sh/device-allocated"),
    ],
)
async def test_direct_commits_and_the_binder_write_the_same_back(limits: tuple[dict[str, str], ...], said: str) -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, foreign("by-the-binder", *limits))
        await settle()
        world.server.audit.clear()
        await create(world, foreign("direct", *limits))
        await settle()
        assert phases(world) == {"by-the-binder": "Running", "direct": "Running"}
        assert len(writes(world, "scheduler", "pods", "binding")) == 1
        assert written(world, "direct") == written(world, "by-the-binder")
        assert written(world, "direct")[said]


@pytest.mark.parametrize(
    ("there", "asks", "is_together", "by_the_binder"),
    [
        ((), ("30000", "20000"), True, True),
        ((), ("50000", "40000"), False, True),
        (("20000",), ("30000", "20000"), True, False),
        (("40000", "50000"), ("30000", "20000"), False, False),
    ],
)
async def test_the_alternative_that_was_taken_is_written_back(
    there: tuple[str, ...], asks: tuple[str, str], is_together: bool, by_the_binder: bool
) -> None:
    """H16: together where one card has room for both, else apart."""
    async with stage.stage("1x2x80GiB") as world:
        for number, mem_mib in enumerate(there):
            await create(world, foreign(f"there-{number}", {"nvidia.com/gpumem": mem_mib}))
            await settle()
        world.server.audit.clear()
        await create(world, foreign("asked", *({"nvidia.com/gpumem": mem_mib} for mem_mib in asks)))
        await settle()
        assert len(writes(world, "binder" if by_the_binder else "scheduler", "pods", "binding")) == 1
        first, second = allocated(world, "asked")
        assert (first == second) is is_together


def allocated(world: World, name: str) -> list[str]:
    """UUIDs of a HAMi pod's two containers."""
    text = find(world, name)["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
    return [each.split(",")[0] for each in text.split(";") if each]


async def test_a_pod_whose_record_is_another_by_the_time_it_is_bound_is_not_bound_to_what_it_asked_before() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, foreign("first", {"nvidia.com/gpumem": "1000"}))
        await settle()
        strike(world, BINDING, Fault(delay_s=1.0))
        await create(world, foreign("b", {"nvidia.com/gpumem": "1000"}))
        await settle(0.5)
        record = find(world, "b")["metadata"]["annotations"][names.GPU_RECORD].replace("1000", "2000")
        edit = {"metadata": {"annotations": {names.GPU_RECORD: record}}}
        await stage.api_of(world, "scheduler").patch(PODS, "b", edit, namespace=stage.TEAM)
        await settle()
        assert phases(world)["b"] == "Running"
        assert written(world, "b")["env.moorage.dev/c0.CUDA_DEVICE_MEMORY_LIMIT_0"] == "2000m"


@pytest.mark.parametrize(
    ("memory_caps", "words", "given"),
    [
        (MemoryCaps.ALL, "memory-cap=hami-core", True),
        (MemoryCaps.WISHED, "memory-cap=hami-core", False),
        (MemoryCaps.ALL, "memory-cap,hami-core", False),
    ],
)
async def test_where_the_agent_limits_tenants_containers_are_given_the_limits_of_their_pod(
    memory_caps: MemoryCaps, words: str, given: bool
) -> None:
    plain = WorldSettings(seed=1)
    settings = msgspec.structs.replace(
        plain,
        binder=msgspec.structs.replace(plain.binder, cdi=Cdi.ON, memory_caps=memory_caps),
        scheduler=msgspec.structs.replace(plain.scheduler, cdi=Cdi.ON, memory_caps=memory_caps),
    )
    async with stage.stage("1x1x80GiB", settings=settings) as world:
        await world.api.patch(NODES, "node-0", {"metadata": {"annotations": {names.NODE_ENFORCES: words}}})
        await settle()
        for name in ("by-the-binder", "direct"):
            await create(world, share(name))
            await settle()
            found = find(world, name)
            (device,) = json.loads(found["metadata"]["annotations"][names.GRANT])["devices"]
            own = f",moorage.dev/limits={found['metadata']['uid']}" if given else ""
            told = found["metadata"]["annotations"][f"{names.VISIBLE_DEVICES_PREFIX}c0"]
            assert told == f"{names.CDI_DEVICE_PREFIX}{device['uuid']}{own}"
        assert set(phases(world).values()) == {"Running"}


@pytest.mark.parametrize(("cdi", "annotated"), [(Cdi.ON, "true"), (Cdi.ON, "false"), (Cdi.OFF, "true")])
async def test_where_the_agent_shows_tenants_their_shares_containers_are_given_the_socket_of_their_pod(
    cdi: Cdi, annotated: str
) -> None:
    plain = WorldSettings(seed=1)
    settings = msgspec.structs.replace(
        plain,
        binder=msgspec.structs.replace(plain.binder, cdi=cdi),
        scheduler=msgspec.structs.replace(plain.scheduler, cdi=cdi),
    )
    async with stage.stage("1x1x80GiB", settings=settings) as world:
        patch = {"metadata": {"annotations": {names.NODE_TENANT_VIEW: annotated}}}
        await world.api.patch(NODES, "node-0", patch)
        await settle()
        for name in ("by-the-binder", "direct"):
            await create(world, share(name))
            await settle()
            found = find(world, name)
            (device,) = json.loads(found["metadata"]["annotations"][names.GRANT])["devices"]
            own = f",moorage.dev/view={found['metadata']['uid']}" if (cdi, annotated) == (Cdi.ON, "true") else ""
            prefix = names.CDI_DEVICE_PREFIX if cdi is Cdi.ON else ""
            assert found["metadata"]["annotations"][f"{names.VISIBLE_DEVICES_PREFIX}c0"] == (
                f"{prefix}{device['uuid']}{own}"
            )
        assert set(phases(world).values()) == {"Running"}
