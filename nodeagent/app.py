"""The agent of a node: what it keeps doing, beside each other. It elects nobody: each node has one.

It tells devices of reservation pods (report/devices.py), says what the node has (report/gpunode.py) and, where a memory
enforcer runs, has it go by the caps of books (enforcement/memory.py). Where it has back ends, it gives tenants'
containers what limits them (enforcement/limit_files.py). Without it, or with it dead, everything else works as without
an agent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

import anyio
import msgspec
from anyio.abc import TaskStatus

from kube.client.api import Api
from kube.client.clock import Clock, monotonic_ns
from kube.events import EventRecorder
from kube.telemetry.logevents import EventSink, ignore
from kube.watch.reflector import Reflector, Sink
from kube.watch.signal import Signal
from nodeagent.core.report.status import health_of
from nodeagent.enforcement.backend import BackEnd
from nodeagent.enforcement.hamicore import HamiCore
from nodeagent.enforcement.limit_files import FormerLimits, LimitFiles, LimitingHealth
from nodeagent.enforcement.memory import Connect, Limiting
from nodeagent.enforcement.view import Viewing
from nodeagent.kubeletapi.client import SOCKET
from nodeagent.mps.backend import Mps
from nodeagent.report.cards import Cards, Read
from nodeagent.report.devices import AgentEvent, Books, DeviceReporter, Kubelet, Opening
from nodeagent.report.gpunode import NodeEvents, Publishing
from wire.core import Pod
from wire.crds.gpunode import PLUGIN_OFF, AgentStatus, CardHealth, GpuNode, Missing


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``node``: the name of the Node that it runs on. ``pod_resources_socket``: kubelet's. Times in seconds."""

    node: str
    version: str = ""
    pod_resources_socket: Path = Path(SOCKET)
    #: Folder of tenants' sockets, on which they read their own shares; None: they have none. Needs a memory enforcer.
    tenant_view: Path | None = None
    #: Where the container runtime looks for CDI files.
    tenant_view_cdi: Path = Path("/var/run/cdi")
    #: HAMi-core's library on the host, which limits tenants; None: it does not.
    hami_core: Path | None = None
    #: Where the agent sees it; None: at the same path.
    hami_core_seen_at: Path | None = None
    #: There are no back ends any more: what earlier ones made is removed when no pod needs it.
    remove_limits: bool = False
    #: Socket of the node's MPS daemon, which limits tenants; None: it does not.
    mps_daemon: Path | None = None
    #: The MPS daemon's pipe directory.
    mps_pipes: Path = Path("/run/moorage/mps")
    #: Folder of what tenants' containers mount for their limits.
    limits: Path = Path("/var/lib/moorage/limits")
    #: Where the container runtime looks for the CDI file of limits.
    limits_cdi: Path = Path("/var/run/cdi")
    #: A tenant whose entry has no memory cap is capped at its share.
    cap_all: bool = False
    #: MIG slices are made and destroyed as the GpuNode asks for.
    mig_on_demand: bool = False
    #: Between two looks at the machine's cards: they change when slices are made or a card fails.
    cards_every_s: float = 300.0
    #: Between two looks at which kubelet listens.
    kubelet_every_s: float = 1.0


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def limit_folders(settings: AgentSettings) -> Sequence[Path]:
    """Return the folders of all back ends, also of those that are switched off."""
    return [settings.limits / HamiCore.name]


def back_ends(settings: AgentSettings) -> Sequence[BackEnd]:
    """Return those that are switched on."""
    found: list[BackEnd] = []
    if settings.hami_core is not None:
        boot = _BOOT.read_text(encoding="ascii").strip()
        (folder,) = limit_folders(settings)
        found.append(HamiCore(settings.hami_core, folder, boot=boot, seen_at=settings.hami_core_seen_at))
    if settings.mps_daemon is not None:
        found.append(Mps(settings.mps_daemon, PurePosixPath(settings.mps_pipes)))
    return found


