"""Crowds: tenants with the largest and the most different pods that the API server stores, and 500 pods of all systems.

Of the first each pod asks something else and fits nowhere, so none is decided on like another. Some are as large as are
decided on, some larger. When all of them wait, a tenant of another namespace creates a pod that fits: what it costs
until it runs, and the longest turn before, are judged.

The others are on twenty nodes with cards of three sizes, under many kinds of faults: what holds in the small runs
(scenario.py) holds in a crowd, with shares in fractions, in MiB and in units of other systems beside each other.
"""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import anyio
import msgspec

from gpu.dialects.settings import DialectSettings, ReplicasSettings
from kube.client import errors, resources
from kube.client.api import Api
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator.checks.violations import Violation
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.components import PRODUCT, Parts
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from verification.hostile import workload
from verification.hostile.actions import CreatePod
from verification.hostile.faults import drawing
from verification.hostile.faults.kinds import KINDS, OF_AGENTS
from verification.hostile.scenario import Scenario, Switches, scenario_made
from verification.hostile.workload import Words

WORK: Final = "WORK"

_ROOT: Final = Path(__file__).parents[2]
_OURS: Final = tuple(f"{_ROOT / folder}/" for folder in ("admission", "binder", "gpu", "kube", "scheduler", "wire"))
_TURN: Final[CodeType] = Handle._run.__code__  # noqa: SLF001 - where a turn begins


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that may be run: in one turn of the event loop, and for one pod that fits until it runs."""

    turn: int
    pod: int


@dataclass(slots=True)
class Meter:
    """Counts lines of ours that are run, and finds WORK: one turn of the event loop ran more than ``Budget.turn`` has.

    Or a pod that fits took more than ``Budget.pod`` until it ran, beside all else that waits. While a turn lasts
    nothing else runs: no lease is renewed, nobody else's pod is decided on or reviewed. A decision, a review and the
    taking of an event are each within one turn. Lines are counted, never time, so the same run costs the same number,
    but for what caches of the process already hold. The interpreter counts (sys.settrace), so nothing has to count
    itself, and a loop beside the allowance of decisions (scheduler/core/decide/allowance.py) counts like any other.
    What one call into C does (a sort, a copy) is one line. ``found``: where the budget was passed; ``most``: the
    largest turn that ended.
    """

    budget: Budget
    found: list[Violation] = field(default_factory=list)
    most: int = 0
    total: int = 0
    #: What ``total`` was when this turn began, and what it may be at its end.
    _began: int = 0
    _limit: int = 0
    #: File -> whether it is ours.
    _files: dict[str, bool] = field(default_factory=dict)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count inside of the block, on this thread."""
        self._end_turn()
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            self._end_turn()

    @contextmanager
    def of_one_pod(self, name: str) -> Iterator[None]:
        """Judge what is done inside of the block: all that the components do is for this pod."""
        before = self.total
        yield
        spent = self.total - before
        if spent > self.budget.pod:
            self._add(f"pod {name} cost {spent:,} lines, {self.budget.pod:,} are allowed")

    def _called(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        code = frame.f_code
        if code is _TURN:
            self._end_turn()
            return None
        name = code.co_filename
        is_ours = self._files.get(name)
        if is_ours is None:
            is_ours = self._files[name] = name.startswith(_OURS)
        return self._line if is_ours else None

    def _line(self, frame: FrameType, event: str, _arg: Any) -> None:
        """Count one line. Called for each, so it does no more than it must; None keeps it for the next one."""
        if event == "line":
            self.total += 1
            if self.total == self._limit:
                self._add(f"more than {self.budget.turn:,} lines in one turn: at {_place(frame)}")

    def _end_turn(self) -> None:
        self.most = max(self.most, self.total - self._began)
        self._began = self.total
        self._limit = self.total + self.budget.turn + 1

    def _add(self, text: str) -> None:
        self.found.append(Violation(WORK, asyncio.get_running_loop().time(), text))


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).relative_to(_ROOT)}:{frame.f_lineno} in {frame.f_code.co_qualname}"


#: Measured beside 600 pods: 394,000 in a turn and 11,800 for a pod, as beside 30 (on 2026-11-23).
BUDGET: Final = Budget(turn=600_000, pod=16_000)
#: Where pods are evicted for others. A pod that no empty node holds is searched for once: measured beside 300 pods,
#: 16,700 for a pod (209,000 where room was searched again for each that waits; on 2026-11-27).
WITH_ROOM: Final = Budget(turn=600_000, pod=24_000)

_NAMESPACES: Final = ("greedy-a", "greedy-b", "greedy-c")
_SMALL: Final = "modest"
_CALM_S: Final = 900.0
_RUNS_S: Final = 60.0


