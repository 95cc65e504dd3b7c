"""What a process that works without an election says when it sees that it is not the only one.

Two of a kind at once over-commit nothing (docs/design/protocol.md), but they waste work, and may undo each other's
gangs without end. Nothing here acts on it: which of them is the mistake, only people know.
"""

from __future__ import annotations

import logging
from typing import Final

from kube.client.resources import LEASES
from kube.events import EventRecorder, about
from wire import names
from wire.coordination import Lease
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)


class Rivals:
    """Tells of each other holder of the component's lease once: in the log, and by an Event about the lease."""

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
