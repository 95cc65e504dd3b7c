"""L1 of pods that wait for MIG slices, at rest: free slices that serve them are used, and what can be made is made.

Judged are pods alone that ask for whole slices of one profile and are kept by nothing else that is not counted. What
can be made is searched on the hardware itself: beside the slices that somebody has, in every way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import anyio

from simulator.checks import ledgers
from simulator.checks.facts import PodFacts
from simulator.checks.ledgers import NodeFacts
from simulator.mig.hardware import PROFILES, Instance
from simulator.mig.nodes import SlicedRuntime
from simulator.world import World
from wire import names

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
