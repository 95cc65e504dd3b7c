"""Nodes that are kept for others while one group has its turn (berthing.py): where it may go, and what it reports."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from scheduler.core.backlog.kept_off import Off
from scheduler.core.decide.placer import Placer
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import Resources
from scheduler.core.model.verdict import BerthCause, NodeReason, Verdict
from scheduler.core.queues.accounts import Accounts
from scheduler.core.queues.reserved_nodes import Berth
from scheduler.core.snapshot.node_mask import NodeMask, both, only

#: The kind of reason (verdict.py) of nodes that are kept for others.
BERTH: Final = "berth"


class KeptOff(NamedTuple):
    """Why a pod is not placed though it fits: only on nodes that are kept for others."""

    verdict: Verdict


@dataclass(slots=True)
class KeptNodes:
    """``off``: berths that keep off the group that has its turn."""

    accounts: Accounts
    off: tuple[Berth, ...] = ()
    #: Classes that fit nowhere else, of that turn.
    kept_off: dict[PodClass, KeptOff] = field(default_factory=dict)
    #: Gangs that ask the same and were kept off by the same berths, by queue: what each of them says.
    kept_alike: dict[Hashable, Verdict] = field(default_factory=dict)

    def begin_turn(self, off: tuple[Berth, ...]) -> None:
        """Somebody has its turn who is kept off by these berths."""
        self.off = off
        self.kept_off.clear()

    def open_to(self, placer: Placer) -> NodeMask:
        """Nodes that are kept for nobody else."""
        names = frozenset(name for berth in self.off for name in berth.nodes)
        return placer.all_but(names) if names else None

    def closed_to(self, placer: Placer) -> NodeMask:
        """The others."""
        return only((name for berth in self.off for name in berth.nodes), placer.statement.position_of)

    def fit_any(self, placer: Placer, classes: Iterable[PodClass]) -> bool:
        """Whether a pod of one of these classes fits on nodes that are kept for others, as far as ranks tell."""
        kept = self.closed_to(placer)
        return any(placer.ranking(way).fitting(kept) for cls in classes for way in placer.ways(cls))

    def keep_off(self, placer: Placer, cls: PodClass, mask: NodeMask, elsewhere: Verdict) -> KeptOff:
        """Say for whom the nodes are kept that a class fits on. ``elsewhere``: why it fits on no others."""
        ways, kept = placer.ways(cls), both(mask, self.closed_to(placer))
        fits = [placer.ranking(way).fitting(kept) for way in ways]
        found = {position for positions in fits for position in positions}
        position_of = placer.statement.position_of
        first = next((b for b in self.off if any(position_of.get(n) in found for n in b.nodes)), self.off[0])
        reasons = (*elsewhere.node_reasons, NodeReason(BERTH, "", max(1, len(found))))
        self.kept_off[cls] = KeptOff(
            msgspec.structs.replace(
                elsewhere, node_reasons=tuple(sorted(reasons)), shortfall=None, berth=self.cause(first)
            )
        )
        return self.kept_off[cls]

    def cause(self, berth: Berth) -> BerthCause:
        """For whom nodes are kept, as far as others are told."""
        return BerthCause(holder=f"{berth.namespace}/{berth.name}", since_s=berth.since_s, queue=berth.queue)

    def off_of(self, queue: str, use: Resources, asks: Hashable) -> Off:
        """Why what has its turn is kept off: by which berths, and what would change that (backlog/kept_off.py)."""
        leaf = self.accounts.tree.find(queue)
        return Off(queue if leaf is None else leaf.name, use, self.off, asks)
