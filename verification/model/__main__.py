"""Explore configurations: ``python -m verification.model --config all --limit 2000000``."""

from __future__ import annotations

import argparse
import sys

from verification.model.claims.exploring import CLAIMING, NamedClaiming, explore_claiming
from verification.model.config import LARGE, QUICK, Named
from verification.model.explorer import Result, explore
from verification.model.preemption.exploring import explore_preemption
from verification.model.preemption.state import PREEMPTION, PREEMPTION_LARGE, NamedPlace
from verification.model.volumes import PREPARING, NamedPreparing, explore_preparing

Kind = Named | NamedPlace | NamedPreparing | NamedClaiming
CONFIGS: dict[str, tuple[Kind, ...]] = {
    "quick": (*QUICK, *PREEMPTION, *PREPARING, *CLAIMING),
    "large": (*LARGE, *PREEMPTION_LARGE),
}
CONFIGS["all"] = (*CONFIGS["quick"], *CONFIGS["large"])


def main() -> int:
    """Explore, and tell of each configuration how far it was explored; 1 if a violation was found."""
    parser = argparse.ArgumentParser(prog="python -m verification.model", description=__doc__)
    parser.add_argument("--config", default="all", help="quick, large, all, or a part of a configuration's name")
    parser.add_argument("--limit", type=int, default=1_000_000, help="states after which a configuration is given up")
    arguments = parser.parse_args()
    chosen = CONFIGS.get(arguments.config) or [one for one in CONFIGS["all"] if arguments.config in one.name]
    if not chosen:
        parser.error(
            f"--config is {arguments.config!r}; the names are: {', '.join(one.name for one in CONFIGS['all'])}"
        )
    found = 0
    for one in chosen:
        result = _explored(one, arguments.limit)
        found += bool(result.violation)
        _tell("\n    ".join([f"{one.name}: {result.summary()}", *result.trace]))
    return 1 if found else 0


def _explored(one: Kind, limit: int) -> Result:
    match one:
        case Named():
            return explore(one.config, limit=limit)
        case NamedPlace():
            return explore_preemption(one.config, limit=limit)
        case NamedPreparing():
            return explore_preparing(one.config, limit=limit)
        case NamedClaiming():
            return explore_claiming(one.config, limit=limit)


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
