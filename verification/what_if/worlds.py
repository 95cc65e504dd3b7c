"""Random clusters in which groups wait, as scripts: each can be run again, with one thing different.

Some evict pods for others, some have a Topology whose zones gangs require, some have devices that ResourceClaims name.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from kube.client.errors import NotFound
from kube.client.resources import (
    DEVICE_CLASSES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    TOPOLOGIES,
)
from scheduler.core.model.settings import Settings
from scheduler.core.what_if.edits import Edit
from scheduler.core.what_if.group_changes import (
    CPU,
    FRACTION,
    GPU_MEMORY,
    GPUS,
    MEMORY,
    Asking,
    Members,
    Tolerating,
    Without,
)
from scheduler.core.what_if.known_ends import Wait
from scheduler.core.what_if.node_changes import Ended, MoreNodes
from scheduler.core.what_if.queue_changes import OtherQueue, QueueAmount
from scheduler.settings import SchedulerSettings
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock
from simulator.nodes import node_object
from simulator.nodes.shape import NodeShape
from simulator.world import World, WorldSettings
from wire import names

TEAM: Final = "team-a"
QUEUE_LABEL: Final = "kai.scheduler/queue"
ZONE: Final = "zone"
TAINT: Final = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
LEAVES: Final = ("a", "b")
_CARD_MIB: Final = 24_576
_ONES: Final = {"cpu": 1, "memory": 10**6, "gpu": 10**9}
#: Between two objects: of those created in one second the UID, which is chance, says which comes first.
_APART_S: Final = 1.0
#: After each step, in virtual seconds; longer where pods are evicted one group after another.
_SETTLED_S: Final = 20.0
_EVICTED_S: Final = 120.0
#: How many of the scripts have each of the variations.
_VARIED: Final = 0.4
_HALL: Final = "hall"
_URGENT: Final = "urgent"
_DEVICES: Final = "device.example.com"


@dataclass
class Script:
    """What a cluster has: nodes, queues, and groups in the order in which they are created.

    ``groups``: PodGroup name -> spec; ``steps``: pods of each step, ``tainted``: nodes. ``evicts``: pods are evicted
    for others; ``devices``: by node, those that claims can get.
    """

    seed: int
    shapes: list[NodeShape]
    queues: dict[str, dict[str, Any]]
    steps: list[list[dict[str, Any]]]
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    tainted: list[str] = field(default_factory=list)
    evicts: bool = False
    devices: dict[str, int] = field(default_factory=dict)

    def pods(self) -> list[dict[str, Any]]:
        """All of them."""
        return [each for step in self.steps for each in step]


# --- making one ------------------------------------------------------------------------------------------------------
def script(seed: int) -> Script:
    """A small cluster on which more waits than fits."""
    rng = random.Random(f"what-if/{seed}")
    made = Script(seed=seed, shapes=_shapes(rng), queues=_queues(rng), steps=[])
    made.tainted = [shape.name for shape in made.shapes if rng.random() < 0.2]
    made.steps = [
        [each for number in range(rng.randint(3, 7)) for each in _group(made, rng, f"r{number}", is_small=True)],
        [each for number in range(rng.randint(1, 4)) for each in _group(made, rng, f"w{number}", is_small=False)],
    ]
    _vary(made, random.Random(f"what-if/{seed}/variations"))
    return made


def _vary(made: Script, rng: random.Random) -> None:
    if rng.random() < _VARIED:
        made.evicts = True
        urgent = {name for name in _names(made) if rng.random() < 0.3}
        for each in made.pods():
            each["spec"].pop("activeDeadlineSeconds", None)  # nobody waits for hours here
            if group_of(each) in urgent:
                each["spec"]["priorityClassName"] = _URGENT
    if rng.random() < _VARIED:
        for spec in made.groups.values():
            if rng.random() < 0.7:
                spec["topologyConstraint"] = {"topology": _HALL, "requiredTopologyLevel": ZONE}
    if rng.random() < _VARIED:
        made.devices = {shape.name: rng.randint(0, 3) for shape in made.shapes}
        claiming = {name: rng.randint(1, 2) for name in _names(made) if rng.random() < 0.4}
        for each in made.pods():
            if (count := claiming.get(group_of(each))) is not None:
                each["metadata"]["annotations"] = {
                    key: text for key, text in each["metadata"]["annotations"].items() if key == names.POD_GROUP_NAME
                }
                each["spec"]["containers"][0]["resources"].pop("limits", None)
                each["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": f"devices-{count}"}]


def _names(made: Script) -> list[str]:
    return [*dict.fromkeys(map(group_of, made.pods()))]


def group_of(pod: dict[str, Any]) -> str:
    """The name of a pod's PodGroup, or its own."""
    return str(pod["metadata"]["annotations"].get(names.POD_GROUP_NAME) or pod["metadata"]["name"])


