"""What a device plug-in needs of its surroundings, and the lives of a resource of it with kubelet.

The node agent passes in its own driver, observer, sources, paths and intervals; tests pass in emulated ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import anyio

from nodeagent import cdi as cdifiles
from nodeagent.aligned_timer import until_beat
from nodeagent.core.devices import Card, Slice, Slices
from nodeagent.core.plugin.health import Health, Look
from nodeagent.core.plugin.labels import Driver
from nodeagent.core.plugin.offer import Fault, Place
from nodeagent.core.plugin.settings import Mistake
from nodeagent.kubeletapi.client import identity, is_served
from nodeagent.kubeletapi.deviceplugin import KUBELET_SOCKET
from nodeagent.kubeletapi.service import Answers, NotRegistered, PluginService, is_plugin, register

_PREFIX: Final = "moorage-agent-"
#: NVIDIA's own plug-in, for kubelets that do not tell what they know.
_NVIDIAS: Final = "nvidia-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds: between two looks at sockets, until kubelet has asked for devices, between two looks for a rival.

    ``serving_s``: between two looks at sockets while kubelet follows the list. A kubelet that ends is noticed at once,
    since its stream ends.
    """

    poll_s: float = 0.25
    serving_s: float = 1.0
    heard_s: float = 5.0
    rival_s: float = 30.0


class Watcher(Protocol):
    """Hears of a resource's lives."""

    def registered(self, resource: str, kubelet: tuple[int, int]) -> None:
        """Hear that this kubelet has taken the plug-in and read its devices."""
        ...

    def rival(self, resource: str, what: str) -> None:
        """Hear that another plug-in serves the resource, again after each look at it; "" when it has gone."""
        ...

    def failed(self, resource: str, what: str) -> None:
        """Hear why registering did not succeed; it is tried again."""
        ...

    def withdrawn(self, resource: str) -> None:
        """Hear that the file or the devices do not have the resource any more."""
        ...


#: Resources that kubelet has devices of; None if it does not tell.
Allocatable = Callable[[], Awaitable[Collection[str] | None]]


class LifeOfResource:
    """Serves one resource through all lives of kubelet, and never beside another plug-in that serves it.

    kubelet knows a resource by the plug-in that registered last. Two that register in turn would make a node's capacity
    flap, so a plug-in that is there already is left alone, and looked at again after a while. ``run`` serves until it
    is cancelled; ``changed`` sends the devices again.
    """

    def __init__(
        self, folder: Path, resource: str, answers: Answers, *, allocatable: Allocatable, watcher: Watcher, pace: Pace
    ) -> None:
        self._folder = folder
        self._kubelet_socket = folder / KUBELET_SOCKET
        self._resource = resource
        self._answers = answers
        self._allocatable = allocatable
        self._watcher = watcher
        self._pace = pace
        self._service: PluginService | None = None
        self._endpoint = f"{_PREFIX}{resource.rpartition('/')[2]}.sock"

    def changed(self) -> None:
        """Tell kubelet the devices again."""
        if self._service is not None:
            self._service.changed()

    async def run(self) -> None:
        """Serve, one life for each of kubelet's."""
        replaced: tuple[int, int] | None = None
        while True:
            kubelet = await self._living_kubelet()
            if what := await self._rival():
                self._watcher.rival(self._resource, what)
                with anyio.move_on_after(self._pace.rival_s):
                    await self._next_kubelet(kubelet)
                continue
            self._watcher.rival(self._resource, "")
            try:
                was_replaced = await self._one_life(kubelet)
            except (NotRegistered, OSError) as error:
                self._watcher.failed(self._resource, str(error))
                await anyio.sleep(self._pace.poll_s)
                continue
            if was_replaced and replaced == kubelet:
                self._watcher.rival(self._resource, "another device plug-in has registered the resource twice")
                with anyio.move_on_after(self._pace.rival_s):
                    await self._next_kubelet(kubelet)
                replaced = None
            else:
                replaced = kubelet if was_replaced else None

    async def _living_kubelet(self) -> tuple[int, int]:
        """Wait for a kubelet that listens: the socket of a dead one stays until the next one starts."""
        while True:
            found = identity(self._kubelet_socket)
            if found is not None and await is_served(self._kubelet_socket):
                return found
            await anyio.sleep(self._pace.poll_s)

    async def _next_kubelet(self, before: tuple[int, int]) -> None:
        while True:
            if identity(self._kubelet_socket) not in {before, None}:
                return
            await anyio.sleep(self._pace.poll_s)

    async def _rival(self) -> str:
        """Say which other plug-in serves the resource; "" if none does."""
        known = await self._allocatable()
        if known is not None and self._resource not in known:
            return ""
        for socket in _others(self._folder, self._endpoint):
            # Of a kubelet that does not tell its devices only NVIDIA's own name is a sign.
            is_sign = known is not None or socket.name == f"{_NVIDIAS}{self._resource.rpartition('/')[2]}.sock"
            if is_sign and await is_plugin(socket):
                return f"kubelet has devices of {self._resource} from another plug-in; {socket.name} answers"
        return ""

    async def _one_life(self, kubelet: tuple[int, int]) -> bool:
        """Serve for as long as this kubelet lives; return whether another plug-in took our place."""
        async with PluginService(self._folder / self._endpoint, self._answers) as service:
            self._service = service
            try:
                await register(self._folder, self._endpoint, self._resource)
                with anyio.move_on_after(self._pace.heard_s) as waiting:
                    await service.heard.wait()
                if waiting.cancelled_caught:
                    self._watcher.failed(self._resource, "kubelet did not ask for devices")
                    return False
                self._watcher.registered(self._resource, kubelet)
                while service.is_there() and identity(self._kubelet_socket) in {kubelet, None}:
                    if service.left.is_set():
                        return await self._was_replaced(kubelet)
                    with until_beat(self._pace.serving_s):
                        await service.left.wait()
            finally:
                self._service = None
        return False

    async def _was_replaced(self, kubelet: tuple[int, int]) -> bool:
        """Whether the kubelet that ended our list lives: then it has taken another plug-in."""
        return identity(self._kubelet_socket) == kubelet and await is_served(self._kubelet_socket)


