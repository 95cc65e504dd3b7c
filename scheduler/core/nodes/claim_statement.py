"""Choosing devices for ResourceClaims that are not allocated yet, node by node, on the working copy of one decision.

Devices of allocated claims, of claims on their way, and of those that the decision has placed are taken. A claim that
several pods use is chosen for once; the others of its pods can be where these devices are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.claims.allocation import allocate
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.inventory import InventoryView
from scheduler.core.filters.node_affinity import holds
from scheduler.core.model.device_requests import Backed, DeviceNeed, ResourceClaimKey
from scheduler.core.model.devices import ClaimAllocation, ClaimChoice, DeviceId, DeviceRefusal, PoolId, RefusalCode
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.verdict import KeptDevices
from scheduler.core.nodes.extended_claims import made_choice
from scheduler.core.nodes.resource_claims import MOST_USERS, ResourceClaims
from scheduler.core.nodes.table import Bools, Selection

#: What was chosen for each need.
Chosen: TypeAlias = tuple[ClaimAllocation, ...]
#: What is to be written for claims on their way.
InFlight: TypeAlias = Callable[[], Iterable[ClaimChoice]]
#: UUIDs of devices that reservations on a node (name) hold.
Reserved: TypeAlias = Callable[[str], Collection[str]]

#: Operations that searches for the same needs may take in one decision, beyond what is usual for each node. After
#: that, nodes whose answer is not kept count as cut; the next decision gets further.
_MOST_SEARCHING: Final = 300_000
#: Of these, operations of selectors: what one evaluation may take comes on top.
_MOST_EVALUATING: Final = 50_000
_USUAL: Final = 200
#: What it takes to ask a node, in operations, and one more for each claim.
_CHOOSING: Final = 8
#: The kind of the reason where selectors have no answer.
SELECTOR: Final = "claim-selector"
#: The kind of the reason where there would be devices, but for those that are kept for pods that vanished.
KEPT: Final = "claim-kept"
_ELSEWHERE: Final = DeviceRefusal(RefusalCode.NO_DEVICES)
#: Refusal -> the kind of its reason. What is not named here has no devices.
KINDS: Final[Mapping[RefusalCode, str]] = {
    RefusalCode.NO_DEVICES: "claim-devices",
    RefusalCode.NOT_SHARED: "claims-whole",
    RefusalCode.TOO_MANY_RESULTS: "claim-devices",
    RefusalCode.INCOMPLETE_POOL: "claim-pool",
    RefusalCode.INVALID_POOL: "claim-pool",
    RefusalCode.SELECTOR_FAILED: SELECTOR,
    RefusalCode.UNSUPPORTED: SELECTOR,
    RefusalCode.SEARCH_CUT: "claim-search",
}


def _nothing_reserved(_: str) -> Collection[str]:
    return ()


class ClaimStatement:
    """What is chosen on a statement, by position of its nodes. ``in_flight`` is asked when it is first needed.

    ``reserved``: devices (UUIDs) of a node that reservations hold. No claim gets them, though a driver publishes them.
    ``supposed``: which devices nodes reach, in place of what is known; None: as it is known.
    """

    __slots__ = (
        *("_answers", "_ask", "_asked", "_chosen", "_claims", "_cut_short", "_effort", "_evaluating", "_joining"),
        *("_nodes", "_reserved", "_searching", "_supposed", "_taken"),
    )

    def __init__(
        self,
        claims: ResourceClaims,
        nodes: Sequence[NodeRecord],
        in_flight: InFlight,
        reserved: Reserved = _nothing_reserved,
        *,
        supposed: InventoryView | None = None,
    ) -> None:
        self._claims = claims
        self._supposed = supposed
        self._nodes = nodes
        self._ask = in_flight
        self._reserved = reserved
        self._taken: Taken | None = None
        #: What searches for these needs have taken beyond what is usual.
        self._searching: Counter[tuple[DeviceNeed, ...]] = Counter()
        #: What selectors have taken for these needs.
        self._evaluating: Counter[tuple[DeviceNeed, ...]] = Counter()
        #: Those needs for which searches have taken all that they may: another decision gets further.
        self._cut_short: list[frozenset[DeviceNeed]] = []
        #: How many pods were placed here for which a claim (UID) is to be reserved.
        self._joining: Counter[str] = Counter()
        #: The needs that were asked for last, and the answers by position, until something is charged: where a class
        #: fits nowhere, all nodes are asked again for the reason.
        self._asked: Sequence[DeviceNeed] = ()
        self._answers: dict[int, Chosen | DeviceRefusal] = {}
        #: What choosing has cost since it was asked last.
        self._effort = 0
        #: Claims that several pods use: what was chosen, once for each pod that it was chosen for.
        self._chosen: dict[ResourceClaimKey, list[ClaimAllocation]] = {}

    def take_effort(self) -> int:
        """What it took to choose since this was asked last, in operations of about a microsecond."""
        effort, self._effort = self._effort, 0
        return effort

    def _spend(self, operations: int) -> None:
        self._effort += operations

    def _view(self) -> InventoryView:
        """Which devices nodes reach."""
        return self._supposed or self._claims.inventory.view()

    # --- questions ---------------------------------------------------------------------------------------------------
    def fits(self, needs: Sequence[DeviceNeed], selection: Selection) -> Bools:
        """Where there are devices for all needs."""
        positions = range(len(self._nodes))[selection] if isinstance(selection, slice) else map(int, selection)
        return np.array([not isinstance(self.choose(at, needs), DeviceRefusal) for at in positions], np.bool_)

    def refusals(self, needs: Sequence[DeviceNeed]) -> dict[str, Bools]:
        """Where there are none, by kind of the reason."""
        judged = [self.choose(position, needs) for position in range(len(self._nodes))]
        kinds = [KINDS.get(each.code, "claim-devices") if isinstance(each, DeviceRefusal) else "" for each in judged]
        kept = self._claims.vanished.by_pool()
        for position, each in enumerate(judged) if kept else ():
            is_without = isinstance(each, DeviceRefusal) and each.code is RefusalCode.NO_DEVICES
            if is_without and self._fits_but_for(self._kept(position, kept), position, needs):
                kinds[position] = KEPT
        return {kind: np.array([each == kind for each in kinds], np.bool_) for kind in sorted({*KINDS.values(), KEPT})}

    def _kept(self, position: int, by_pool: Mapping[PoolId, Sequence[str]]) -> list[str]:
        """What is kept of devices that a node reaches, for pods that vanished."""
        pools = self._view().pools_on(self._nodes[position])
        return [*dict.fromkeys(owner for pool in pools for owner in by_pool.get(pool.pool.id, ()))]

    def _fits_but_for(self, owners: Sequence[str], position: int, needs: Sequence[DeviceNeed]) -> bool:
        """Whether a node would have devices for these needs if those of these owners were free."""
        taken = self._in_use()
        held = {owner: taken.get(owner) for owner in owners}
        for owner in owners:
            taken.drop(owner)
        try:
            found = self._choose(position, needs) if owners else _ELSEWHERE
        finally:
            for owner, results in held.items():
                taken.put(owner, results)
        return not isinstance(found, DeviceRefusal)

    def kept_at(self, positions: Iterable[int], most: int) -> tuple[KeptDevices, ...]:
        """Pods for which devices of these nodes are kept, ``most`` at most."""
        vanished = self._claims.vanished
        by_pool = vanished.by_pool()
        users = (each for at in positions for owner in self._kept(at, by_pool) for each in vanished.users(owner))
        return tuple(islice(dict.fromkeys(users), most))

    def failure_at(self, position: int, needs: Sequence[DeviceNeed]) -> str:
        """What keeps a node out whose devices selectors can't judge."""
        found = self.choose(position, needs)
        return found.detail if isinstance(found, DeviceRefusal) else ""

    def gives(self, resource: str, among: Bools) -> Bools:
        """On which of these nodes devices stand for an extended resource, free ones or not."""
        found: Bools = np.zeros(len(self._nodes), np.bool_)
        name = self._claims.extended.class_of(resource)
        if name is None:
            return found
        view = self._view()
        record = view.device_class(name)
        if record is not None:
            for position in np.flatnonzero(among).tolist():
                found[position] = view.has_any(self._nodes[position], record.selectors)
        return found

    def choose(self, position: int, needs: Sequence[DeviceNeed]) -> Chosen | DeviceRefusal:
        """The devices for these needs on one node; or why it has none."""
        if needs is not self._asked:
            self._asked, self._answers = needs, {}
        answer = self._answers.get(position)
        if answer is None:
            answer = self._answers[position] = self._choose(position, needs)
        return answer

    def _choose(self, position: int, needs: Sequence[DeviceNeed]) -> Chosen | DeviceRefusal:
        taken, node = self._in_use(), self._nodes[position]
        self._effort += _CHOOSING + len(needs)
        known = [self._known(need) for need in needs]
        if any(each is not None and not _reaches(each, node) for each in known):
            return _ELSEWHERE
        open_ = [need for need, each in zip(needs, known, strict=True) if each is None]
        if not open_:
            return tuple(each for each in known if each is not None)
        found = self._search(open_, node, taken)
        if isinstance(found, DeviceRefusal):
            return found
        fresh = iter(found)
        return tuple(next(fresh) if each is None else each for each in known)

    def _held(self, node: NodeRecord) -> tuple[DeviceId, ...]:
        """Devices of a node that reservations hold, where a driver publishes the same ones.

        On other nodes there may be devices of these UUIDs as well: emulated GPUs are numbered on each node.
        """
        reserved = self._reserved(node.name)
        if not reserved:
            return ()
        pools = self._view().pools_on(node)
        return tuple(
            sorted((*pool.pool.id, name) for pool in pools for uuid in {*reserved} for name in pool.named(uuid))
        )

    def _search(self, needs: Sequence[DeviceNeed], node: NodeRecord, taken: Taken) -> Chosen | DeviceRefusal:
        before, asked, evaluated = self._effort, tuple(needs), self._view().effort_spent
        found = allocate(
            needs,
            node,
            self._view(),
            taken,
            held=self._held(node),
            spend=self._spend,
            may_search=not self._is_cut(asked),
            may_evaluate=_MOST_EVALUATING - self._evaluating[asked],
        )
        was_cut = self._is_cut(asked)
        self._searching[asked] += max(0, self._effort - before - _USUAL)
        self._evaluating[asked] += self._view().effort_spent - evaluated
        if self._is_cut(asked) and not was_cut:
            self._cut_short.append(frozenset(asked))
        return found

    def _is_cut(self, needs: tuple[DeviceNeed, ...]) -> bool:
        """Whether searches for these needs have taken all that they may."""
        return self._searching[needs] >= _MOST_SEARCHING or self._evaluating[needs] >= _MOST_EVALUATING

    def is_cut_short(self, needs: Iterable[DeviceNeed]) -> bool:
        """Whether searches for these needs, or some of them, were cut: nodes may be left that nobody has looked at."""
        return bool(self._cut_short) and any(map(frozenset(needs).issuperset, self._cut_short))

    def full_claim(self, pod: PodRecord) -> str:
        """A claim of a pod that as many pods use, with those placed here, as may use it at once; "" if there is none.

        Those on their way are not counted: they may be seen already, and the writes of claims count, too.
        """
        for name, uid in (*pod.to_allocate, *pod.to_reserve) if self._joining else ():
            claim = self._claims.claims.get((pod.namespace, name))
            users = 0 if claim is None else len(claim.reserved_for) + claim.others
            if self._joining[uid] and users + self._joining[uid] >= MOST_USERS:
                return name
        return ""

    def choices(self, pod: PodRecord, chosen: Chosen, backing: Backed | None = None) -> tuple[ClaimChoice, ...]:
        """What is to be written for a pod: the claims that were chosen for, and those that it only joins.

        ``backing``: extended resources that a claim gives it; the last one chosen is for that.
        """
        if backing is not None:
            made = made_choice(pod, backing, chosen[-1], self._view())
            return (*self.choices(pod, chosen[:-1]), made)
        new = tuple(
            ClaimChoice(claim=name, claim_uid=uid, allocation=allocation, key=self._key(pod, name))
            for (name, uid), allocation in zip(pod.to_allocate, chosen, strict=True)
        )
        joined = ((uid, self._claims.claims.get((pod.namespace, name))) for name, uid in pod.to_reserve)
        return (
            *new,
            *(
                ClaimChoice(claim=claim.name, claim_uid=uid, allocation=claim.allocation, is_allocated=True)
                for uid, claim in joined
                if claim is not None and claim.allocation is not None
            ),
        )

    def _key(self, pod: PodRecord, name: str) -> ResourceClaimKey | None:
        """The key of a claim that others may come to use while it is on its way: of one that was made for no pod."""
        claim = self._claims.claims.get((pod.namespace, name))
        return None if claim is None or claim.owner else claim.key

    def _known(self, need: DeviceNeed) -> ClaimAllocation | None:
        """What was chosen for a claim that several pods use."""
        return self._chosen[need.claim][-1] if need.claim is not None and need.claim in self._chosen else None

    # --- changes -----------------------------------------------------------------------------------------------------
    def take(self, choices: Iterable[ClaimChoice]) -> None:
        """Charge what was chosen."""
        self._in_use()
        listed = tuple(choices)
        self._charge(listed)
        self._joining.update(choice.claim_uid for choice in listed)

    def give_back(self, position: int, choices: Sequence[ClaimChoice]) -> Iterable[int]:
        """Take back what was charged last; return the positions where something may fit again."""
        taken = self._in_use()
        self._answers = {}
        self._joining.subtract(choice.claim_uid for choice in choices)
        for choice in choices:
            if choice.key is not None:
                before = self._chosen[choice.key]
                before.pop()
                if before:
                    continue  # it was chosen for another of its pods
                del self._chosen[choice.key]
            claim = self._seen(choice)
            if claim is not None:
                taken.put(choice.claim_uid, claim.results)
            else:
                taken.drop(choice.claim_uid)
        is_here = all(choice.key is None and _is_of_one_node(choice.allocation) for choice in choices)
        return (position,) if is_here else range(len(self._nodes))

    def _charge(self, choices: Iterable[ClaimChoice]) -> None:
        self._answers = {}
        for choice in choices:
            if choice.key is not None:
                self._chosen.setdefault(choice.key, []).append(choice.allocation)
            if self._taken is not None:
                self._taken.put(choice.claim_uid, choice.allocation.results)

    def _seen(self, choice: ClaimChoice) -> ClaimAllocation | None:
        """What a claim has, as far as is seen."""
        known = self._claims.taken.get(choice.claim_uid)
        return ClaimAllocation(results=known) if known else None

    def _in_use(self) -> Taken:
        if self._taken is None:
            self._taken = self._claims.taken.fork()
            self._charge(self._ask())
        return self._taken


def _reaches(allocation: ClaimAllocation, node: NodeRecord) -> bool:
    return allocation.terms is None or any(holds(term, node) for term in allocation.terms)


def _is_of_one_node(allocation: ClaimAllocation) -> bool:
    """Whether its devices can be used on one node only, by its name."""
    terms = allocation.terms
    return terms is not None and len(terms) == 1 and any(each.key == "metadata.name" for each in terms[0].fields)