def _shapes(rng: random.Random) -> list[NodeShape]:
    return [
        NodeShape(
            name=f"n{number}",
            cards_mib=(_CARD_MIB,) * rng.randint(0 if number else 1, 4),
            cpu_milli=rng.choice((8_000, 16_000)),
            mem_mib=rng.choice((16_384, 65_536)),
            labels={ZONE: rng.choice("xy")},
        )
        for number in range(rng.randint(2, 4))
    ]


def _queues(rng: random.Random) -> dict[str, dict[str, Any]]:
    def spec(parent: str, limit: int, quota: int) -> dict[str, Any]:
        plain = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
        return {"parentQueue": parent, "resources": {"cpu": plain, "memory": plain, "gpu": gpu}}

    limits = {name: rng.choice((-1, -1, 1, 2, 4)) for name in ("org", *LEAVES)}
    quotas = {name: rng.choice((0, 1, 3)) for name in ("org", *LEAVES)}
    return {name: spec("" if name == "org" else "org", limits[name], quotas[name]) for name in ("org", *LEAVES)}


def _group(made: Script, rng: random.Random, name: str, *, is_small: bool) -> list[dict[str, Any]]:
    """A pod alone, or a gang."""
    queue = rng.choice(LEAVES)
    asked = _asked(rng, is_small=is_small)
    if rng.random() < (0.2 if is_small else 0.4):
        count = rng.randint(2, 3 if is_small else 5)
        made.groups[name] = {"minMember": rng.randint(2, count), "queue": queue}
        return [_pod(f"{name}-{at}", queue, asked, group=name) for at in range(count)]
    return [_pod(name, queue, asked)]


def _asked(rng: random.Random, *, is_small: bool) -> dict[str, Any]:
    kind = rng.choice(("whole", "whole", "fraction", "memory", "cpu"))
    asked: dict[str, Any] = {"cpu": rng.choice((100, 2_000, 6_000)), "mem": rng.choice((256, 8_192, 14_000))}
    if kind == "whole":
        asked["gpus"] = rng.randint(1, 2) if is_small else rng.randint(1, 4)
    elif kind == "fraction":
        asked["fraction"] = rng.choice(("0.25", "0.5", "0.7", "0.9"))
        asked["devices"] = rng.choice((1, 1, 2))
    elif kind == "memory":
        asked["gpu_memory"] = rng.choice((4_000, 12_000, 20_000))
    else:
        asked["cpu"] = rng.choice((3_000, 7_000, 12_000))
    if not is_small and rng.random() < 0.35:
        asked["selector"] = {ZONE: rng.choice("xyz")}
    if rng.random() < 0.2:
        asked["tolerates"] = True
    if is_small and rng.random() < 0.4:
        asked["deadline"] = rng.choice((7_200, 36_000, 86_400))
    return asked


def _pod(name: str, queue: str, asked: dict[str, Any], *, group: str = "") -> dict[str, Any]:
    annotations = {}
    if "fraction" in asked:
        annotations[names.GPU_FRACTION] = asked["fraction"]
        if asked["devices"] > 1:
            annotations[names.GPU_FRACTION_NUM_DEVICES] = str(asked["devices"])
    if "gpu_memory" in asked:
        annotations[names.GPU_MEMORY] = str(asked["gpu_memory"])
    if group:
        annotations[names.POD_GROUP_NAME] = group
    resources: dict[str, Any] = {"requests": {"cpu": f"{asked['cpu']}m", "memory": f"{asked['mem']}Mi"}}
    if "gpus" in asked:
        resources["limits"] = {names.GPU_RESOURCE: str(asked["gpus"])}
    container = {"name": "main", "image": "cuda-app", "resources": resources}
    spec: dict[str, Any] = {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}
    if "selector" in asked:
        spec["nodeSelector"] = asked["selector"]
    if asked.get("tolerates"):
        spec["tolerations"] = [{**TAINT, "operator": "Equal"}]
    if "deadline" in asked:
        spec["activeDeadlineSeconds"] = asked["deadline"]
    labels = {QUEUE_LABEL: queue}
    return {
        "metadata": {"name": name, "namespace": TEAM, "annotations": annotations, "labels": labels},
        "spec": spec,
    }


