"""Random hostile runs: every invariant holds in each. One seed is one run, in every process.

``make test`` runs seeds 1 to 130; ``make nightly`` runs as many as an hour takes, others each day.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from verification.hostile.marks import missing
from verification.hostile.run import Outcome, run
from verification.hostile.scenario import Script, encode, scenario_of

pytestmark = pytest.mark.thorough

_BLOCK = 10
#: So many seeds, from 1 on, have to reach every mark. It takes 86.
_REACHING = 100
_LAST = 130
#: What so few seeds need not reach: the rest of a gang that stays broken for its whole grace time, room that does not
#: come about at once. A soak tells of it.
_RARE = {"evicted by the scheduler", "intent revised", "eviction for another pod refused"}
#: Seeds that were other runs in other processes once, by the order of tasks, of marked pods and nodes, or of members.
_ONCE_MANY = (3, 6, 17, 20, 39)
#: With these hash seeds they differed.
_HASH_SEEDS = ("0", "1", "2")


@pytest.mark.parametrize("first", range(_REACHING + 1, _LAST + 1, _BLOCK))
def test_every_invariant_holds_whatever_happens(first: int) -> None:
    failed = [found for seed in range(first, first + _BLOCK) if (found := _found(seed, run(scenario_of(seed))))]
    assert not failed, "\n\n".join(failed)


def _found(seed: int, outcome: Outcome) -> str:
    """The violations of a seed, a log, and the scenario to be kept; "" if everything held."""
    scenario = scenario_of(seed)
    if not outcome.violations:
        return ""
    script = Script(violates=outcome.violations[0].invariant, story=f"seed {seed}", scenario=scenario)
    violations = [f"{v.invariant} at {v.at_s:.3f} s: {v.text}" for v in outcome.violations[:5]]
    return "\n".join([f"seed {seed}", *violations, *outcome.events, encode(script).decode()])


@pytest.mark.timeout(600)
def test_every_invariant_holds_in_the_first_seeds_and_they_reach_every_state_of_the_protocol() -> None:
    """A state that they no longer reach is one that nothing here tests any more."""
    reached: set[str] = set()
    failed: list[str] = []
    for seed in range(1, _REACHING + 1):
        outcome = run(scenario_of(seed))
        reached.update(outcome.marks)
        failed += [found] if (found := _found(seed, outcome)) else []
    assert not failed, "\n\n".join(failed)
    assert set(missing(reached)) <= _RARE


def test_one_seed_is_one_run_in_every_process() -> None:
    code = "from verification.hostile.run import run; from verification.hostile.scenario import scenario_of\n"
    code += f"print([run(scenario_of(seed)).digest for seed in {_ONCE_MANY}])"
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in _HASH_SEEDS
    ]
    assert digests == digests[:1] * len(_HASH_SEEDS)
    assert digests[0].count("'") == 2 * len(_ONCE_MANY)


def test_seeds_differ() -> None:
    assert len({run(scenario_of(seed)).digest for seed in range(1, 5)}) == 4
