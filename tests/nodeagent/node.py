"""An agent on the in-memory API server and a played kubelet, in virtual time; tests play the rest."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from kube.client.api import Api
from kube.client.resources import GPU_NODES, NODES, PODS
from kube.client.retry import Retry
from kube.events import EventRecorder
from nodeagent.app import Agent, AgentSettings, Plugin
from nodeagent.core.devices import Card, Machine
from nodeagent.core.report.devices import Outcome
from nodeagent.enforcement.backend import BackEnd
from nodeagent.enforcement.memory import Connect
from nodeagent.kubeletapi.client import Devices, Life, PodDevices, Unanswered
from nodeagent.report.devices import AgentEvent, DeviceReported, KubeletSilent
from reservation.device import Device, Unreadable
from simulator.apiserver.calls import AuditEntry
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import MOORAGE
from simulator.clock import VirtualClock
from wire import names
from wire.core import Pod
from wire.crds.gpunode import GpuNode

NODE, AGENT = "node-a", "agent"
CARDS = (
    Card(uuid="GPU-a", index=0, product="H100", minor=3, mem_mib=81559),
    Card(uuid="GPU-b", index=1, product="H100", minor=1, mem_mib=81559),
)
MACHINE = Machine(CARDS, {card.uuid: Device(card.uuid, card.minor, card.mem_mib) for card in CARDS})


@dataclass
class PlayedKubelet:
    """``given``: pod's name -> device ids; a pod that is not there is not known."""

    given: dict[str, tuple[str, ...]] = field(default_factory=dict)
    is_down: bool = False
    lives: int = 1
    asked: list[str] = field(default_factory=list)
    #: Is called before each answer.
    meanwhile: Callable[[], Any] | None = None

    def life(self) -> Life:
        return None if self.is_down else (self.lives, 0)

    async def get(self, namespace: str, name: str) -> PodDevices | None:
        return next((pod for pod in await self._answer(f"get {name}") if pod.name == name), None)

    async def list(self) -> tuple[PodDevices, ...]:
        return await self._answer("list")

    async def _answer(self, question: str) -> tuple[PodDevices, ...]:
        self.asked.append(question)
        await anyio.sleep(0.001)
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.is_down:
            raise Unanswered("nobody listens")
        return tuple(
            PodDevices(names.RESERVATION_NAMESPACE, name, (Devices(names.GPU_RESOURCE, ids),))
            for name, ids in self.given.items()
        )


class Counted:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.took_s: list[float] = []
        self.without_answer = 0

    def take(self, event: AgentEvent) -> None:
        if isinstance(event, DeviceReported):
            self.outcomes.append(event.outcome)
            self.took_s += [] if event.took_s is None else [event.took_s]
        self.without_answer += isinstance(event, KubeletSilent)


@dataclass
class Scene:
    server: MemoryApiServer
    api: Api
    kubelet: PlayedKubelet
    counted: Counted
    tasks: TaskGroup
    machine: list[Machine | Unreadable]
    agent: Agent = field(init=False)
    looks: int = 0
    #: How long the driver takes to answer.
    takes_s: float = 0.0

    async def read(self) -> Machine | Unreadable:
        self.looks += 1
        await anyio.sleep(self.takes_s)
        return self.machine[0]

    async def start(
        self,
        enforcer: Connect | None = None,
        *,
        plugin: Callable[[Scene], Plugin | None] = lambda _: None,
        back_ends: Sequence[BackEnd] = (),
        **settings: Any,
    ) -> anyio.CancelScope:
        """Start an agent, as after the start of its process."""
        scope = anyio.CancelScope()
        events = self._events()
        self.agent = Agent(
            Api(self.server.transport(AGENT), retry=Retry(random.Random(2))),
            self.kubelet,
            self.read,
            settings=AgentSettings(node=NODE, version="1.2.3", **settings),
            rng=random.Random(3),
            emit=self.counted.take,
            enforcer=None if enforcer is None else (enforcer, events),
            back_ends=back_ends,
        )
        self.agent.warn_by(events)
        self.agent.plugin = plugin(self)

        async def run(*, task_status: Any) -> None:
            with scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(events.run)
                    await self.agent.run(task_status=task_status)

        await self.tasks.start(run)
        return scope

    def _events(self) -> EventRecorder:
        once = Api(self.server.transport(AGENT), retry=Retry(random.Random(2), tries=1))
        clock = VirtualClock(asyncio.get_running_loop())
        return EventRecorder(once, clock=clock, controller=names.NODE_AGENT_SERVICE_ACCOUNT, instance=NODE)

    async def reserve(self, name: str = "r", *, node: str = NODE, started: bool = True, **annotations: str) -> Pod:
        """Create a reservation pod that kubelet has admitted."""
        body: dict[str, Any] = {
            "metadata": {"name": name, "labels": {names.APP_LABEL: names.RESERVATION_APP}, "annotations": annotations},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}],
            },
        }
        pod = await self.api.create(PODS, body, namespace=names.RESERVATION_NAMESPACE)
        return await self.admit(name) if started else pod

    async def admit(self, name: str = "r", **status: Any) -> Pod:
        body = {"status": {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z", **status}}
        return await self.api.patch(PODS, name, body, namespace=names.RESERVATION_NAMESPACE, subresource="status")

    async def annotations(self, name: str = "r") -> dict[str, str]:
        pod = await self.api.get(PODS, name, namespace=names.RESERVATION_NAMESPACE)
        return dict(pod.metadata.annotations or {})

    async def gpu_node(self) -> GpuNode:
        return await self.api.get(GPU_NODES, NODE)

    def requests(self, *verbs: str) -> list[AuditEntry]:
        """What the agent asked of the API server."""
        return [each for each in self.server.audit if each.user == AGENT and each.verb in verbs]

    def writes(self) -> list[str]:
        return [
            f"{each.verb} {each.resource}{'/' if each.subresource else ''}{each.subresource}"
            for each in self.requests("create", "update", "patch", "delete")
        ]


@asynccontextmanager
async def scene(*, with_kind: bool = True) -> AsyncIterator[Scene]:
    """A node with two cards and no agent yet."""
    server = MemoryApiServer(
        clock=VirtualClock(asyncio.get_running_loop()),
        rng=random.Random(1),
        extra_types=MOORAGE if with_kind else (),
        auto_namespaces=True,
    )
    api = Api(server.transport("test"), retry=Retry(random.Random(4)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        await api.create(NODES, {"metadata": {"name": NODE}})
        yield Scene(server, api, PlayedKubelet(), Counted(), tasks, [MACHINE])
        tasks.cancel_scope.cancel()