# --- running it ------------------------------------------------------------------------------------------------------
@asynccontextmanager
async def cluster(of: Script) -> AsyncIterator[World]:
    """Run a cluster of a script's nodes; at the end every invariant must have held."""
    settings = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings(preemption=of.evicts)))
    world = World(of.shapes, clock=VirtualClock(asyncio.get_running_loop()), settings=settings)
    async with world:
        yield world
        broken = {key: found for key, found in world.finish().items() if found not in SOUND}
        assert broken == {}, broken


async def begin(world: World, of: Script) -> None:
    """Create everything, and wait until nothing changes."""
    for name in of.tainted:
        await world.api.patch(NODES, name, {"spec": {"taints": [TAINT]}})
    for name, spec in of.queues.items():
        await world.api.create(QUEUES, {"metadata": {"name": name}, "spec": spec})
    await world.api.create(PRIORITY_CLASSES, {"metadata": {"name": _URGENT}, "value": 90})
    levels = [{"nodeLabel": ZONE}, {"nodeLabel": names.HOSTNAME_LABEL}]
    await world.api.create(TOPOLOGIES, {"metadata": {"name": _HALL}, "spec": {"levels": levels}})
    if of.devices:
        await _offer_devices(world, of)
    for step in of.steps:
        started = {pod["metadata"]["annotations"].get(names.POD_GROUP_NAME, "") for pod in step} - {""}
        for name in sorted(started):
            await _create_group(world, name, of.groups[name])
        await _create(world, step)
        await anyio.sleep(_EVICTED_S if of.evicts else _SETTLED_S)


async def _offer_devices(world: World, of: Script) -> None:
    api = world.resource_claims.api
    await api.create(DEVICE_CLASSES, {"metadata": {"name": _DEVICES}, "spec": {}})
    for count in (1, 2):
        asked = {"deviceClassName": _DEVICES, "allocationMode": "ExactCount", "count": count}
        spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": asked}]}}}
        await api.create(
            RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": f"devices-{count}"}, "spec": spec}, namespace=TEAM
        )
    for node, count in of.devices.items():
        await _offer(world, node, count)


async def _offer(world: World, node: str, count: int) -> None:
    if not count:
        return
    spec = {
        "driver": _DEVICES,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"d{number}"} for number in range(count)],
    }
    await world.resource_claims.api.create(RESOURCE_SLICES, {"metadata": {"name": f"{node}-devices"}, "spec": spec})


async def _create_group(world: World, name: str, spec: dict[str, Any]) -> None:
    await anyio.sleep(_APART_S)
    group = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "metadata": {"name": name}, "spec": spec}
    await world.api.create(POD_GROUPS, group, namespace=TEAM)


async def _create(world: World, pods: list[dict[str, Any]]) -> None:
    for each in pods:
        await anyio.sleep(_APART_S)
        await world.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(each)}, namespace=TEAM)


def members(of: Script, name: str) -> list[dict[str, Any]]:
    """The pods of a PodGroup, or the pod of that name."""
    return [each for each in of.pods() if group_of(each) == name]


# --- what an edit means ----------------------------------------------------------------------------------------------
async def carry_out(world: World, of: Script, name: str, edit: Edit, *, is_at_once: bool = False) -> None:
    """Do to the cluster what an edit says, for the group of this name. ``is_at_once``: else nodes come one by one.

    The script has the pods as they are then.

    It is done to API objects, as a user would; nothing of it comes from the code that suggests it.
    """
    match edit:
        case Asking() | Without() | Tolerating():
            await _create_again(world, _edit(of, name, edit))
        case Members(minimum=minimum):
            await world.api.patch(POD_GROUPS, name, {"spec": {"minMember": minimum}}, namespace=TEAM)
        case OtherQueue(queue=queue):
            if name in of.groups:
                await world.api.patch(POD_GROUPS, name, {"spec": {"queue": queue}}, namespace=TEAM)
            else:
                await _create_again(world, _edit(of, name, edit))
        case QueueAmount(queue=queue, field=what, resource=resource, amount=amount):
            value = -1 if amount >= 1 << 60 else amount / _ONES[resource]
            await world.api.patch(QUEUES, queue, {"spec": {"resources": {resource: {what: value}}}})
        case Ended(name=other):
            await _end(world, [each["metadata"]["name"] for each in members(of, other)])
        case Wait(uids=uids):
            named = {each["metadata"]["uid"]: each["metadata"]["name"] for each in world.pods}
            await _end(world, [named[uid] for uid in uids])
        case MoreNodes(count=count, like=like):
            await _add_nodes(world, of, count, like, is_at_once=is_at_once)
        case _:
            raise NotImplementedError(edit)