class Plugin(Protocol):
    """The device plug-in of a node (plugin/supervisor.py). What it can't do, it says; it never ends the agent."""

    @property
    def mode(self) -> str:
        """``status.agent.pluginMode``."""
        ...

    @property
    def rivals(self) -> int:
        """How many resources another plug-in serves in its place."""
        ...

    def layouts(self) -> Mapping[str, int]:
        """Return how many MIG layouts it was asked for, by what became of them."""
        ...

    def missing(self) -> list[Missing]:
        """Say what it can't do, and why."""
        ...

    def card_health(self) -> Mapping[str, CardHealth]:
        """Return the health of GPUs that are or were not well, by UUID."""
        ...

    def follow(self, on_change: Callable[[], None]) -> None:
        """Have a function called whenever one of both has changed."""
        ...

    async def run(self) -> None:
        """Serve until cancelled."""
        ...


class Agent:
    """``read`` asks the driver (nodeagent/report/nvml.py), ``kubelet`` the pod-resources API.

    ``enforcer``: what makes the link to the node's memory enforcer, and what tells pods of its kills; None: there is
    none. ``back_ends``: what limits tenants beside it.
    """

    def __init__(
        self,
        api: Api,
        kubelet: Kubelet,
        read: Read,
        *,
        settings: AgentSettings,
        rng: random.Random,
        emit: EventSink[AgentEvent] = ignore,
        enforcer: tuple[Connect, EventRecorder] | None = None,
        back_ends: Sequence[BackEnd] = (),
    ) -> None:
        self._settings = settings
        self.cards = Cards(read, every_s=settings.cards_every_s)
        self.publishing = Publishing(api, node=settings.node, rng=rng, emit=emit)
        is_limiting = enforcer is not None or bool(back_ends)
        self.limiting = self._limiting(enforcer, clock=api.clock) if is_limiting else None
        self._limiting_health = LimitingHealth(api.clock)
        self.limit_files = self._limit_files(back_ends)
        self.viewing = self._viewing()
        #: The node's reservations, where MIG slices are made and destroyed.
        self.books = Books(Signal()) if settings.mig_on_demand else None
        self._tenants = Books(Signal()) if settings.remove_limits else None
        self._opening = Opening()
        also: list[Sink[Pod, Any]] = [
            self._opening,
            *([] if self.limiting is None else [self.limiting.books]),
            *([] if self.books is None else [self.books]),
            *([] if self._tenants is None else [self._tenants]),
        ]
        self.device_reporter = DeviceReporter(
            api,
            kubelet,
            self.cards,
            node=settings.node,
            kubelet_every_s=settings.kubelet_every_s,
            rng=rng,
            emit=emit,
            also=also,
        )
        self.cards.on_change = self._on_cards
        #: Set before ``run``; None: the node has another device plug-in.
        self.plugin: Plugin | None = None

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """What it watches: three requests of a node, each narrowed down by the API server."""
        return [self.device_reporter.reflector, self.publishing.nodes, self.publishing.gpu_nodes]

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled. Started when the node's reservation pods are known.

        Nothing but the GpuNode waits for the driver: one that hangs takes a minute.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.publishing.nodes.run)
            tasks.start_soon(self.publishing.gpu_nodes.run)
            tasks.start_soon(self._publish)
            tasks.start_soon(self.cards.run)
            tasks.start_soon(self.device_reporter.run)
            if self.plugin is not None:
                self.plugin.follow(self.tell)
                tasks.start_soon(self.plugin.run)
            await tasks.start(self.device_reporter.reflector.run)
            if self._tenants is not None:
                tasks.start_soon(self._former_limits(self._tenants).run)
            if self.limiting is not None:
                tasks.start_soon(self.limiting.run)
                tasks.start_soon(self._give, self.limiting)
            task_status.started()

    async def _give(self, limiting: Limiting) -> None:
        """Give tenants' containers what is theirs, once all tenants are known: files of others are taken away."""
        await limiting.held.wait()
        async with anyio.create_task_group() as tasks:
            for part in (self.viewing, self.limit_files):
                if part is not None:
                    tasks.start_soon(part.run)

    def warn_by(self, events: EventRecorder) -> None:
        """Report by Events on the Node what makes a GPU ill here. To be called before ``run``."""
        publishing = self.publishing
        self._limiting_health.events = NodeEvents(events, node=self._settings.node, seen=lambda: publishing.node)

    def wanted(self) -> frozenset[str]:
        """UUIDs of GPUs that reservations of this node are opened for."""
        return self._opening.wanted(self.cards.cards)

    def missing(self) -> list[Missing]:
        """Say what the agent can't do here, and why."""
        found = [Missing(what="devices", why=self.cards.trouble)] if self.cards.trouble else []
        found += [Missing(what=f"GPU {one.index}", why=one.why) for one in self.cards.unknown]
        parts = [part for part in (self.limiting, self.limit_files, self.plugin) if part is not None]
        if self.viewing is not None and self.viewing.trouble:
            found.append(Missing(what="tenants' view", why=self.viewing.trouble))
        return [*found, *(each for part in parts for each in part.missing())]

    async def _publish(self) -> None:
        """Write the GpuNode: what an agent before this one saw stays in it until the driver was asked."""
        await self.cards.asked.wait()
        await self.publishing.gpu_nodes.synced.wait()
        self._resume(self.publishing.gpu_node)
        await self.publishing.run()

    def _resume(self, before: GpuNode | None) -> None:
        """Go on with what an agent before this one has reported of limits."""
        if before is not None and self.limit_files is not None:
            self.limit_files.resume(self._limiting_health.resume(before.status.cards or ()))
            self.tell()

    def _limiting(self, enforcer: tuple[Connect, EventRecorder] | None, *, clock: Clock) -> Limiting:
        return Limiting(
            enforcer,
            cards=self.cards,
            publishing=self.publishing,
            clock=clock,
            cap_all=self._settings.cap_all,
            on_change=self.tell,
        )

    def _viewing(self) -> Viewing | None:
        limiting, folder = self.limiting, self._settings.tenant_view
        if limiting is None or folder is None:
            return None
        tenants = limiting.tenants
        viewing = Viewing(
            tenants=lambda: tenants.pods,
            shares=lambda pod: tenants.shares(pod, monotonic_ns()),
            folder=folder,
            cdi=self._settings.tenant_view_cdi,
        )
        limiting.on_hold.append(viewing.look)
        return viewing

    def _limit_files(self, back_ends: Sequence[BackEnd]) -> LimitFiles | None:
        limiting = self.limiting
        if limiting is None or not back_ends:
            return None
        tenants = limiting.tenants
        files = LimitFiles(
            back_ends,
            tenants=lambda: tenants.held,
            cdi=self._settings.limits_cdi,
            on_look=limiting.place,
            on_ill=self._on_ill,
            on_change=self.tell,
        )
        limiting.on_hold.append(files.look)
        return files

    def _on_ill(self, ill: Mapping[str, str]) -> None:
        self._limiting_health.take(ill)
        self.tell()

    def _former_limits(self, books: Books) -> FormerLimits:
        folders = limit_folders(self._settings)
        return FormerLimits(books.pods, folders=folders, cdi=self._settings.limits_cdi)

    def _back_ends(self) -> list[str]:
        parts = (self.limiting and self.limiting.back_ends, self.limit_files and self.limit_files.working)
        return [name for part in parts for name in part or ()]

    def _on_cards(self) -> None:
        if self.limiting is not None:
            self.limiting.look()
        self.tell()

    def tell(self) -> None:
        """Have the GpuNode say what is known now."""
        plugin = self.plugin
        agent = AgentStatus(
            version=self._settings.version,
            back_ends=self._back_ends() or None,
            plugin_mode=PLUGIN_OFF if plugin is None else plugin.mode,
            missing=self.missing() or None,
        )
        judged = {} if plugin is None else plugin.card_health()
        health = health_of(self.cards.lost, self._limiting_health.cards, judged)
        self.publishing.tell(cards=self.cards.cards, agent=agent, health=health)
