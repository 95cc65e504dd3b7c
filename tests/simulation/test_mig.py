"""MIG slices on demand in hostile runs: no slice goes that somebody has, and whoever can have one gets it.

S18 and L1 of slices are judged in each, beside all that is judged in other hostile runs, under all faults.
"""

from __future__ import annotations

import os

import pytest

from simulator.world import World
from tests.whole import IS_WHOLE
from verification.hostile import slicing
from verification.hostile.run import run
from verification.hostile.scenario import Script, encode

pytestmark = pytest.mark.thorough

#: MOORAGE_MIG=200: as many seeds, for a search; without it these.
_SEEDS = range(1, 1 + (int(os.environ.get("MOORAGE_MIG", "0")) or (24 if IS_WHOLE else 4)))


@pytest.mark.parametrize("seed", _SEEDS)
def test_whatever_happens_while_slices_are_made_every_invariant_holds(seed: int) -> None:
    told = slicing.scenario(seed)
    outcome = run(told, limit_cpu_s=60.0)
    script = encode(Script(violates="", story=f"slices on demand, seed {seed}", scenario=told)).decode()
    assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])


def test_where_nothing_goes_wrong_slices_are_made_and_pods_are_bound() -> None:
    worlds: list[World] = []
    assert run(slicing.scenario(1, kinds=()), show=worlds.append).violations == ()
    writes = [entry for entry in worlds[0].server.audit if entry.user == "scheduler" and entry.code < 300]
    assert sum(entry.resource == "gpunodes" for entry in writes) >= 3
    assert sum(entry.resource == "bindrequests" or entry.subresource == "binding" for entry in writes) >= 5
