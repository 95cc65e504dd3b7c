"""A whole simulated cluster for tests of the scheduler's shell, and short ways to say what they do to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec

from kube.client.api import Api
from kube.client.resources import NODES, POD_GROUPS, PODS
from kube.client.retry import Retry
from simulator.apiserver.calls import AuditEntry, Call
from simulator.apiserver.faults import Fault
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock
from simulator.components import PRODUCT, Parts
from simulator.nodes import shape
from simulator.nodes.shape import NodeShape
from simulator.world import World, WorldSettings
from wire import names

TEAM = "team-a"


@asynccontextmanager
async def stage(
    *shapes: str | NodeShape,
    settings: WorldSettings | None = None,
    parts: Parts = PRODUCT,
    before: Callable[[World], object] = lambda _: None,
) -> AsyncIterator[World]:
    """Run a cluster of these nodes; at the end every invariant must have held. ``before``: done before it starts."""
    clock = VirtualClock(asyncio.get_running_loop())
    nodes = [*shape.parse([each for each in shapes if isinstance(each, str)])]
    nodes += [each for each in shapes if isinstance(each, NodeShape)]
    world = World(nodes, clock=clock, settings=settings or WorldSettings(seed=1), parts=parts)
    before(world)
    async with world:
        yield world
        broken = {key: told for key, told in world.finish().items() if told not in SOUND}
        assert broken == {}, broken


def pod(name: str, *, annotations: dict[str, str] | None = None, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """A pod as a user writes it."""
    container: dict[str, Any] = {"name": "main", "image": "cuda-app"}
    if gpus:
        container["resources"] = {"limits": {names.GPU_RESOURCE: str(gpus)}}
    return {
        "metadata": {"name": name, "namespace": TEAM, "annotations": annotations or {}},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **spec},
    }


def share(name: str, fraction: str = "0.5", **annotations: str) -> dict[str, Any]:
    """A pod that asks for a part of a GPU."""
    return pod(name, annotations={names.GPU_FRACTION: fraction, **annotations})


async def create(world: World, *pods: dict[str, Any]) -> None:
    """Create pods."""
    for wanted in pods:
        await world.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **wanted}, namespace=TEAM)


async def create_gang(world: World, name: str, minimum: int, *pods: dict[str, Any]) -> None:
    """Create a PodGroup and its pods."""
    group = {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {"name": name},
        "spec": {"minMember": minimum},
    }
    await world.api.create(POD_GROUPS, group, namespace=TEAM)
    for wanted in pods:
        wanted["metadata"]["annotations"][names.POD_GROUP_NAME] = name
    await create(world, *pods)


def api_of(world: World, user: str) -> Api:
    """The API server as somebody else uses it, for what users may not write."""
    return Api(world.server.transport(user), retry=Retry(random.Random(1)))


async def cordon(world: World, node: str, *, is_closed: bool = True) -> None:
    """Cordon a node, or open it again."""
    await world.api.patch(NODES, node, {"spec": {"unschedulable": is_closed}})


def find(world: World, name: str) -> dict[str, Any]:
    """A pod of the team as the API server has it."""
    return next(p for p in world.pods if p["metadata"]["name"] == name and p["metadata"]["namespace"] == TEAM)


def phases(world: World) -> dict[str, str]:
    """Phase of each of the team's pods."""
    mine = [p for p in world.pods if p["metadata"]["namespace"] == TEAM]
    return {p["metadata"]["name"]: p["status"].get("phase", "") for p in mine}


def bound(world: World) -> set[str]:
    """Names of the team's pods that name a node."""
    return {
        p["metadata"]["name"] for p in world.pods if p["metadata"]["namespace"] == TEAM and p["spec"].get("nodeName")
    }


def waits_because(world: World, name: str) -> str:
    """The message of the pod's PodScheduled=False condition, or ""."""
    conditions = find(world, name)["status"].get("conditions") or ()
    told = [c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
    return str(told[0]) if told else ""


def writes(world: World, user: str, resource: str, subresource: str = "", verb: str = "") -> list[AuditEntry]:
    """Writes of a component that the server carried out."""
    return [
        entry
        for entry in world.server.audit
        if entry.user == user
        and entry.resource == resource
        and entry.subresource == subresource
        and entry.verb not in {"get", "list", "watch"}
        and (not verb or entry.verb == verb)
        and entry.code < 300
    ]


def all_writes(world: World, *users: str) -> list[AuditEntry]:
    """Every request of these components that could have changed something, refused ones included; no leases."""
    return [
        entry
        for entry in world.server.audit
        if entry.user in users and entry.verb not in {"get", "list", "watch"} and entry.resource != "leases"
    ]


def break_off(world: World, *picks: Callable[[Call], bool]) -> list[str]:
    """Let the first request of each kind raise what nobody expects; returns what was struck, by verb and kind."""
    struck: list[str] = []
    left = list(picks)

    def strike(call: Call) -> None:
        for pick in left:
            if pick(call):
                left.remove(pick)
                struck.append(f"{call.verb} {call.kind.plural}")
                raise RuntimeError("something that nobody expects")

    world.server.faults.on_request.append(strike)
    return struck


def is_call(user: str, verb: str, plural: str, subresource: str | None = "") -> Callable[[Call], bool]:
    """Pick requests for a fault; of every subresource where that is None."""

    def picks(call: Call) -> bool:
        is_of_kind = (call.user, call.verb, call.kind.plural) == (user, verb, plural)
        return is_of_kind and subresource in {None, call.subresource}

    return picks


#: A Binding that the scheduler writes itself.
BINDING = is_call("scheduler", "create", "pods", "binding")


@dataclass(frozen=True, slots=True)
class Struck:
    """Faults that requests meet. ``left``: those that have met none; ``met``: set when the first one has."""

    left: list[Fault]
    met: anyio.Event


def strike(world: World, picks: Callable[[Call], bool], *faults: Fault, after: anyio.Event | None = None) -> Struck:
    """Let the next requests that are picked meet these faults, one each; ``after`` an event if one is given."""
    struck = Struck([*faults], anyio.Event())

    def rule(call: Call) -> Fault | None:
        if not struck.left or (after is not None and not after.is_set()) or not picks(call):
            return None
        struck.met.set()
        return struck.left.pop(0)

    world.server.faults.on_request.append(rule)
    return struck


def strike_all(world: World, picks: Callable[[Call], bool], fault: Fault) -> None:
    """Let every request that is picked meet this fault, until the world's faults are cleared."""
    world.server.faults.on_request.append(lambda call: fault if picks(call) else None)


async def settle(seconds: float = 10.0) -> None:
    """Let virtual time pass."""
    await anyio.sleep(seconds)


def quick_idle(idle_s: float) -> WorldSettings:
    """A world whose idle reservations go after ``idle_s``."""
    plain = WorldSettings(seed=1)
    return msgspec.structs.replace(plain, binder=msgspec.structs.replace(plain.binder, idle_s=idle_s))
