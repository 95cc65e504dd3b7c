"""A node's device plug-in: the loop that joins file, devices, health and kubelet.

``serve`` runs until it is cancelled. What it needs of the machine and of the API server is passed in, so it runs in the
node agent, in a process of its own, or in a test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from kube.client.clock import monotonic_ns
from nodeagent import cdifiles
from nodeagent.answering import ResourceAnswers, Surroundings
from nodeagent.core.boundedyaml import MOST_BYTES
from nodeagent.core.card import Card
from nodeagent.core.health import Health, Look
from nodeagent.core.mistake import Mistake
from nodeagent.core.preferring import Place
from nodeagent.core.remembered import Remembered, decoded, encoded
from nodeagent.core.settings import PluginSettings
from nodeagent.core.slice import Slice
from nodeagent.core.standing import Fault, Standing
from nodeagent.lifeofresource import Allocatable, LifeOfResource, Pace, Watcher

_CDI_STRATEGY: Final = "flags.plugin.deviceListStrategy"
#: Of a state file that we wrote: 32 GPUs of 7 slices have 60 KiB.
_MOST_STATE_BYTES: Final = 1 << 20


class Unreadable(Exception):
    """Raised by a Machine whose driver does not answer; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that the driver lists. ``looks`` are of GPUs and slices, ``places`` of GPUs, by UUID."""

    cards: Sequence[Card]
    slices: Sequence[Slice] = ()
    looks: Mapping[str, Look] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)


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
    """Seconds between two looks at the file and at the devices; for how long one wait for events lasts."""

    file_s: float = 1.0
    look_s: float = 10.0
    wait_s: float = 0.5
    life: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is asked again and again. ``file``: the settings file, None for none.

    ``wanted``: UUIDs of GPUs that waiting reservations are opened for. ``cleared``: UUIDs that an administrator has
    called mended since the last call.
    """

    file: Callable[[], Path | None]
    allocatable: Allocatable
    wanted: Callable[[], Collection[str]] = tuple
    cleared: Callable[[], Collection[str]] = tuple


async def serve(
    machine: Machine,
    sources: Sources,
    observer: Observer,
    *,
    places: Places,
    environment: Mapping[str, str],
    intervals: Intervals | None = None,
) -> None:
    """Serve a node's GPUs to kubelet until cancelled.

    Raises Unreadable if the driver does not answer at first, unless the file says ``failOnInitError: false``.
    """
    plugin = _Plugin(
        machine=machine,
        sources=sources,
        observer=observer,
        places=places,
        environment=environment,
        intervals=intervals or Intervals(),
    )
    async with anyio.create_task_group() as tasks:
        await plugin.run(tasks)