def crowded(
    pods: int, *, budget: Budget = BUDGET, parts: Parts = PRODUCT, seed: int = 0, preemption: bool = False
) -> Meter:
    """Run a cluster beside ``pods`` pods that wait; return what was counted.

    ``preemption``: room is looked for; none of the crowd needs another search when a pod starts.
    """
    meter = Meter(budget)
    settings = WorldSettings(scheduler=SchedulerSettings(decisions=Settings(preemption=preemption)))

    async def live() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with World(shape.parse(["4x4x80GiB"]), clock=clock, settings=settings, parts=parts) as world:
            with meter.counting():
                await _crowd(world.api, pods, random.Random(seed))
                await anyio.sleep(_CALM_S)
                await _modest(world.api, "first")
                with meter.of_one_pod(f"{_SMALL}/second"):
                    await _modest(world.api, "second")

    anyio.run(live, backend_options={"loop_factory": VirtualTimeLoop})
    return meter


async def _crowd(api: Api, pods: int, rng: random.Random) -> None:
    for number in range(pods):
        body = _different(number) if number % 10 else _largest(number, rng)
        try:
            await api.create(resources.PODS, body, namespace=_NAMESPACES[number % len(_NAMESPACES)])
        except errors.ApiError:
            continue


def _different(number: int) -> dict[str, Any]:
    """Eight devices of which no node has as many, in a part and with CPU that nobody else asks."""
    annotations = {"gpu-fraction": f"0.{500 + number}", "gpu-fraction-num-devices": "8"}
    return CreatePod(at_s=0, name=f"p-{number}", annotations=annotations, cpu_milli=number + 1).manifest


def _largest(number: int, rng: random.Random) -> dict[str, Any]:
    """Nearly as many labels and names of resources as are decided on; every other one has too many for admission."""
    too_many = number % 20 == 0
    body = CreatePod(at_s=0, name=f"p-{number}", gpus=64, cpu_milli=number + 1).manifest
    labels = {f"example.com/l{rng.getrandbits(32):x}": str(index) for index in range(20_000 if too_many else 250)}
    body["metadata"]["labels"] = labels
    asked = {f"example.com/r{number}-{index}": "1" for index in range(15_000 if too_many else 90)}
    body["spec"]["containers"][0]["resources"]["limits"].update(asked)
    return body


async def _modest(api: Api, name: str) -> None:
    """Create a pod that fits, and wait until it runs. Raises TimeoutError where it does not."""
    body = CreatePod(at_s=0, name=name, annotations={"gpu-fraction": "0.5"}).manifest
    await api.create(resources.PODS, body, namespace=_SMALL)
    with anyio.fail_after(_RUNS_S):
        while (await api.get(resources.PODS, name, namespace=_SMALL)).status.phase != "Running":  # noqa: ASYNC110 - polled as a user does
            await anyio.sleep(0.1)


SHAPES: Final = ("7x4x24GiB", "7x4x40GiB", "6x8x80GiB")
PODS: Final = 500
_DURATION_S: Final = 600.0
#: Of the pods that ask for a part of a device, this part is in the words of another system than KAI.
_SHARE: Final = 0.85
#: The plugin's notation: a device is four replicas of ``nvidia.com/sharedgpu`` (I1).
_REPLICAS: Final = "gpu:sharedgpu:4"
#: Faults under which every invariant is promised, but for a restored etcd, which takes half of the crowd away. No node
#: has an agent here, and without one an image that can't be pulled is as a reservation that says nothing.
_LEFT_OUT: Final = OF_AGENTS | {"etcd-restored", "reservation-unpullable"}
PROMISED: Final = tuple(sorted(name for name, k in KINDS.items() if not k.unpromised and name not in _LEFT_OUT))


def mixed(seed: int, *, pods: int = PODS) -> Scenario:
    """Make such a scenario from a seed: at least one fault of each kind that excuses nothing."""
    nodes = shape.parse(SHAPES)
    actions = workload.draw(_rng(seed, "actions"), shapes=nodes, duration_s=_DURATION_S, size=pods)
    forms = (*workload.FORMS, _replicas)
    actions = workload.said_otherwise(_rng(seed, "dialects"), actions, shapes=nodes, share=_SHARE, forms=forms)
    rng = _rng(seed, "faults")
    each = (drawing.draw(rng, nodes, kinds=(kind,), duration_s=_DURATION_S) for kind in PROMISED)
    settings = Switches(dialects=DialectSettings(replicas=ReplicasSettings(entries=(_REPLICAS,))))
    return scenario_made(seed, SHAPES, settings, actions=actions, faults=chain.from_iterable(each))


def _replicas(rng: random.Random, _card_mib: int) -> Words:
    return {"nvidia.com/sharedgpu": rng.choice(("1", "1", "2"))}, {}, {}


def _rng(seed: int, purpose: str) -> random.Random:
    return random.Random(f"mixed/{seed}/{purpose}")
