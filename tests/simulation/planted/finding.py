"""Finds the planted bugs as the soak does: seeds in order, then the failing one made smaller.

``python -m tests.simulation.planted.finding R1 R2 ...`` prints how many seeds each took and writes its script; with
``--count`` it only counts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.simulation.planted.bugs import BUGS, Bug
from verification.hostile import made_devices, pooling
from verification.hostile.queue_actions import CreateQueue
from verification.hostile.run import HANG, run
from verification.hostile.scenario import Scenario, Script, encode, scenario_of
from verification.hostile.soak import minimise

#: Bugs whose names begin so need queues to show, or teams that take from each other, or nodes that are kept, or
#: pools, or claims, or agents that make MIG slices, or claims that the scheduler makes.
OF_QUEUES = "Q-"
OF_PREEMPTION = "P-"
OF_RESERVES = "B-"
OF_POOLS = "N-"
OF_CLAIMS = "C-"
OF_SLICES = "M-"
OF_EXTENDED = "E-"
FOLDER = Path(__file__).parent / "scripts"
#: Processor time of a run with a bug. Without one a run takes 0.2 to 4 s; a storm would go on until it is stopped.
_LIMIT_CPU_S = 10.0


def broken_by(bug: Bug, scenario: Scenario) -> list[str]:
    """What does not hold with the bug, in the order of finding; nothing if something does not hold without it."""
    outcome = run(scenario, parts=bug.parts, limit_cpu_s=_LIMIT_CPU_S)
    found = list(dict.fromkeys(violation.invariant for violation in outcome.violations))
    return found if found and not run(scenario).violations else []


def find(name: str, *, first: int, last: int, kinds: tuple[str, ...] | None, is_kept: bool = True) -> int | None:
    """Look for a bug; write its script, if it is to be kept; return the number of seeds that it took."""
    bug = BUGS[name]
    for seed in range(first, last + 1):
        scenario = scenario_for(name, seed, kinds)
        found = broken_by(bug, scenario) if may_show(name, scenario) else []
        if found:
            number = seed - first + 1
            print(f"{name}: {number} seeds, {_told(kinds)}: {', '.join(found)}", flush=True)
            if not is_kept:
                return number
            told_best = next((invariant for invariant in found if invariant != HANG), HANG)
            script = keep(bug, scenario, told_best, f"{bug.story}; seed {seed}, {_told(kinds)}")
            (FOLDER / f"{name}.json").write_bytes(encode(script))
            smallest = script.scenario
            print(f"   {script.story}")
            print(f"   {len(smallest.actions)} actions, {len(smallest.faults)} faults on {' '.join(smallest.shapes)}")
            return number
    print(f"{name}: not found in {last - first + 1} seeds")
    return None


def scenario_for(name: str, seed: int, kinds: tuple[str, ...] | None) -> Scenario:
    """The run of a seed in which a bug of this name may show; of pools one of each mix by turns."""
    if name.startswith(OF_SLICES):
        return made_devices.slices_scenario(seed, kinds=kinds)
    if name.startswith(OF_EXTENDED):
        return made_devices.claims_scenario(seed, kinds=kinds)
    if not name.startswith(OF_POOLS):
        return scenario_of(seed, kinds, with_claims=name.startswith(OF_CLAIMS))
    mixes = list(pooling.Mix)
    return pooling.scenario(seed, mixes[seed % len(mixes)], kinds=kinds)


def may_show(name: str, scenario: Scenario) -> bool:
    """Whether a bug of this name may show in a scenario at all: others need not be run."""
    if name.startswith(OF_PREEMPTION):
        return scenario.settings.preemption and has_queues(scenario)
    if name.startswith(OF_RESERVES):
        return scenario.settings.reserved_nodes_percent > 0 and has_queues(scenario)
    return not name.startswith(OF_QUEUES) or has_queues(scenario)


def has_queues(scenario: Scenario) -> bool:
    return any(isinstance(action, CreateQueue) for action in scenario.actions)


def keep(bug: Bug, scenario: Scenario, invariant: str, story: str) -> Script:
    """Make a scenario smaller that shows the bug by this invariant."""
    smallest = minimise(scenario, lambda tried: invariant in broken_by(bug, tried), tries=60)
    outcome = run(smallest, parts=bug.parts, limit_cpu_s=_LIMIT_CPU_S)
    told = next(v.text for v in outcome.violations if v.invariant == invariant)
    return Script(violates=invariant, story=f"{story}: {told}", scenario=smallest)


def _told(kinds: tuple[str, ...] | None) -> str:
    if kinds is None:
        return "all kinds of faults"
    return f"faults {', '.join(kinds)}" if kinds else "no faults"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bugs", nargs="+", choices=sorted(BUGS))
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--last", type=int, default=2000)
    parser.add_argument("--faults", type=lambda text: tuple(filter(None, text.split(","))))
    parser.add_argument("--count", action="store_true", help="leave the scripts as they are")
    options = parser.parse_args()
    for name in options.bugs:
        find(name, first=options.first, last=options.last, kinds=options.faults, is_kept=not options.count)


if __name__ == "__main__":
    main()
