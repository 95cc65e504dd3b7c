"""Values of preemption (docs/design/preemption.md): the victims of a need, or why there are none.

Reclaim, preempt and consolidate share them. A *nomination* names the pods that room is made for (its nominated pods),
their places, and victims. It is written before the first eviction, and charged from the moment it is decided until its
nominated pods are bound or it is given up.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set
from typing import NamedTuple

import msgspec

from gpu.bind_request import PlannedDevice
from scheduler.core.model.pod_class import Demand, Requirement
from scheduler.core.model.verdict import Code


class Action(enum.Enum):
    """By which rule room is made; the values are KAI's names of its actions."""

    #: From other queues that have more than their share.
    RECLAIM = "reclaim"
    #: From pods of lower priority in the same queue.
    PREEMPT = "preempt"
    #: From nothing: those that go have other places, so that what is free comes together.
    MOVE = "consolidation"


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a nominated pod is to be. ``devices``: parts of devices, as planned.

    ``emptied``: groups of shared devices there that have to come back whole for it; all their tenants are victims.
    """

    pod_uid: str
    node: str
    devices: tuple[PlannedDevice, ...] = ()
    emptied: tuple[str, ...] = ()


class Victim(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod that has to go.

    ``owner``: by what evictions are counted: the UID of its PodGroup, the identity of its controller, or its own UID.
    ``past_budgets``: it goes though a PodDisruptionBudget forbids it (``PreemptionSettings.budgets``).
    """

    pod_uid: str
    namespace: str
    name: str
    node: str
    owner: str
    past_budgets: bool = False


