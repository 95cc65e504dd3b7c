"""A simulated cluster at work, for people who want to see the page: teams come, run for a while, and go.

All of Moorage is real there but the machines (simulator/world.py); nothing is shown that it did not decide. What comes
when follows from the seed, how long things take does not: time is real.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskStatus

from binder.settings import BinderSettings
from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock, SystemClock
from kube.client.resources import NODES, POD_GROUPS, PODS, QUEUES
from kube.client.transport import Transport
from runtime.settings.page import NODES as NODES_OF_PLAY
from runtime.text import BadInput
from simulator.nodes import shape
from simulator.nodes.shape import KubeletSettings, NodeShape
from simulator.world import World, WorldSettings
from wire import names

#: Namespace -> its queue.
TEAMS: Final = {
    "vision": "research",
    "speech": "research",
    "robotics": "research",
    "notebooks": "interactive",
    "serving": "production",
}
#: What is written in queues: parent, and GPUs of quota and limit.
QUEUES_OF_PLAY: Final = {
    "lab": ("", -1, -1),
    "research": ("lab", 16, -1),
    "interactive": ("lab", 2, 4),
    "production": ("", 8, -1),
}
_IMAGE: Final = "nvidia/cuda:12.6.3-base-ubuntu24.04"
#: Percent of the GPUs that are wanted, on average.
_WANTED_PERCENT: Final = 86
#: Of so few nodes all take pods.
_FEW: Final = 2
_SETTLE_S: Final = 2.0
_STEP_S: Final = (0.2, 1.2)
_SETTINGS: Final = WorldSettings(
    kubelet=KubeletSettings(sandbox_s=0.6, init_run_s=1.0), binder=BinderSettings(idle_s=2.0, sweep_s=0.5)
)


class Ask(msgspec.Struct, frozen=True):
    """Some pods that come together. ``milli``: of a GPU each, for the sum of what is wanted; ``life_s``: how long."""

    names: tuple[str, ...]
    namespace: str
    annotations: dict[str, str]
    gpus: int
    milli: int
    life_s: float
    gang: str = ""


def asks(rng: random.Random) -> Iterator[Ask]:
    """What teams ask for, one after the other, for ever."""
    number = 0
    while True:
        number += 1
        namespace = rng.choices(list(TEAMS), weights=(4, 3, 3, 4, 4))[0]
        life_s = rng.uniform(40.0, 160.0)
        draw = rng.random()
        if namespace == "notebooks":
            percent = rng.choice((10, 20, 25))
            yield _shares(f"notebook-{number}", namespace, percent, life_s)
        elif namespace == "serving":
            percent = rng.choice((25, 30, 50))
            yield _shares(f"llm-{number}", namespace, percent, life_s * 2)
        elif draw < 0.14:
            count = rng.choice((2, 4))
            yield Ask((f"train-{number}",), namespace, {}, count, 1000 * count, life_s)
        elif draw < 0.34:
            members = tuple(f"ddp-{number}-{member}" for member in range(rng.choice((3, 4))))
            yield Ask(members, namespace, {names.GPU_FRACTION: "0.5"}, 0, 500, life_s, gang=f"ddp-{number}")
        elif draw < 0.5:
            yield Ask((f"finetune-{number}",), namespace, {}, 1, 1000, life_s)
        else:
            yield _shares(f"eval-{number}", namespace, rng.choice((20, 30, 40, 50, 60)), life_s)


def _shares(name: str, namespace: str, percent: int, life_s: float) -> Ask:
    return Ask((name,), namespace, {names.GPU_FRACTION: f"0.{percent:02d}"}, 0, 10 * percent, life_s)


class Play:
    """A world, with those who use it. In virtual time (simulator/clock.py) all of it follows from the seed."""

    def __init__(self, shapes: Sequence[NodeShape], *, seed: int, clock: Clock | None = None) -> None:
        self._shapes = shapes
        self._seed = seed
        self.world = World(shapes, clock=clock or SystemClock(), settings=msgspec.structs.replace(_SETTINGS, seed=seed))
        #: Set when the cluster is there, and nobody has come yet.
        self.is_there = anyio.Event()
        self._wanted_milli = 0
        self._most_milli = 10 * _WANTED_PERCENT * sum(len(shape.cards_mib) for shape in shapes)

    @property
    def transport(self) -> Transport:
        """Reads the world's API server."""
        return self.world.server.transport("page")

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Play until cancelled. Started when the cluster is there and the first have come."""
        rng = random.Random(f"{self._seed}/play")  # noqa: S311 - a play
        async with self.world as world, anyio.create_task_group() as tasks:
            await self._make_queues(world.api)
            self.is_there.set()
            stream = asks(rng)
            while self._wanted_milli < self._most_milli:
                await self._come(next(stream), tasks)
            await self._come(_too_large(self._shapes), tasks)
            await anyio.sleep(_SETTLE_S)
            await self._cordon(world.api)
            task_status.started()
            while True:
                await anyio.sleep(rng.uniform(*_STEP_S))
                if self._wanted_milli < self._most_milli:
                    await self._come(next(stream), tasks)

    async def _make_queues(self, api: Api) -> None:
        unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        for name, (parent, quota, limit) in QUEUES_OF_PLAY.items():
            gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
            resources = {"gpu": gpu, "cpu": unlimited, "memory": unlimited}
            spec = {"parentQueue": parent, "resources": resources}
            await api.create(QUEUES, {"metadata": {"name": name}, "spec": spec})

    async def _cordon(self, api: Api) -> None:
        """The last node takes nobody new, as happens: what is free of it is stranded."""
        if len(self._shapes) > _FEW:
            cordon = {"spec": {"unschedulable": True}}
            await api.patch(NODES, self._shapes[-1].name, cordon)

    async def _come(self, ask: Ask, tasks: anyio.abc.TaskGroup) -> None:
        api = self.world.api
        if ask.gang:
            spec = {"minMember": len(ask.names), "queue": TEAMS[ask.namespace]}
            await api.create(POD_GROUPS, {"metadata": {"name": ask.gang}, "spec": spec}, namespace=ask.namespace)
        for name in ask.names:
            await api.create(PODS, _pod(ask, name), namespace=ask.namespace)
        if ask.life_s:
            self._wanted_milli += ask.milli * len(ask.names)
            tasks.start_soon(self._go, ask)

    async def _go(self, ask: Ask) -> None:
        """Their time is over."""
        await anyio.sleep(ask.life_s)
        for name in ask.names:
            try:
                await self.world.api.delete(PODS, name, namespace=ask.namespace)
            except errors.NotFound:
                continue
        if ask.gang:
            await self.world.api.delete(POD_GROUPS, ask.gang, namespace=ask.namespace)
        self._wanted_milli -= ask.milli * len(ask.names)


def of_nodes(named: Sequence[str], *, seed: int = 0) -> Play:
    """A play on nodes as the command line names them; none: on some. Raises BadInput."""
    try:
        return Play(shape.parse(named or NODES_OF_PLAY), seed=seed)
    except shape.MalformedShape as error:
        raise BadInput(f"--nodes: {error}") from error


@asynccontextmanager
async def at_work(play: Play, *, is_filled: bool = True) -> AsyncIterator[Transport]:
    """Play as long as somebody looks. ``is_filled``: from when the first have come; else while they come, too."""
    async with anyio.create_task_group() as tasks:
        if is_filled:
            await tasks.start(play.run)
        else:
            tasks.start_soon(play.run)
            await play.is_there.wait()
        yield play.transport
        tasks.cancel_scope.cancel()


def _too_large(shapes: Sequence[NodeShape]) -> Ask:
    """A pod waits for ever, and its condition says why."""
    count = max(len(shape.cards_mib) for shape in shapes) + 1
    return Ask(("pretrain-0",), "vision", {}, count, 0, 0.0)


def _pod(ask: Ask, name: str) -> dict[str, Any]:
    gang = {names.POD_GROUP_NAME: ask.gang} if ask.gang else {}
    limits = {names.GPU_RESOURCE: str(ask.gpus)} if ask.gpus else {}
    container = {"name": "main", "image": _IMAGE, "resources": {"limits": limits}}
    return {
        "metadata": {
            "name": name,
            "labels": {names.QUEUE_LABEL: TEAMS[ask.namespace]},
            "annotations": {**ask.annotations, **gang},
        },
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container]},
    }
