"""Which nodes are worth emptying."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.preemption.consolidation import Movers, Vacating
from tests.scheduler.core.objects import node, pod_group, queue
from tests.scheduler.core.preemption.scenes import need_of, running, trial_of, waiting
from tests.scheduler.core.preemption.test_moving import preempting_cluster

_OWNED: dict[str, Any] = {"owner": ("apps/v1", "ReplicaSet")}
_NODES = (
    *(node(name, 4) for name in ("n1", "n2", "n3")),
    running("x1", "a", "n1", gpus=1, **_OWNED), running("stays", "a", "n1", gpus=1),
    running("x2", "a", "n2", gpus=2, **_OWNED),
    running("x3", "a", "n3", gpus=1, **_OWNED), running("y3", "a", "n3", gpus=2, **_OWNED),
)  # fmt: skip


def _vacating(*objects: Any) -> Vacating:
    trial = trial_of(preempting_cluster(queue("a"), *_NODES, *objects))
    trial.residents.refresh(trial)
    return Vacating(need_of(trial, "mine"), trial, Movers(trial))


@pytest.mark.parametrize(
    ("gpus", "nodes"),
    [
        pytest.param(4, ["n2", "n3"], id="a pod stays on n1"),
        pytest.param(3, ["n1", "n2", "n3"], id="all may gain a place"),
        pytest.param(5, [], id="no node has so many"),
    ],
)
def test_a_node_is_worth_emptying_where_a_place_may_be_gained(gpus: int, nodes: list[str]) -> None:
    vacating = _vacating(waiting("mine", "a", gpus=gpus))
    assert sorted(name for name, _ in vacating.worth()) == nodes


def test_none_is_where_all_of_them_are_not_enough() -> None:
    gang = [waiting(f"m{at}", "a", gpus=4, group="mine") for at in range(3)]
    assert not _vacating(pod_group("mine", 3, queue="a"), *gang).worth()


def test_a_node_gains_nothing_once_too_much_stays() -> None:
    vacating = _vacating(waiting("mine", "a", gpus=4))
    units = {unit.pods[0].name: unit for unit in vacating.trial.residents.movable.values()}
    assert vacating.may_gain("n3", [])
    assert not vacating.may_gain("n3", [units["x3"]])


def test_counting_does_not_tell_what_helps_where_enough_places_are_counted() -> None:
    vacating = _vacating(waiting("mine", "a", gpus=1))
    assert not vacating.says_all
    assert [name for name, _ in vacating.worth()] == ["n1", "n2", "n3"]
    assert vacating.may_gain("n1", [])


def test_places_of_a_node_are_counted_up_to_what_is_asked() -> None:
    assert _vacating(waiting("mine", "a", gpus=1)).places() == 3
    assert _vacating(waiting("mine", "a", gpus=2)).places() == 2
    assert _vacating(waiting("mine", "a", gpus=4)).places() == 0
