"""The start of a gang: as many members as its minimum needs get a place, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.core.decide.attempts import Attempts
from scheduler.core.groups.quorum import Missing
from scheduler.core.model.plan import Attempt, Entry, Gang, Placement, Retire
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import HeldBack


@dataclass(slots=True)
class Start:
    """A gang's start as far as it got. ``waits_on`` names a node where a device has to come back first."""

    placed: list[tuple[PodRecord, Placement]] = field(default_factory=list)
    retired: list[Retire] = field(default_factory=list)
    waits_on: str = ""
    #: Why the first member that was passed over fitted nowhere; and why the start failed, if it did.
    first_failure: Verdict | None = None
    failed: Verdict | None = None
    #: The failure, if the queue takes no more: of all members that were placed, and the one that was not.
    held_back: HeldBack | None = None

    def entry(self, group: PodGroupRecord, attempts: Attempts) -> Entry:
        """One entry for all; a single member that completes the minimum needs no plan of its own."""
        entries = [attempts.placer.entry(pod, placement) for pod, placement in self.placed]
        if len(entries) == 1:
            return entries[0]
        return Gang(
            pod_group=(group.namespace, group.name),
            rv=group.rv,
            placements=tuple(placement for _, placement in self.placed),
            by_binder=any(isinstance(entry, Attempt) for entry in entries),
        )


def started(ready: Sequence[PodRecord], missing: Missing, attempts: Attempts) -> Start:
    """Place members until nothing is missing; a member that fits nowhere is passed over."""
    start, mark = Start(), attempts.accounts.checkpoint()
    for pod in ready:
        if missing.is_reached:
            break
        if not missing.wants(pod):
            continue
        placed = attempts.place(pod)
        if isinstance(placed, Placement):
            start.placed.append((pod, placed))
            missing.take(pod)
            continue
        if isinstance(placed, HeldBack):
            amounts = attempts.accounts.charged_since(mark).plus(placed.use.amounts)
            start.held_back = placed._replace(use=placed.use._replace(amounts=amounts))
            start.failed = placed.verdict
            return start
        found = attempts.make_room(pod)
        if found is None:
            start.first_failure = start.first_failure or placed
        else:
            start.waits_on = found[0]
            start.retired += found[1]
            missing.take(pod)
    if not missing.is_reached:
        start.failed = start.first_failure or Verdict(code=Code.NO_NODE_FITS)
    return start
