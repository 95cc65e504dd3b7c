"""The order in which pods arrive."""

from __future__ import annotations

import pytest

from simulator.traces.trace import arrivals
from tests.simulator.traces.made_up import trace

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("load", [20, 100, 300])
def test_pods_come_until_the_load_is_reached(load: int) -> None:
    made = trace(20, 100)
    order = arrivals(made, 42, load_percent=load)
    asked = sum(pod.ask.total_milli for pod in order.pods)
    assert load - 8 < asked * 100 / made.capacity_milli <= load + 8
    assert sorted(order.ranks) == list(range(20))


def test_all_of_the_trace_comes_first_and_then_pods_that_are_drawn() -> None:
    made = trace(20, 30)
    order = arrivals(made, 42, load_percent=300)
    assert sorted(pod.name for pod in order.pods[:30]) == [pod.name for pod in made.pods]
    assert len({pod.name for pod in order.pods}) < len(order.pods)
