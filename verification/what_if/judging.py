"""Whether what is said to help does, and whether nothing does where nothing is said to: the simulator is the judge."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import anyio

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
from simulator.clock import VirtualClock
from simulator.world import World
from ui.queues import reader
from ui.queues.count import NOW_NS
from verification.what_if import worlds
from verification.what_if.branches import Branches
from verification.what_if.worlds import TEAM, Script
from wire import names
from wire.core import Taint

Finders = Mapping[Family, tuple[Finder, int]]
#: A group has this long to start: looks at it, and virtual seconds before each.
_LOOKS: Final = 16
_LOOK_S: Final = 5.0
#: A group that was told to start has to run for so long, in virtual seconds.
_LASTS_S: Final = 60.0


@dataclass
class Judged:
    """``groups``: that wait. ``told``: changes that were said to help; ``helped``: of them those that do.

    ``families``: edits that were told, and of them those of changes that help. ``silent``: groups of which it was said
    that nothing helps; ``tried``: changes made for them. ``wrong``: in words, ``unsaid``: of them those that help and
    were not told.
    """

    groups: int = 0
    told: int = 0
    helped: int = 0
    silent: int = 0
    tried: int = 0
    unsaid: int = 0
    wrong: list[str] = field(default_factory=list)
    families: Counter[Family] = field(default_factory=Counter)
    helped_families: Counter[Family] = field(default_factory=Counter)

    def add(self, other: Judged) -> None:
        """Add what was judged elsewhere."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def judge(seed: int, judged: Judged, *, finders: Finders = FINDERS, most: int = 3, is_told_judged: bool = True) -> None:
    """Run one cluster, and change it in each way that was said, or, ``most`` times, in one that was not.

    Raises BranchFailed where a run broke an invariant.
    """
    of, rng, branches = worlds.script(seed), random.Random(f"judge/{seed}"), Branches()

    async def run() -> bool:
        """Judge; in a branch: whether the group starts there."""
        async with worlds.cluster(of) as world:
            await worlds.begin(world, of)
            for name, said in (await _waiting(world, of, finders)).items():
                judged.groups += 1
                for each in said if is_told_judged else ():
                    if (branch := branches.fork()) is None:
                        return await _starts(world, of, name, each.edits)
                    _note_told(of, name, each, judged, is_helping=branch.result())
                if said:
                    continue
                judged.silent += 1
                others = single_edits(of, name)
                for edit in rng.sample(others, min(most, len(others))):
                    if (branch := branches.fork()) is None:
                        return await _starts(world, of, name, (edit,), is_at_once=True)
                    judged.tried += 1
                    if branch.result():
                        judged.unsaid += 1
                        judged.wrong.append(f"seed {seed}: {name} starts after {edit.spelled()}, and nobody said so")
        return True

    branches.run(run)


def _note_told(of: Script, name: str, said: Suggestion, judged: Judged, *, is_helping: bool) -> None:
    families = [edit.family for edit in said.edits]
    judged.told += 1
    judged.families.update(families)
    if is_helping:
        judged.helped += 1
        judged.helped_families.update(families)
    else:
        judged.wrong.append(f"seed {of.seed}: {name} does not start after {said.edits}")


async def _waiting(world: World, of: Script, finders: Finders) -> dict[str, Sequence[Suggestion]]:
    """What is said of each group none of which runs."""
    wall_s = VirtualClock(asyncio.get_running_loop()).now_ns() // 10**9
    known = await reader.read(world.api, wall_s=wall_s)
    found: dict[str, Sequence[Suggestion]] = {}
    for name in dict.fromkeys(worlds.group_of(each) for each in of.pods()):
        find = subject_of_group if name in of.groups else subject_of_pod
        subject = find(known.snapshot, TEAM, name)
        if subject is not None and subject.waiting and not subject.bound:  # others run, or were evicted
            found[name] = suggestions(Trying(known.snapshot, subject, NOW_NS, wall_s), finders)
    return found


def _runs(world: World, of: Script, name: str, least: int) -> bool:
    """Whether at least this number of pods of a group have a node."""
    own = {each["metadata"]["name"] for each in worlds.members(of, name)}
    bound = [each for each in world.pods if each["metadata"]["name"] in own and each["spec"].get("nodeName")]
    return len(bound) >= least


async def _starts(world: World, of: Script, name: str, edits: Sequence[Edit], *, is_at_once: bool = False) -> bool:
    """Whether a group starts after these edits, and still runs ``_LASTS_S`` later.

    ``is_at_once``: it only has to start, and nodes come together, as tried. One by one they are several changes: the
    first of them may let it start, which would be told, or another group.
    """
    for edit in edits:
        await worlds.carry_out(world, of, name, edit, is_at_once=is_at_once)
    for _ in range(_LOOKS):
        await anyio.sleep(_LOOK_S)
        if _runs(world, of, name, 1):
            await anyio.sleep(0.0 if is_at_once else _LASTS_S)
            return _runs(world, of, name, 1)
    return False


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
    found += [Ended(worlds.group_of(each)) for each in of.steps[0]]
    found += [MoreNodes(count, shape.name) for shape in of.shapes for count in (1, 4)]
    return list(dict.fromkeys(found))
