"""One hostile run, recorded for ``moorage ui --open``: of a seed, or of a script that a soak has kept.

``python -m verification.hostilerun --script soak-failures/S3-7.json`` (``make simulate-record``). The run is the same
as without the recording, so what the soak found happens again, and can be looked at moment by moment.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from runtime.text import BadInput
from simulator.clock import VirtualClock
from simulator.world import World
from ui.page.recording import recorded
from verification.hostile import scenario as scenarios
from verification.hostile.run import LIMIT_CPU_S, Outcome, run
from verification.hostile.scenario import MalformedScript, Scenario, scenario_of
from verification.hostile.soak import KEEP, kinds_in

#: Writing lines takes its part of a processor.
_LIMIT_CPU_S: Final = 3 * LIMIT_CPU_S


def main(argv: Sequence[str] | None = None) -> int:
    """Run one; 1 when something did not hold, 2 for bad input."""
    options = _parser().parse_args(argv)
    try:
        scenario, path = _scenario(options)
        path = options.record or path
        path.parent.mkdir(parents=True, exist_ok=True)
        outcome = play(scenario, path)
    except BadInput as error:
        sys.stderr.write(f"hostilerun: {error}\n")
        return 2
    for violation in outcome.violations:
        print(f"{violation.invariant} at {violation.at_s:.3f} s: {violation.text}")
    print(f"{path}: {outcome.pods} pods, {outcome.writes} writes in {outcome.ended_at_s:.0f} s")
    return 1 if outcome.violations else 0


def play(scenario: Scenario, path: Path) -> Outcome:
    """Run a scenario and record it into a new file. Raises BadInput for one that can't be written."""
    refused: list[BadInput] = []
    with ExitStack() as stack:

        def listen(world: World) -> None:
            clock = VirtualClock(asyncio.get_running_loop())
            try:
                stack.enter_context(recorded(str(path), world.server, clock)).found()
            except BadInput as error:  # what is raised in here would be a component's crash
                refused.append(error)

        outcome = run(scenario, show=listen, limit_cpu_s=_LIMIT_CPU_S)
    if refused:
        raise refused[0]
    return outcome


def _scenario(options: argparse.Namespace) -> tuple[Scenario, Path]:
    """What to run, and the file that is named after it. Raises BadInput."""
    if options.script is None:
        return scenario_of(options.seed, options.faults), KEEP / f"seed-{options.seed}.run"
    try:
        return scenarios.decode(options.script.read_bytes()).scenario, options.script.with_suffix(".run")
    except (OSError, MalformedScript) as error:
        raise BadInput(f"--script {options.script}: {error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hostilerun", description="Record one hostile run for moorage ui --open.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="the scenario of a seed")
    which.add_argument("--script", type=Path, metavar="FILE", help="a script that a soak has kept")
    parser.add_argument("--faults", type=kinds_in, metavar="KIND,KIND", help="with --seed: as in the soak")
    parser.add_argument("--record", type=Path, metavar="FILE", help="(default: named after the seed or the script)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
