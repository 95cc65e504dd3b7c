"""What a search for victims reads and what it tries on: statement and accounts of a decision, left as they were.

``decide/charging.py`` makes one of a decision's attempts. Pods that go on paper go off their nodes, and off
what counts in their queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, Protocol

from scheduler.core.groups.quorum import Quorum
from scheduler.core.model.preemption import Budget, Evicted, Place, PreemptionSettings
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.protection import Budgets
from scheduler.core.preemption.victim_table import ResidentTable, TenantsRead
from scheduler.core.preemption.victim_units import Resident, amounts
from scheduler.core.queues.accounts import Accounts, Use
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.use import is_fixed, queue_of
from scheduler.core.snapshot.statement import Statement

_NOBODY: Final[Set[str]] = frozenset()
_DEFAULTS: Final = PreemptionSettings()


class Paper(Protocol):
    """Places a need on the statement as a decision would."""

    def place(self, need: Need) -> tuple[Place, ...] | None:
        """Place and charge the pods that a need lacks, on nodes and in its queue; None if that is not possible now.

        Then something may be charged already: the caller goes back to its checkpoint.
        """
        ...

    def move(self, pod: PodRecord, besides: Set[str]) -> Place | None:
        """Place and charge the successor of a bound pod that was taken off, on any node but its own and these.

        None if it fits nowhere; then nothing is charged.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """``statement`` and ``accounts``: of the decision. ``residents``: all units. ``wall_s``: now, by the wall clock.

    ``taken``: UIDs of pods that other nominations take. ``leaving``: of pods that are terminating and that may be
    counted on: they are gone before anybody is evicted. ``labels``: of bound pods in namespaces that have a budget, by
    UID; a pod there whose labels are not known is nobody's victim. ``refused``: pods that the API server would not
    evict when it was last asked. ``evicted``: by the pods' owner (``Victim.owner``).
    """

    statement: Statement
    accounts: Accounts
    paper: Paper
    pods: Pods
    pod_groups: Mapping[tuple[str, str], PodGroupRecord]
    quorum: Callable[[PodGroupRecord], Quorum]
    queues: Queues
    residents: ResidentTable
    wall_s: int
    taken: Set[str] = _NOBODY
    leaving: Set[str] = _NOBODY
    refused: Set[str] = _NOBODY
    budgets: tuple[Budget, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    evicted: Mapping[str, Evicted] = field(default_factory=dict)
    settings: PreemptionSettings = _DEFAULTS
    #: Of searches on this statement.
    tenants_read: TenantsRead = field(default_factory=TenantsRead)
    #: What budgets say of pods; what was looked up for one search is known in the next.
    counted: Budgets = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counted", Budgets(self.budgets, self.labels, self.refused))


def evict_on_paper(trial: Trial, units: Iterable[Resident]) -> None:
    """Take units off their nodes. Pods on a node that is not there hold nothing."""
    there = trial.statement.position_of
    trial.statement.evict(*(pod for unit in units for pod in unit.pods if pod.node in there))


def release_on_paper(trial: Trial, units: Iterable[Resident]) -> None:
    """Take units off their queues."""
    for unit in units:
        trial.accounts.release(Use(unit.leaf.name, unit.amounts))


def leave_on_paper(trial: Trial) -> bool:
    """Take off the pods that are terminating and may be counted on; return whether there are any."""
    pods = [pod for pod in map(trial.pods.records.get, trial.leaving) if pod is not None and pod.node and pod.queue]
    for pod in pods:
        trial.accounts.release(_use(trial, pod), is_leaving=True)
    there = trial.statement.position_of
    trial.statement.evict(*(pod for pod in pods if pod.node in there))
    return bool(pods)


def _use(trial: Trial, pod: PodRecord) -> Use:
    group = trial.pod_groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
    return Use(queue_of(pod, group), amounts(trial, pod), is_fixed(pod, group))
