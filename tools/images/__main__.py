"""``python -m tools.images build`` makes OCI archives of our images; ``layers`` is what the Containerfiles call."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.images import build
from tools.images.containerfile import RECIPES, Unreadable
from tools.node.debian import Unavailable


def main(argv: Sequence[str]) -> int:
    """Do one of them. 0: done; 1: could not be made."""
    parser = argparse.ArgumentParser(prog="python -m tools.images", description=__doc__)
    commands = parser.add_subparsers(required=True)
    building = commands.add_parser("build", help="make archives; without names, of all images")
    building.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECIPES))
    building.add_argument("--out", type=Path, default=Path("build/images"), metavar="DIR")
    building.set_defaults(run=_build)
    writing = commands.add_parser("layers", help="write the layers of an image as folders")
    writing.add_argument("name", choices=RECIPES)
    writing.add_argument("--out", type=Path, required=True, metavar="DIR")
    writing.set_defaults(run=_layers)
    arguments = parser.parse_args(argv)
    if unknown := set(getattr(arguments, "names", ())) - set(RECIPES):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(RECIPES)}")
    try:
        arguments.run(arguments)
    except (Unavailable, Unreadable) as why:
        print(why, file=sys.stderr)
        return 1
    return 0


def _build(arguments: argparse.Namespace) -> None:
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or RECIPES:
        began = time.monotonic()
        target = arguments.out / f"{name}.tar"
        digest = build.make(name, target)
        size_mib, took_s = target.stat().st_size / (1 << 20), time.monotonic() - began
        print(f"{target}: {size_mib:.1f} MiB, {digest}, {took_s:.0f} s", flush=True)


def _layers(arguments: argparse.Namespace) -> None:
    build.write_layers(arguments.name, arguments.out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
