"""By how much a set of victims costs more than the cheapest one: ``python -m bench.preemption_loss``.

Random full clusters of up to UNITS units, and all sets of victims of each, one by one, by the reference of the tests.
``worst_seed``: of the cluster with the largest ratio.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from fractions import Fraction

from scheduler.core.model.preemption import Action, Found
from scheduler.core.preemption.search import find_victims
from scheduler.core.preemption.victim_units import Pricing
from tests.scheduler.core.preemption.reference import Reference
from tests.scheduler.core.preemption.scenes import Scene, need_of, trial_of


def ratios(seed: int, units: int) -> Iterator[Fraction | None]:
    """The cost of what is found beside that of the cheapest set of the lowest rank, by either action.

    Only where one finds somebody. None: another set would have had to go, of a lower rank or priority.
    """
    trial = trial_of(Scene(seed, most_units=units).cluster())
    pricing = Pricing(trial.accounts.total, trial.wall_s)
    for action in (Action.RECLAIM, Action.PREEMPT):
        reference = Reference(trial, need_of(trial, "mine"), action)
        answer = find_victims(reference.need, trial, (action,))
        if isinstance(answer, Found) and answer.units:
            found = frozenset(at for at, unit in enumerate(reference.units) if unit.unit in answer.units)
            yield reference.ratio(found, pricing)


def figures(units: int, clusters: int) -> dict[str, object]:
    """The losses of this number of clusters."""
    answers = [(ratio, seed) for seed in range(clusters) for ratio in ratios(seed, units)]
    found = sorted((ratio, seed) for ratio, seed in answers if ratio is not None)
    worst, seed = found[-1]
    return {
        "bench": f"preemption_loss_{units}_units",
        "clusters": clusters,
        "found": len(answers),
        "missed": len(answers) - len(found),
        "mean": round(float(sum(ratio for ratio, _ in found) / len(found)), 4),
        "p95": round(float(found[len(found) * 95 // 100][0]), 3),
        "worst": round(float(worst), 3),
        "worst_seed": seed,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=8)
    parser.add_argument("--clusters", type=int, default=600)
    told = parser.parse_args(arguments)
    print(json.dumps(figures(told.units, told.clusters)), flush=True)


if __name__ == "__main__":
    main()
