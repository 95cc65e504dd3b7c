"""No, and proven."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.quota import Resources
from scheduler.core.preemption.bounds import least, reach, reaches_without
from scheduler.core.preemption.victim_table import tenants
from tests.scheduler.core.objects import NANO, cluster, node, pod_group, queue, reservation
from tests.scheduler.core.preemption.scenes import device, need_of, running, sharing, trial_of, waiting
from wire.core import Pod


def _gang(minimum: int, *gpus: int, **group: Any) -> list[Any]:
    members = [waiting(f"w{at}", "a", gpus=count, group="mine") for at, count in enumerate(gpus)]
    return [queue("a"), pod_group("mine", minimum, queue="a", **group), *members]


@pytest.mark.parametrize(
    ("minimum", "gpus", "pods", "claim"),
    [
        (2, (1, 1, 1), {1: 2}, 2),
        (3, (1, 1, 2), {1: 2, 2: 1}, 4),
        (2, (1, 1, 2), {1: 1}, 2),
        (1, (1, 2, 3), {}, 1),
        (2, (4, 4, 4, 1), {4: 1}, 5),
    ],
)
def test_a_need_takes_no_less_however_its_members_are_chosen(
    minimum: int, gpus: tuple[int, ...], pods: dict[int, int], claim: int
) -> None:
    trial = trial_of(cluster(node("n1"), *_gang(minimum, *gpus)))
    found = least(need_of(trial, "mine"), trial)
    assert {cls.demand.gpus: count for cls, count in found.pods.items()} == pods
    assert found.claim == Resources(0, 0, claim * NANO)


@pytest.mark.parametrize(
    ("minimum", "gpus", "nodes", "reached"),
    [
        (2, (2, 2), (2, 2), True),
        (2, (2, 2), (3, 1), False),
        (2, (3, 1), (3, 1), True),
        (2, (3, 2), (3, 1), False),
        (3, (1, 1, 1), (1, 1), False),
    ],
)
def test_a_need_is_out_of_reach_where_nodes_have_too_few_slots_or_too_little_in_all(
    minimum: int, gpus: tuple[int, ...], nodes: tuple[int, ...], reached: bool
) -> None:
    there = [node(f"n{at}", count) for at, count in enumerate(nodes)]
    trial = trial_of(cluster(*there, *_gang(minimum, *gpus)))
    assert reach(trial, least(need_of(trial, "mine"), trial)) is reached


@pytest.mark.parametrize(
    ("shared", "tenants_of", "gpus", "reached"),
    [
        pytest.param(device("d", "n1"), 0, (3, 1), True, id="idle"),
        pytest.param(device("d", "n1"), 0, (3, 2), False, id="idle, and counted once"),
        pytest.param(reservation("d", "n1", uuid="GPU-d", deleting=True), 0, (3, 2), False, id="on its way back"),
        pytest.param(device("d", "n1", s=NANO // 2), 1, (3, 1), True, id="comes back with its tenant"),
        pytest.param(device("d", "n1", s=NANO // 2), 1, (3, 2), False, id="and no more than that"),
    ],
)
def test_a_shared_gpu_counts_once_without_all_that_may_go(
    shared: Pod, tenants_of: int, gpus: tuple[int, int], reached: bool
) -> None:
    there: list[Any] = [node("n1", 4), running("x", "a", "n1", gpus=3), shared]
    there += [sharing("s", "a", "n1", "d", NANO // 2)] * tenants_of
    trial = trial_of(cluster(*there, *_gang(2, *gpus)))
    trial.residents.refresh(trial)
    wanted = least(need_of(trial, "mine"), trial)
    gone = trial.residents.is_filled()
    assert reaches_without(trial, wanted, gone, tenants(trial, trial.residents)) is reached


def test_the_statement_is_left_as_it_was() -> None:
    trial = trial_of(cluster(node("n1", 2), running("x", "a", "n1", gpus=2), *_gang(2, 1, 1)))
    wanted, before = least(need_of(trial, "mine"), trial), trial.statement.table.free.tolist()
    assert not reach(trial, wanted)
    trial.residents.refresh(trial)
    assert reaches_without(trial, wanted, trial.residents.is_filled(), tenants(trial, trial.residents))
    assert trial.statement.table.free.tolist() == before
