"""The device plug-in as a part of the agent, started again when it ends, and its reports: GpuNode, Events and log.

It is never the end of the rest. ``serve`` (nodeagent/plugin/device_plugin.py with a machine) is passed in, so an agent
without a plug-in loads nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import anyio

from kube.client.clock import Clock, monotonic_ns
from kube.events import EventRecorder
from nodeagent.core.devices import Slices
from nodeagent.core.plugin.health import Health
from nodeagent.core.plugin.settings import Mistake
from nodeagent.mig.partitioning import GpuPartitioner
from nodeagent.plugin.node import Labelling, NodeSources
from nodeagent.plugin.ports import Allocatable, Observer, Sources
from nodeagent.report.gpunode import NodeEvents
from wire import names
from wire.core import Node
from wire.crds.gpunode import MIG_ON_DEMAND, PLUGIN_OWN, CardHealth, Missing
from wire.rfc3339 import rfc3339

_log: Final = logging.getLogger(__name__)
#: Mistakes of a file that an event names.
_MOST_TOLD: Final = 4
_PLUGIN: Final = "device-plugin"


class Reports:
    """A pluginports.Observer. ``on_change`` is called when ``missing`` or ``card_health`` are others.

    ``seen`` is the Node as it was seen last; None before.
    """

    def __init__(self, events: EventRecorder, clock: Clock, *, node: str, seen: Callable[[], Node | None]) -> None:
        self._events = NodeEvents(events, node=node, seen=seen)
        self._clock = clock
        self._mistakes: tuple[Mistake, ...] = ()
        self._unreadable = ""
        self._stopped = ""
        self._failures: dict[str, str] = {}
        self._states: Mapping[str, Health] = {}
        #: Health of each GPU and slice that is or was ill, by UUID.
        self.card_health: Mapping[str, CardHealth] = {}
        #: Resources that another plug-in serves, and how that was found out.
        self.rivals: dict[str, str] = {}
        self.on_change: Callable[[], None] | None = None
        self.on_labels: Callable[[Mapping[str, str]], None] | None = None

    def missing(self) -> list[Missing]:
        """Say what the plug-in can't do on this node, and why."""
        found = [Missing(what=_PLUGIN, why=why) for why in (self._stopped, self._unreadable) if why]
        if self._mistakes:
            found.append(Missing(what=f"{_PLUGIN} file", why=_written(self._mistakes)))
        for resource, why in sorted((self._failures | self.rivals).items()):
            found.append(Missing(what=resource, why=why))
        return found

    def registered(self, resource: str, kubelet: tuple[int, int]) -> None:
        """Note that kubelet has read the devices of a resource."""
        del kubelet
        _log.info("kubelet has read the devices of %s", resource)
        if self._failures.pop(resource, ""):
            self._changed()

    def rival(self, resource: str, what: str) -> None:
        """Note that another plug-in serves a resource; "": none does."""
        if self.rivals.get(resource, "") == what:
            return
        if what:
            self.rivals[resource] = what
            self._failures.pop(resource, None)
            self._events.warn(names.REASON_PLUGIN_RIVAL, "Registering", f"{resource} is not served: {what}")
        else:
            del self.rivals[resource]
            _log.info("no other device plug-in serves %s any more", resource)
        self._changed()

    def failed(self, resource: str, what: str) -> None:
        """Note why a resource could not be registered."""
        if self._failures.get(resource) != what:
            self._failures[resource] = what
            _log.warning("%s could not be registered with kubelet: %s", resource, what)
            self._changed()

    def withdrawn(self, resource: str) -> None:
        """Forget a resource that is not served any more."""
        was_rival, had_failed = self.rivals.pop(resource, ""), self._failures.pop(resource, "")
        if was_rival or had_failed:
            self._changed()

    def refused(self, mistakes: Sequence[Mistake]) -> None:
        """Note what is wrong with the file."""
        if self._mistakes == tuple(mistakes):
            return
        self._mistakes = tuple(mistakes)
        if mistakes:
            self._events.warn(names.REASON_CONFIG_REFUSED, "Configuring", _written(mistakes))
        self._changed()

    def noted(self, notes: Sequence[str]) -> None:
        """Log which parts of the file have no effect."""
        for note in notes:
            _log.info("without effect on this node: %s", note)

    def health(self, states: Mapping[str, Health]) -> None:
        """Note the health of all devices that are, or were, not well."""
        told: dict[str, CardHealth] = {}
        for uuid, state in states.items():
            if self._states.get(uuid) == state:
                told[uuid] = self.card_health[uuid]
                continue
            told[uuid] = self._told(state)
            if told[uuid] != self.card_health.get(uuid):
                _log.warning("%s is %s: %s", uuid, state.state.value, state.reason or "no sign of illness")
        self._states = dict(states)
        if told != self.card_health:
            self.card_health = told
            self._changed()

    def labelled(self, labels: Mapping[str, str]) -> None:
        """Pass on which labels the node is to have."""
        if self.on_labels is not None:
            self.on_labels(labels)

    def unreadable(self, why: str) -> None:
        """Note that the driver does not answer; "": it does."""
        if self._unreadable != why:
            self._unreadable = why
            self._changed()

    def stopped(self, why: str) -> None:
        """Note that the plug-in does not run, and is started again; "": it runs."""
        if self._stopped != why:
            self._stopped = why
            self._changed()

    def _told(self, health: Health) -> CardHealth:
        """Return it with the time of day: ``since_ns`` is of the machine's uptime."""
        since_ns = self._clock.now_ns() - (monotonic_ns() - health.since_ns)
        return CardHealth(state=health.state.value, reason=health.reason, since=rfc3339(since_ns))

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


