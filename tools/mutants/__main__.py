"""``python -m tools.mutants``: how many random small defects the tests find (CONTRIBUTING.md).

The exit code is 1 where fewer than ``--bar`` percent are found, those left out that equivalent.toml explains.
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final

from tools.mutants.mutant import End, Mutant, Outcome, copied, mutants, stages, tried

_ROOT: Final = Path(__file__).parent.parent.parent
#: What decides and writes: a defect there can give a device twice, or leave a pod without one. A folder inside another
#: one has its own share of the draw: preemption and decisions are a third of scheduler/core, and harder to test.
_PACKAGES: Final = (
    "binder/core",
    "gpu",
    "kube",
    "nodeagent/core",
    "reservation",
    "scheduler/core",
    "scheduler/core/claims",
    "scheduler/core/decide",
    "scheduler/core/queues",
    "scheduler/core/preemption",
    "sharing",
)
_EQUIVALENT: Final = Path(__file__).parent / "equivalent.toml"

#: Path, source line or "" for any, code before and after.
Key = tuple[str, str, str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw mutants by a seed, try them, and print what became of them."""
    options = _parser().parse_args(arguments)
    drawn = sample(all_mutants(_ROOT, options.packages), count=options.count, seed=options.seed)
    excused = equivalents(_EQUIVALENT)
    outcomes = _try_all([m for m in drawn if not keys(m) & excused], options)
    print(report(outcomes, skipped=len(drawn) - len(outcomes)))
    return int(killed_percent(outcomes) < options.bar)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("packages", nargs="*", default=_PACKAGES, help="folders or modules to mutate")
    parser.add_argument("--count", type=int, default=300, help="number of mutants (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw (default: 1)")
    parser.add_argument("--bar", type=int, default=95, help="percent that must be killed (default: 95)")
    parser.add_argument("--workers", type=int, default=2, help="tries at a time (default: 2)")
    parser.add_argument("--no-simulation", action="store_true", help="leave the simulation out")
    parser.add_argument("--near", action="store_true", help="only the tests of the module and its folder: a first look")
    return parser


def all_mutants(root: Path, packages: Iterable[str]) -> dict[str, list[Mutant]]:
    """Mutants of the modules of each of these folders, in a fixed order; of a folder in another one under its own."""
    found: dict[str, list[Mutant]] = {package: [] for package in packages}
    files = {file: package for package in sorted(found, key=len) for file in _modules(root / package)}
    for file, package in sorted(files.items()):
        found[package] += mutants(root, str(file.relative_to(root)))
    return found


def _modules(place: Path) -> list[Path]:
    return [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))


def sample(found: Mapping[str, Sequence[Mutant]], *, count: int, seed: int) -> list[Mutant]:
    """Draw ``count``, as many of each folder as it has and no more than of others; the same for a seed and source.

    A draw from all together would be of the largest folders, whose tables and texts are the easiest to test.
    """
    drawn = random.Random(seed)
    left = [drawn.sample(each, len(each)) for each in found.values()]
    rounds = (each for of_round in zip_longest(*left) for each in of_round if each is not None)
    return list(islice(rounds, count))


def keys(mutant: Mutant) -> set[Key]:
    """By what a mutant is known when lines move: by its code, and by that and the whole line on which it begins."""
    return {(mutant.path, text, mutant.before, mutant.after) for text in ("", mutant.text)}


def equivalents(file: Path) -> set[Key]:
    """Mutants that change no behaviour. Each entry has ``path``, ``before``, ``after`` and ``why``.

    One with a ``line`` speaks of this line only, where the code before is found in others too, as a number is.
    """
    entries = tomllib.loads(file.read_text())["equivalent"]
    assert all(entry["why"] for entry in entries)
    return {(entry["path"], entry.get("line", ""), entry["before"], entry["after"]) for entry in entries}


def _try_all(drawn: Sequence[Mutant], options: argparse.Namespace) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="moorage-mutants-") as folder:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(options.workers):
            trees.put(copied(_ROOT, Path(folder) / str(number)))

        def one(mutant: Mutant) -> Outcome:
            tree = trees.get()
            try:
                outcome = tried(
                    tree,
                    mutant,
                    stages(tree, mutant.path, with_simulation=not options.no_simulation, near=options.near),
                )
            finally:
                trees.put(tree)
            print(line(outcome), flush=True)
            return outcome

        with ThreadPoolExecutor(options.workers) as pool:
            return list(pool.map(one, drawn))


def line(outcome: Outcome) -> str:
    """One mutant in a line."""
    mutant = outcome.mutant
    by = ", ".join(filter(None, (outcome.stage, outcome.test)))
    ended = "SURVIVED" if outcome.end is End.SURVIVED else f"{outcome.end.value} ({by})"
    return f"{mutant.path}:{mutant.line}: {mutant.before} -> {mutant.after}: {ended}"


def killed_percent(outcomes: Sequence[Outcome]) -> float:
    """How many of a hundred were found; all of none."""
    killed = sum(outcome.end is not End.SURVIVED for outcome in outcomes)
    return 100 * killed / len(outcomes) if outcomes else 100.0


def report(outcomes: Sequence[Outcome], *, skipped: int) -> str:
    """The sums, and every survivor."""
    stages_ = Counter(outcome.stage for outcome in outcomes if outcome.stage)
    killed = ", ".join(f"{count} by the tests of the {stage}" for stage, count in stages_.most_common())
    survivors = [line(outcome) for outcome in outcomes if outcome.end is End.SURVIVED]
    head = f"{len(outcomes)} mutants, {killed_percent(outcomes):.1f} % killed: {killed or 'none'}"
    return "\n".join([head, f"{skipped} left out as equivalent", f"{len(survivors)} survived", *survivors])


if __name__ == "__main__":
    sys.exit(main())
