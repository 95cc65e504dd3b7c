"""Claims of devices and of volumes in hostile runs: none is given twice, no pod is bound too early, none is forgotten.

S15 to S17 and L7 are judged in each, beside all that is judged in other hostile runs, under all faults.
"""

from __future__ import annotations

import os

import pytest

from simulator.world import World
from tests.whole import IS_WHOLE
from verification.hostile import made_claims
from verification.hostile.actions import CreatePod
from verification.hostile.run import run
from verification.hostile.scenario import Script, encode, scenario_of

pytestmark = pytest.mark.thorough

#: MOORAGE_CLAIMS=200: as many seeds, for a search; without it these.
_SEEDS = range(1, 1 + (int(os.environ.get("MOORAGE_CLAIMS", "0")) or (24 if IS_WHOLE else 4)))


@pytest.mark.parametrize("seed", _SEEDS)
def test_whatever_happens_to_claims_every_invariant_holds(seed: int) -> None:
    told = scenario_of(seed, with_claims=True)
    outcome = run(told, limit_cpu_s=60.0)
    script = encode(Script(violates="", story=f"claims, seed {seed}", scenario=told)).decode()
    assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])


@pytest.mark.parametrize("seed", _SEEDS[: max(2, len(_SEEDS) // 2)])
def test_whatever_devices_draw_on_or_have_to_do_first_every_invariant_holds(seed: int) -> None:
    told = made_claims.enriched_scenario(seed)
    outcome = run(told, limit_cpu_s=60.0)
    script = encode(Script(violates="", story=f"claims and their drivers, seed {seed}", scenario=told)).decode()
    assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])


@pytest.mark.timeout(600)
def test_where_nothing_goes_wrong_pods_with_claims_of_each_kind_are_bound() -> None:
    bound: set[str] = set()
    for seed in range(1, 4):
        scenario = scenario_of(seed, (), with_claims=True)
        having = {
            action.name: [field for field in ("claims", "templates", "volumes") if getattr(action, field)]
            for action in scenario.actions
            if isinstance(action, CreatePod)
        }
        worlds: list[World] = []
        assert run(scenario, show=worlds.append).violations == ()
        for entry in worlds[0].server.audit:
            if entry.subresource == "binding" and entry.code < 300:
                bound.update(having.get(entry.name, ()))
    assert bound == {"claims", "templates", "volumes"}