async def _add_nodes(world: World, of: Script, count: int, like: str, *, is_at_once: bool) -> None:
    taints = [TAINT] if like in of.tainted else []
    same = next(shape for shape in of.shapes if shape.name == like)
    async with anyio.create_task_group() as group:
        for number in range(count):
            shape = msgspec.structs.replace(same, name=f"spare{number}")
            kubelet = world.nodes.add(shape)
            world.start_soon(kubelet.run)
            world.checker.refitted(shape.name, kubelet.devices)
            await _offer(world, shape.name, of.devices.get(like, 0))
            if is_at_once:
                group.start_soon(_add_node, world, shape.name, taints)
            else:
                await _add_node(world, shape.name, taints)


async def _add_node(world: World, name: str, taints: list[dict[str, str]]) -> None:
    """Have a node come with its taints: it is there with them before its kubelet says that it is ready."""
    metadata = {"name": name, "labels": {node_object.SIMULATED: "true"}}
    plain = {"apiVersion": NODES.api_version, "kind": NODES.kind, "metadata": metadata, "spec": {"taints": taints}}
    await world.api.create(NODES, plain)
    await world.nodes.register(name)


async def _end(world: World, pods: list[str]) -> None:
    for name in pods:
        try:
            await world.api.delete(PODS, name, namespace=TEAM)
        except NotFound:
            continue
    await anyio.sleep(_SETTLED_S)


async def _create_again(world: World, pods: list[dict[str, Any]]) -> None:
    """Delete pods that wait and create others of their names; those that run stay, and those evicted stay away."""
    names_waiting = {each["metadata"]["name"] for each in world.pods if not each["spec"].get("nodeName")}
    waiting = [each for each in pods if each["metadata"]["name"] in names_waiting]
    for each in waiting:
        await world.api.delete(PODS, each["metadata"]["name"], namespace=TEAM)
    await anyio.sleep(2.0)
    await _create(world, waiting)


def _edit(of: Script, name: str, edit: Edit) -> list[dict[str, Any]]:
    """The pods of a group, which ask something else from now on."""
    own = {each["metadata"]["name"] for each in members(of, name)}
    of.steps = [
        [_edited(each, edit) if each["metadata"]["name"] in own else each for each in step] for step in of.steps
    ]
    return members(of, name)


def _edited(one: dict[str, Any], edit: Edit) -> dict[str, Any]:
    made = copy.deepcopy(one)
    spec, annotations = made["spec"], made["metadata"]["annotations"]
    resources = spec["containers"][0]["resources"]
    match edit:
        case Asking(what=what, amount=amount) if what == FRACTION:
            annotations[names.GPU_FRACTION] = f"{amount / 10**9:.9f}".rstrip("0")
        case Asking(what=what, amount=amount) if what == GPU_MEMORY:
            annotations[names.GPU_MEMORY] = str(amount)
        case Asking(what=what, amount=amount) if what == GPUS:
            resources["limits"][names.GPU_RESOURCE] = str(amount)
        case Asking(what=what, amount=amount) if what == CPU:
            resources["requests"]["cpu"] = f"{amount}m"
        case Asking(what=what, amount=amount) if what == MEMORY:
            resources["requests"]["memory"] = f"{amount}Mi"
        case Without(key=key):
            spec["nodeSelector"] = {each: value for each, value in spec["nodeSelector"].items() if key and each != key}
        case Tolerating(taint=taint):
            tolerated = {"key": taint.key, "value": taint.value, "effect": taint.effect, "operator": "Equal"}
            spec["tolerations"] = [*spec.get("tolerations", []), tolerated]
        case OtherQueue(queue=queue):
            made["metadata"]["labels"][QUEUE_LABEL] = queue
        case _:
            raise NotImplementedError(edit)
    return made
