"""Many seeds on all processors: ``python -m verification.hostile.soak --seeds 1-1000`` (``make simulate-soak``).

Each seed is a run of its own in a process of the pool. One that breaks an invariant is made smaller there, too, and
written down as a script; its report is the seed, the invariant and a shortened log.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from verification.hostile import scenario as scenarios
from verification.hostile.faults.kinds import KINDS
from verification.hostile.minimising import minimise
from verification.hostile.run import Outcome, run
from verification.hostile.scenario import Script
from verification.hostile.tally import Failure, Judged, Tally
from verification.hostile.users import Users, scenario_with

#: Runs that one failure may cost to be made smaller.
_TRIES: Final = 300
#: Failures of one invariant that are made smaller; further ones are only told.
_MINIMISED_EACH: Final = 3
#: Seeds handed to each process ahead of time.
_AHEAD: Final = 4
KEEP: Final = Path("soak-failures")
_EVERY_RUN: Final = {
    Users.CLAIMS: "users have ResourceClaims and volumes in every run",
    Users.DRIVERS: "users have claims, of devices that draw on counters or have to get ready",
    Users.MIG: "agents make MIG slices for pods in every run",
    Users.TENANT: "a tenant that means harm is in every run",
    Users.EXTENDED: "the scheduler makes claims for extended resources and shares of GPUs in every run",
}


def judge(seed: int, kinds: tuple[str, ...] | None, users: Users = Users.ANY) -> Judged:
    """Run one seed. Called in a process of the pool."""
    started_s = time.process_time()
    scenario = scenario_with(users, seed, kinds)
    outcome = run(scenario)
    return Judged(
        seed=seed,
        writes=outcome.writes,
        pods=outcome.pods,
        virtual_s=outcome.ended_at_s,
        cpu_s=time.process_time() - started_s,
        faults=tuple(fault.kind for fault in scenario.faults),
        marks=outcome.marks,
        room=outcome.room,
        failure=_failure(seed, outcome),
    )


def _failure(seed: int, outcome: Outcome) -> Failure | None:
    if not outcome.violations:
        return None
    first = outcome.violations[0]
    found = tuple(dict.fromkeys(violation.invariant for violation in outcome.violations))
    text = f"{first.invariant} at {first.at_s:.3f} s: {first.text}"
    return Failure(seed=seed, invariants=found, text=text, events=outcome.events)


def shrink(seed: int, kinds: tuple[str, ...] | None, invariant: str, users: Users = Users.ANY) -> Script:
    """Make a failing seed smaller, the same invariant still broken. Called in a process of the pool."""
    scenario = scenario_with(users, seed, kinds)
    smallest = minimise(scenario, lambda tried: invariant in run(tried).broken, tries=_TRIES)
    broken = run(smallest)
    story = next((v.text for v in broken.violations if v.invariant == invariant), "")
    return Script(violates=invariant, story=f"seed {seed}: {story}", scenario=smallest)


class Soak:
    """One soak: seeds in, failures told and written into ``keep``."""

    def __init__(
        self,
        *,
        kinds: tuple[str, ...] | None,
        keep: Path,
        until_s: float | None,
        workers: int,
        console: Console,
        users: Users = Users.ANY,
    ) -> None:
        self._kinds = kinds
        self._users = users
        self._keep = keep
        self._until_s = until_s
        self._workers = workers
        self._console = console
        self._minimised: dict[str, int] = {}

    def go(self, seeds: Sequence[int]) -> Tally:
        """Run them all, in their order, or as many as the time allows; those that were begun are ended."""
        tally = Tally(seeds)
        started_s = time.monotonic()
        # forkserver: a worker starts clean, and quicker than with spawn.
        context = multiprocessing.get_context("forkserver")
        with (
            ProcessPoolExecutor(self._workers, mp_context=context) as pool,
            Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[pace]}"),
                console=self._console,
            ) as progress,
        ):
            bar = progress.add_task("seeds", total=len(seeds), pace="")
            for judged in self._judged(pool, seeds):
                tally.take(judged)
                if judged.failure is not None:
                    self._tell(judged.failure)
                    self._write_down(judged.failure, pool)
                pace = tally.runs / max(time.monotonic() - started_s, 1e-9)
                progress.update(bar, advance=1, pace=f"{pace:.1f} runs/s, {len(tally.failures)} failed")
            took_s = time.monotonic() - started_s
        for line in tally.lines(took_s):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        return tally

    def _judged(self, pool: ProcessPoolExecutor, seeds: Sequence[int]) -> Iterator[Judged]:
        """Keep every process busy, and a few seeds ahead."""
        todo = iter(seeds)
        running: set[Future[Judged]] = set()
        while True:
            if self._has_time:
                free = self._workers * _AHEAD - len(running)
                judged = partial(judge, kinds=self._kinds, users=self._users)
                running |= {pool.submit(judged, seed) for seed in islice(todo, free)}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda one: one.result().seed):
                yield future.result()

    @property
    def _has_time(self) -> bool:
        return self._until_s is None or time.monotonic() < self._until_s

    def _tell(self, failure: Failure) -> None:
        self._console.rule(f"seed {failure.seed}: {', '.join(failure.invariants)}")
        self._console.print(failure.text, markup=False, highlight=False)
        for line in failure.events:
            self._console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)

    def _write_down(self, failure: Failure, pool: ProcessPoolExecutor) -> None:
        invariant = failure.invariants[0]
        so_far = self._minimised.get(invariant, 0)
        self._minimised[invariant] = so_far + 1
        if so_far >= _MINIMISED_EACH:
            return
        future = pool.submit(shrink, failure.seed, self._kinds, invariant, self._users)
        path = self._keep / f"{invariant}-{failure.seed}.json"
        future.add_done_callback(_writer(path))
        look = f"make simulate-record SCRIPT={path}, then moorage ui --open {path.with_suffix('.run')}"
        self._console.print(f"made smaller into {path}; to look at it: {look}", markup=False, soft_wrap=True)


def _writer(path: Path) -> Callable[[Future[Script]], None]:
    def write(future: Future[Script]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(scenarios.encode(future.result()))

    return write


def main(argv: Sequence[str] | None = None) -> int:
    """Run a soak; 1 when anything was found."""
    options = _parser().parse_args(argv)
    until_s = time.monotonic() + options.minutes * 60 if options.minutes else None
    console = Console()
    soak = Soak(
        kinds=options.faults,
        keep=options.keep,
        until_s=until_s,
        workers=options.workers,
        console=console,
        users=Users(options.users),
    )
    return 1 if soak.go(options.seeds).failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulate-soak", description="Run many hostile scenarios.")
    parser.add_argument("--seeds", type=_seeds, required=True, metavar="A-B", help="one seed, or the first and last")
    parser.add_argument(
        "--faults",
        type=kinds_in,
        metavar="KIND,KIND",
        help=f"only these ('none' for none at all): {', '.join(sorted(KINDS))}",
    )
    for users, what in _EVERY_RUN.items():
        parser.add_argument(f"--{users.value}", dest="users", action="store_const", const=users.value, help=what)
    parser.set_defaults(users=Users.ANY.value)
    parser.add_argument("--minutes", type=float, default=0.0, help="start no further seed after so long")
    parser.add_argument("--keep", type=Path, default=KEEP, metavar="FOLDER", help="where failing scripts are written")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    return parser


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: one seed as in 7, or the first and last as in 1-1000")
    return range(int(first), int(last or first) + 1)


def kinds_in(text: str) -> tuple[str, ...] | None:
    """Kinds of faults on the command line; None: all. Raises argparse.ArgumentTypeError."""
    if not text:
        return None
    if text == "none":
        return ()
    kinds = tuple(kind.strip() for kind in text.split(","))
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}; allowed: none, {', '.join(sorted(KINDS))}")
    return kinds


if __name__ == "__main__":
    raise SystemExit(main())
