"""A node's device plug-in: the loop that joins file, devices, health and kubelet.

``serve`` runs until it is cancelled. What it needs of the machine and of the API server is passed in, so it runs in the
node agent, in a process of its own, or in a test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from kube.client.clock import monotonic_ns
from nodeagent import cdifiles
from nodeagent.answering import ResourceAnswers, Surroundings
from nodeagent.beat import beat
from nodeagent.core.health import Look
from nodeagent.core.labels import Driver, node_labels
from nodeagent.core.mistake import Mistake
from nodeagent.core.offering import Offering
from nodeagent.core.settings import PluginSettings
from nodeagent.lifeofresource import LifeOfResource
from nodeagent.onequestion import OneQuestion
from nodeagent.pluginfiles import read_file, read_state, version, write_state
from nodeagent.pluginports import Intervals, Machine, Observer, Places, Sources, Unreadable

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
        self._kept = read_state(places.state)
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
                write_state(self._places.state, kept)

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
            make = partial(cdifiles.generate, settings.ctk_path, settings.driver_root)
            cdifiles.write(self._places.cdi, await anyio.to_thread.run_sync(make))
        except cdifiles.NoCdi as error:
            self._cdi_problem = str(error)
        else:
            self._cdi_for, self._cdi_problem = wanted, ""


async def _within(scope: anyio.CancelScope, life: LifeOfResource) -> None:
    with scope:
        await life.run()
