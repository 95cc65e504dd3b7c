"""Digests of hostile runs, of this process and of others: ``python -m tests.simulation.digests KIND:SEED...``.

A digest is of all writes. Processes differ in how they hash strings, by which sets and what hashes objects are ordered.
"""

from __future__ import annotations

import enum
import os
import subprocess
import sys
from collections.abc import Iterable

from verification.hostile import pooling
from verification.hostile.run import run
from verification.hostile.scenario import Scenario
from verification.hostile.soak import Users, scenario_with

#: Processor time of a run: those with claims take up to 10 s.
_LIMIT_CPU_S = 60.0


class Kind(enum.Enum):
    """What runs are made: with the users of a soak, or with two schedulers of node pools and queues."""

    ANY = "any"
    CLAIMS = "claims"
    DRIVERS = "drivers"
    MIG = "mig"
    EXTENDED = "extended"
    POOLS = "pools"


def scenario(kind: Kind, seed: int) -> Scenario:
    if kind is Kind.POOLS:
        return pooling.scenario(seed, pooling.Mix.QUEUED)
    return scenario_with(Users.ANY if kind is Kind.ANY else Users(kind.value), seed)


def digest(kind: Kind, seed: int) -> str:
    return run(scenario(kind, seed), limit_cpu_s=_LIMIT_CPU_S).digest


def in_another_process(runs: Iterable[tuple[Kind, int]], *, hash_seed: str) -> list[str]:
    """The digests of these runs in a process with this PYTHONHASHSEED. Its start takes as long as some runs."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.digests", *(f"{kind.value}:{seed}" for kind, seed in runs)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


if __name__ == "__main__":
    asked = (each.split(":") for each in sys.argv[1:])
    print(*(digest(Kind(kind), int(seed)) for kind, seed in asked))
