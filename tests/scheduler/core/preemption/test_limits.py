"""What has to be freed of queues' limits."""

from __future__ import annotations

import pytest

from scheduler.core.model.quota import Resources
from scheduler.core.preemption.reclaim import Limits
from scheduler.core.preemption.victim_units import residents
from tests.scheduler.core.objects import NANO, cluster, node, queue
from tests.scheduler.core.preemption.scenes import running, trial_of

_TREE = (queue("top", gpu=(0, 1, 4)), queue("a", "top", gpu=(0, 1, 3)), queue("b", "top", gpu=(0, 1, -1)))


@pytest.mark.parametrize(
    ("claim", "prefix"), [(0, 0), (1, 2), (2, 3), (3, None)], ids=["nothing", "department", "own", "too much"]
)
def test_as_many_go_as_limits_on_the_way_up_need(claim: int, prefix: int | None) -> None:
    """Team a has 2 of its 3, and its department 4 of its 4."""
    pods = [running("cpu", "b", "n1", cpu="1"), running("b1", "b", "n1", gpus=2), running("a1", "a", "n1", gpus=2)]
    trial = trial_of(cluster(node("n1", 8), *_TREE, *pods))
    units = {unit.pods[0].name: unit for unit in residents(trial).units}
    leaf = trial.accounts.tree.find("a")
    assert leaf is not None
    limits = Limits(trial.accounts, leaf, Resources(0, 0, claim * NANO))
    order = [units[name] for name in ("cpu", "b1", "a1")]
    assert limits.prefix(order if prefix is not None else order[:2]) == prefix
    assert limits.are_met() is (claim == 0)


def test_a_unit_helps_where_something_is_short_that_it_has() -> None:
    pods = [running("cpu", "b", "n1", cpu="1"), running("b1", "b", "n1", gpus=4), running("a1", "a", "n1", cpu="1")]
    trial = trial_of(cluster(node("n1", 8), *_TREE, *pods))
    leaf = trial.accounts.tree.find("a")
    assert leaf is not None
    limits = Limits(trial.accounts, leaf, Resources(0, 0, NANO))
    units = {unit.pods[0].name: unit for unit in residents(trial).units}
    assert [name for name, unit in units.items() if limits.helps(unit)] == ["b1"]
    limits.take(units["b1"])
    assert limits.are_met()
    limits.take(units["cpu"])
    assert not limits.are_met_without(units["b1"])
    assert limits.are_met_without(units["cpu"])
