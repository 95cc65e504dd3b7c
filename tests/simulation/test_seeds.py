"""A thousand random hostile runs: every invariant holds in each. One seed is one run, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from verification.hostile.marks import missing
from verification.hostile.run import run
from verification.hostile.scenario import Script, encode, scenario_of

pytestmark = pytest.mark.thorough

_BLOCK = 25
#: At most so many seeds are run until every mark is reached. It takes 86.
_REACHING = 100
#: What so few seeds need not reach: the rest of a gang that stays broken for its whole grace time. A soak tells of it.
_RARE = {"evicted by the scheduler"}


@pytest.mark.parametrize("first", range(1, 1001, _BLOCK))
def test_every_invariant_holds_whatever_happens(first: int) -> None:
    failed = [told for seed in range(first, first + _BLOCK) if (told := _told(seed))]
    assert not failed, "\n\n".join(failed)


def _told(seed: int) -> str:
    """What a seed found, "" for nothing: the violations, a log, and the scenario to be kept."""
    scenario = scenario_of(seed)
    outcome = run(scenario)
    if not outcome.violations:
        return ""
    script = Script(violates=outcome.violations[0].invariant, story=f"seed {seed}", scenario=scenario)
    violations = [f"{v.invariant} at {v.at_s:.3f} s: {v.text}" for v in outcome.violations[:5]]
    return "\n".join([f"seed {seed}", *violations, *outcome.events, encode(script).decode()])


def test_the_first_seeds_reach_every_state_of_the_protocol() -> None:
    """A state that they no longer reach is one that nothing here tests any more."""
    reached: set[str] = set()
    for seed in range(1, _REACHING + 1):
        reached.update(run(scenario_of(seed)).marks)
        if not set(missing(reached)) - _RARE:
            return
    assert set(missing(reached)) <= _RARE


def test_one_seed_is_one_run_in_every_process() -> None:
    code = "from verification.hostile.run import run; from verification.hostile.scenario import scenario_of\n"
    code += "print([run(scenario_of(seed)).digest for seed in range(1, 9)])"
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "4711")
    ]
    assert digests[0] == digests[1]
    assert digests[0].count("'") == 16


def test_seeds_differ() -> None:
    assert len({run(scenario_of(seed)).digest for seed in range(1, 5)}) == 4
