"""A member beyond the minimum of a gang that asks for a place: beside those that run.

It has to be in the required domains that they are in, and had better be in the smaller ones, down to the preferred
level. Of a gang of which none runs any more the first member may be in any domain of the level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from scheduler.core.decide.alone import Outcome, decide_alone
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.kept_nodes import KeptOff
from scheduler.core.decide.place_bounds import PlaceBound
from scheduler.core.model.minimum_tree import MinimumTree
from scheduler.core.model.plan import Entry, Placement
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, DomainRoom, TopologyCause, Verdict
from scheduler.core.nodes.table import Bools
from scheduler.core.queues.accounts import HeldBack
from scheduler.core.snapshot.node_mask import NodeMask, both


@dataclass(slots=True)
class BesideGang:
    """One gang's. ``bounds``: what it and its subgroups ask, by the node of ``tree``."""

    tree: MinimumTree
    bounds: Mapping[int, PlaceBound]

    def decide(
        self, pod: PodRecord, attempts: Attempts, entries: list[Entry]
    ) -> Outcome | Verdict | HeldBack | KeptOff:
        """Place a member, or make room for it, in the domains where it has to be; else say why not."""
        asked = list(self._asked_of(pod))
        if not asked or attempts.snapshot.supposes_nodes:
            return decide_alone(pod, attempts, entries)
        if (held := attempts.held_back([pod])) is not None:
            return held
        if not attempts.affords([pod]):
            return Outcome.PUT_OFF
        return self._decide_here(pod, asked, attempts, entries)

    def _decide_here(
        self, pod: PodRecord, asked: list[PlaceBound], attempts: Attempts, entries: list[Entry]
    ) -> Outcome | Verdict | HeldBack | KeptOff:
        required = self._required(asked)
        for mask in self._masks(asked[0], required):
            placed = attempts.place_within(pod, mask)
            if isinstance(placed, Placement):
                entries.append(attempts.placer.entry_alone(pod, placed))
                self._note(asked, attempts.placer.statement.position_of[placed.node])
                return Outcome.SERVED
            if placed is not None:
                return placed
        if required is None:
            return decide_alone(pod, attempts, entries)
        found = attempts.make_room_within(pod, required)
        if found is None:
            return self._waits(pod, asked, attempts)
        node, retired = found
        entries.extend(retired)
        attempts.notes.say((pod.uid,), Verdict(code=Code.WAITING_FOR_DEVICE, detail=node))
        return Outcome.SERVED

    def required_of(self, pod: PodRecord) -> NodeMask:
        """Where a member has to be; None: anywhere."""
        return self._required(list(self._asked_of(pod)))

    def _asked_of(self, pod: PodRecord) -> Iterator[PlaceBound]:
        """What its subgroup asks, and all above it, the nearest first."""
        node = self.tree.numbers().get(pod.subgroup, 0)
        while True:
            if node in self.bounds:
                yield self.bounds[node]
            if not node:
                return
            node = self.tree.parents[node]

    def _required(self, asked: list[PlaceBound]) -> NodeMask:
        """Where it has to be: in all required domains that others are in; where none is, in any of the level."""
        found: NodeMask = None
        for bound in asked:
            if bound.required:
                held = bound.held_by(bound.required) or bound.tree.domains(bound.required)
                found = both(found, bound.tree.mask(*held))
        return found

    def _masks(self, bound: PlaceBound, required: NodeMask) -> Iterator[Bools]:
        """The domains in which others are, the smallest first, then all in which it may be."""
        for level in range(bound.preferred, bound.required, -1):
            inside = both(bound.tree.mask(*bound.held_by(level)), required)
            if inside is not None and inside.any():
                yield inside
        if required is not None:
            yield required

    def _note(self, asked: list[PlaceBound], position: int) -> None:
        """Others that are placed in this decision go beside it."""
        for bound in asked:
            bound.add(position)

    def _waits(self, pod: PodRecord, asked: list[PlaceBound], attempts: Attempts) -> Verdict | KeptOff:
        """Why it waits; where nodes are kept for others, it may be for these."""
        verdict, kept = self._out_of_place(pod, asked), attempts.kept
        if not kept.off or not kept.fit_any(attempts.placer, [pod.cls]):
            return verdict
        return KeptOff(msgspec.structs.replace(verdict, berth=kept.cause(kept.off[0])))

    def _out_of_place(self, pod: PodRecord, asked: list[PlaceBound]) -> Verdict:
        bound = next(each for each in asked if each.required)
        held = bound.held_by(bound.required)[:1]
        cause = TopologyCause(
            topology=bound.asked.topology,
            level=bound.asked.required,
            holder=f"{pod.namespace}/{pod.pod_group}",
            subgroup=pod.subgroup,
            required=1,
            best=tuple(DomainRoom(bound.tree.name(domain), 0) for domain in held),
        )
        return Verdict(code=Code.TOPOLOGY_NOT_SATISFIED, topology=cause)
