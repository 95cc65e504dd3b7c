"""``python -m verification.chaos [--minutes N] [--seed N]``: chaos on a real control plane, and a report of what held.

The exit code is 1 when something did not hold.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial

import anyio

from verification.chaos.run import POPULATION, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and report."""
    parser = argparse.ArgumentParser(prog="python -m verification.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long everything goes wrong (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="what is done follows from it, but not when it lands")
    parser.add_argument("--pods", type=int, default=POPULATION, help=f"at a time (default {POPULATION})")
    told = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    logging.getLogger("verification.chaos").setLevel(logging.INFO)
    result = anyio.run(partial(run, minutes=told.minutes, seed=told.seed, population=told.pods))
    for line in result.lines():
        print(line)
    return 0 if result.is_sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
