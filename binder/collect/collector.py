"""Keeps books true and takes away what nobody needs: dead entries, idle, failed and departing reservations.

Runs when events point at a group, and looks everything over now and then. Groups are looked at side by side, one look
at a time each.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

import anyio
from anyio.abc import TaskGroup

from binder.collect.book_repair import Clearing, Repairing, Restoring
from binder.settings import BinderSettings
from binder.watch.view import View
from gpu.reservation import Reservation
from kube import books
from kube.client.api import Api
from kube.client.errors import ApiError, Conflict, NotFound
from kube.client.resources import PODS
from kube.client.retry import doubled_s
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from sharing.attempt import Attempt
from wire import names
from wire.api_groups import WARNING
from wire.core import ObjectReference


class Due:
    """The earliest time of each group (event loop's time) to look at it though nothing happens.

    What is due is found at once, however many groups have a time.
    """

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        #: Times and groups; entries that are no longer in ``_at`` are skipped.
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, group: str) -> bool:
        """Whether a group has a time."""
        return group in self._at

    def put(self, group: str, at: float) -> None:
        """Have a group looked at by then, or earlier if that was wanted before."""
        if at < self._at.get(group, math.inf):
            self._at[group] = at
            heappush(self._heap, (at, group))

    def take(self, now: float) -> list[str]:
        """Return the groups whose time has come; they have none any more."""
        taken: list[str] = []
        while self.next_at <= now:
            _, group = heappop(self._heap)
            del self._at[group]
            taken.append(group)
        return taken

    @property
    def next_at(self) -> float:
        """The earliest time of all; infinite if there is none."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf


_log: Final = logging.getLogger(__name__)


class Retiring:
    """Every method raises ApiError when the server can't be asked.

    It takes away idle, ended and departing reservations (docs/design/protocol.md, step 6).
    """

    def __init__(self, api: Api, *, view: View) -> None:
        self._api = api
        self._view = view

    async def retire(self, held: Reservation) -> bool:
        """Delete an idle reservation exactly as it was seen; False when it is another now: a tenant joined and wins.

        It is read then: a cache that is minutes old would have the same deletion refused again and again.
        """
        try:
            await self._api.delete(PODS, held.name, namespace=held.namespace, uid=held.uid, resource_version=held.rv)
        except NotFound:
            self._view.forget_reservation(held)
        except Conflict:
            await self._read_again(held)
            return False
        extra = about(LogEvent.RESERVATION_REMOVED, reservation=held.name, group=held.group, node=held.node)
        _log.info("nobody uses its device any more", extra=extra)
        return True

    async def _read_again(self, held: Reservation) -> None:
        found = await books.read(self._api, held.namespace, held.name)
        if found is None or found.uid != held.uid:
            self._view.forget_reservation(held)
        else:
            self._view.note_reservation(found)

    async def delete_ended(self, held: Reservation) -> None:
        """Delete what kubelet ended: it holds nothing. Its unbound tenants are withdrawn by their units."""
        try:
            await self._api.delete(PODS, held.name, namespace=held.namespace, uid=held.uid)
        except NotFound:
            self._view.forget_reservation(held)
        except Conflict:
            return

    async def let_go(self, held: Reservation) -> None:
        """Take the finalizer off a departing reservation when every entry left in it is bound to its group."""
        entries = held.book.entries if held.book is not None else {}
        if not held.finalized or not all(self._is_bound(uid, held.group) for uid in entries):
            return
        try:
            pod = await self._api.get(PODS, held.name, namespace=held.namespace)
            kept = [name for name in pod.metadata.finalizers or () if name != names.BOOK_FINALIZER]
            await self._api.patch(
                PODS,
                held.name,
                {"metadata": {"finalizers": kept}},
                namespace=held.namespace,
                uid=held.uid,
                resource_version=held.rv,
            )
        except (NotFound, Conflict):
            return  # gone, or changed: the watch will tell

    def _is_bound(self, uid: str, group: str) -> bool:
        """Once bound is bound for ever, so the cache may tell."""
        pod = self._view.pods.get(uid)
        return pod is not None and pod.is_bound and group in pod.held_groups


class Searching:
    """The nodes that are searched for a device that a pod names (docs/design/opening.md).

    What such a pod opened and doesn't want is kept while it goes on, or kubelet would hand out the same device again.
    ``keep_s``: for so long after the last attempt of a pod that names devices was seen on a node.
    """

    def __init__(self, *, view: View, keep_s: float) -> None:
        self._view = view
        self._keep_s = keep_s
        #: Node -> until when what is idle there is kept (event loop's time).
        self._until: dict[str, float] = {}

    def begin(self, attempt: Attempt) -> None:
        """An attempt begins, or is seen at work."""
        pod = self._view.pods.get(attempt.pod_uid)
        if pod is not None and pod.names_devices(attempt.alternative):
            self._until[attempt.node] = anyio.current_time() + self._keep_s

    def sweep(self) -> None:
        """Look over all that are at work: one of them may take long. Forget what is over."""
        now = anyio.current_time()
        self._until = {node: until for node, until in self._until.items() if now < until}
        for attempt in self._view.attempts():
            self.begin(attempt)

    def keeps_until(self, node: str) -> float:
        """Until when what is idle on a node is kept; the past if nobody searches there."""
        return self._until.get(node, -math.inf)


#: Before a group that could not be looked at is looked at again.
_RETRY_S: Final = 1.0
#: A group without reservation is believed to have lost it after so long.
_BARE_S: Final = 1.0
_LONGEST_BARE_S: Final = 60.0


@dataclass(slots=True)
class _Notes:
    """What is remembered of a group between looks; times are the event loop's."""

    #: Reservation UID whose book is empty, and since when.
    idle: tuple[str, float] | None = None
    #: Pod UID -> since when it has been missing.
    missing_since: dict[str, float] = field(default_factory=dict)
    #: When a lost reservation may be re-created, and how often it was without coming to life.
    restore_at: float | None = None
    restores: int = 0
    #: Device UUID of which tenants were told that it is not the one they were given.
    told: str = ""


class Collector:
    """Looks at groups."""

    def __init__(
        self,
        *,
        view: View,
        settings: BinderSettings,
        clearing: Clearing,
        restoring: Restoring,
        retiring: Retiring,
        searching: Searching,
        events: EventRecorder,
        is_needed: Callable[[Reservation], bool],
    ) -> None:
        self._view = view
        self._settings = settings
        self._clearing = clearing
        self._restoring = restoring
        self._retiring = retiring
        self._searching = searching
        self._events = events
        #: Whether an idle reservation is needed for other groups' tenants (binder/heal/lost_devices.py).
        self._is_needed = is_needed
        self._repairing = Repairing(view=view, clearing=clearing, restoring=restoring, events=events)
        self._notes: dict[str, _Notes] = {}
        self._due = Due()
        self._looking: set[str] = set()

    async def run(self) -> None:
        """Look at what events and time point at, until cancelled."""
        next_sweep = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            while True:
                now = anyio.current_time()
                if now >= next_sweep:
                    self._sweep()
                    next_sweep = now + self._settings.sweep_s
                self._start_looks(now, tasks)
                with anyio.CancelScope(deadline=min(next_sweep, self._due.next_at)):
                    await self._view.collector.wait()

    def _sweep(self) -> None:
        """Mark what looks as if something had to be done, by the cache alone."""
        self._searching.sweep()
        held, at_rest = self._view.reservations, self._view.at_rest
        self._view.dirty |= {
            group for group, reservation in held.items() if group not in at_rest and self._is_worth_a_look(reservation)
        }
        self._view.dirty |= {group for group in (*self._view.bound_groups(), *self._notes) if group not in held}

    def _is_worth_a_look(self, held: Reservation) -> bool:
        if held.book is None:
            return True
        is_at_rest = bool(held.book.entries) and not held.deleting and not held.is_terminal
        if not is_at_rest or self._clearing.suspects(held) or self._restoring.strays(held):
            return True
        if self._clearing.is_plain(held):
            self._view.at_rest.add(held.group)  # time alone changes nothing about it
        return False

    def _start_looks(self, now: float, tasks: TaskGroup) -> None:
        self._view.dirty.update(self._due.take(now))
        for group in sorted(self._view.dirty - self._looking):
            self._view.dirty.discard(group)
            self._looking.add(group)
            tasks.start_soon(self._look_safely, group)

    async def _look_safely(self, group: str) -> None:
        """One group that can't be looked at now neither stops nor delays the others."""
        try:
            await self._look(group)
        except ApiError as error:
            _log.warning("group %s can't be looked at now: %s", group, error)
            self._due.put(group, anyio.current_time() + _RETRY_S)
        except Exception:  # noqa: BLE001 - the edge of the component: one bad object stops nothing (S11)
            _log.exception("group %s could not be looked at", group)
        finally:
            self._looking.discard(group)
            if group in self._view.dirty or group in self._due:
                self._view.collector.set()

    async def _look(self, group: str) -> None:
        held = self._view.reservations.get(group)
        notes = self._notes.setdefault(group, _Notes())
        if held is None:
            await self._restore(group, notes)
        elif held.book is not None:
            self._repairing.forget(group)
            await self._tend(held, notes)
        elif held.is_adoptable and not held.finalized:
            await self._restoring.adopt(held)
        else:
            self._due.put(group, await self._repairing.repair(held))

    async def _tend(self, held: Reservation, notes: _Notes) -> None:
        if held.is_learned:
            notes.restores = 0
            notes.restore_at = None
        if held.is_told:
            self._compare(held, notes)
        cleared = await self._clearing.clear(held, notes.missing_since)
        if cleared is None:
            return
        held = await self._restoring.charge_strays(await self._clearing.lower(cleared))
        if held.book is None:
            return
        if held.deleting:
            await self._retiring.let_go(held)
        elif not held.book.entries:
            await self._retire(held, notes)
        else:
            notes.idle = None
            if held.is_terminal:
                await self._retiring.delete_ended(held)

    async def _retire(self, held: Reservation, notes: _Notes) -> None:
        """Delete an idle reservation when its time is over: at once where no share can come any more."""
        now = anyio.current_time()
        if not held.is_terminal and self._is_needed(held):
            notes.idle = None
            return  # the next sweep looks again
        if notes.idle is None or notes.idle[0] != held.uid:
            notes.idle = (held.uid, now)
        at_once = held.is_terminal or self._view.nodes.get(held.node, True)
        is_uneven = held.node in self._view.uneven and held.is_told
        idle_until = notes.idle[1] + (self._settings.uneven_idle_s if is_uneven else self._settings.idle_s)
        over_at = max(idle_until, self._searching.keeps_until(held.node))
        if not at_once and now < over_at:
            self._due.put(held.group, over_at)
        elif not await self._retiring.retire(held):
            self._due.put(held.group, now + _RETRY_S)

    async def _restore(self, group: str, notes: _Notes) -> None:
        """A group without reservation: if pods are bound to it, their device is unprotected."""
        bound = self._view.bound_in(group)
        if not bound:
            self._notes.pop(group, None)
            self._clearing.forget(group)
            self._repairing.forget(group)
            return
        if bound[0].node not in self._view.nodes:
            return  # its pods will go with it
        now = anyio.current_time()
        if notes.restore_at is None:
            notes.restore_at = now + doubled_s(_BARE_S, notes.restores, longest_s=_LONGEST_BARE_S)
        if now < notes.restore_at:
            self._due.put(group, notes.restore_at)
            return
        notes.restores += 1
        notes.restore_at = None
        await self._restoring.restore(group, bound)

    def _compare(self, held: Reservation, notes: _Notes) -> None:
        """Tell pods that were given another device than the one that their reservation holds now."""
        if notes.told == held.uuid:
            return
        for pod in self._view.bound_in(held.group):
            given = {device.uuid for device in (pod.grant.devices if pod.grant else ()) if device.group == held.group}
            if given - {held.uuid}:
                notes.told = held.uuid
                note = f"GPU {given.pop()} was lost by its reservation, which holds {held.uuid} now"
                _log.error("pod %s/%s: %s", pod.namespace, pod.name, note)
                about = ObjectReference(
                    api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
                )
                self._events.record(about, reason=names.REASON_GPU_LOST, action="Binding", note=note, type=WARNING)
