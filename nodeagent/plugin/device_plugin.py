"""A node's device plug-in: the loop that joins file, devices, health and kubelet, its answers, and its files."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from kube.client.clock import monotonic_ns
from nodeagent import cdi, kept_file
from nodeagent.aligned_timer import beat
from nodeagent.core.plugin.health import Look
from nodeagent.core.plugin.labels import Driver, node_labels
from nodeagent.core.plugin.offer import (
    COMMON_FILES,
    Offering,
    Place,
    Refused,
    Served,
    allocate,
    decoded,
    encoded,
    preferred,
)
from nodeagent.core.plugin.settings import Mistake, PluginSettings, uuid_of
from nodeagent.core.plugin.settings_file import MOST_BYTES
from nodeagent.driver_thread import OneQuestion
from nodeagent.kubeletapi.deviceplugin import (
    AllocateRequest,
    AllocateResponse,
    ContainerResponse,
    Device,
    DeviceList,
    PreferredRequest,
    PreferredResponse,
)
from nodeagent.kubeletapi.service import Refusal
from nodeagent.plugin.ports import Intervals, LifeOfResource, Machine, Observer, Places, Sources, Unreadable


@dataclass(slots=True)
class Surroundings:
    """What is known beside the devices. ``wanted``: UUIDs that waiting reservations are opened for.

    ``withdrawn``: UUIDs of slices that are about to be destroyed.
    """

    wanted: Callable[[], Collection[str]] = tuple
    withdrawn: Callable[[], Collection[str]] = tuple
    places: Mapping[str, Place] = field(default_factory=dict)
    #: Below it the node's device files are seen.
    root: Path = Path("/")


class ResourceAnswers:
    """Answers for one resource."""

    def __init__(self, name: str, offering: Offering, around: Surroundings) -> None:
        self._name = name
        self._offering = offering
        self._around = around
        self._numbers = itertools.count()

    def devices(self) -> bytes:
        """List the devices of now; none when the resource has gone."""
        is_there = self._name in self._offering.resources
        listed = self._offering.listed(self._name, self._around.withdrawn()) if is_there else ()
        return DeviceList([Device(*each) for each in listed]).encode()

    def preferred(self, request: PreferredRequest) -> PreferredResponse:
        """Advise by policy, waiting reservations, and the places of GPUs."""
        served, settings = self._served()
        wanted = frozenset(self._around.wanted())
        chosen = (
            preferred(
                one.available,
                one.included,
                one.size,
                devices=served.by_id,
                policy=settings.policy,
                wanted=wanted,
                places=self._around.places,
            )
            for one in request.containers
        )
        return PreferredResponse(list(chosen))

    def allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Give devices to containers. Raises Refusal: unknown or ill ones, or too many."""
        served, settings = self._served()
        ill, withdrawn = self._offering.ill, self._around.withdrawn()
        given = []
        for chosen in request.containers:
            # kubelet may not have read the last list yet.
            devices = [served.by_id[each] for each in chosen if each in served.by_id]
            if sick := next((one for one in devices if one.uuid in ill or one.card in ill), None):
                raise Refusal(f"invalid allocation request for {self._name!r}: {uuid_of(sick.uuid)} is ill")
            if going := next((one for one in devices if one.uuid in withdrawn), None):
                raise Refusal(f"invalid allocation request for {self._name!r}: {going.uuid} is being destroyed")
            found = allocate(
                chosen,
                resource=self._name,
                devices=served.by_id,
                settings=settings,
                present_files=self._present(settings),
                number=f"{next(self._numbers)}",
            )
            if isinstance(found, Refused):
                raise Refusal(found.text)
            given.append(
                ContainerResponse(
                    environment=found.environment,
                    mounts=found.mounts,
                    files=found.files,
                    annotations=found.annotations,
                    cdi_devices=tuple(found.cdi_devices),
                )
            )
        return AllocateResponse(given)

    def _served(self) -> tuple[Served, PluginSettings]:
        served, settings = self._offering.resources.get(self._name), self._offering.settings
        if served is None or settings is None:
            raise Refusal(f"{self._name!r} is not served any more")
        return served, settings

    def _present(self, settings: PluginSettings) -> Collection[str]:
        if not settings.pass_device_specs:
            return ()
        return [path for path in COMMON_FILES if (self._around.root / path.lstrip("/")).exists()]


