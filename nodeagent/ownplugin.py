"""The device plug-in as a part of the agent: started again when it ends, and never the end of the rest.

``serve`` (nodeagent/serving.py with a machine) is passed in, so an agent without a plug-in loads nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Final

import anyio

from nodeagent.carving import Carver
from nodeagent.labelling import Labelling
from nodeagent.lifeofresource import Allocatable
from nodeagent.pluginports import Observer, Slices, Sources
from nodeagent.pluginreports import Reports
from nodeagent.pluginsources import NodeSources
from wire.crds.gpunode import MIG_ON_DEMAND, PLUGIN_OWN, CardHealth, Missing

_log: Final = logging.getLogger(__name__)
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
        carver: Carver | None = None,
        wanted: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._serve = serve
        self._node_read = node_read
        self._said = said
        self._carver = carver
        #: Set when slices that a reboot took were made again.
        self._restored = anyio.Event()
        slices = Slices() if carver is None else carver
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
        return {} if self._carver is None else self._carver.counts

    def missing(self) -> list[Missing]:
        """Say what it can't do, and why."""
        trouble = "" if self._carver is None else self._carver.trouble
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
            if self._carver is not None:
                tasks.start_soon(self._carve, self._carver)
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

    async def _carve(self, carver: Carver) -> None:
        """Make slices that a reboot took, then carve until cancelled; after an error again."""
        while True:
            try:
                await carver.restore()
                self._restored.set()
                await carver.run()
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
