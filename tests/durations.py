"""How long tests take: kept of every test in ``build/durations.json``; after a long run the slowest files are printed.

Milliseconds on the clock of the process that ran the test, set-up and tear-down included. A shared fixture counts for
the test that asked for it first.
"""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

KEPT_IN: Final = Path("build/durations.json")
_FILES: Final = 30
#: Shorter runs print nothing.
_LONG_MS: Final = 120_000


class Durations:
    """Adds up what the tests of one run took. With xdist it works in the process that distributes them."""

    def __init__(self, kept_in: Path = KEPT_IN) -> None:
        self._kept_in = kept_in
        self._took_ms: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one phase of one test."""
        self._took_ms[report.nodeid] += round(report.duration * 1000)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Keep what was measured and, after a long run, print the slowest files."""
        keep(self._kept_in, self._took_ms)
        if self._took_ms.total() < _LONG_MS:
            return
        terminalreporter.section(f"slowest {_FILES} files of {self._took_ms.total() / 1000:.0f} s in all")
        for line in slowest(self._took_ms, _FILES):
            terminalreporter.write_line(line)


def keep(path: Path, took_ms: Mapping[str, int]) -> None:
    """Write durations by test. What other runs measured of other tests stays; those side by side write in turn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        file.truncate(0)
        file.write(json.dumps({**known, **took_ms}, indent=0, sort_keys=True))


def slowest(took_ms: Mapping[str, int], most: int) -> list[str]:
    """The files that took longest: seconds, number of tests, file."""
    by_file: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for test, ms in took_ms.items():
        file = test.partition("::")[0]
        by_file[file] += ms
        tests[file] += 1
    return [f"{ms / 1000:8.1f} s {tests[file]:6} tests  {file}" for file, ms in by_file.most_common(most)]


def pytest_configure(config: pytest.Config) -> None:
    """Measure, but not in xdist's workers: they report to the process that started them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations())
