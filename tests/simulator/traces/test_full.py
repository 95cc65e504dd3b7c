"""A trace through API server, admission, scheduler and binder: the same placements as on records."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from simulator.clock import VirtualClock
from simulator.traces import trace as reading
from simulator.traces.arrivals import arrivals
from simulator.traces.full import replay_in_full
from simulator.traces.replay import replay
from simulator.traces.tally import Strategies
from simulator.traces.trace import Trace
from tests.conftest import AnyioBackend
from tests.simulator.traces.made_up import trace

pytestmark = pytest.mark.thorough

#: A folder with the public traces; their licence lets nobody ship them.
_PUBLIC = os.environ.get("MOORAGE_TRACES", "")


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
    await _same(trace(8, 60, has_models=True), strategies, seed=7)


@pytest.mark.thorough
@pytest.mark.timeout(1_200)
@pytest.mark.skipif(not _PUBLIC, reason="MOORAGE_TRACES names no folder with the public traces")
async def test_a_tenth_of_the_public_trace_is_placed_as_on_records() -> None:
    folder = Path(_PUBLIC)
    public = Trace(nodes=reading.openb_nodes(folder), pods=reading.openb_pods(folder, "default"))
    await _same(public.part(10), Strategies("priced", "priced"), seed=42)


async def _same(made: Trace, strategies: Strategies, *, seed: int) -> None:
    order = arrivals(made, seed, load_percent=130)
    on_records, in_full = dict[int, str](), dict[int, str]()
    expected = replay(made, order, strategies, seed=seed, told=on_records.__setitem__)
    clock = VirtualClock(asyncio.get_running_loop())
    found = await replay_in_full(made, order, strategies, seed=seed, clock=clock, told=in_full.__setitem__)
    assert in_full == on_records
    assert found == expected
    assert found.lost
    assert found.differences == ()
