"""A trace through API server, admission, scheduler and binder: the same placements as on records."""

from __future__ import annotations

import asyncio

import pytest

from simulator.traces.arrivals import arrivals
from simulator.traces.full import replay_in_full
from simulator.traces.replay import replay
from simulator.traces.tally import Strategies
from simulator.virtualtime import VirtualClock
from tests.conftest import AnyioBackend
from tests.simulator.traces.made_up import trace


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize(
    "strategies",
    [Strategies("binpack", "binpack"), Strategies("priced", "priced"), Strategies("spread", "priced"),
     Strategies("best-fit", "best-fit")],
    ids=str,
)  # fmt: skip
async def test_the_whole_of_moorage_places_a_trace_as_records_do(strategies: Strategies) -> None:
    made = trace(8, 60, has_models=True)
    order = arrivals(made, 7, load_percent=130)
    on_records, in_full = dict[int, str](), dict[int, str]()
    expected = replay(made, order, strategies, seed=7, told=on_records.__setitem__)
    clock = VirtualClock(asyncio.get_running_loop())
    found = await replay_in_full(made, order, strategies, seed=7, clock=clock, told=in_full.__setitem__)
    assert in_full == on_records
    assert found == expected
    assert found.lost
    assert found.differences == ()
