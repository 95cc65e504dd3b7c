"""A real node tells what is written down of the scenarios."""

from __future__ import annotations

import pytest

from tests.node.histories.keeping import write, written
from tests.node.histories.real import real
from tests.node.histories.scenarios import BY_HAND, WITH_MOORAGE, Scenario
from tests.node.pods import Machine

pytestmark = pytest.mark.node


@pytest.mark.parametrize("scenario", BY_HAND)
async def test_a_real_node_tells_what_is_written(machine: Machine, scenario: str) -> None:
    await _compare(machine, scenario, BY_HAND[scenario])


@pytest.mark.parametrize("scenario", WITH_MOORAGE)
@pytest.mark.usefixtures("moorage")
async def test_a_real_node_with_moorage_tells_what_is_written(machine: Machine, scenario: str) -> None:
    await _compare(machine, scenario, WITH_MOORAGE[scenario])


async def _compare(machine: Machine, scenario: str, play: Scenario) -> None:
    with real(machine) as stage:
        await play(stage)
        told = stage.telling.text
    write(scenario, told)
    assert told == written(scenario)
