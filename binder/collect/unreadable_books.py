"""Books that can't be read: written again from the bound pods, when no other tenant of theirs can come back.

A reservation of KAI's has no book because nobody of ours ever joined it. A book that is lost is another matter
(docs/design/protocol.md, "A lost or foreign reservation"): it named unbound pods whose Bindings may be on their way,
and pods that vanished and may still run. Nobody joins meanwhile, as there is no book to join.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio

from binder.collect.dead_entries import Clearing
from binder.collect.lost_reservations import Restoring
from binder.watch.view import View
from gpu.reservation import Reservation
from kube.binding import FenceText
from kube.events import EventRecorder
from sharing.entries import LONGEST_SILENCE_S, vanished_wait_s
from wire import names
from wire.core import ObjectReference
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)

#: Before it is tried again what could not be done.
_AGAIN_S: Final = 60.0
#: How long pods that vanished before the loss was found are waited for.
_UNSEEN_S: Final = float(vanished_wait_s(0, was_seen=False))


@dataclass(slots=True)
class _Loss:
    """A book of a reservation (UID) that was found lost; times are the event loop's.

    ``until_s``: when no pod that vanished can run any more. ``gone_s``: when a pod was found to have vanished last, or
    the loss itself; from then on, and from when the machine is heard of, pods that vanished run for ``wait_s`` at most.
    ``bound``: grace periods of the group's bound pods (UIDs) at the last look. ``told``: why it can't be repaired, as
    it was told last. ``withdrawn``: unbound pods (UIDs) that were fenced while the reservation was at version ``rv``:
    as long as it is, nobody can have joined since.
    """

    uid: str
    until_s: float
    gone_s: float
    wait_s: float = _UNSEEN_S
    bound: Mapping[str, int] = field(default_factory=dict)
    told: str = ""
    rv: str = ""
    withdrawn: set[str] = field(default_factory=set)


class Repairing:
    """Looks at reservations of ours that have no book, or one that can't be read."""

    def __init__(self, *, view: View, clearing: Clearing, restoring: Restoring, events: EventRecorder) -> None:
        self._view = view
        self._clearing = clearing
        self._restoring = restoring
        self._events = events
        #: By group.
        self._losses: dict[str, _Loss] = {}

    def forget(self, group: str) -> None:
        """The group has a book that can be read, or none at all."""
        self._losses.pop(group, None)

    async def repair(self, held: Reservation) -> float:
        """Repair a book when its time has come; returns when to look again. Raises ApiError."""
        now = anyio.current_time()
        loss = self._losses.get(held.group)
        if loss is None or loss.uid != held.uid:
            loss = self._losses[held.group] = _Loss(held.uid, now + _UNSEEN_S, now)
            self._tell(held, "the book of this device can't be read: nobody joins it, and it is written again soon")
        self._wait_for_vanished(held, loss, now)
        if now < loss.until_s:
            return loss.until_s
        await self._clearing.listen(held.node)
        self._wait_for_machine(held, loss, now)
        if now < loss.until_s:
            return loss.until_s
        loss.until_s = now + _AGAIN_S
        await self._repair(held, loss)
        return loss.until_s

    def _wait_for_vanished(self, held: Reservation, loss: _Loss, now: float) -> None:
        """Wait for bound pods that went without their end being seen: nobody else remembers their shares."""
        bound = {pod.uid: pod.grace_s for pod in self._view.bound_in(held.group)}
        for uid, grace_s in loss.bound.items():
            if uid not in bound and not self._has_ended(uid):
                loss.gone_s, loss.wait_s = now, max(loss.wait_s, vanished_wait_s(grace_s))
                loss.until_s = max(loss.until_s, now + vanished_wait_s(grace_s))
        loss.bound = bound
        self._wait_for_machine(held, loss, now)

    def _wait_for_machine(self, held: Reservation, loss: _Loss, now: float) -> None:
        """Who vanished runs on until the kubelet hears of it (sharing/entries.py)."""
        heard, latest_s = self._view.machines.get(held.node), loss.gone_s + LONGEST_SILENCE_S + loss.wait_s
        if heard is None:
            loss.until_s = max(loss.until_s, min(now + _AGAIN_S, latest_s))
        elif heard.since_s > loss.gone_s:
            loss.until_s = max(loss.until_s, min(heard.since_s + loss.wait_s, latest_s))

    def _has_ended(self, uid: str) -> bool:
        seen = self._view.pods.get(uid) or self._view.gone_pods.get(uid)
        return seen is not None and seen.ended

    async def _repair(self, held: Reservation, loss: _Loss) -> None:
        fresh = await self._restoring.unreadable(held)
        if isinstance(fresh, str):
            self._tell_why(held, loss, fresh)
            return
        if fresh is None:
            return
        if loss.rv != fresh.rv:
            loss.rv, loss.withdrawn = fresh.rv, set()
        because = f"the book of reservation pod {held.name} was lost"
        text = FenceText(f"Withdrawn: {because}", f"Failed to bind pod: {because}, so it is decided on again")
        refused = await self._clearing.withdraw_unbound(text, loss.withdrawn)
        if refused:
            self._tell_why(held, loss, refused)
            return
        written = await self._restoring.rewrite(fresh, known=loss.bound)
        if written is not None and written.book is not None:
            tenants = len(written.book.entries)
            withdrawn = len(loss.withdrawn)
            outcome = f"the book was written again with {tenants} bound pods; {withdrawn} unbound were withdrawn"
            self._tell(held, outcome)

    def _tell_why(self, held: Reservation, loss: _Loss, why: str) -> None:
        if loss.told != why:
            loss.told = why
            self._tell(held, f"the book of this device can't be read and stays as it is, as {why}")

    def _tell(self, held: Reservation, note: str) -> None:
        _log.error("reservation %s of group %s: %s", held.name, held.group, note)
        about = ObjectReference(api_version="v1", kind="Pod", name=held.name, namespace=held.namespace, uid=held.uid)
        self._events.record(about, reason=names.REASON_BOOK_LOST, action="Binding", note=note, type=WARNING)
