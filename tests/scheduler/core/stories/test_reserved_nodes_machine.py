"""Random days beside node reserves: whoever sleeps is placed nowhere by a scheduler that remembers no verdict."""

from __future__ import annotations

import random

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import feed, node, queue
from tests.scheduler.core.stories.test_reserved_nodes import Day, S
from tests.whole import seeds

_MINUTES = 45


def _come(made: Day, rng: random.Random) -> None:
    """Somebody comes: small or large, alone or a gang, with an end that is known or not."""
    name, team = f"p{made.minute}-{rng.randrange(10**6)}", rng.choice("ab")
    minutes, gpus = rng.choice([3, 10, 40]), rng.choice([1, 1, 1, 2, 4])
    if rng.random() < 0.3:
        made.gang(name, rng.choice([2, 3]), minutes=minutes, gpus=gpus, team=team)
        return
    spec = {"activeDeadlineSeconds": 60 * minutes} if rng.random() < 0.4 else {}
    made.submit(name, minutes=minutes, gpus=gpus, team=team, spec=spec, priority=rng.choice([0, 0, 0, 50]))


@pytest.mark.parametrize("seed", seeds(12))
def test_whoever_sleeps_beside_reserves_would_not_be_placed(seed: int) -> None:
    rng = random.Random(seed)
    settings = Settings(
        reserved_nodes_percent=rng.choice([10, 50, 100]), reserved_nodes_patience_ns=3 * 60 * S, preemption=False
    )
    made = Day(Cluster(settings))
    quotas = rng.choice([(0, 0), (4, 4), (8, 2)])
    teams = [queue(team, gpu=(quota, 1, -1)) for team, quota in zip("ab", quotas, strict=True)]
    feed(made.cluster, *teams, *(node(f"n{number}", 4) for number in range(3)))
    stood = 0
    for minute in range(_MINUTES):
        for _ in range(rng.choice([0, 1, 3, 5])):
            _come(made, rng)
        if rng.random() < 0.1:
            feed(made.cluster, node("n2", 4, cordoned=rng.random() < 0.5))
        made.until(minute)
        stood += len(made.cluster.scheduling_queue.reserves.of)
        began = dict(made.began)
        made.cluster.forget_verdicts()
        made.until(minute)
        assert made.began == began
    assert stood
