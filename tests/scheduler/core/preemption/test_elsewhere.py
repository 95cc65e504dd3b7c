"""Whether other nodes hold a group, as far as counting tells."""

from __future__ import annotations

from typing import Any

from scheduler.core.preemption.capacity import KeptSlots
from scheduler.core.preemption.consolidation import Elsewhere
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_units import Resident
from tests.scheduler.core.objects import node, pod_group, queue
from tests.scheduler.core.preemption.scenes import running, trial_of
from tests.scheduler.core.preemption.test_moving import preempting_cluster

_OWNED: dict[str, Any] = {"owner": ("apps/v1", "ReplicaSet")}


def _units(*objects: Any) -> tuple[Trial, dict[str, Resident]]:
    trial = trial_of(preempting_cluster(queue("a"), *objects))
    trial.residents.refresh(trial)
    return trial, {unit.pods[0].name: unit for unit in trial.residents.movable.values()}


def test_a_group_fits_elsewhere_if_nodes_besides_its_own_and_the_chosen_ones_hold_it() -> None:
    nodes = [node("n1", 4), node("n2", 2), node("n3", 1)]
    trial, units = _units(*nodes, running("x", "a", "n1", gpus=2, **_OWNED), running("y", "a", "n3", gpus=1, **_OWNED))
    elsewhere = Elsewhere(trial.statement, KeptSlots(trial.statement))
    assert elsewhere.may_hold(units["x"])
    elsewhere.choose("n2")
    assert not elsewhere.may_hold(units["x"])
    assert elsewhere.may_hold(units["y"])
    elsewhere.choose("n1")
    assert not elsewhere.may_hold(units["y"])
    elsewhere.leave("n2")
    assert elsewhere.may_hold(units["x"])
    elsewhere.choose_none()
    assert elsewhere.may_hold(units["y"])


def test_all_pods_of_a_gang_count() -> None:
    gang = [running(f"g{at}", "a", "n1", gpus=1, group="g", **_OWNED) for at in range(2)]
    trial, units = _units(node("n1", 4), node("n2", 1), pod_group("g", 2, queue="a"), *gang)
    assert not Elsewhere(trial.statement, KeptSlots(trial.statement)).may_hold(units["g0"])


def test_it_counts_again_what_the_statement_has_changed() -> None:
    trial, units = _units(
        node("n1", 2), node("n2", 1), running("x", "a", "n1", gpus=1, **_OWNED), running("y", "a", "n2", gpus=1)
    )
    elsewhere = Elsewhere(trial.statement, KeptSlots(trial.statement))
    assert not elsewhere.may_hold(units["x"])
    trial.statement.evict(trial.pods.records["uid-y"])
    assert elsewhere.may_hold(units["x"])
