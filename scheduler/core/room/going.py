"""Pods that go on paper: off their nodes, and off what counts in their queues."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.model.records import PodRecord
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.use import is_fixed, queue_of
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Resident, amounts


def evict(trial: Trial, units: Iterable[Resident]) -> None:
    """Take units off their nodes. Pods on a node that is not there hold nothing."""
    there = trial.statement.position_of
    trial.statement.evict(*(pod for unit in units for pod in unit.pods if pod.node in there))


def release(trial: Trial, units: Iterable[Resident]) -> None:
    """Take units off their queues."""
    for unit in units:
        trial.accounts.release(Use(unit.leaf.name, unit.amounts))


def leave(trial: Trial) -> bool:
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