#: Of a state file that we wrote: 32 GPUs of 7 slices have 60 KiB.


def version(path: Path | Mistake | None) -> tuple[int, int, int] | None:
    """Tell one content of a file from the next; a mounted ConfigMap is a link to another file then."""
    if not isinstance(path, Path):
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_file(path: Path | Mistake | None) -> str | Mistake:
    """Read a settings file, and no more than one byte beyond what is allowed. "" if there should be none."""
    if path is None:
        return ""
    if isinstance(path, Mistake):
        return path
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1).decode(errors="replace")
    except OSError as error:
        return Mistake(str(path), f"can't be read: {error.strerror}", "a file")


_T = TypeVar("_T")
_CDI_STRATEGY: Final = "flags.plugin.deviceListStrategy"


async def serve(
    machine: Machine,
    sources: Sources,
    observer: Observer,
    *,
    places: Places,
    environment: Mapping[str, str],
    intervals: Intervals | None = None,
    one_question: OneQuestion | None = None,
) -> None:
    """Serve a node's GPUs to kubelet until cancelled. ``one_question`` is shared by those that ask the same driver.

    Raises Unreadable if the driver does not answer at first, unless the file says ``failOnInitError: false``.

    What it needs of the machine and of the API server is passed in, so it runs in the node agent, in a process of its
    own, or in a test.
    """
    plugin = _Plugin(
        machine=machine,
        sources=sources,
        observer=observer,
        places=places,
        environment=environment,
        intervals=intervals or Intervals(),
        one_question=one_question or OneQuestion(),
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
        one_question: OneQuestion,
    ) -> None:
        self._machine = machine
        self._sources = sources
        self._observer = observer
        self._places = places
        self._intervals = intervals
        self._kept = kept_file.read(places.state, decoded)
        self._offering = Offering(environment, self._kept)
        self._around = Surroundings(wanted=sources.wanted, withdrawn=lambda: sources.slices.withdrawn, root=places.root)
        self._lives: dict[str, tuple[LifeOfResource, anyio.CancelScope]] = {}
        self._driver = Driver()
        self._told: tuple[object, ...] = ()
        self._cdi_for: tuple[object, ...] = ()
        self._cdi_problem = ""
        self._generation = 0
        #: NVML is asked in one thread.
        self._one = one_question

    async def run(self, tasks: TaskGroup) -> None:
        self._offering.take_file(read_file(self._sources.file()))
        await self._first_look()
        await self._settle(tasks)
        tasks.start_soon(self._follow_file, tasks)
        tasks.start_soon(self._follow_machine, tasks)

    async def _first_look(self) -> None:
        settings = self._offering.settings or PluginSettings()
        while True:
            try:
                return await self._look()
            except Unreadable as error:
                self._observer.unreadable(str(error))
                if settings.fail_on_init_error and not self._kept.cards:
                    raise
            if self._kept.cards:
                # The driver was there before this start: its devices are listed as they were, and looked at again.
                self._offering.take_machine(self._kept.cards, self._kept.slices)
                return None
            await anyio.sleep(self._intervals.look_s)

    async def _look(self) -> None:
        if self._cdi_problem:
            # The program may be there now.
            self._told = ()
        generation = self._sources.slices.generation
        reading = await self._asked(self._machine.read)
        self._offering.take_machine(reading.cards, reading.slices)
        self._sources.slices.taken(generation)
        self._generation = generation
        self._offering.take_looks(reading.looks, monotonic_ns())
        self._around.places, self._driver = reading.places, reading.driver
        self._observer.unreadable("")

    async def _asked(self, question: Callable[[], _T]) -> _T:
        """Ask the driver. One that hangs keeps the only thread, so the next question fails too."""
        try:
            return await self._one.ask(question, within_s=self._intervals.answer_s)
        except TimeoutError as error:
            raise Unreadable(f"the driver did not answer within {self._intervals.answer_s:g} s") from error

    async def _follow_file(self, tasks: TaskGroup) -> None:
        before = None
        while True:
            path = self._sources.file()
            if (now := (path, version(path))) != before:
                before = now
                self._offering.take_file(read_file(path))
                await self._settle(tasks)
            await beat(self._intervals.file_s)

    async def _follow_machine(self, tasks: TaskGroup) -> None:
        looked_s = anyio.current_time()
        while True:
            is_due = anyio.current_time() - looked_s >= self._intervals.look_s
            is_due |= self._sources.slices.generation != self._generation
            try:
                for fault in await self._asked(partial(self._machine.faults, self._intervals.wait_s)):
                    self._offering.take_fault(fault, monotonic_ns())
                if is_due:
                    await self._look()
            except Unreadable as error:
                self._observer.unreadable(str(error))
                if is_due:
                    self._nobody_answers()
                await anyio.sleep(self._intervals.wait_s)
            if is_due:
                looked_s = anyio.current_time()
            self._offering.take_cleared(self._sources.cleared(), monotonic_ns())
            await self._settle(tasks)

    def _nobody_answers(self) -> None:
        """Take a driver that does not answer as devices that don't: twice, and they are ill."""
        lost = Look(answers=False)
        self._offering.take_looks(dict.fromkeys(self._offering.uuids, lost), monotonic_ns())

    async def _settle(self, tasks: TaskGroup) -> None:
        """Bring services, kept state and observer to what the state is now."""
        offering = self._offering
        state = (offering.resources, offering.ill, offering.mistakes, offering.settings, dict(offering.health))
        now = (*state, self._driver, self._sources.slices.withdrawn)
        if now == self._told:
            return
        self._told = now
        await self._make_cdi()
        served = {} if self._cdi_problem else offering.resources
        for name in self._lives.keys() - served.keys():
            self._lives.pop(name)[1].cancel()
            self._observer.withdrawn(name)
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
            ResourceAnswers(name, self._offering, self._around),
            allocatable=self._sources.allocatable,
            watcher=self._observer,
            pace=self._intervals.life,
        )
        scope = anyio.CancelScope()
        self._lives[name] = (life, scope)
        tasks.start_soon(_within, scope, life)

    def _tell(self) -> None:
        mistakes = list(self._offering.mistakes)
        if self._cdi_problem:
            mistakes.append(Mistake(_CDI_STRATEGY, self._cdi_problem, "strategies without CDI"))
        self._observer.refused(mistakes)
        self._observer.noted(self._offering.notes)
        self._observer.health(dict(self._offering.health))
        self._label()
        kept = self._offering.remembered()
        if kept != self._kept:
            self._kept = kept
            # What is not kept costs nothing but what a restart forgets.
            with contextlib.suppress(OSError):
                kept_file.write(self._places.state, encoded(kept))

    def _label(self) -> None:
        offering = self._offering
        if offering.settings is None:
            return
        resources = [served.resource for served in offering.resources.values()]
        strategy = offering.settings.mig_strategy
        labels = node_labels(offering.cards, resources, driver=self._driver, mig_strategy=strategy)
        self._observer.labelled(labels if offering.settings.labels else {})

    async def _make_cdi(self) -> None:
        """Make the CDI file where a strategy needs it, and again when devices or settings have changed."""
        settings = self._offering.settings
        if settings is None or not any(each.is_cdi for each in settings.deliveries):
            self._cdi_for, self._cdi_problem = (), ""
            return
        wanted = (settings.ctk_path, settings.driver_root, self._offering.resources)
        if wanted == self._cdi_for:
            return
        try:
            make = partial(cdi.generate, settings.ctk_path, settings.driver_root)
            cdi.write(self._places.cdi, await anyio.to_thread.run_sync(make))
        except cdi.NoCdi as error:
            self._cdi_problem = str(error)
        else:
            self._cdi_for, self._cdi_problem = wanted, ""


async def _within(scope: anyio.CancelScope, life: LifeOfResource) -> None:
    with scope:
        await life.run()
