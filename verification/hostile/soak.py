"""Many seeds on all processors: ``python -m verification.hostile.soak --seeds 1-1000`` (``make simulate-soak``).

Each seed is a run of its own in a process of the pool. One that breaks an invariant is made smaller there and written
down as a script; its report is the seed, the invariant and a shortened log. Which users a soak's runs have is drawn
from each seed, or every run has those who want a certain thing.
"""

from __future__ import annotations

import argparse
import enum
import multiprocessing
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from verification.hostile import made_devices, tenant
from verification.hostile import scenario as scenarios
from verification.hostile.coverage_marks import MARKS, WITH_CLAIMS, PreemptionCounts, missing
from verification.hostile.faults.kinds import KINDS
from verification.hostile.run import Outcome, run
from verification.hostile.scenario import Scenario, Script, scenario_of

T = TypeVar("T")

Fails = Callable[[Scenario], bool]

_GROUP: Final = re.compile(r"(?P<nodes>[0-9]+)x(?P<count>[0-9]+)x(?P<memory>[0-9]+[A-Za-z]+)")


class OutOfTries(Exception):
    """Raised inside when as many runs were made as may be."""


class _Counted:
    """Asks ``fails`` at most ``tries`` times, and keeps the smallest scenario that failed."""

    def __init__(self, fails: Fails, scenario: Scenario, tries: int) -> None:
        self._fails = fails
        self._left = tries
        self.best = scenario

    def __call__(self, scenario: Scenario) -> bool:
        if not self._left:
            raise OutOfTries
        self._left -= 1
        if not self._fails(scenario):
            return False
        self.best = scenario
        return True


def minimise(scenario: Scenario, fails: Fails, *, tries: int = 400) -> Scenario:
    """Return a scenario that still fails, from which nothing more can be left out (or ``tries`` runs were made).

    By delta debugging (Zeller and Hildebrandt 2002): leave out ever smaller parts, and keep what still fails. A smaller
    scenario is another run altogether, so nothing is assumed of it but what ``fails`` says.
    """
    check = _Counted(fails, scenario, tries)
    try:
        before = None
        while before != check.best:
            before = check.best
            _fewer_faults(check)
            _fewer_actions(check)
            _simpler_nodes(check)
            _plainer_settings(check)
    except OutOfTries:
        pass
    return check.best


def _fewer_faults(check: _Counted) -> None:
    base = check.best
    smallest(base.faults, lambda kept: check(msgspec.structs.replace(base, faults=tuple(kept))))


def _fewer_actions(check: _Counted) -> None:
    base = check.best
    smallest(base.actions, lambda kept: check(msgspec.structs.replace(base, actions=tuple(kept))))


def _simpler_nodes(check: _Counted) -> None:
    """One node or one card less at a time. Nodes are numbered, so those behind a node that goes are renamed."""
    while any(check(msgspec.structs.replace(check.best, shapes=shapes)) for shapes in _simpler(check.best.shapes)):
        pass


def _plainer_settings(check: _Counted) -> None:
    """Put each setting that does not matter back to its default."""
    for name in check.best.settings.__struct_fields__:
        settings = check.best.settings
        default = getattr(type(settings)(), name)
        if getattr(settings, name) != default:
            plainer = msgspec.structs.replace(settings, **{name: default})
            check(msgspec.structs.replace(check.best, settings=plainer))


