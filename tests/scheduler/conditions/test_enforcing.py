"""The condition of bound pods whose node can't hold them to what they wish: once, and only there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from admission.settings import Choices
from admission.settings import Settings as AdmissionSettings
from binder.settings import BinderSettings
from gpu.container_devices import Cdi
from gpu.dialects.settings import DialectSettings
from gpu.limits import MemoryCaps
from kube.client.resources import EVENTS, GPU_NODES, NAMESPACES, NODES, PODS
from scheduler.settings import SchedulerSettings
from simulator.apiserver.faults import Fault
from simulator.apiserver.types import MOORAGE
from simulator.clock import VirtualClock
from simulator.installation import SERVICE_ACCOUNTS
from simulator.nodes import containers as environment
from simulator.world import World, WorldSettings
from tests.gpu import memoryhook
from tests.scheduler import stage
from tests.scheduler.stage import TEAM, create, find, is_call, phases, pod, settle, share, strike_all, writes
from wire import core, names
from wire.rfc3339 import rfc3339

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
        strike_all(world, is_call("scheduler", "patch", "pods", "status"), Fault(refuse_with=503))
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


# The condition of pods with memory caps, by what agents report: on change, not for long, and never by a dead one.

SETTINGS = WorldSettings(
    seed=1,
    scheduler=SchedulerSettings(memory_caps=MemoryCaps.ALL, follows_use=True),
    binder=BinderSettings(memory_caps=MemoryCaps.ALL),
)


@asynccontextmanager
async def node_with_agent(enforced: str = "kill") -> AsyncIterator[World]:
    """One node with an agent, and pod a, which has half of its GPU and a cap."""
    async with stage.stage("1x1x40GiB", settings=SETTINGS, before=lambda w: w.server.define(MOORAGE[0])) as world:
        await world.api.create(NAMESPACES, {"metadata": {"name": names.NODE_NAMESPACE}})
        account = {"metadata": {"name": names.NODE_AGENT_SERVICE_ACCOUNT}}
        await world.api.create(SERVICE_ACCOUNTS, account, namespace=names.NODE_NAMESPACE)
        spec = {
            "nodeName": "node-0",
            "serviceAccountName": names.NODE_AGENT_SERVICE_ACCOUNT,
            "containers": [{"name": "c", "image": "i"}],
        }
        await world.api.create(PODS, {"metadata": {"name": "agent"}, "spec": spec}, namespace=names.NODE_NAMESPACE)
        await world.api.create(GPU_NODES, {"metadata": {"name": "node-0"}})
        await ready(world, "True")
        await create(world, share("a", mps="false"))
        await settle(30)
        await report(world, enforced)
        await settle(60)
        yield world


async def ready(world: World, status: str) -> None:
    condition = {
        "type": "Ready",
        "status": status,
        "lastTransitionTime": rfc3339(VirtualClock(asyncio.get_running_loop()).now_ns()),
    }
    body = {"status": {"conditions": [condition]}}
    await world.api.patch(PODS, "agent", body, namespace=names.NODE_NAMESPACE, subresource="status")


async def report(world: World, enforced: str, *, why: str = "") -> None:
    (held,) = (await world.api.list(PODS, namespace=names.RESERVATION_NAMESPACE)).items
    card = (held.metadata.annotations or {})[names.RESERVE_FOR_GPU_INDEX]
    tenant = {"podUID": find(world, "a")["metadata"]["uid"], "pod": f"{TEAM}/a", "card": card, "enforced": enforced}
    agent: dict[str, Any] = {"backEnds": ["kill"] if enforced else None, "missing": None}
    if why:
        agent["missing"] = [{"what": "memory caps", "why": why}]
    status = {"tenants": [tenant], "agent": agent}
    await world.api.patch(GPU_NODES, "node-0", {"status": status}, subresource="status")


def caps_in_place_told(world: World, name: str = "a") -> list[tuple[str, str]]:
    found = find(world, name)["status"].get("conditions") or []
    return [(c["status"], c["reason"]) for c in found if c["type"] == names.CONDITION_LIMITS_ENFORCED]


def count(world: World) -> int:
    return len(writes(world, "scheduler", "pods", "status"))


async def test_a_cap_that_the_agent_saw_in_place_is_told_once() -> None:
    async with node_with_agent() as world:
        assert caps_in_place_told(world) == [("True", "EnforcedByKilling")]
        before = len(world.server.write_log)
        await settle(3600)
        assert len(world.server.write_log) == before
        kinds = {c["type"] for c in find(world, "a")["status"]["conditions"]}
        assert {"Ready", names.CONDITION_POD_SCHEDULED} <= kinds


async def test_an_enforcer_that_is_gone_is_told_of_after_half_a_minute_with_an_event() -> None:
    async with node_with_agent() as world:
        await report(world, "", why="no memory enforcer: it closed the connection")
        await settle(20)
        assert caps_in_place_told(world) == [("True", "EnforcedByKilling")]
        await settle(30)
        assert caps_in_place_told(world) == [("False", "NotInPlace")]
        events = await world.api.list(EVENTS, namespace=TEAM)
        (note,) = [each.note for each in events.items if each.reason == names.REASON_LIMITS_NOT_IN_PLACE]
        assert note.endswith("is not enforced now: no memory enforcer: it closed the connection")
        await report(world, "kill")
        await settle(30)
        assert caps_in_place_told(world) == [("True", "EnforcedByKilling")]


async def test_a_short_pause_of_an_enforcer_changes_no_pod() -> None:
    async with node_with_agent() as world:
        written = count(world)
        for _ in range(5):
            await report(world, "")
            await settle(20)
            await report(world, "kill")
            await settle(20)
        assert count(world) == written


async def test_an_agent_that_does_not_work_for_minutes_makes_it_unknown_and_a_new_one_at_once_does_not() -> None:
    async with node_with_agent() as world:
        written = count(world)
        await ready(world, "False")
        await settle(200)
        await ready(world, "True")
        await settle(600)
        assert (caps_in_place_told(world), count(world)) == ([("True", "EnforcedByKilling")], written)
        await ready(world, "False")
        await settle(400)
        assert caps_in_place_told(world) == [("Unknown", "AgentNotReady")]
        await ready(world, "True")
        await settle(60)
        assert caps_in_place_told(world) == [("True", "EnforcedByKilling")]
        assert count(world) == written + 2


async def test_a_new_version_of_agents_changes_no_pod_however_old_the_report() -> None:
    async with node_with_agent() as world:
        written = count(world)
        old = rfc3339(VirtualClock(asyncio.get_running_loop()).now_ns() - 86_400 * 10**9)
        await world.api.patch(GPU_NODES, "node-0", {"status": {"reportedAt": old}}, subresource="status")
        spec = (await world.api.get(PODS, "agent", namespace=names.NODE_NAMESPACE)).spec
        await world.api.delete(PODS, "agent", namespace=names.NODE_NAMESPACE)
        await settle(20)
        # The next one has no condition before kubelet has written one.
        body = {"metadata": {"name": "agent"}, "spec": {**msgspec.to_builtins(spec), "nodeName": "node-0"}}
        await world.api.create(PODS, body, namespace=names.NODE_NAMESPACE)
        await settle(60)
        await ready(world, "True")
        await settle(600)
        assert (caps_in_place_told(world), count(world)) == ([("True", "EnforcedByKilling")], written)


@pytest.mark.thorough
async def test_a_report_that_changes_all_the_time_changes_a_pod_ever_more_seldom() -> None:
    """As the token of an agent could have it, which was taken from its node."""
    async with node_with_agent() as world:
        before = count(world)
        for _ in range(90):
            await report(world, "driver")
            await settle(20)
            await report(world, "kill")
            await settle(20)
        assert 5 < count(world) - before < 12
        await settle(1_800)
        assert caps_in_place_told(world) == [("True", "EnforcedByKilling")]


async def test_a_new_pod_on_a_node_whose_agent_has_been_away_says_that_nobody_knows() -> None:
    async with node_with_agent() as world:
        at = "2026-01-01T00:00:00Z"
        await world.api.patch(GPU_NODES, "node-0", {"status": {"reportedAt": at}}, subresource="status")
        await ready(world, "False")
        await settle(1_000)
        await create(world, share("b", mps="false"))
        await settle(20)
        assert caps_in_place_told(world, "b") == []
        await settle(40)
        assert caps_in_place_told(world, "b") == [("Unknown", "AgentNotReady")]
        (message,) = [
            c["message"] for c in find(world, "b")["status"]["conditions"] if c.get("reason") == "AgentNotReady"
        ]
        assert message.endswith(f"; its last report is of {at}")
        before = len(world.server.write_log)
        await settle(3_600)
        assert len(world.server.write_log) == before
        await ready(world, "True")
        await settle(60)
        assert caps_in_place_told(world, "b") == [("False", "NotInPlace")]


# Hard memory caps from admission to the container's environment, through the API server in memory.

DRIVER_CAPS_SETTINGS = WorldSettings(
    seed=1, admission=AdmissionSettings(choices=Choices(dialects=DialectSettings(driver_memory_caps=True)))
)


def asking(name: str, mib: int, env: list[dict[str, str]] | None = None, *, containers: int = 1) -> dict[str, Any]:
    wanted = pod(name)
    wanted["spec"]["containers"] = [
        {
            "name": f"c{index}",
            "image": "cuda-app",
            "env": env or [],
            "resources": {"limits": {"nvidia.com/gpumem": str(mib + index)}},
        }
        for index in range(containers)
    ]
    return wanted


def limits(world: World, name: str) -> list[tuple[int, int] | None]:
    """What the hook would set for each container."""
    read = msgspec.convert(find(world, name), core.Pod)
    found = []
    for container in read.spec.containers:
        made = environment.resolve(read, container, sources={}, assigned=(), image={})
        assert isinstance(made, dict)
        found.append(memoryhook.limits(made))
    return found


async def test_a_pod_waits_for_a_node_whose_driver_caps_and_its_containers_read_their_caps_there() -> None:
    async with stage.stage("1x2x40GiB", settings=DRIVER_CAPS_SETTINGS) as world:
        await annotate(world, "memory-cap")
        await create(world, asking("a", 3000, containers=2))
        await settle(30)
        assert "1 node(s) have no GPU memory caps by the driver" in stage.waits_because(world, "a")
        await annotate(world, "memory-cap=driver")
        await settle(30)
        assert phases(world) == {"a": "Running"}
        assert limits(world, "a") == [(0, 3000), (0, 3001)]
        assert told(world, "a") == []


async def test_a_node_that_loses_the_word_while_a_pod_is_being_bound_does_not_get_it() -> None:
    async with stage.stage("1x2x40GiB", settings=DRIVER_CAPS_SETTINGS) as world:
        await annotate(world, "memory-cap=driver")
        await create(world, asking("a", 3000))
        await settle(0.5)
        # Its reservation is there, and its device is not told yet.
        assert writes(world, "binder", "pods")
        assert not writes(world, "binder", "pods", "binding")
        await annotate(world, "memory-cap")
        await settle(60)
        assert phases(world) == {"a": "Pending"}
        assert writes(world, "binder", "pods", "binding") == []
        because = find(world, "a")["metadata"]["annotations"][names.FENCED_BECAUSE]
        assert because == "NotEnforced: node node-0 does not say memory-cap=driver any more"
        assert "1 node(s) have no GPU memory caps by the driver" in stage.waits_because(world, "a")
        await annotate(world, "memory-cap=driver")
        await settle(60)
        assert phases(world) == {"a": "Running"}
        assert limits(world, "a") == [(0, 3000)]


async def test_a_limit_of_the_pods_own_is_overridden() -> None:
    own = [{"name": name, "value": "39000"} for name in (names.ENV_MEMORY_LIMIT, names.ENV_MEMORY_REQUEST)]
    async with stage.stage("1x2x40GiB", settings=DRIVER_CAPS_SETTINGS) as world:
        await annotate(world, "memory-cap=driver")
        share = stage.share("b")
        share["spec"]["containers"][0]["env"] = own
        await create(world, asking("a", 3000, own), share)
        await settle(30)
        assert phases(world) == {"a": "Running", "b": "Running"}
        assert limits(world, "a") == [(0, 3000)]
        # KAI's fraction wishes no cap, and may take no memory from its neighbours by a soft limit.
        assert limits(world, "b") == [None]


@pytest.mark.parametrize("enforces", ["", "memory-cap=driver"])
async def test_a_pod_that_reads_no_cap_is_told_that_none_holds(enforces: str) -> None:
    """Where caps by the driver are off, the node's word is about other pods."""
    async with stage.stage("1x2x40GiB") as world:
        await annotate(world, enforces)
        await create(world, asking("a", 3000))
        await settle(30)
        assert limits(world, "a") == [None]
        message = "Node node-0 does not enforce a memory cap of 3000 MiB"
        [(_, _, said)] = told(world, "a")
        assert said.startswith(message)
        assert len(writes(world, "scheduler", "pods", "status")) == 1


async def test_who_leads_next_tells_that_the_node_says_it_no_more() -> None:
    async with stage.stage("1x2x40GiB", settings=DRIVER_CAPS_SETTINGS) as world:
        await annotate(world, "memory-cap=driver")
        await create(world, asking("a", 3000))
        await settle(30)
        await annotate(world, "")
        await world.restart(world.scheduler)
        await settle(30)
        [(_, _, said)] = told(world, "a")
        assert said.startswith("Node node-0 does not enforce a memory cap by the driver of 3000 MiB")
