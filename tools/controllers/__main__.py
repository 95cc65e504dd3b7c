"""``python -m tools.controllers [--all] [NAME...]``: build controllers of other projects, and print where they are.

Without arguments those that ``make test-all`` runs, with ``--all`` also those that only ``make nightly`` runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from tools.controllers.catalogue import CONTROLLERS, Controller
from tools.controllers.program import ensure
from tools.goprogram import Unavailable

_ALL: Final = "--all"


def main(arguments: Sequence[str]) -> int:
    """Build controllers; return the exit code."""
    if unknown := [each for each in arguments if each not in {*CONTROLLERS, _ALL}]:
        print(f"{', '.join(unknown)}: allowed are {', '.join([_ALL, *CONTROLLERS])}", file=sys.stderr)
        return 2
    try:
        for each in selected(arguments):
            print(ensure(each).program)
    except Unavailable as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    return 0


def selected(arguments: Sequence[str]) -> Sequence[Controller]:
    """The controllers that arguments name."""
    if _ALL in arguments:
        return [*CONTROLLERS.values()]
    return [each for each in CONTROLLERS.values() if each.name in arguments or (not arguments and not each.nightly)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
