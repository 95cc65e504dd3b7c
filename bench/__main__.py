"""``python -m bench [PART...]``: measure the parts that are named, or all of them; one JSON object a part.

``--out FOLDER`` keeps each as PART.json; docs/reference/benchmarks.md is made from those in bench/results
(bench/table.py).
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.processes import bytecode, measure_standalone
from bench.result import FULL, SMALL, Figures, LeftOut, Result, Sizes, conditions
from tools import controlplane

#: In the order in which they run.
PARTS = (
    "core", "asleep", "rules", "preferences", "claims", "queues", "preemption", "packing", "translate", "largest",
    "asking",
    "reservation", "whole", "preferring", "backlog", "arrival", "writes", "fractions", "shares", "gang", "batch",
    "idle", "churn", "tracing", "admission", "page", "scale",
)  # fmt: skip
#: Programs of their own that print their figures as JSON.
_STANDALONE = (
    "core", "asleep", "rules", "preferences", "claims", "queues", "preemption", "translate", "largest", "asking",
    "reservation", "scale",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep."""
    told = _parser().parse_args(arguments)
    # Whose requests are answered badly should be seen beside the figures.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    with bytecode():
        _measure_all(told)
    return 0


def _measure_all(told: argparse.Namespace) -> None:
    for part in told.parts or PARTS:
        before = conditions(controlplane.version(), preliminary=told.preliminary)
        try:
            measured = _measure(part, SMALL if told.small else FULL)
        except LeftOut as why:
            sys.stderr.write(f"LEFT OUT: {part}: {why}\n")
            continue
        result = Result(
            name=part,
            conditions=before,
            sizes=measured.sizes,
            notes=measured.notes,
            figures=measured.figures,
        )
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        sys.stdout.flush()
        if told.out:
            told.out.mkdir(parents=True, exist_ok=True)
            (told.out / f"{part}.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def _measure(part: str, sizes: Sizes) -> Figures:
    """Import a part when it is run: what others need is not in its process."""
    measured: Figures = (
        measure_standalone(part) if part in _STANDALONE else importlib.import_module(f"bench.{part}").measure(sizes)
    )
    return measured


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep each part's figures in FOLDER/PART.json")
    parser.add_argument("--small", action="store_true", help="small sizes: to try the bench itself")
    parser.add_argument("--preliminary", action="store_true", help="mark the figures: others use the machine as well")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
