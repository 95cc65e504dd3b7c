"""Whether what is said to help does, and whether nothing does where nothing is said to: the simulator is the judge."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.settings import Settings
from scheduler.core.what_if.edits import Edit, Family, subject_of_group, subject_of_pod
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
from scheduler.core.what_if.node_changes import Ended, MoreNodes
from scheduler.core.what_if.queue_changes import OtherQueue, QueueAmount
from scheduler.core.what_if.suggestions import FINDERS, Finder, Suggestion, suggestions
from scheduler.core.what_if.trials import Trying
from scheduler.settings import SchedulerSettings
from simulator.clock import VirtualClock
from simulator.world import World, WorldSettings
from tests.scheduler.stage import TEAM, stage
from tests.scheduler.what_if import worlds
from tests.scheduler.what_if.worlds import Script
from ui.queues import reader
from ui.queues.count import NOW_NS
from wire import names
from wire.core import Taint

Finders = Mapping[Family, tuple[Finder, int]]
#: A pod that is evicted for another is gone, and can't be asked about.
_NO_ROOM = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings(preemption=False)))
#: A group has this long to start: looks at it, and virtual seconds before each.
_LOOKS: Final = 16
_LOOK_S: Final = 5.0


@dataclass
class Judged:
    """``groups``: that wait. ``told``: changes that were said to help; ``helped``: of them those that do.

    ``silent``: groups of which it was said that nothing helps; ``tried``: changes made for them. ``wrong``: in words.
    """

    groups: int = 0
    told: int = 0
    helped: int = 0
    silent: int = 0
    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    families: dict[Family, int] = field(default_factory=dict)


def judge(seed: int, judged: Judged, *, finders: Finders = FINDERS, most: int = 3, is_told_judged: bool = True) -> None:
    """Run one cluster, and change it in each way that was said, or, ``most`` times, in one that was not."""
    of, rng = worlds.script(seed), random.Random(f"judge/{seed}")
    for name, said in told(of, finders).items():
        judged.groups += 1
        if said:
            _judge_told(seed, of, name, said if is_told_judged else (), judged)
        else:
            judged.silent += 1
            others = single_edits(of, name)
            for edit in rng.sample(others, min(most, len(others))):
                judged.tried += 1
                if starts(of, name, (edit,), is_at_once=True):
                    judged.wrong.append(f"seed {seed}: {name} starts after {edit.spelled()}, and nobody said so")


def told(of: Script, finders: Finders = FINDERS) -> dict[str, Sequence[Suggestion]]:
    """What is said of each group that waits in a cluster."""

    async def run() -> dict[str, Sequence[Suggestion]]:
        async with stage(*of.shapes, settings=_NO_ROOM) as world:
            await worlds.begin(world, of)
            return await _waiting(world, of, finders)

    return worlds.in_time_of_its_own(run)


def _judge_told(seed: int, of: Script, name: str, said: Sequence[Suggestion], judged: Judged) -> None:
    for each in said:
        judged.told += 1
        for edit in each.edits:
            judged.families[edit.family] = judged.families.get(edit.family, 0) + 1
        if starts(of, name, each.edits):
            judged.helped += 1
        else:
            judged.wrong.append(f"seed {seed}: {name} does not start after {each.edits}")


async def _waiting(world: World, of: Script, finders: Finders) -> dict[str, Sequence[Suggestion]]:
    """What is said of each group none of which runs."""
    wall_s = VirtualClock(asyncio.get_running_loop()).now_ns() // 10**9
    known = await reader.read(world.api, wall_s=wall_s)
    found: dict[str, Sequence[Suggestion]] = {}
    for name in dict.fromkeys(_group_of(each) for each in of.pods()):
        if not _runs(world, of, name, 1):
            found[name] = suggestions(_trying(known.snapshot, of, name, wall_s), finders)
    return found


def _trying(snapshot: Snapshot, of: Script, name: str, wall_s: int) -> Trying:
    find = subject_of_group if name in of.groups else subject_of_pod
    subject = find(snapshot, TEAM, name)
    assert subject is not None
    return Trying(snapshot, subject, NOW_NS, wall_s)


def _group_of(pod: dict[str, object]) -> str:
    metadata = pod["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["annotations"].get(names.POD_GROUP_NAME) or metadata["name"])


def _runs(world: World, of: Script, name: str, least: int) -> bool:
    """Whether so many pods of a group have a node."""
    own = {each["metadata"]["name"] for each in worlds.members(of, name)}
    bound = [each for each in world.pods if each["metadata"]["name"] in own and each["spec"].get("nodeName")]
    return len(bound) >= least


def starts(of: Script, name: str, edits: Sequence[Edit], *, is_at_once: bool = False) -> bool:
    """Whether a group runs in the same cluster after these edits. ``is_at_once``: nodes come together, as tried.

    One by one they are several changes: the first of them may let it start, which would be told, or another group.
    """
    of = copy.deepcopy(of)
    more = [shape for edit in edits for shape in worlds.spares(of, edit)]

    async def run() -> bool:
        async with stage(*of.shapes, *more, settings=_NO_ROOM) as world:
            await worlds.begin(world, of, tuple(shape.name for shape in more))
            for edit in edits:
                await worlds.carry_out(world, of, name, edit, is_at_once=is_at_once)
            for _ in range(_LOOKS):
                await anyio.sleep(_LOOK_S)
                if _runs(world, of, name, 1):
                    return True
            return False

    return worlds.in_time_of_its_own(run)


def single_edits(of: Script, name: str) -> list[Edit]:
    """All single changes of the families, of which each amount is the one that helps most."""
    found: list[Edit] = []
    first = worlds.members(of, name)[0]
    annotations, resources = first["metadata"]["annotations"], first["spec"]["containers"][0]["resources"]
    if names.GPU_FRACTION in annotations:
        found.append(Asking(FRACTION, 10**7))
    if names.GPU_MEMORY in annotations:
        found.append(Asking(GPU_MEMORY, max(1, int(annotations[names.GPU_MEMORY]) // 100)))
    if int(resources.get("limits", {}).get(names.GPU_RESOURCE, 0)) > 1:
        found.append(Asking(GPUS, 1))
    cpu, memory = resources["requests"]["cpu"], resources["requests"]["memory"]
    found += [Asking(CPU, int(cpu[:-1]) // 100), Asking(MEMORY, max(1, int(memory[:-2]) // 100))]
    if name in of.groups:
        found += [Members(each) for each in range(1, of.groups[name]["minMember"])]
    found += [Without("nodeSelector", key) for key in first["spec"].get("nodeSelector", {})]
    if of.tainted and "tolerations" not in first["spec"]:
        found.append(Tolerating(Taint(**worlds.TAINT)))
    own = of.groups[name]["queue"] if name in of.groups else first["metadata"]["labels"][worlds.QUEUE_LABEL]
    found += [QueueAmount(queue, "limit", "gpu", 1 << 60) for queue in ("org", own)]
    found += [OtherQueue(queue) for queue in worlds.LEAVES if queue != own]
    found += [Ended(_group_of(each)) for each in of.steps[0]]
    found += [MoreNodes(count, shape.name) for shape in of.shapes for count in (1, 4)]
    return list(dict.fromkeys(found))
