"""Pods that come and go on a full cluster."""

from __future__ import annotations

import msgspec
import pytest

from simulator.traces.replay import NoLifetimes, churn
from simulator.traces.tally import Strategies
from simulator.traces.trace import Trace
from tests.simulator.traces.made_up import trace

pytestmark = pytest.mark.thorough


def _living(nodes: int, *, lived_s: tuple[int, ...]) -> Trace:
    made = trace(nodes, 120)
    pods = (msgspec.structs.replace(pod, lived_s=lived_s[i % len(lived_s)]) for i, pod in enumerate(made.pods))
    return Trace(nodes=made.nodes, pods=tuple(pods))


@pytest.mark.parametrize("strategy", ["binpack", "priced"])
def test_a_full_cluster_stays_as_full_as_it_can_and_its_ledger_right(strategy: str) -> None:
    made = _living(12, lived_s=(100, 1_000, 50_000))
    run = churn(made, Strategies(strategy, strategy), seed=1, load_percent=130, arrivals=400)
    assert run.differences == ()
    assert run.arrived == 200
    assert 0 < run.lost < 200
    assert 60 < run.used_percent <= 100


def test_an_idle_cluster_loses_nobody_and_is_used_as_much_as_is_asked() -> None:
    made = _living(30, lived_s=(1_000,))
    run = churn(made, Strategies("priced", "priced"), seed=1, load_percent=20, arrivals=1_000)
    assert run.lost == 0
    assert run.used_percent == pytest.approx(20, abs=3)


def test_the_same_seed_is_the_same_run() -> None:
    made = _living(6, lived_s=(10, 20))
    both = Strategies("binpack", "priced")
    first, again, other = (churn(made, both, seed=seed, load_percent=110, arrivals=60) for seed in (3, 3, 4))
    assert first == again
    assert first.used_percent != other.used_percent


def test_a_trace_without_lifetimes_is_refused() -> None:
    with pytest.raises(NoLifetimes, match="creation_time, deletion_time"):
        churn(trace(4, 20), Strategies("priced", "priced"), seed=1, load_percent=110, arrivals=5)