class Moved(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The place of a victim's successor, which is another pod. ``pod_uid``: of the victim; ``owner`` as there.

    It is kept for a pod of this namespace and owner that asks the same.
    """

    pod_uid: str
    namespace: str
    owner: str
    node: str
    demand: Demand
    devices: tuple[PlannedDevice, ...] = ()


class Nomination(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A decision to evict victims for nominated pods. ``pod_group``: that of the pods, "" for a pod alone.

    ``id`` is unique: made of the first nominated pod's UID and ``number``, the number of nominations that it had
    before. ``moved``: places that are kept for successors of victims.
    """

    id: str
    action: Action
    namespace: str
    pod_group: str = ""
    number: int = 0
    places: tuple[Place, ...]
    victims: tuple[Victim, ...]
    moved: tuple[Moved, ...] = ()


class Ended(enum.Enum):
    """Why a nomination is over."""

    #: All its nominated pods are bound.
    BOUND = "bound"
    #: A nominated pod is gone, or is being deleted.
    NOMINEE_GONE = "nominee-gone"
    #: A nominated pod may not start now: it is gated, or something beside room keeps it.
    NOMINEE_KEPT = "nominee-kept"
    #: The nominated pods ask for something else now, or are other pods of their gang: their places are not what they
    #: need.
    ASKS_DIFFERENTLY = "asks-differently"
    #: All nominated pods were placed elsewhere, where nobody has to go.
    BETTER_PLACE = "better-place"
    #: The node of a place is gone, not ready, cordoned or in another domain, or an attempt failed there.
    PLACE_GONE = "place-gone"
    #: All victims are gone, and the nominated pods don't fit: somebody else came, or they ask more.
    PLACE_TAKEN = "place-taken"
    #: A victim is still there long after it should have ended.
    VICTIM_STAYS = "victim-stays"
    #: Its places were free, and claims of a nominated pod could not be bound there.
    CLAIMS_FAILED = "claims-failed"


class Unit(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The smallest thing worth evicting: one pod above its group's minimum, or all that is left of a group.

    ``group``: namespace and PodGroup; for a pod alone its namespace and UID. ``is_core``: all that is left of a group
    that can't do with less. ``pods``: UIDs, in the order in which they go.
    """

    group: tuple[str, str]
    queue: str
    priority: int
    is_core: bool
    pods: tuple[str, ...]


class Kept(enum.Enum):
    """What kept a pod from being evicted for a group."""

    NOT_PREEMPTIBLE = "not-preemptible"
    PRIORITY = "priority"
    #: Its queue would be left with less than it may keep.
    IN_SHARE = "in-share"
    #: It has not run for the minimum time yet.
    MIN_RUNTIME = "min-runtime"
    #: It was evicted for others before, not long ago.
    PROTECTED = "protected"
    #: A PodDisruptionBudget, or the API server's last answer.
    BUDGET = "budget"
    #: It waits for others of its gang, is terminating, or another nomination takes it.
    BUSY = "busy"
    #: It is on nodes that are reserved for a group that has waited longer, and which that would get later.
    RESERVED = "reserved"


class Bound(enum.Enum):
    """Which bound proves that no permitted evictions help (docs/design/preemption.md)."""

    #: The taker's own queue: its share, quota or limit.
    QUEUE = "queue"
    #: Not even all preemptible pods of the cluster would leave enough.
    NODES = "nodes"
    #: Not even all pods that may be taken would.
    CANDIDATES = "candidates"
    #: Nobody is looked at before its own ``preemptionDelay`` has passed.
    DELAY = "delay"
    #: One of its claims could not be bound, not long ago (protection.py).
    CLAIMS = "claims"
    #: Its namespace gave up what others were evicted for, again and again (eviction_history.py).
    GIVEN_UP = "given-up"
    #: One of its pods has ``preemptionPolicy: Never``.
    NEVER = "never"


class Method(enum.StrEnum):
    """Whose ``reclaimMinRuntime`` protects a pod from other queues; the values are KAI's."""

    #: Of the queue just below the lowest one above both taker and victim, then upward.
    LCA = "lca"
    #: Of the victim's own queue, then upward.
    QUEUE = "queue"


class Respect(enum.StrEnum):
    """Whose pods PodDisruptionBudgets protect from reclaim and preemption."""

    #: All.
    ALWAYS = "always"
    #: Of a queue so much as is a percentage of what it uses.
    SHARE = "share"
    #: Of a queue so much as is within its quota.
    WITHIN_QUOTA = "within-quota"


class PreemptionSettings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an administrator may set about preemption.

    ``saturation_multiplier_milli``: by how much a taker's use of its share counts more beside that of those it takes
    from; less than 1,000 counts as that. ``preempt_min_runtime_ns``, ``reclaim_min_runtime_ns``: of queues that say
    nothing, nor any above them. ``interval_ns``: so often room is looked for at most. ``releasing_threshold_ns``: for
    so long pods that are terminating are counted as gone (KAI's ``--stuck-in-releasing-threshold``).
    ``longest_victim_grace_s``: a victim's own grace period counts up to this: its nominated pod looks for another place
    when it has not ended then. ``disruption_budgets_percent``: with ``Respect.SHARE``.
    """

    saturation_multiplier_milli: int = 1_000
    preempt_min_runtime_ns: int = 0
    reclaim_min_runtime_ns: int = 0
    reclaim_resolve_method: Method = Method.LCA
    #: As KAI's ``--max-consolidation-preemptees``; 0: nobody is moved.
    most_moved_groups: int = 16
    #: A group that was evicted for others so often within the hour is not moved.
    moves_per_hour: int = 2
    interval_ns: int = 200_000_000
    releasing_threshold_ns: int = 120_000_000_000
    longest_victim_grace_s: int = 600
    disruption_budgets: Respect = Respect.ALWAYS
    disruption_budgets_percent: int = 50


class Budget(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A PodDisruptionBudget. ``selector`` None takes nothing. ``allowed``: pods that may still be evicted now."""

    namespace: str
    name: str
    selector: tuple[Requirement, ...] | None
    allowed: int


class Evicted(NamedTuple):
    """How often pods of one owner were evicted for others within the hour, and when last (wall clock)."""

    times: int
    last_s: int


class FailedClaim(NamedTuple):
    """A claim that could not be bound, or allocated: how many pauses that began, the last one when (wall clock)."""

    times: int
    last_s: int


class PreemptionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell knows, and the rules of preemption read: as in ``Trial`` (preemption/trial.py).

    ``version`` is another one whenever anything of it is. ``asked``: pods (UIDs) whose eviction was tried; None: all
    victims count as such. ``failed_claims``: by the UID of the claim. ``takers_wait``: namespaces that take from
    nobody, and until when (wall clock).
    """

    version: int = 0
    asked: Set[str] | None = None
    refused: frozenset[str] = frozenset()
    budgets: tuple[Budget, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = {}
    evicted: Mapping[str, Evicted] = {}
    failed_claims: Mapping[str, FailedClaim] = {}
    takers_wait: Mapping[str, int] = {}
    settings: PreemptionSettings = PreemptionSettings()


class KeptPods(NamedTuple):
    """Pods that could go but for one reason. ``until_s``: when time alone ends it (wall clock), 0: never."""

    why: Kept
    pods: int
    nano_gpu: int
    until_s: int = 0


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Room can be made: ``units`` have to go, and then the nominated pods fit at ``places``.

    ``past_budgets``: pods (UIDs) of units for which PodDisruptionBudgets don't count.
    """

    action: Action
    units: tuple[Unit, ...]
    places: tuple[Place, ...]
    past_budgets: frozenset[str] = frozenset()


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """A need fits at ``places`` if ``units`` go, and the successors of all their pods fit at ``moved`` then.

    ``moved`` names the pods that go, with the nodes where their successors are to be. ``placed`` as in ``NoVictims``;
    ``looked``: nodes that were looked at.
    """

    units: tuple[Unit, ...]
    places: tuple[Place, ...]
    moved: tuple[Place, ...]
    placed: int = 0
    looked: int = 0


class NoMoves(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody is found whose moving helps. ``placed`` and ``looked`` as in ``Moves``."""

    placed: int = 0
    looked: int = 0


class NoVictims(msgspec.Struct, frozen=True, kw_only=True):
    """No room can be made. ``bound``: what proves it; None: searched, nothing found, not proven.

    ``queue_code``: with ``Bound.QUEUE``, what the queue says; None: it would be above its fair share. ``until_s``: when
    time alone may change the answer (wall clock), 0: it does not.
    """

    bound: Bound | None = None
    queue_code: Code | None = None
    kept: tuple[KeptPods, ...] = ()
    until_s: int = 0
    #: How many pods were placed on paper, and taken off, to find that out: what it has cost.
    placed: int = 0
    taken_off: int = 0


class BudgetRecord(Budget, frozen=True, gc=False):
    """A budget that is known by its namespace and name."""

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by."""
        return self.namespace, self.name
