"""Choosing volumes for claims that are not bound yet, node by node, on the working copy of one decision.

As kube-scheduler's VolumeBinding: claims smallest first, each gets the volume that names it, else the smallest one that
will do and that the node reaches; what finds none is provisioned, where its class does that for the node and its driver
has the space. Here space that is promised to claims on their way counts as used, and those of one pod together.

A claim of several pods is chosen for once, for the node of the first. The others go to that node; where its access
modes allow it, also to nodes that reach the chosen volume, or for which its class would make one. What the volume's
own affinity says is known when it is made: then its pods are decided on again.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.convert.volumes import CapacityRecord, ClaimKey
from scheduler.core.model.pod_class import VolumeChoice, VolumeNeed
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.table import Bools, Selection
from scheduler.core.nodes.volume_limits import Offers, View

#: Volumes by need, "" to provision.
Chosen: TypeAlias = tuple[str, ...]
#: Of each pod that is on its way: its namespace, what was chosen.
InFlight: TypeAlias = Callable[[], Iterable[tuple[str, tuple[VolumeChoice, ...]]]]
_NOTHING: Final[Mapping[str, int]] = {}
#: Operations of a choice on one node, for each claim and once more; and the number of nodes looked at in one.
_CHOOSING: Final = 2
_LOOKED_AT: Final = 2


class Refusal(enum.Enum):
    """Why a node has no volumes for a pod; the value is the kind of the reason."""

    NOT_FOUND = "volume-binding"
    NO_SPACE = "volume-space"


@dataclass(slots=True)
class _Space:
    """Capacities of one class: those that hold for each node, by position; and what is promised of each."""

    at: dict[int, list[CapacityRecord]] = field(default_factory=dict)
    promised: Counter[tuple[str, str]] = field(default_factory=Counter)


class VolumeStatement:
    """What is chosen on a statement, by position of its nodes. ``in_flight`` is asked when it is first needed."""

    __slots__ = ("_ask", "_chosen", "_effort", "_nodes", "_offers", "_position_of", "_spaces", "_spent", "_taken")

    def __init__(
        self, offers: Offers, nodes: Sequence[NodeRecord], position_of: Mapping[str, int], in_flight: InFlight
    ) -> None:
        self._offers = offers
        self._nodes = nodes
        self._position_of = position_of
        self._ask = in_flight
        #: Volumes that claims on their way have; None: not asked yet.
        self._taken: Counter[str] | None = None
        #: Claims that several pods mount: for which node and which volume, once for each of the pods.
        self._chosen: dict[ClaimKey, list[tuple[str, str]]] = {}
        self._spaces: dict[str, _Space | None] = {}
        #: What choosing has cost since it was asked last, and what finding volumes had cost then.
        self._effort = 0
        self._spent = offers.effort_spent

    @property
    def _view(self) -> View:
        return self._offers.view(self._nodes, self._position_of)

    def take_effort(self) -> int:
        """What it took to choose since this was asked last, in operations of about a microsecond."""
        effort = self._effort + self._offers.effort_spent - self._spent
        self._effort, self._spent = 0, self._offers.effort_spent
        return effort

    # --- questions ---------------------------------------------------------------------------------------------------
    def fits(self, needs: Sequence[VolumeNeed], selection: Selection) -> Bools:
        """Where there are volumes for all needs."""
        if not isinstance(selection, slice):
            return np.array([not isinstance(self.choose(int(at), needs), Refusal) for at in selection], np.bool_)
        ok: Bools = np.ones(len(self._nodes), np.bool_)
        made: Bools = np.ones(len(self._nodes), np.bool_)
        for need in needs:
            ok &= self._may(need)
            made &= self._view.made(need.storage_class)
        if self._ask_space(needs):
            made[:] = False
        elif len(needs) == 1:
            return ok[selection]
        # Where a volume can be made for each of them, none depends on what another one gets.
        for position in np.flatnonzero(ok & ~made).tolist():
            ok[position] = not isinstance(self.choose(position, needs), Refusal)
        return ok[selection]

    def _ask_space(self, needs: Sequence[VolumeNeed]) -> bool:
        """Whether the space of a driver decides for one of them."""
        return any(self._space(need.storage_class) is not None for need in needs)

    def refusals(self, needs: Sequence[VolumeNeed]) -> dict[Refusal, Bools]:
        """Where there are none, and why."""
        if not self._ask_space(needs):
            ok = self.fits(needs, slice(None))
            return {Refusal.NOT_FOUND: ~ok, Refusal.NO_SPACE: np.zeros_like(ok)}
        judged = [self.choose(position, needs) for position in range(len(self._nodes))]
        return {each: np.array([found is each for found in judged], np.bool_) for each in Refusal}

    def choose(self, position: int, needs: Sequence[VolumeNeed]) -> Chosen | Refusal:
        """The volumes for these needs, which are in order of size, on one node; or why it has none."""
        self._look_at_flights()
        self._effort += (1 + len(needs)) * _CHOOSING
        found: dict[int, str] = {}
        to_provision: list[int] = []
        mine: set[str] = set()
        for number, need in enumerate(needs):
            if need.claim in self._chosen:
                node, volume = self._chosen[need.claim][0]
                if node != self._nodes[position].name and not self._also_serves(position, need, volume):
                    return Refusal.NOT_FOUND
                found[number] = volume
            elif need.node:
                if need.node != self._nodes[position].name:
                    return Refusal.NOT_FOUND
                to_provision.append(number)
            elif static := self._static(position, need, mine):
                found[number] = static
                mine.add(static)
            else:
                to_provision.append(number)
        promised: Counter[tuple[str, str]] = Counter()
        for number in to_provision:
            refusal = self._provisioned(position, needs[number], promised)
            if refusal is not None:
                return refusal
            found[number] = ""
        return tuple(found[number] for number in range(len(needs)))

    def node_of(self, position: int, need: VolumeNeed) -> str:
        """The node for which a claim is bound whose pod goes to this position."""
        chosen = self._chosen.get(need.claim) if need.claim is not None else None
        return chosen[0][0] if chosen else self._nodes[position].name

    def _also_serves(self, position: int, need: VolumeNeed, volume: str) -> bool:
        """Whether what was chosen for another node may serve this one."""
        if not need.serves_many_nodes:
            return False
        return bool(self._reached(need, volume)[position])

    def _reached(self, need: VolumeNeed, volume: str) -> Bools:
        """Where a volume is reached, or one of the class may be if it is yet to be made."""
        return self._view.reached(volume) if volume else self._view.made(need.storage_class)

    def _static(self, position: int, need: VolumeNeed, mine: set[str]) -> str:
        taken = self._taken or _NOTHING
        return next(
            (name for name in self._view.volumes(need).on(position) if not taken.get(name) and name not in mine), ""
        )

    def _provisioned(self, position: int, need: VolumeNeed, promised: Counter[tuple[str, str]]) -> Refusal | None:
        record = self._offers.classes.get(need.storage_class)
        if record is None or not record.provisioner or not self._view.made(need.storage_class)[position]:
            return Refusal.NOT_FOUND
        space = self._space(need.storage_class)
        if space is None:
            return None
        here = space.at.get(position, ())
        if not need.node and not any(_has(each, need, space.promised[each.key] + promised[each.key]) for each in here):
            return Refusal.NO_SPACE
        for each in here:
            promised[each.key] += need.size_bytes
        return None

    def _may(self, need: VolumeNeed) -> Bools:
        """Where there may be a volume for a need, as if it were the only one; space is not looked at."""
        size = len(self._nodes)
        ok: Bools = np.zeros(size, np.bool_)
        self._look_at_flights()
        if need.claim in self._chosen:
            node, volume = self._chosen[need.claim][0]
            if node in self._position_of:
                ok[self._position_of[node]] = True
            return ok | self._reached(need, volume) if need.serves_many_nodes else ok
        if need.node:
            at = self._position_of.get(need.node)
            if at is not None:
                ok[at] = bool(self._view.made(need.storage_class)[at])
            return ok
        volumes, taken = self._view.volumes(need), self._taken or _NOTHING
        self._effort += len(volumes.at) // _LOOKED_AT
        if any(not taken.get(name) for _, name in volumes.everywhere):
            return np.ones(size, np.bool_)
        for position, here in volumes.at.items():
            ok[position] = any(not taken.get(name) for _, name in here)
        return ok | self._view.made(need.storage_class)

    # --- changes -----------------------------------------------------------------------------------------------------
    def take(self, choices: Iterable[VolumeChoice]) -> None:
        """Charge what was chosen."""
        self._look_at_flights()
        self._charge(choices, 1)

    def give_back(self, position: int, choices: Sequence[VolumeChoice]) -> Iterable[int]:
        """Take back what was charged; return the positions where something may fit again."""
        self._charge(choices, -1)
        freed: set[int] = set()
        for choice in choices:
            positions = (
                self._view.index.of_rule(self._offers.rule_of(choice.volume))
                if choice.volume
                else self._sharing_space(position, choice.need.storage_class)
            )
            if positions is None or choice.need.claim is not None:
                return range(len(self._nodes))
            freed.update(positions)
        return freed

    def _charge(self, choices: Iterable[VolumeChoice], by: int) -> None:
        for choice in choices:
            if (claim := choice.need.claim) is not None:
                before = self._chosen.setdefault(claim, [])
                if by > 0:
                    before.append((choice.node, choice.volume))
                else:
                    before.pop()
                if len(before) > (1 if by > 0 else 0):
                    continue  # it was chosen for another of its pods
                if not before:
                    del self._chosen[claim]
            if choice.volume:
                if self._taken is not None:
                    self._taken[choice.volume] += by
            elif not choice.need.node and (space := self._space(choice.need.storage_class)) is not None:
                for each in space.at.get(self._position_of.get(choice.node, -1), ()):
                    space.promised[each.key] += by * choice.need.size_bytes

    def _sharing_space(self, position: int, storage_class: str) -> Iterable[int]:
        space = self._space(storage_class)
        if space is None:
            return ()
        keys = {each.key for each in space.at.get(position, ())}
        return [at for at, here in space.at.items() if any(each.key in keys for each in here)]

    def _look_at_flights(self) -> None:
        if self._taken is not None:
            return
        self._taken = Counter()
        for namespace, choices in self._ask():
            for choice in choices:
                self._taken[choice.volume] += bool(choice.volume)
                self._chosen.setdefault((namespace, choice.claim), []).append((choice.node, choice.volume))

    # --- what nodes have ---------------------------------------------------------------------------------------------
    def _space(self, storage_class: str) -> _Space | None:
        """Capacities of a class; None if its driver tells none. Claims on their way are promised theirs."""
        if storage_class in self._spaces:
            return self._spaces[storage_class]
        capacities = self._offers.capacities_of(storage_class)
        made = self._spaces[storage_class] = None if capacities is None else _Space()
        if made is not None:
            for each in capacities or ():
                for position in self._view.index.of_labels(each.topology):
                    made.at.setdefault(position, []).append(each)
            for node, need in self._being_provisioned():
                if need.storage_class == storage_class and node in self._position_of:
                    for each in made.at.get(self._position_of[node], ()):
                        made.promised[each.key] += need.size_bytes
        return made

    def _being_provisioned(self) -> Iterator[tuple[str, VolumeNeed]]:
        """Claims for which a volume is being made, or is to be: each once, however many pods mount it."""
        seen = set[ClaimKey]()
        for key, need in self._offers.selected():
            seen.add(key)
            yield need.node, need
        for namespace, choices in self._ask():
            for choice in choices:
                key = namespace, choice.claim
                if not choice.volume and key not in seen:
                    seen.add(key)
                    yield choice.node, choice.need


def _has(space: CapacityRecord, need: VolumeNeed, promised: int) -> bool:
    """Whether a volume of this size can be made there, with what is promised already."""
    limit = space.free_bytes if space.most_bytes is None else space.most_bytes
    if limit is None or limit < need.size_bytes:
        return False
    return not promised or space.free_bytes is None or space.free_bytes - promised >= need.size_bytes
