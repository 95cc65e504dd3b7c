"""One of several processes of a component: it follows always, works when it leads, and leaves nothing half done."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskStatus

from kube.client.fence import WriteFence
from kube.client.resources import LEASES
from kube.events import EventRecorder, about
from kube.lead.lease import LeaderElection
from kube.lead.secondary import Secondary
from kube.watch.reflector import Reflector
from wire import names
from wire.api_groups import WARNING, Lease
from wire.tombstones import PERIOD_S

_log: Final = logging.getLogger(__name__)


class Rivals:
    """Tells of each other holder of the component's lease once: in the log, and by an Event about the lease.

    It is for a process that works without an election. Two of a kind at once over-commit nothing
    (docs/design/protocol.md), but they waste work, and may undo each other's gangs without end. Nothing here acts on
    it: which of them is the mistake, only people know.
    """

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._told: set[str] = set()

    def __call__(self, lease: Lease) -> None:
        """Take a lease that another has just renewed (``on_rival`` of kube.lead.lease.LeaderElection)."""
        rival = lease.spec.holder_identity or ""
        if rival in self._told:
            return
        self._told.add(rival)
        note = f"this process works without leader election (--no-leader-election) while {rival} works, too: stop one"
        _log.error("lease %s/%s: %s", lease.metadata.namespace, lease.metadata.name, note)
        self._events.record(
            about(LEASES, lease.metadata), reason=names.REASON_NOT_ALONE, action="Working", note=note, type=WARNING
        )


#: How long work under way may take to end well once the process was told to end.
FINISH_WITHIN_S: Final = 1.0


class Replica(Protocol):
    """A component of which several processes may run."""

    async def follow(self, *, task_status: TaskStatus[None] = ...) -> None:
        """Keep in step with the cluster, and write nothing. Started when in step.

        Returns when the API server's history was set back: what is known may never have happened.
        """
        ...

    async def lead(self, *, anew: bool = True) -> None:
        """Work until cancelled; if asked, on nothing that was read before this."""
        ...

    async def finish(self) -> None:
        """Begin nothing more; return when what was begun is done."""
        ...


class Followed(Protocol):
    """A part of the cluster that is kept in step with: a reflector, mostly."""

    async def run(self, *, task_status: TaskStatus[None] = ...) -> None:
        """Keep in step until cancelled. Started when in step."""
        ...

    async def catch_up(self) -> None:
        """Return when what is known is not older than this call."""
        ...


class Follower(ABC):
    """A Replica that knows the cluster by what it follows, started in the order given; a component adds what it does.

    A replica that does not lead watches as well, so that it can take over within moments. Watches don't say how
    late they are, so a term begins with fresh lists (invariants.md, R3). It neither follows nor leads without each of
    them, but for those in a ``Secondary``.
    """

    def __init__(self, followed: Sequence[Followed]) -> None:
        self._followed = followed
        self._set_back = anyio.Event()

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """What keeps it in step by watches."""
        found: list[Reflector[Any]] = []
        for part in self._followed:
            if isinstance(part, Secondary):
                found += part.reflectors
            elif isinstance(part, Reflector):
                found.append(part)
        return found

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow and work, as the only one there is, as long as it can follow. Started when it works."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(_follow, self, tasks.cancel_scope)
            tasks.start_soon(self._work)
            task_status.started()

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep in step with the cluster until its history is set back. Started when all of it is there."""
        for reflector in self.reflectors:
            reflector.on_set_back = partial(self._note_set_back, reflector.resource.plural)
        async with anyio.create_task_group() as tasks:
            for part in self._followed:
                await tasks.start(part.run)
            tasks.start_soon(self._forget_regularly)
            task_status.started()
            await self._set_back.wait()
            tasks.cancel_scope.cancel()

    def _note_set_back(self, kind: str, now: str, before: str) -> None:
        if not self._set_back.is_set():
            _log.warning(
                "the list of %s has version %s and had %s: the API server's history was set back", kind, now, before
            )
            self._set_back.set()

    async def lead(self, *, anew: bool = True) -> None:
        """Work until cancelled; if asked, on nothing that was read before this."""
        for part in self._followed if anew else ():
            await part.catch_up()
        await self._work()

    async def _forget_regularly(self) -> None:
        while True:
            await anyio.sleep(PERIOD_S)
            self._forget_gone()

    @abstractmethod
    def _forget_gone(self) -> None:
        """A period is over (wire/tombstones.py): no table may grow with the pods that there once were (R10)."""

    @abstractmethod
    async def finish(self) -> None:
        """Begin nothing more; return when what was begun is done."""

    @abstractmethod
    async def _work(self) -> None:
        """Do what the component is for, until cancelled.

        The reflectors go on for a moment longer. A task that one of their callbacks starts in a group that has been
        cancelled may not be cancelled any more (anyio tells those that are there), and the group waits for it: so
        callbacks start nothing from the moment on at which the group's own body ends.
        """


async def take_part(
    replica: Replica,
    *,
    election: LeaderElection | None,
    fence: WriteFence,
    stop: anyio.Event,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Follow, and lead when it is our turn, until told to stop, the lease is lost, or history is set back.

    Started when it can lead.

    Nobody who is not in step takes part in the election, but it looks at the lease meanwhile: after a crash the old
    lease runs out while the first lists come, not after them. Without an election it leads at once, on its first lists:
    no lease tells when the last write of an earlier process was over, so further lists would prove no more. Once told
    to stop, what is under way gets a moment: a leader none of whose writes may still land gives its lease back for use
    at once. A leader that lost its lease does not lead again: its commits under way are of unknown outcome, a fresh
    start's are not.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on, stop, replica, fence, tasks.cancel_scope)
        async with anyio.create_task_group() as looking:
            if election:
                looking.start_soon(election.observe)
            await tasks.start(_follow, replica, tasks.cancel_scope)
            looking.cancel_scope.cancel()
        task_status.started()
        await (election.one_term(replica.lead) if election else replica.lead(anew=False))
        tasks.cancel_scope.cancel()


async def _follow(
    replica: Replica, until_not: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Follow; when history was set back, cancel what rests on it."""
    await replica.follow(task_status=task_status)
    until_not.cancel()


async def _end_on(stop: anyio.Event, replica: Replica, fence: WriteFence, scope: anyio.CancelScope) -> None:
    await stop.wait()
    with anyio.move_on_after(FINISH_WITHIN_S):
        await replica.finish()
    fence.close()
    with anyio.move_on_after(FINISH_WITHIN_S):
        await fence.settled()
    scope.cancel()
