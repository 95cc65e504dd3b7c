"""Two schedulers of two node pools in a hostile crowd: nodes, pods, gangs and queues change pools in the midst.

S1 to S17 are looked at after every event, as in all hostile runs: S5 by the nodes of each pool, S6 by its queues, S14
by the nominations of its scheduler.
"""

from __future__ import annotations

import os

import pytest

from tests.whole import IS_WHOLE
from verification.hostile.pooling import PODS, Mix, scenario
from verification.hostile.run import run
from verification.hostile.scenario import Script, encode

pytestmark = pytest.mark.thorough

_ASKED = int(os.environ.get("MOORAGE_POOLS", "0")) or (16 if IS_WHOLE else 0)
#: MOORAGE_POOLS=50: as many seeds of each mix, for a search; without it these.
SEEDS = [
    *((Mix.FREE, seed) for seed in range(1, 1 + (_ASKED or 2))),
    *((mix, seed) for mix in (Mix.QUEUED, Mix.CONTENDED) for seed in range(1, 1 + (_ASKED or 1))),
]


@pytest.mark.parametrize(("mix", "seed"), SEEDS)
def test_whatever_happens_and_moves_every_invariant_holds(mix: Mix, seed: int) -> None:
    told = scenario(seed, mix)
    outcome = run(told, limit_cpu_s=60.0)
    script = encode(Script(violates="", story=f"pools, {mix.value}, seed {seed}", scenario=told)).decode()
    assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])


def test_where_nothing_happens_pods_of_both_pools_are_bound() -> None:
    outcome = run(scenario(1, is_calm=True), limit_cpu_s=60.0)
    assert outcome.violations == ()
    assert outcome.pods >= PODS
