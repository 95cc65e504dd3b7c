"""The simulated node tells what a real one told, of the same scenarios (tests/node/histories)."""

from __future__ import annotations

import pytest

from tests.conftest import AnyioBackend
from tests.node.histories.keeping import written
from tests.node.histories.scenarios import BY_HAND, WITH_MOORAGE
from tests.node.histories.simulated import simulated

_SCENARIOS = {**BY_HAND, **WITH_MOORAGE}


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize("scenario", _SCENARIOS)
async def test_the_simulated_node_tells_what_a_real_one_told(scenario: str) -> None:
    async with simulated() as stage:
        await _SCENARIOS[scenario](stage)
        assert stage.telling.text == written(scenario)
