"""Claims that the scheduler makes, in hostile runs: for extended resources, and for shares of GPUs.

S15 to S17, S19 and L7 are judged in each, beside all that is judged in other hostile runs, under all faults.
"""

from __future__ import annotations

import os

import pytest

from verification.hostile import made_claims
from verification.hostile.marks import WITH_CLAIMS
from verification.hostile.run import run
from verification.hostile.scenario import Script, encode

pytestmark = pytest.mark.thorough

#: MOORAGE_EXTENDED=200: as many seeds, for a search; without it these.
_SEEDS = range(1, 1 + (int(os.environ.get("MOORAGE_EXTENDED", "0")) or 5))
#: What these come to; the others take a crash between two writes, or two schedulers at once.
_REACHED = {
    *("claim made", "claim named in a status", "share given by a claim", "made claim deleted"),
    *("claim taken from a status",),
}


@pytest.mark.timeout(600)
def test_whatever_happens_to_claims_that_the_scheduler_makes_every_invariant_holds() -> None:
    reached: set[str] = set()
    for seed in _SEEDS:
        told = made_claims.scenario(seed)
        outcome = run(told, limit_cpu_s=60.0)
        script = encode(
            Script(violates="", story=f"claims for extended resources, seed {seed}", scenario=told)
        ).decode()
        assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])
        reached.update(mark for mark in outcome.marks if mark in WITH_CLAIMS)
    assert reached >= _REACHED