def _others(folder: Path, own: str) -> list[Path]:
    return sorted(socket for socket in folder.glob("*.sock") if socket.name not in {own, KUBELET_SOCKET})


class Unreadable(Exception):
    """Raised by a Machine whose driver does not answer; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that the driver lists, and itself. ``looks`` are of GPUs and slices, ``places`` of GPUs, by UUID."""

    cards: Sequence[Card]
    slices: Sequence[Slice] = ()
    looks: Mapping[str, Look] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    driver: Driver = Driver()  # noqa: RUF009 - frozen


class Machine(Protocol):
    """The driver. Both calls block, and are made in one thread."""

    def read(self) -> Reading:
        """Look at all devices. Raises Unreadable."""
        ...

    def faults(self, within_s: float) -> Sequence[Fault]:
        """Wait for events for at most this time. Raises Unreadable."""
        ...


class Observer(Watcher, Protocol):
    """Hears what a node's administrator should know."""

    def refused(self, mistakes: Sequence[Mistake]) -> None:
        """Hear what is wrong with the file; nothing when it is served."""
        ...

    def noted(self, notes: Sequence[str]) -> None:
        """Hear which parts of the file have no effect on this node."""
        ...

    def health(self, states: Mapping[str, Health]) -> None:
        """Hear the health of all devices that are not, or lately were not, well."""
        ...

    def labelled(self, labels: Mapping[str, str]) -> None:
        """Hear all labels that the node is to have; none where the file says so."""
        ...

    def unreadable(self, why: str) -> None:
        """Hear that the driver does not answer; "" when it does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Paths. ``plugins`` is kubelet's folder of sockets; ``state`` has to vanish with a reboot, as in /run."""

    plugins: Path
    state: Path
    cdi: Path = Path(cdifiles.FOLDER)
    root: Path = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Seconds between two looks at the file and at the devices; for how long one wait for events lasts.

    ``answer_s``: for how long the driver may keep us waiting. Where no persistence daemon runs, it takes a second or
    two a GPU.
    """

    file_s: float = 1.0
    look_s: float = 10.0
    wait_s: float = 1.0
    answer_s: float = 60.0
    life: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is asked again and again. ``file``: the settings file, None for none, or why it can't be told.

    ``wanted``: UUIDs of GPUs that waiting reservations are opened for. ``cleared``: UUIDs that an administrator has
    called mended since the last call. ``slices``: what makes and destroys MIG slices.
    """

    file: Callable[[], Path | Mistake | None]
    allocatable: Allocatable
    wanted: Callable[[], Collection[str]] = tuple
    cleared: Callable[[], Collection[str]] = tuple
    slices: Slices = Slices()  # noqa: RUF009 - without state
