"""Explore configurations: ``python -m verification.model --config all --limit 2000000``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from verification.model.claims.exploring import CLAIMING, explore_claiming
from verification.model.config import LARGE, QUICK, Named
from verification.model.explorer import Result, explore
from verification.model.preemption.exploring import explore_preemption
from verification.model.preemption.state import PREEMPTION, PREEMPTION_LARGE
from verification.model.volumes import PREPARING, explore_preparing

#: A configuration, and what explores its system.
Kind = tuple[Named[Any], Callable[..., Result]]


def _of(explores: Callable[..., Result], *configs: Named[Any]) -> tuple[Kind, ...]:
    return tuple((config, explores) for config in configs)


CONFIGS: dict[str, tuple[Kind, ...]] = {
    "quick": (
        *_of(explore, *QUICK),
        *_of(explore_preemption, *PREEMPTION),
        *_of(explore_preparing, *PREPARING),
        *_of(explore_claiming, *CLAIMING),
    ),
    "large": (*_of(explore, *LARGE), *_of(explore_preemption, *PREEMPTION_LARGE)),
}
CONFIGS["all"] = (*CONFIGS["quick"], *CONFIGS["large"])


def main() -> int:
    """Explore, and tell of each configuration how far it was explored; 1 if a violation was found."""
    parser = argparse.ArgumentParser(prog="python -m verification.model", description=__doc__)
    parser.add_argument("--config", default="all", help="quick, large, all, or a part of a configuration's name")
    parser.add_argument("--limit", type=int, default=1_000_000, help="states after which a configuration is given up")
    arguments = parser.parse_args()
    chosen = CONFIGS.get(arguments.config) or [kind for kind in CONFIGS["all"] if arguments.config in kind[0].name]
    if not chosen:
        parser.error(
            f"--config is {arguments.config!r}; the names are: {', '.join(one.name for one, _ in CONFIGS['all'])}"
        )
    found = 0
    for one, explores in chosen:
        result = explores(one.config, limit=arguments.limit)
        found += bool(result.violation)
        _tell("\n    ".join([f"{one.name}: {result.summary()}", *result.trace]))
    return 1 if found else 0


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
