"""Groups that may be moved, by node."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduler.core.model.preemption import RoomSettings
from scheduler.core.preemption.consolidation import Movers
from tests.scheduler.core.objects import NANO, node, pod_group, queue
from tests.scheduler.core.preemption.scenes import device, running, sharing, trial_of
from tests.scheduler.core.preemption.test_moving import preempting_cluster

_OWNED: dict[str, Any] = {"owner": ("apps/v1", "ReplicaSet")}


def _movers(*objects: Any, **given: Any) -> Movers:
    trial = trial_of(preempting_cluster(queue("a"), *objects), **given)
    trial.residents.refresh(trial)
    return Movers(trial)


def test_nodes_with_the_least_to_move_come_first_and_the_smallest_groups_of_each() -> None:
    movers = _movers(
        *(node(name, 4) for name in ("n1", "n2", "n3")),
        *(running(f"x{gpus}", "a", "n1", gpus=gpus, **_OWNED) for gpus in (2, 1)),
        running("y", "a", "n2", gpus=2, **_OWNED),
        running("stays", "a", "n3", gpus=1),
    )
    found = [(name, [unit.pods[0].name for unit in units]) for name, units in movers.by_node()]
    assert found == [("n2", ["y"]), ("n1", ["x1", "x2"])]
    only = np.array([name == "n1" for name in movers.trial.statement.position_of])
    assert [name for name, _ in movers.by_node(only)] == ["n1"]


def test_a_group_that_has_not_run_for_its_minimum_is_none() -> None:
    objects = (node("n1", 2), running("x", "a", "n1", gpus=1, age_s=60, **_OWNED))
    assert _movers(*objects).by_node()
    assert not _movers(*objects, settings=RoomSettings(preempt_min_ns=61 * 1_000_000_000)).by_node()


def test_a_node_has_at_most_what_is_free_and_what_may_be_moved_off_it() -> None:
    movers = _movers(
        node("n1", 8), node("n2", 4), pod_group("g", 2, queue="a"),
        running("g0", "a", "n1", gpus=3, group="g", **_OWNED), running("g1", "a", "n2", gpus=1, group="g", **_OWNED),
        running("stays", "a", "n1", gpus=2),
        device("d", "n2", s=NANO // 4, t=NANO // 4), sharing("s", "a", "n2", "d", NANO // 4, **_OWNED),
        sharing("t", "a", "n2", "d", NANO // 4),
    )  # fmt: skip
    assert movers.most_nano.tolist() == [6 * NANO, 3 * NANO + NANO * 3 // 4]
    assert movers.free_nano == 5 * NANO + NANO // 2


def test_free_gpus_of_one_node_do_not_make_up_for_what_another_one_lacks() -> None:
    """On n2 more runs than it has, as after a node has lost a GPU; n3 is full."""
    crowd = [running(f"x{number}", "a", "n2", gpus=1) for number in range(3)]
    movers = _movers(node("n1", 4), node("n2", 2), node("n3", 1), *crowd, running("y", "a", "n3", gpus=1))
    assert movers.free_nano == 4 * NANO
    assert movers.most_nano.tolist() == [4 * NANO, 0, 0]