def _written(mistakes: Sequence[Mistake]) -> str:
    more = len(mistakes) - _MOST_TOLD
    told = "; ".join(map(str, mistakes[:_MOST_TOLD]))
    return f"{told}; and {more} more" if more > 0 else told


#: Between an end and the next start.
_AGAIN_S: Final = 30.0
#: For so long nothing is offered after a start, until slices that a reboot took were made again.
_RESTORED_WITHIN_S: Final = 30.0

#: Serves until cancelled.
Serve = Callable[[Sources, Observer], Awaitable[None]]


class OwnPlugin:
    """An app.Plugin. ``allocatable`` asks kubelet for the resources that it knows; ``node_read``: the Node was read.

    ``wanted``: UUIDs of GPUs that reservations wait for.
    """

    mode: Final = PLUGIN_OWN

    def __init__(
        self,
        serve: Serve,
        *,
        said: NodeSources,
        node_read: anyio.Event,
        allocatable: Allocatable,
        reports: Reports,
        labelling: Labelling,
        partitioner: GpuPartitioner | None = None,
        wanted: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._serve = serve
        self._node_read = node_read
        self._said = said
        self._partitioner = partitioner
        #: Set when slices that a reboot took were made again.
        self._restored = anyio.Event()
        slices = Slices() if partitioner is None else partitioner
        self._sources = Sources(
            file=said.file, allocatable=allocatable, cleared=said.cleared, wanted=wanted, slices=slices
        )
        self._reports = reports
        self._labelling = labelling
        reports.on_labels = labelling.want

    @property
    def rivals(self) -> int:
        """How many resources another plug-in serves in the place of this one."""
        return len(self._reports.rivals)

    def layouts(self) -> Mapping[str, int]:
        """Return how many MIG layouts it was asked for, by what became of them; nothing where it makes none."""
        return {} if self._partitioner is None else self._partitioner.counts

    def missing(self) -> list[Missing]:
        """Say what it can't do, and why."""
        trouble = "" if self._partitioner is None else self._partitioner.trouble
        return [*self._reports.missing(), *([Missing(what=MIG_ON_DEMAND, why=trouble)] if trouble else [])]

    def card_health(self) -> Mapping[str, CardHealth]:
        """Return the health of GPUs that are or were not well, by UUID."""
        return self._reports.card_health

    def follow(self, on_change: Callable[[], None]) -> None:
        """Have a function called whenever ``missing`` or ``card_health`` have changed."""
        self._reports.on_change = on_change

    async def run(self) -> None:
        """Serve until cancelled."""
        # A file of another node's would offer other resources for a moment.
        if not self._said.is_known:
            await self._node_read.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._labelling.run)
            if self._partitioner is not None:
                tasks.start_soon(self._partition, self._partitioner)
                # kubelet is to see the slices of before a reboot at once; it does not wait long for an API server.
                with anyio.move_on_after(_RESTORED_WITHIN_S):
                    await self._restored.wait()
            while True:
                try:
                    self._reports.stopped("")
                    await self._serve(self._sources, self._reports)
                    why = "it ended"
                except Exception as error:  # noqa: BLE001 - no error ends the rest of the agent
                    why = "; ".join(_told(error))
                    _log.exception("the device plug-in has ended, and is started again in %.0f s", _AGAIN_S)
                self._reports.stopped(f"{why}; started again in {_AGAIN_S:.0f} s")
                await anyio.sleep(_AGAIN_S)

    async def _partition(self, partitioner: GpuPartitioner) -> None:
        """Make slices that a reboot took, then partition until cancelled; after an error again."""
        while True:
            try:
                await partitioner.restore()
                self._restored.set()
                await partitioner.run()
            except Exception:  # noqa: BLE001 - as above
                _log.exception("MIG slices are not made, and are looked at again in %.0f s", _AGAIN_S)
            await anyio.sleep(_AGAIN_S)


def _told(error: BaseException) -> Iterator[str]:
    """The texts of what was raised, those of a group one by one."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _told(each)
    else:
        yield str(error) or type(error).__name__
