"""Guards: reservation pods without tenants that hold a device which others use and lost (docs/design/healing.md).

A guard is found by asking for devices until the right one comes. What else is got is kept meanwhile, or it would be got
again; the binder's ordinary rule for idle reservations takes it back when all is found.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from binder.bind.create_reservation import make
from binder.settings import BinderSettings
from binder.watch.view import View
from gpu import book as device_book
from gpu import reservation as reservations
from gpu.reservation import Reservation
from kube.client.api import Api
from kube.client.backoff import doubled_s
from kube.watch.signal import Signal
from sharing.pods import PodView

_log: Final = logging.getLogger(__name__)

#: Before it is tried again on a node that had no device left, doubled each time.
_FIRST_PAUSE_S: Final = 10.0
_LONGEST_PAUSE_S: Final = 1800.0
#: How long a reservation pod is waited for within one look, and in all.
_ANSWER_S: Final = 10.0
_PATIENCE_S: Final = 120.0


@dataclass(slots=True)
class _Search:
    """On one node: groups of the reservation pods that were made, and since when each is, and when to go on.

    ``is_over``: nothing more was to be had. What was got is kept until a look that began after that has seen it: only
    while all is held it is plain that somebody else has what is missing (core/contention.py, ``proofs``).
    """

    groups: dict[str, float] = field(default_factory=dict)
    refusals: int = 0
    again_s: float = 0.0
    is_over: bool = False


class Guarding:
    """Makes guards, and says which idle reservations are needed as such."""

    def __init__(self, api: Api, *, view: View, settings: BinderSettings) -> None:
        self._api = api
        self._view = view
        self._settings = settings
        #: By node.
        self._searches: dict[str, _Search] = {}
        #: Node -> devices that tenants were given and that their own reservation does not hold, as far as is seen.
        self._used: Mapping[str, frozenset[str]] = {}

    def keep(self, used: Mapping[str, frozenset[str]]) -> None:
        """Take what is used of each node about which something is wrong, and forget the searches on all others."""
        self._used = used
        self._searches = {node: search for node, search in self._searches.items() if node in used}

    def is_needed(self, held: Reservation) -> bool:
        """Whether an idle reservation holds what others use, or was made by a search that is still going on."""
        search = self._searches.get(held.node)
        is_sought = search is not None and held.group in search.groups
        return is_sought or held.uuid in self._used.get(held.node, frozenset())

    async def guard(
        self, node: str, capacity: int, lost: frozenset[str], tenants: Sequence[PodView], *, resource: str
    ) -> None:
        """Ask for devices until none of ``lost`` is without a holder, or all are held. Raises ApiError.

        To be called with what a look has found that began after the last call.
        ``resource``: of which kind they are. ``capacity``: how many such devices the node has, 0 if that is not known.
        """
        search = self._searches.setdefault(node, _Search())
        if search.is_over:  # and this look has not found the holder of what is missing
            search.groups.clear()
            search.is_over = False
        while anyio.current_time() >= search.again_s:
            if len(search.groups) > max(capacity, 1):
                self._put_off(search)  # as many were asked for as the node has devices
                return
            held = await self._ask(node, search, tenants, resource)
            if held is None:
                return
            if held.uuid in lost:
                self._searches.pop(node, None)  # the next look sees what is still lost
                return

    def end(self, node: str) -> None:
        """Nothing of a node is without a holder any more."""
        self._searches.pop(node, None)

    def _put_off(self, search: _Search) -> None:
        """Begin again after a while; what was got is given back with the next look."""
        search.is_over = True
        search.refusals += 1
        pause_s = doubled_s(_FIRST_PAUSE_S, search.refusals, longest_s=_LONGEST_PAUSE_S)
        search.again_s = anyio.current_time() + pause_s

    async def _ask(self, node: str, search: _Search, tenants: Sequence[PodView], resource: str) -> Reservation | None:
        """Have one more device, or None: it was refused, or not told soon (then the next look waits on)."""
        group = self._unanswered(search)
        if group is None:
            group = await self._make(node, search, tenants, resource)
        await self._answer(group)
        held = self._view.reservations.get(group)
        is_silent = anyio.current_time() - search.groups[group] > _PATIENCE_S
        if held is not None and held.is_told:
            return held
        if held is None or held.is_terminal or is_silent:
            self._put_off(search)
        return None

    def _unanswered(self, search: _Search) -> str | None:
        """The group that was asked for last, if it has not told its device yet."""
        last = next(reversed(search.groups), None)
        held = self._view.reservations.get(last) if last is not None else None
        return last if held is not None and not held.is_told else None

    async def _make(self, node: str, search: _Search, tenants: Sequence[PodView], resource: str) -> str:
        """Make a reservation pod without tenants; return its group. Raises ApiError."""
        group = reservations.group_id(node, tenants[0].uid, self._number(search), resource)
        search.groups[group] = anyio.current_time()
        _log.warning("asking for a guard of a device on node %s that its reservation lost", node)
        made = await make(
            self._api,
            self._settings.reservation,
            node=node,
            group=group,
            book=device_book.EMPTY,
            resource=resource,
        )
        if isinstance(made, Reservation):
            self._view.note_reservation(made)
        return group

    async def _answer(self, group: str) -> None:
        """Wait a little until a reservation has told its device, was refused or is gone."""
        signal, keys = Signal(), {f"group:{group}"}
        self._view.subscriptions.add(signal, keys)
        try:
            with anyio.move_on_after(_ANSWER_S):
                while (held := self._view.reservations.get(group)) and not (held.is_told or held.is_terminal):
                    await signal.wait()
        finally:
            self._view.subscriptions.remove(signal, keys)

    def _number(self, search: _Search) -> int:
        """Ids differ from those of first shares (protocol.md, Identity), and from search to search."""
        return -(1 + len(search.groups) + 64 * search.refusals)
