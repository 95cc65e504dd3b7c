"""``moorage demo``: the examples on simulated GPUs. cli/simulation/demonstration.py shows them."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = "Apply the examples one by one to a simulated cluster and show its GPUs as they fill."
    parser.add_argument("--examples", default="", metavar="FOLDER", help="manifests to show (default: Moorage's own)")
    parser.add_argument("--seed", type=int, default=0, help="device order and identities follow from it (default 0)")
    parser.add_argument("--details", action="store_true", help="name each invariant, not only how many held")
    parser.set_defaults(run=_demo)


def examples() -> Path:
    """Return the folder of Moorage's examples: in a wheel beside this module, in a checkout at its root."""
    installed = Path(__file__).with_name("examples")
    return installed if installed.is_dir() else Path(__file__).parents[1] / "examples"


def _demo(arguments: argparse.Namespace) -> int:
    from cli.simulation import demonstration  # the simulator loads slowly

    folder = Path(arguments.examples) if arguments.examples else examples()
    return demonstration.run(folder, seed=arguments.seed, details=arguments.details)
