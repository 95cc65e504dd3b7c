"""How many GPUs are in use under each strategy when the public traces are replayed, and while pods come and go.

The traces are in the folder that MOORAGE_TRACES names (docs/simulate.md, Traces); without it nothing is measured.

- ``default``: the default trace, 10 orders of arrival as published. ``at_100``, ``at_130``: GPUs in use at that load,
  in percent of all, mean; ``worst``: the least at 130 %. ``lost``: pods of an order, mean.
- ``effort``: seconds of CPU for an order of the default trace under ``priced``.
- ``variants``: ``priced`` on the published variants. ``published``: the best published placement (FGD), if the folder
  has ``reference_results.csv``; ``ahead``: points above it.
- ``learned``: the default trace, with prices by the pods that have come.
- ``churn``: pods come and go (simulator/traces/replay.py), each strategy with the same pods at the same times.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.result import Figures, LeftOut, Sizes
from cli.simulation import options
from cli.simulation.trace import Replayed, Request, Summary, read, replayed
from runtime.output import Progress
from runtime.process import HARDLY_EVER, rare_collections
from simulator.traces.records import Strategies
from simulator.traces.replay import Churned, churn
from simulator.traces.trace import Trace, openb_nodes, openb_pods

VARIANTS: Final = (
    "cpu050", "cpu100", "cpu200", "cpu250", "gpushare40", "gpushare60", "gpushare80", "gpushare100", "gpuspec10",
    "gpuspec20", "gpuspec25", "gpuspec33", "multigpu20", "multigpu30", "multigpu40", "multigpu50",
)  # fmt: skip
COMPARED: Final = ("binpack", "spread", "best-fit", "binpack/priced", "priced")
LOAD: Final = 130
CHURN_LOAD: Final = 110
NOTES: Final = (
    "best-fit is the published one, to show that figures compare with those published: 92.86 at 100 %, 93.08 at 130 %. "
    "FGD, the best published, has 95.23 and 95.39.",
    "The largest load at which everything could be placed is 96.3 % of the GPUs. No placement that takes all pods up "
    "to 95 % can pass 96.5 % (linear programme over node shapes).",
    "churn: pods arrive at random and live as long as in the trace; they ask 110 % of the GPUs over time.",
    "At the end of each run all sums were counted again: no difference.",
)


def measure(sizes: Sizes) -> Figures:
    """Replay everything. Raises LeftOut."""
    folder = os.environ.get("MOORAGE_TRACES", "")
    if not folder:
        raise LeftOut("MOORAGE_TRACES: not set; name a folder with the public traces")
    seeds, variant_seeds, (part, arrivals, churn_seeds) = sizes.packing
    published = published_percent(Path(folder))
    variants = {name: variant_row(_replayed(folder, name, ["priced"], variant_seeds), published) for name in VARIANTS}
    runs = [run for seed in options.seeds(churn_seeds) for run in _churned(Path(folder), seed, part, arrivals)]
    default = {text: _replayed(folder, "default", [text], seeds) for text in COMPARED}
    return Figures(
        sizes={"seeds": seeds, "variant_seeds": variant_seeds, "churn_nodes": f"1/{part}", "churn_arrivals": arrivals},
        notes=NOTES,
        figures={
            "default": {text: default_row(found) for text, found in default.items()},
            "effort": {"priced": effort_row(default["priced"])},
            "variants": variants,
            "churn": churn_rows(runs),
            "learned": {
                "priced": default_row(_replayed(folder, "default", ["priced"], variant_seeds, prices="arrivals"))
            },
        },
    )


def _replayed(
    folder: str, variant: str, strategies: Sequence[str], seeds: str, *, prices: str = "trace"
) -> tuple[Replayed, float]:
    """The result, and the seconds of CPU that a run took."""
    request = Request(
        trace=f"openb:{folder}",
        variant=variant,
        nodes=(),
        strategies=[options.strategy_of(text) for text in strategies],
        load_percent=LOAD,
        seeds=options.seeds(seeds),
        prices=prices,
        output="json",
    )
    trace, began = read(request), time.process_time()
    with rare_collections(HARDLY_EVER):
        found = replayed(request, trace, Progress())
    if any(run.differences for run in found.runs):
        raise AssertionError(f"{variant}: {[run.differences for run in found.runs]}")
    return found, (time.process_time() - began) / len(found.runs)


def _at(summary: Summary, load_percent: int) -> tuple[float, float]:
    (found,) = [each for each in summary.gpus_in_use if each.load_percent == load_percent]
    return found.mean, found.worst


def default_row(measured: tuple[Replayed, float]) -> dict[str, Any]:
    """A row of ``default``."""
    (summary,) = measured[0].summaries
    mean, worst = _at(summary, LOAD)
    return {
        "seeds": summary.seeds,
        "at_100": _at(summary, 100)[0],
        "at_130": mean,
        "worst": worst,
        "lost": summary.lost // summary.seeds,
    }


def effort_row(measured: tuple[Replayed, float]) -> dict[str, Any]:
    """The row of ``effort``."""
    (summary,) = measured[0].summaries
    return {"orders": summary.seeds, "pods": summary.pods // summary.seeds, "cpu_s": round(measured[1], 1)}


def variant_row(measured: tuple[Replayed, float], published: dict[str, float]) -> dict[str, Any]:
    """A row of ``variants``."""
    (summary,), variant = measured[0].summaries, measured[0].variant
    mean, known = _at(summary, LOAD)[0], published.get(variant)
    row = {"seeds": summary.seeds, "at_100": _at(summary, 100)[0], "at_130": mean}
    return row if known is None else {**row, "published": known, "ahead": round(mean - known, 2)}


def published_percent(folder: Path) -> dict[str, float]:
    """What the best published placement reaches at 130 % on each variant; empty if the folder does not have it."""
    path = folder / "reference_results.csv"
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["metric"], row["policy"]) == ("gpu_alloc_pct", "FGD")]
    return {row["trace"]: round(float(row["mean_130"]), 2) for row in rows}


def _churned(folder: Path, seed: int, part: int, arrivals: int) -> Iterable[Churned]:
    """Every ``part``-th node, and all pods to draw from."""
    pods = openb_pods(folder, "default")
    trace = Trace(nodes=openb_nodes(folder)[::part], pods=pods)
    for text in COMPARED:
        with rare_collections(HARDLY_EVER):
            strategies = Strategies(*options.strategy_of(text))
            yield churn(trace, strategies, seed=seed, load_percent=CHURN_LOAD, arrivals=arrivals)


def churn_rows(runs: Sequence[Churned]) -> dict[str, Any]:
    """The rows of ``churn``: means over the seeds."""
    by_strategy: dict[str, list[Churned]] = {}
    for run in runs:
        by_strategy.setdefault(run.strategy, []).append(run)
    return {
        text: {
            "seeds": len(found),
            "used": round(sum(run.used_percent for run in found) / len(found), 2),
            "worst": round(min(run.used_percent for run in found), 2),
            "lost": sum(run.lost for run in found) // len(found),
            "of": found[0].arrived,
        }
        for text, found in by_strategy.items()
    }
