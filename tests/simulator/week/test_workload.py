"""Workloads that people write."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.week.workload import LOAD_PERCENT, MalformedWorkload, university, workload
from tests.simulator.week.small import two_teams, written

pytestmark = pytest.mark.thorough


def test_a_part_has_every_nth_node_and_quotas_and_rates_to_match() -> None:
    half = two_teams().part(2)
    assert half.nodes == ("1x4x80GiB",)
    assert [queue.quota for queue in half.queues] == [2, 2]
    assert half.per_day == two_teams().per_day / 2


def test_the_university_has_20_queues_500_nodes_and_asks_for_more_than_there_is() -> None:
    found = university()
    gpus = sum(len(shape.cards_mib) for shape in found.shapes())
    assert (len(found.queues), len(found.shapes()), gpus) == (20, 500, 4_000)
    assert sum(queue.quota for queue in found.queues) == gpus
    assert found.gpu_hours_per_day == pytest.approx(gpus * 24 * LOAD_PERCENT / 100)


def _with(**fields: Any) -> dict[str, Any]:
    return {**written(), **fields}


def _kind(**fields: Any) -> dict[str, Any]:
    return _with(kinds={**written()["kinds"], "gang": {"gpu": 2, "minutes": 300, **fields}})


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ([], "Expected `object`, got `array`"),
        (_with(nodes=[]), "length >= 1"),
        (_with(nodes=["2x7x1g.10gb"]), "nodes: 2x7x1g.10gb: has MIG slices; allowed: whole GPUs"),
        (_with(nodes=["two"]), "nodes 'two'"),
        (_with(hours=3), "unknown field `hours`"),
        (_kind(gpu=1.5), "kinds.gang.gpu: 1.5; allowed: whole GPUs, or a share"),
        (_kind(gpu=0.0001), "kinds.gang.gpu: 0.0001; allowed"),
        (_kind(gpu=8), "kinds.gang.gpu: 8.0; allowed: up to 4, the GPUs of the largest node"),
        (_kind(minutes=0), "Expected `float` >= 1"),
        (_kind(pods=[0]), "Expected `int` >= 1"),
        (_kind(when="dusk"), "Invalid enum value 'dusk'"),
        (_with(queues=[{"name": "a", "quota": 1}] * 2), "queues[1].name: 'a' is there twice"),
        (_with(queues=[{"name": "a", "quota": 1, "per_day": {"x": 1}}]), "queues[0].per_day: 'x' is no kind"),
        (_with(queues=[{"name": c, "quota": 1, "per_day": {"gang": 1e5}} for c in "ab"]), "200000 jobs a day in all"),
    ],
)
def test_what_is_not_allowed_is_refused_with_field_and_value(made: Any, says: str) -> None:
    with pytest.raises(MalformedWorkload) as refused:
        workload(made)
    assert says in str(refused.value)
