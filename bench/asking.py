"""How soon ``kubectl moorage`` answers without a cluster: ``python -m bench.asking`` prints one JSON object.

Fresh processes with their bytecode there, as an installed program has it, each command in turn with the bare
interpreter: what another program takes from the machine is taken from all of them. Wall time is until the process has
ended, by which all of it is printed; CPU time is what the process took, user and system.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

RUNS: Final = 21
_ROOT: Final = Path(__file__).parents[1]
_PODS: Final = "examples/migrating/hami/workloads.yaml"
_KUBECTL: Final = "import sys; from cli.main import kubectl; sys.exit(kubectl())"
_COMPLETE: Final = "import sys; from cli.completion import main; sys.exit(main())"
_COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "python alone": ("pass",),
    "--help": (_KUBECTL, "--help"),
    "inspect --help": (_KUBECTL, "inspect", "--help"),
    "translate": (_KUBECTL, "translate", _PODS),
    "lint": (_KUBECTL, "lint", _PODS),
    "completion": (_COMPLETE, "tra"),
}


def took_ms(words: Sequence[str]) -> tuple[float, float]:
    """Run a program to its end: milliseconds of wall time, and of CPU time. Raises CalledProcessError."""
    before, begun = _cpu_s(), time.perf_counter()
    subprocess.run([sys.executable, "-c", *words], cwd=_ROOT, check=True, stdout=subprocess.DEVNULL, timeout=60)
    wall_s, cpu_s = time.perf_counter() - begun, _cpu_s() - before
    return wall_s * 1000, cpu_s * 1000


def _cpu_s() -> float:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    for words in _COMMANDS.values():
        took_ms(words)  # writes the bytecode
    runs = [{name: took_ms(words) for name, words in _COMMANDS.items()} for _ in range(RUNS)]
    figures = {name: _figures([run[name] for run in runs]) for name in _COMMANDS}
    alone = figures["python alone"]["cpu_ms_least"]
    ratios = {
        name: each | {"cpu_of_python_alone": round(each["cpu_ms_least"] / alone, 1)} for name, each in figures.items()
    }
    print(json.dumps(ratios, indent=2))


def _figures(runs: Sequence[tuple[float, float]]) -> dict[str, float]:
    walls, cpus = zip(*runs, strict=True)
    return {
        "wall_ms_median": round(statistics.median(walls), 1),
        "wall_ms_least": round(min(walls), 1),
        "cpu_ms_median": round(statistics.median(cpus), 1),
        "cpu_ms_least": round(min(cpus), 1),
    }


if __name__ == "__main__":
    main()
