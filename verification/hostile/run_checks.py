"""What must hold in a hostile run beside the checker's invariants, which are about objects and machines.

- CLASH: kubelet refused a pod though nothing was done that could explain it: the scheduler miscounted.
- LOSS: one of us deleted a reservation whose device is in use: anybody may be given it now.
- MEMORY: a component keeps what it should have forgotten when all that it worked on is gone.
- STORM: a component asks the API server without pause: hundreds of times for each pod in a minute.
- BYSTANDER: a user without GPU pods could not create a pod, or only slowly.
- L1: a pod waits for a MIG slice though one that serves it is free, or can be made on the hardware.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import random
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, CoroutineType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import PODS
from kube.client.server_time import ServerClock
from simulator.apiserver.calls import Call
from simulator.checks import ledgers
from simulator.checks.facts import PodFacts
from simulator.checks.ledgers import NodeFacts
from simulator.checks.violations import Violation
from simulator.mig.hardware import PROFILES, Instance
from simulator.mig.nodes import SlicedRuntime
from simulator.nodes.ground_truth import Record, Refused, Started
from simulator.world import World
from verification.hostile.actions import APART, CreatePod, DeletePod, DeleteReservation
from verification.hostile.device_actions import ClaimAction, ExtendedAction, PublishDevices
from verification.hostile.faults import requests
from verification.hostile.queue_actions import CreateQueue
from verification.hostile.tenant_actions import CreateLabelled
from wire import names

#: Not the component's own: code, what it talks to, and what it runs on.
_BORDERS: Final = (
    type,
    ModuleType,
    FunctionType,
    CodeType,
    CoroutineType,
    FrameType,
    Api,
    ServerClock,
    logging.Logger,
    random.Random,
    asyncio.AbstractEventLoop,
    asyncio.Future,
    anyio.CancelScope,
    msgspec.json.Decoder,
)


def weight_bytes(component: object) -> int:
    """Sum up all objects that are reached from a component, each once."""
    total = 0
    seen: set[int] = set()
    todo: list[Any] = [component]
    while todo:
        found = todo.pop()
        if id(found) in seen or isinstance(found, _BORDERS):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        todo.extend(_parts(found))
    return total


def _parts(found: Any) -> Iterable[Any]:
    if isinstance(found, msgspec.Struct):
        # Some kinds of structs are hidden from the garbage collector.
        return [getattr(found, name) for name in found.__struct_fields__]
    return gc.get_referents(found)


if TYPE_CHECKING:
    from simulator.world import World
    from verification.hostile.scenario import Scenario

CLASH: Final = "CLASH"
LOSS: Final = "LOSS"
MEMORY: Final = "MEMORY"
STORM: Final = "STORM"
BYSTANDER: Final = "BYSTANDER"

#: What an idle scheduler may hold (measured: 227 to 239 KiB; 36 of them are prices, a number for each thousandth of a
#: GPU), and for each pod that it ever saw: it remembers names of what is gone, and classes until there are twice as
#: many. Of a crowd in which nearly each pod asks for something else, 0.9 to 1.25 KiB a pod were measured. And for each
#: Queue that was made, as it stays: its record, its place in the tree, its shares and its status.
IDLE_BYTES: Final = (208 + 36) * 1024
BYTES_PER_POD: Final = 1408
BYTES_PER_QUEUE: Final = 4 * 1024
#: And where it makes room: what it knows of units, budgets and evictions (measured: 31 to 34 KiB).
NOMINATION_BYTES: Final = 40 * 1024
#: And for what there is of claims: claims and volumes stay; answers of slices are kept, for 64 requests a node.
BYTES_PER_CLAIM: Final = 2 * 1024
BYTES_PER_SLICE: Final = 16 * 1024
#: And where slices are made for pods: cuts that were found (measured: 20 to 60 KiB).
PARTITIONING_BYTES: Final = 128 * 1024
#: And for each pod with a rule or its label: up to 64 classes are kept when nobody waits (measured: 0.6 KiB a pod).
BYTES_PER_RULE: Final = 1024
#: And for each pod that is there, with any labels and annotations, while a tenant means harm.
BYTES_PER_LIVE_POD: Final = 64 * 1024
#: Requests of one component in one minute, under any fault: this many, or for each pod that is there the number below.
#: While watches are late the binder reads a pod about once a second, in each book that it is in.
REQUESTS_A_MINUTE: Final = 2000
REQUESTS_A_MINUTE_OF_A_POD: Final = 30
#: How long the API server may take over a pod that is none of ours.
_BYSTANDER_S: Final = 1.0
_ELSEWHERE: Final = "elsewhere"


@dataclass(slots=True)
class Oversight:
    """Watches one run. ``found``: what did not hold."""

    scenario: Scenario
    found: list[Violation] = field(default_factory=list)
    #: Pods that are there, by UID.
    live: Mapping[str, PodFacts] = field(default_factory=dict)
    #: Names of our components, as which they are known to the API server.
    ours: Collection[str] = ()
    #: (user, minute) -> requests that the API server answered.
    _requests: Counter[tuple[str, int]] = field(default_factory=Counter)

    #: UIDs of pods whose containers saw devices, by the dialect that they are in.
    served: dict[str, set[str]] = field(default_factory=dict)

    def answered(self, call: Call, code: int) -> None:
        """Take a request that was carried out."""
        if call.user in self.ours:
            self._judge_pace(call)
            if call.verb == "delete" and code == 200 and call.namespace == names.RESERVATION_NAMESPACE:
                self._judge_deletion(call)

    def _judge_pace(self, call: Call) -> None:
        now_s = anyio.current_time()
        minute = call.user, int(now_s // 60)
        self._requests[minute] += 1
        made = self._requests[minute]
        if made % REQUESTS_A_MINUTE == 0 and made >= REQUESTS_A_MINUTE_OF_A_POD * len(self.live):
            self._add(STORM, f"{call.user} made {made} requests in {now_s % 60:.1f} s")

    def _judge_deletion(self, call: Call) -> None:
        """One that has ended holds nothing, and may go though pods use what it held."""
        for held in self.live.values():
            if not held.is_reservation or held.name != call.name or held.phase != names.RUNNING or held.deleting:
                continue
            tenants = [self.live[uid] for uid in held.book if uid in self.live]
            using = [pod.key for pod in tenants if pod.node and pod.phase == names.RUNNING and not pod.deleting]
            if using:
                self._add(LOSS, f"{call.user} deleted reservation {call.name}, which {', '.join(using)} use")

    def recorded(self, record: Record) -> None:
        """Take what happened on a machine."""
        if isinstance(record, Refused) and is_peaceful(self.scenario):
            self._add(CLASH, f"{record.node} refused pod {record.pod_uid}: {record.reason}")
        if isinstance(record, Started) and record.devices and record.pod_uid in self.live:
            pod = self.live[record.pod_uid]
            if not pod.is_reservation:
                self.served.setdefault(pod.dialect, set()).add(pod.uid)

    async def stand_by(self, world: World, name: str) -> None:
        """Create a pod of another scheduler in another namespace, and take it away."""
        pod = CreatePod(at_s=0.0, name=name, namespace=_ELSEWHERE, scheduler="default-scheduler").manifest
        del pod["metadata"]["annotations"]
        before_s = anyio.current_time()
        try:
            await world.api.create(PODS, pod, namespace=_ELSEWHERE)
            await world.api.delete(PODS, name, namespace=_ELSEWHERE, grace_s=0)
        except errors.ApiError as error:
            self._add(BYSTANDER, f"pod {_ELSEWHERE}/{name} can't be created: {error}")
        took_s = anyio.current_time() - before_s
        if took_s > _BYSTANDER_S:
            self._add(BYSTANDER, f"pod {_ELSEWHERE}/{name} took {took_s:.1f} s to be created and deleted")

    def weigh_work(self, world: World) -> None:
        """Judge what schedulers hold at rest, where a tenant gives them more to hold than pods need."""
        there = len(world.pods)
        if any(isinstance(action, CreateLabelled) for action in self.scenario.actions):
            self._weigh(world, self._allowed(world) + BYTES_PER_LIVE_POD * there, f"with {there} pods")

    def weigh(self, world: World) -> None:
        """Judge what schedulers hold when all work is gone."""
        self._weigh(world, self._allowed(world), f"with nothing to do, after {len(world.timeline.of)} pods")

    def _weigh(self, world: World, allowed: int, when: str) -> None:
        for name, scheduler in world.running.items():
            held = weight_bytes(scheduler)
            if held > allowed:
                self._add(MEMORY, f"{name} holds {held} bytes {when}")

    def _allowed(self, world: World) -> int:
        queues = sum(isinstance(action, CreateQueue) for action in self.scenario.actions)
        allowed = IDLE_BYTES + BYTES_PER_POD * len(world.timeline.of) + BYTES_PER_QUEUE * queues
        allowed += NOMINATION_BYTES * self.scenario.settings.preemption
        allowed += PARTITIONING_BYTES * bool(self.scenario.sliced)
        about_claims = (action for action in self.scenario.actions if isinstance(action, ClaimAction | ExtendedAction))
        allowed += BYTES_PER_CLAIM * sum(1 for _ in about_claims)
        allowed += BYTES_PER_SLICE * sum(isinstance(action, PublishDevices) for action in self.scenario.actions)
        allowed += BYTES_PER_RULE * sum(
            isinstance(each, CreatePod) and APART in each.labels for each in self.scenario.actions
        )
        return allowed

    def _add(self, what: str, text: str) -> None:
        self.found.append(Violation(what, anyio.current_time(), text))


def is_peaceful(scenario: Scenario) -> bool:
    """Whether nothing happens that may cost a pod: caches are old and requests fail, and that is all."""
    is_alone = max(scenario.settings.schedulers, scenario.settings.binders) == 1
    return is_alone and not scenario.sliced and not any(_disturbances(scenario))


def _disturbances(scenario: Scenario) -> Iterator[bool]:
    """Whether each part takes a device without asking, loses one, or hides its use."""
    for fault in scenario.faults:
        yield type(fault).__module__ != requests.__name__
    for action in scenario.actions:
        match action:
            case CreatePod(node=node, grace_s=grace_s):
                yield bool(node) or grace_s == 0
            case DeletePod(grace_s=grace_s):
                yield grace_s == 0
            case DeleteReservation():
                yield True
            case _:
                yield False


#: A GPU rests for up to an hour after attempts that failed, and an attempt takes a minute.
WITHIN_S: Final = 3700.0
_LOOK_S: Final = 5.0
_PLAIN: Final = frozenset({"cpu", "memory"})


async def judge(world: World, sliced: Mapping[str, SlicedRuntime]) -> None:
    """Wait until no pod waits for a slice that it could have; what still does breaks L1."""
    until_s = anyio.current_time() + WITHIN_S
    waiting = dict(_served(world, sliced))
    while waiting and anyio.current_time() < until_s:
        await anyio.sleep(_LOOK_S)
        waiting = {uid: why for uid, why in _served(world, sliced) if uid in waiting}
    for why in waiting.values():
        world.checker.findings.add("L1", anyio.current_time(), why)


def _served(world: World, sliced: Mapping[str, SlicedRuntime]) -> Iterator[tuple[str, str]]:
    """Yield pods (UIDs) that could have slices, and where."""
    scene, pods = world.checker.scene, list(world.checker.live.values())
    for pod in pods:
        asked = _asked(pod)
        for room in scene.rooms if asked is not None else ():
            if asked is None or room.name not in sliced or not room.copy().take(pod):
                continue
            free = _free(asked[0], scene.nodes[room.name], [each for each in pods if each.node == room.name])
            if how := "as many are free" if free >= asked[1] else _how(*asked, sliced[room.name]):
                yield pod.uid, f"pod {pod.key} waits for {asked[1]} {asked[0]}, and {how} on {room.name}"
                break


def _asked(pod: PodFacts) -> tuple[str, int] | None:
    """Profile and number of slices; None for a pod that is not judged."""
    if not pod.waits or pod.is_gated or pod.pod_group or names.GPU_RECORD in pod.annotations:
        return None
    limits = [each.get("resources", {}).get("limits") or {} for each in pod.raw["spec"]["containers"]]
    asked = [(name, str(count)) for one in limits for name, count in one.items() if name not in _PLAIN]
    if len(asked) != 1 or not asked[0][0].startswith(names.MIG_RESOURCE_PREFIX):
        return None
    return asked[0][0].removeprefix(names.MIG_RESOURCE_PREFIX), int(asked[0][1])


def _free(profile: str, node: NodeFacts, pods: Iterable[PodFacts]) -> int:
    """How many slices of a profile a node offers that its pods don't have."""
    resource = names.MIG_RESOURCE_PREFIX + profile
    return node.devices.get(resource, 0) - ledgers.count_node(pods).devices[resource]


def _how(profile: str, count: int, node: SlicedRuntime) -> str:
    """Say how a node could be cut for a pod; "" if it can't."""
    taken = node.taken
    for card, instances in node.machine.cards.items() if node.is_offered else ():
        if count <= _most(profile, [each for each in instances if each.uuid in taken]):
            return f"GPU {card} can be cut for it"
    return ""


def _most(profile: str, used: list[Instance]) -> int:
    """How many slices of a profile a GPU takes beside those in use."""
    known = PROFILES[profile]
    same = sum(each.spot.profile == profile for each in used)
    taken = 0
    for each in used:
        place = next(at for at in PROFILES[each.spot.profile].places if at.start == each.spot.start)
        taken |= place.bits
    free = [place for place in known.places if not place.bits & taken]
    for number in range(min(len(free), known.most - same), 0, -1):
        for chosen in itertools.combinations(free, number):
            bits = [place.bits for place in chosen]
            if sum(bits) == _union(bits):
                return number
    return 0


def _union(bits: list[int]) -> int:
    found = 0
    for each in bits:
        found |= each
    return found
