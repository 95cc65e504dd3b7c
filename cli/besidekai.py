"""A KAI Scheduler that starts while a replica of ours runs: it is noticed, told, and by default made way for.

Two of them undo each other's work, and KAI deletes pods that run on our reservations (cli/livekai.py says why). So a
replica stops: it finishes its writes, gives its lease back, and is there without doing anything until KAI has gone.
Then it ends and is started again: KAI has changed the cluster since this process read it.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from typing import Final

import anyio

from cli.livekai import NOTHING_ELSE, Also, Found, Lookout, sentence
from kube.client.api import Api
from kube.client.errors import ApiError
from kube.client.resources import LEASES
from kube.events import EventRecorder, about
from kube.telemetry.logevents import LogEvent
from kube.telemetry.logevents import about as told
from wire import names
from wire.core import ObjectMeta
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)

#: A lease of KAI's is renewed at least twice in this time.
EVERY_S: Final = 10.0
#: The most pods that are named in a log line.
_MOST_NAMED: Final = 5
#: A KAI that is updated has no pods for moments.
_CLEAR_LOOKS: Final = 2


class IfKaiStarts(enum.Enum):
    """What a replica does about it."""

    STOP = "stop"
    GO_ON = "go-on"


class BesideKai:
    """Looks for a KAI, and what of it is ``also`` in its way, while a replica runs that takes part in ``lease``.

    ``noticed`` is set once the replica has to stop. ``is_there`` is what the metric says: 1 while KAI is at work.
    ``every_s``: between two looks.
    """

    def __init__(
        self,
        api: Api,
        events: EventRecorder,
        *,
        lease: str,
        choice: IfKaiStarts,
        also: Also = NOTHING_ELSE,
        every_s: float = EVERY_S,
    ) -> None:
        self._lookout = Lookout(api, also)
        self._events = events
        self._lease = ObjectMeta(name=lease, namespace=names.SYSTEM_NAMESPACE)
        self._choice = choice
        self._every_s = every_s
        self._elsewhere: tuple[str, ...] = ()
        self.noticed: Final = anyio.Event()
        self.is_there = False
        #: Answered looks in a row that saw none. One without an answer says nothing.
        self._clear_looks = 0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            found = await self._look()
            if found is not None:
                self._note(found)
            await anyio.sleep(self._every_s)

    async def until_gone(self) -> None:
        """Return when KAI was seen no more for a while; ``run`` goes on beside it."""
        while self._clear_looks < _CLEAR_LOOKS:  # noqa: ASYNC110 - what is waited for is looked at as often
            await anyio.sleep(self._every_s)
        _log.warning("KAI Scheduler is at work no longer: this process ends and is started again")

    async def _look(self) -> Found | None:
        """Look once; None where there is no answer: that says nothing about a KAI."""
        try:
            return await self._lookout.look()
        except ApiError as error:
            _log.warning("not known whether a KAI Scheduler is at work: %s", error)
            return None

    def _note(self, found: Found) -> None:
        if found.at_work and not self.is_there:
            self._tell(found.at_work)
        self.is_there = bool(found.at_work)
        self._clear_looks = 0 if self.is_there else self._clear_looks + 1
        if self.is_there and self._choice is IfKaiStarts.STOP:
            self.noticed.set()
        if set(found.elsewhere) - set(self._elsewhere):
            _log.warning(
                "%d pods look like a KAI Scheduler, such as %s; if they are, stop it: two can't share pods",
                len(found.elsewhere),
                ", ".join(found.elsewhere[:_MOST_NAMED]),
            )
        self._elsewhere = found.elsewhere

    def _tell(self, found: Sequence[str]) -> None:
        stops = self._choice is IfKaiStarts.STOP
        does = "this replica stops until it has gone" if stops else "this replica goes on (--if-kai-starts=go-on)"
        note = f"{sentence(found)}; {does}"
        _log.error(note, extra=told(LogEvent.KAI_NOTICED, lease=f"{self._lease.namespace}/{self._lease.name}"))
        self._events.record(
            about(LEASES, self._lease),
            reason=names.REASON_KAI_AT_WORK,
            action="Stopping" if stops else "Working",
            note=note,
            type=WARNING,
        )
