"""The condition of bound pods whose node can't hold them to what they wish: once, and only there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.container_devices import Cdi
from gpu.limits import MemoryCaps
from kube.client.resources import NODES
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import create, find, is_call, phases, pod, settle, share, writes
from wire import names

MEMORY, COMPUTE = "a memory cap of 8000 MiB", "a compute cap of 30%"
TOLD = "Node node-0 does not enforce mode mps: kept as bookkeeping only"


def wishing(name: str, mps: str = "true") -> dict[str, Any]:
    """A share that says that it runs under MPS."""
    return share(name, mps=mps)


async def annotate(world: World, enforces: str) -> None:
    patch = {"metadata": {"annotations": {names.NODE_ENFORCES: enforces}}}
    await world.api.patch(NODES, "node-0", patch)


def conditions(world: World, name: str) -> list[dict[str, Any]]:
    """Its conditions of this type."""
    found = find(world, name)["status"].get("conditions") or []
    return [c for c in found if c["type"] == names.CONDITION_LIMITS_ENFORCED]


def told(world: World, name: str) -> list[tuple[str, str, str]]:
    return [(c["status"], c["reason"], c["message"]) for c in conditions(world, name)]


@pytest.mark.parametrize(
    ("enforces", "mps", "messages"),
    [
        pytest.param("", "true", [TOLD], id="nothing"),
        pytest.param("memory-cap,hami-core", "true", [TOLD], id="something else"),
        pytest.param("memory-cap,mps", "true", [], id="what is wished"),
        pytest.param("", "false", [], id="nothing is wished"),
    ],
)
async def test_a_bound_pod_says_what_its_node_does_not_enforce(enforces: str, mps: str, messages: list[str]) -> None:
    async with stage.stage("1x2x40GiB") as world:
        await annotate(world, enforces)
        await create(world, wishing("a", mps))
        await settle(30)
        assert phases(world) == {"a": "Running"}
        assert told(world, "a") == [("False", names.REASON_NOT_ENFORCED, message) for message in messages]
        assert len(writes(world, "scheduler", "pods", "status")) == len(messages)


def limited(name: str, **limits: str) -> dict[str, Any]:
    """A share with these resources of HAMi, in Mi and percent."""
    made = pod(name)
    resources = {f"nvidia.com/{resource}": value for resource, value in limits.items()}
    made["spec"]["containers"] = [{"name": "c0", "image": "cuda-app", "resources": {"limits": resources}}]
    return made


@pytest.mark.parametrize(
    ("cdi", "memory_caps", "limits", "lacks"),
    [
        (Cdi.OFF, MemoryCaps.WISHED, {"gpumem": "8000", "gpucores": "30"}, f"{MEMORY}, {COMPUTE}"),
        (Cdi.OFF, MemoryCaps.WISHED, {"gpumem": "8000"}, MEMORY),
        (Cdi.OFF, MemoryCaps.WISHED, {"gpucores": "30"}, COMPUTE),
        (Cdi.ON, MemoryCaps.NONE, {"gpumem": "8000"}, MEMORY),
        (Cdi.ON, MemoryCaps.WISHED, {"gpumem": "8000", "gpucores": "30"}, ""),
    ],
)
async def test_a_pod_that_was_not_given_the_agents_limits_says_so(
    cdi: Cdi, memory_caps: MemoryCaps, limits: dict[str, str], lacks: str
) -> None:
    plain = WorldSettings(seed=1)
    settings = msgspec.structs.replace(
        plain,
        binder=msgspec.structs.replace(plain.binder, cdi=cdi, memory_caps=memory_caps),
        scheduler=msgspec.structs.replace(plain.scheduler, cdi=cdi, memory_caps=memory_caps),
    )
    async with stage.stage("1x2x40GiB", settings=settings) as world:
        await annotate(world, "memory-cap=hami-core,compute-cap=hami-core")
        await create(world, limited("a", **limits))
        await settle(30)
        assert phases(world) == {"a": "Running"}
        message = f"Node node-0 does not enforce {lacks}: kept as bookkeeping only"
        assert told(world, "a") == ([("False", names.REASON_NOT_ENFORCED, message)] if lacks else [])


def mps_settings() -> WorldSettings:
    """Caps in books and devices by CDI: all that limits by MPS need of the control plane."""
    plain = WorldSettings(seed=1)
    given = {"cdi": Cdi.ON, "memory_caps": MemoryCaps.WISHED}
    return msgspec.structs.replace(
        plain,
        binder=msgspec.structs.replace(plain.binder, **given),
        scheduler=msgspec.structs.replace(plain.scheduler, **given),
    )


def of_containers(name: str, *limits: dict[str, str]) -> dict[str, Any]:
    """A pod with a container for each of these limits."""
    made = pod(name)
    containers = [limited(name, **each)["spec"]["containers"][0] | {"name": f"c{n}"} for n, each in enumerate(limits)]
    made["spec"]["containers"] = containers
    return made


SHARE = {"gpumem": "8000", "gpucores": "30"}


@pytest.mark.parametrize(
    ("what", "containers", "lacks"),
    [
        ("one share", [SHARE], ""),
        ("shares of two GPUs", [{"gpu": "2", **SHARE}], f"{MEMORY}, {COMPUTE}"),
        ("shares in two containers", [SHARE, SHARE], f"{MEMORY}, {COMPUTE}"),
    ],
)
async def test_a_pod_that_mps_does_not_serve_says_so_and_goes_elsewhere_if_it_insists(
    what: str, containers: list[dict[str, str]], lacks: str
) -> None:
    async with stage.stage("1x2x40GiB", settings=mps_settings()) as world:
        await annotate(world, "memory-cap=mps,compute-cap=mps")
        await create(world, of_containers("a", *containers))
        insisting = of_containers("b", *containers)
        insisting["metadata"].setdefault("annotations", {})[names.REQUIRE_ENFORCEMENT] = "true"
        await create(world, insisting)
        await settle(30)
        message = f"Node node-0 does not enforce {lacks}: kept as bookkeeping only"
        assert told(world, "a") == ([("False", names.REASON_NOT_ENFORCED, message)] if lacks else []), what
        assert phases(world) == {"a": "Running", "b": "Pending" if lacks else "Running"}
        if lacks:
            assert "1 node(s) do not enforce the GPU limits" in stage.waits_because(world, "b")


async def test_others_conditions_stay_and_the_pod_is_told_once() -> None:
    async with stage.stage("1x2x40GiB") as world:
        await create(world, wishing("a"))
        await settle(30)
        kinds = {c["type"] for c in find(world, "a")["status"]["conditions"]}
        assert {"Ready", names.CONDITION_POD_SCHEDULED, names.CONDITION_LIMITS_ENFORCED} <= kinds
        before = len(world.server.write_log)
        await settle(600)
        assert len(world.server.write_log) == before


@pytest.mark.parametrize(
    "fault",
    [
        Fault(refuse_with=500),
        Fault(refuse_with=409),
        Fault(lost="request", breaks=True),
        Fault(lost="answer", breaks=True),
    ],
    ids=["refused", "met another", "lost", "done unheard"],
)
async def test_a_write_that_failed_is_repeated(fault: Fault) -> None:
    async with stage.stage("1x2x40GiB") as world:
        hits = is_call("scheduler", "patch", "pods", "status")
        left = [fault] * (1 if fault.is_carried_out else 3)
        world.server.faults.on_request.append(lambda call: left.pop() if left and hits(call) else None)
        await create(world, wishing("a"))
        await settle(60)
        assert left == []
        assert [message for _, _, message in told(world, "a")] == [TOLD]


async def test_who_leads_next_tells_only_whom_nobody_told() -> None:
    async with stage.stage("1x2x40GiB") as world:
        await create(world, wishing("a"))
        await settle(30)
        hits = is_call("scheduler", "patch", "pods", "status")
        world.server.faults.on_request.append(lambda call: Fault(refuse_with=503) if hits(call) else None)
        await create(world, wishing("b"))
        await settle(30)
        assert (len(told(world, "a")), len(told(world, "b"))) == (1, 0)
        world.scheduler.crash()
        world.server.faults.clear()
        await world.restart(world.scheduler)
        await settle(60)
        assert (len(told(world, "a")), len(told(world, "b"))) == (1, 1)
        assert len(writes(world, "scheduler", "pods", "status")) == 2


async def test_a_pod_that_insists_waits_until_the_node_enforces_it() -> None:
    async with stage.stage("1x2x40GiB") as world:
        await create(world, share("a", **{"mps": "true", names.REQUIRE_ENFORCEMENT: "true"}))
        await settle(30)
        assert "1 node(s) do not enforce the GPU limits" in stage.waits_because(world, "a")
        await annotate(world, "mps")
        await settle(30)
        assert phases(world) == {"a": "Running"}
        assert told(world, "a") == []