class _Plugin:
    def __init__(
        self,
        *,
        machine: Machine,
        sources: Sources,
        observer: Observer,
        places: Places,
        environment: Mapping[str, str],
        intervals: Intervals,
    ) -> None:
        self._machine = machine
        self._sources = sources
        self._observer = observer
        self._places = places
        self._intervals = intervals
        self._kept = _read_state(places.state)
        self._standing = Standing(environment, self._kept)
        self._around = Surroundings(wanted=sources.wanted, root=places.root)
        self._lives: dict[str, tuple[LifeOfResource, anyio.CancelScope]] = {}
        self._told: tuple[object, ...] = ()
        self._cdi_for: tuple[object, ...] = ()
        self._cdi_problem = ""
        #: NVML is asked in one thread.
        self._one = anyio.CapacityLimiter(1)

    async def run(self, tasks: TaskGroup) -> None:
        self._standing.take_file(_read_file(self._sources.file()))
        await self._first_look()
        await self._settle(tasks)
        tasks.start_soon(self._follow_file, tasks)
        tasks.start_soon(self._follow_machine, tasks)

    async def _first_look(self) -> None:
        settings = self._standing.settings or PluginSettings()
        while True:
            try:
                return await self._look()
            except Unreadable as error:
                self._observer.unreadable(str(error))
                if settings.fail_on_init_error and not self._kept.cards:
                    raise
            if self._kept.cards:
                # The driver was there before this start: its devices are listed as they were, and looked at again.
                self._standing.take_machine(self._kept.cards, self._kept.slices)
                return None
            await anyio.sleep(self._intervals.look_s)

    async def _look(self) -> None:
        reading = await anyio.to_thread.run_sync(self._machine.read, limiter=self._one)
        self._standing.take_machine(reading.cards, reading.slices)
        self._standing.take_looks(reading.looks, monotonic_ns())
        self._around.places = reading.places
        self._observer.unreadable("")

    async def _follow_file(self, tasks: TaskGroup) -> None:
        before = None
        while True:
            path = self._sources.file()
            if (now := (path, _version(path))) != before:
                before = now
                self._standing.take_file(_read_file(path))
                await self._settle(tasks)
            await anyio.sleep(self._intervals.file_s)

    async def _follow_machine(self, tasks: TaskGroup) -> None:
        next_look_s = anyio.current_time() + self._intervals.look_s
        while True:
            try:
                wait = partial(self._machine.faults, self._intervals.wait_s)
                faults = await anyio.to_thread.run_sync(wait, limiter=self._one)
                for fault in faults:
                    self._standing.take_fault(fault, monotonic_ns())
                if anyio.current_time() >= next_look_s:
                    next_look_s = anyio.current_time() + self._intervals.look_s
                    await self._look()
            except Unreadable as error:
                self._observer.unreadable(str(error))
                if anyio.current_time() >= next_look_s:
                    next_look_s = anyio.current_time() + self._intervals.look_s
                    self._nobody_answers()
                await anyio.sleep(self._intervals.wait_s)
            self._standing.take_cleared(self._sources.cleared(), monotonic_ns())
            await self._settle(tasks)

    def _nobody_answers(self) -> None:
        """Take a driver that does not answer as devices that don't: twice, and they are ill."""
        lost = Look(answers=False)
        self._standing.take_looks(dict.fromkeys(self._standing.uuids, lost), monotonic_ns())

    async def _settle(self, tasks: TaskGroup) -> None:
        """Bring services, kept state and observer to what the state is now."""
        standing = self._standing
        now = (standing.resources, standing.ill, standing.mistakes, standing.settings, dict(standing.health))
        if now == self._told:
            return
        self._told = now
        await self._make_cdi()
        served = {} if self._cdi_problem else standing.resources
        for name in self._lives.keys() - served.keys():
            self._lives.pop(name)[1].cancel()
        for name in served:
            if name in self._lives:
                self._lives[name][0].changed()
            else:
                self._start(name, tasks)
        self._tell()

    def _start(self, name: str, tasks: TaskGroup) -> None:
        life = LifeOfResource(
            self._places.plugins,
            name,
            ResourceAnswers(name, self._standing, self._around),
            allocatable=self._sources.allocatable,
            watcher=self._observer,
            pace=self._intervals.life,
        )
        scope = anyio.CancelScope()
        self._lives[name] = (life, scope)
        tasks.start_soon(_within, scope, life)

    def _tell(self) -> None:
        mistakes = list(self._standing.mistakes)
        if self._cdi_problem:
            mistakes.append(Mistake(_CDI_STRATEGY, self._cdi_problem, "strategies without CDI"))
        self._observer.refused(mistakes)
        self._observer.noted(self._standing.notes)
        self._observer.health(dict(self._standing.health))
        kept = self._standing.remembered()
        if kept != self._kept:
            self._kept = kept
            # What is not kept costs nothing but what a restart forgets.
            with contextlib.suppress(OSError):
                _write_state(self._places.state, kept)

    async def _make_cdi(self) -> None:
        """Make the CDI file where a strategy needs it, and again when devices or settings have changed."""
        settings = self._standing.settings
        if settings is None or not any(each.is_cdi for each in settings.deliveries):
            self._cdi_for, self._cdi_problem = (), ""
            return
        wanted = (settings.ctk_path, settings.driver_root, self._standing.resources)
        if wanted == self._cdi_for:
            return
        try:
            make = partial(cdifiles.generate, settings.ctk_path, settings.driver_root)
            cdifiles.write(self._places.cdi, await anyio.to_thread.run_sync(make))
        except cdifiles.NoCdi as error:
            self._cdi_problem = str(error)
        else:
            self._cdi_for, self._cdi_problem = wanted, ""


async def _within(scope: anyio.CancelScope, life: LifeOfResource) -> None:
    with scope:
        await life.run()


def _version(path: Path | None) -> tuple[int, int, int] | None:
    """Tell one content of a file from the next; a mounted ConfigMap is a link to another file then."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read_file(path: Path | None) -> str | Mistake:
    """Read a settings file, and no more than one byte beyond what is allowed. "" if there should be none."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1).decode(errors="replace")
    except OSError as error:
        return Mistake(str(path), f"can't be read: {error.strerror}", "a file")


def _read_state(path: Path) -> Remembered:
    try:
        with path.open("rb") as file:
            return decoded(file.read(_MOST_STATE_BYTES))
    except OSError:
        return Remembered()


def _write_state(path: Path, kept: Remembered) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(encoded(kept))
    fresh.replace(path)