def smallest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return a part of ``items``, in order, that fails while no part of it with one left out does."""
    if not items or fails(()):
        return ()
    parts = 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        chunks = [(*items[:start], *items[start + size :]) for start in range(0, len(items), size)]
        kept = next((chunk for chunk in chunks if chunk and fails(chunk)), None)
        if kept is not None:
            items, parts = kept, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(len(items), parts * 2)
    return items


def _simpler(shapes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for i, shape in enumerate(shapes):
        others = (*shapes[:i], *shapes[i + 1 :])
        if others:
            yield others
        group = _GROUP.fullmatch(shape)
        if group is None:
            continue
        nodes, count, memory = int(group["nodes"]), int(group["count"]), group["memory"]
        if nodes > 1:
            yield (*shapes[:i], f"{nodes - 1}x{count}x{memory}", *shapes[i + 1 :])
        if count > 1:
            yield (*shapes[:i], f"{nodes}x{count - 1}x{memory}", *shapes[i + 1 :])


class Users(enum.Enum):
    """Who is in every run. The value is the option of a soak."""

    ANY = ""
    CLAIMS = "claims"
    DRIVERS = "drivers"
    MIG = "mig"
    EXTENDED = "extended"
    TENANT = "tenant"


def scenario_with(users: Users, seed: int, kinds: Collection[str] | None = None) -> Scenario:
    """Make a scenario from a seed. ``kinds``: the faults that may occur (None: all, (): none).

    Raises ValueError for a kind that is not known.
    """
    if users is Users.DRIVERS:
        return made_devices.enriched_scenario(seed, kinds=kinds)
    if users is Users.MIG:
        return made_devices.slices_scenario(seed, kinds=kinds)
    if users is Users.EXTENDED:
        return made_devices.claims_scenario(seed, kinds=kinds)
    if users is Users.TENANT:
        return tenant.scenario(seed, kinds=kinds)
    return scenario_of(seed, kinds, with_claims=users is Users.CLAIMS)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed found: the first violation in the shortened log, and the ids of all."""

    seed: int
    invariants: tuple[str, ...]
    text: str
    events: tuple[str, ...]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one seed. ``cpu_s``: processor time of the run; ``faults``: the kind of each in its scenario.

    ``marks``: the states of the protocol that it came to (verification/hostile/coverage_marks.py).
    """

    seed: int
    writes: int
    pods: int
    virtual_s: float
    cpu_s: float
    faults: tuple[str, ...]
    marks: tuple[str, ...]
    failure: Failure | None
    room: PreemptionCounts = PreemptionCounts()


@dataclass(slots=True)
class Tally:
    """Adds up the runs of one soak over ``seeds``, in whichever order they end."""

    seeds: Sequence[int]
    writes: int = 0
    pods: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    with_claims: Counter[str] = field(default_factory=Counter)
    #: What room was made, by field of ``PreemptionCounts``, and in how many runs.
    room: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    _done: set[int] = field(default_factory=set)

    @property
    def runs(self) -> int:
        """How many seeds are done."""
        return len(self._done)

    def take(self, judged: Judged) -> None:
        """Count a run."""
        self._done.add(judged.seed)
        self.writes += judged.writes
        self.pods += judged.pods
        self.virtual_s += judged.virtual_s
        self.cpu_s += judged.cpu_s
        self.faults.update(judged.faults)
        self.marks.update(mark for mark in judged.marks if mark in MARKS)
        self.with_claims.update(mark for mark in judged.marks if mark in WITH_CLAIMS)
        self.room.update(msgspec.structs.asdict(judged.room))
        self.room["runs"] += judged.room.nominations > 0
        if judged.failure is not None:
            self.failures.append(judged.failure)

    def lines(self, took_s: float) -> Iterator[str]:
        """Tell people of all of it."""
        pace = self.runs / max(took_s, 1e-9)
        yield f"{self.runs:,} runs in {took_s:.0f} s ({pace:.1f}/s, {self.cpu_s:,.0f} s of processor time)"
        yield self._told_seeds()
        yield f"simulated: {self.virtual_s / 3600:,.1f} hours, {self.pods:,} pods at rest, {self.writes:,} writes"
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.faults.items()))
        yield f"faults injected: {self.faults.total():,}" + (f" ({kinds})" if kinds else "")
        yield from self._preemption_lines()
        yield from self._told_marks()
        found = Counter(invariant for failure in self.failures for invariant in failure.invariants)
        broken = ", ".join(f"{invariant} {count}" for invariant, count in sorted(found.items()))
        yield f"failed: {len(self.failures):,} of {self.runs:,}: {broken}" if broken else "every invariant held"

    def _preemption_lines(self) -> Iterator[str]:
        """How much room was made for pods: runs without it test nothing of that."""
        room = self.room
        if room["runs"]:
            nominations = f"{room['nominations']:,} nominations, {room['served']:,} served, {room['revised']:,} revised"
            evictions = f"{room['evictions']:,} evictions, {room['refused']:,} refused"
            yield f"room made in {room['runs']:,} runs: {nominations}; {evictions}"

    def _told_marks(self) -> Iterator[str]:
        """Which states of the protocol were reached in the fewest runs, and which never: they were not tested."""
        rarest = sorted(self.marks.items(), key=lambda item: (item[1], item[0]))[:3]
        told = ", ".join(f"{mark!r} in {count:,}" for mark, count in rarest)
        yield f"states reached: {len(self.marks)} of {len(MARKS)}" + (f" (the fewest runs: {told})" if told else "")
        if reached := [f"{mark} {self.marks[mark]:,}" for mark in MARKS if self.marks[mark]]:
            yield f"runs that reached each: {', '.join(reached)}"
        if never := missing(self.marks):
            yield f"never reached: {', '.join(never)}"
        if made := self.with_claims:
            told = ", ".join(f"{mark!r} in {made[mark]:,}" for mark in WITH_CLAIMS)
            yield f"claims that the scheduler made, runs: {told}"

    def _told_seeds(self) -> str:
        """Which seeds are done: up to the first that is not, and how many beyond it."""
        asked = _span(self.seeds[0], self.seeds[-1]) if self.seeds else "none"
        if self.runs == len(self.seeds):
            return f"seeds {asked}: all done"
        through = next(at for at, seed in enumerate(self.seeds) if seed not in self._done)
        if not self.runs:
            return f"seeds {asked}: none done"
        beyond = f" and {self.runs - through} beyond" if self.runs > through else ""
        done = _span(self.seeds[0], self.seeds[through - 1]) if through else "none in a row"
        return f"seeds {asked}: {done} done{beyond}, not all"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


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
    parser.add_argument("--seeds", type=seeds_in, required=True, metavar="A-B", help="one seed, or the first and last")
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


def seeds_in(text: str) -> range:
    """Return the seeds on the command line. Raises argparse.ArgumentTypeError."""
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
