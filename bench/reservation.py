"""Size of the reservation process: ``python -m bench.reservation`` prints one JSON object.

Import time (median and worst of RUNS fresh interpreters, with bytecode there) and resident memory right after it.
What the process takes when it holds, over TLS, is bounded by tests/reservation/test_process.py.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

RUNS = 21
_PROBE = """
import sys, time
before = time.perf_counter_ns()
if {module!r}:
    __import__({module!r})
took_us = (time.perf_counter_ns() - before) // 1000
status = open("/proc/self/status").read()
memory = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")]
print(took_us, memory[0], len(sys.modules))
"""


def probe(module: str) -> tuple[int, int, int]:
    """Microseconds to import, KiB resident afterwards, modules loaded."""
    command = [sys.executable, "-c", _PROBE.format(module=module)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    took_us, rss_kib, modules = (int(word) for word in told.split())
    return took_us, rss_kib, modules


def measure(module: str) -> dict[str, float]:
    probe(module)  # writes the bytecode
    runs = [probe(module) for _ in range(RUNS)]
    return {
        "import_ms_median": round(statistics.median(run[0] for run in runs) / 1000, 1),
        "import_ms_worst": round(max(run[0] for run in runs) / 1000, 1),
        "rss_mib": round(max(run[1] for run in runs) / 1024, 1),
        "modules": runs[0][2],
    }


def main() -> None:
    modules = {"interpreter": "", "steps": "reservation.steps", "process": "reservation.main"}
    measured: dict[str, object] = {name: measure(module) for name, module in modules.items()}
    print(json.dumps(measured | {"runs": RUNS, "python": sys.version.split()[0]}, indent=2))


if __name__ == "__main__":
    main()
